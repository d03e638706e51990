package pool

import (
	"github.com/spf13/cobra"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

// verbs is what the verbs of this package are methods of.
type verbs struct{ *cli.CLI }

// Commands returns the verbs.
func Commands(shared *cli.CLI) []*cobra.Command {
	c := &verbs{shared}
	commands := []*cobra.Command{c.pool(), c.top(), c.drain()}
	for _, change := range nodeChanges() {
		commands = append(commands, c.nodeChange(&change))
	}
	return commands
}
