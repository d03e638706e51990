// Package app is the command line of kubectl-vc. Each verb changes a VirtualCluster or a virtual Node, and says what becomes
// of it until that is so, or shows what there is.
package app

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/forecast"
	"github.com/superpool/superpool/cmd/kubectl-vc/install"
	"github.com/superpool/superpool/cmd/kubectl-vc/pool"
	"github.com/superpool/superpool/cmd/kubectl-vc/report"
	"github.com/superpool/superpool/cmd/kubectl-vc/tenant"
	"github.com/superpool/superpool/cmd/kubectl-vc/ui"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/version"
)

// NewCommand returns the command, which reads and writes streams. The context that it is executed with ends it.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(cli.New(streams))
}

func newCommand(c *cli.CLI) *cobra.Command {
	command := &cobra.Command{
		Use:     "kubectl-vc",
		Version: version.String(),
		Short:   "Make, use and change the tenants of a pool, and look after its super clusters",
		Long: `kubectl vc makes, uses and changes the tenants of a pool: VirtualClusters of the meta cluster, which your kubeconfig reaches. It shows
how full super clusters are, and empties them. What kubectl does is not here: kubectl get, edit, logs.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vc"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.SetIn(c.In)
	command.SetOut(c.Out)
	command.SetErr(c.ErrOut)
	command.CompletionOptions.HiddenDefaultCmd = true           // its scripts complete kubectl-vc, and not kubectl vc
	command.Flags().Bool("version", false, "print the version") // without -v, which is another flag of kubectl
	c.Flags.AddFlags(command.PersistentFlags())
	command.PersistentFlags().VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains([]string{"kubeconfig", "context", "namespace"}, flag.Name) // kubectl options lists the others
	})
	for _, commands := range []func(*cli.CLI) []*cobra.Command{tenant.Commands, pool.Commands, forecast.Commands, install.Commands, report.Commands, ui.Commands} {
		command.AddCommand(commands(c)...)
	}
	return command
}

// Execute runs the command with the arguments of the process, prints its error, and returns its exit code.
func Execute(ctx context.Context, streams genericiooptions.IOStreams) int {
	ctrl.SetLogger(logr.Discard()) // the logger of controller-runtime is one of the process, and may be set once
	err := NewCommand(streams).ExecuteContext(ctx)
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) { // that of a command has said itself why
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", page.Printable(err.Error())) // nobody reads it who has closed it
	}
	return cli.ExitCode(err)
}
