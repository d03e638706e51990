package tenant

import (
	"github.com/spf13/cobra"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

// verbs is what the verbs of this package are methods of.
type verbs struct{ *cli.CLI }

// Commands returns the verbs.
func Commands(shared *cli.CLI) []*cobra.Command {
	c := &verbs{shared}
	commands := []*cobra.Command{c.create(), c.delete(), c.kubeconfig(), c.exec(), c.list(), c.describe()}
	for _, change := range changes() {
		command := c.change(&change)
		if command.Name() == "backup" {
			c.addSnapshot(command)
		}
		commands = append(commands, command)
	}
	return commands
}
