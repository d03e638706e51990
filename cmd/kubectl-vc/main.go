// The command kubectl-vc is a plugin of kubectl: what a person does with the tenants of a pool.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/kubectl-vc/app"
)

func main() {
	command := app.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	command.SetContext(ctrl.SetupSignalHandler())
	err := command.Execute()
	var ended *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &ended): // it has said itself why
		os.Exit(ended.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
