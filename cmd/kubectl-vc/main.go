// The command kubectl-vc is a plugin of kubectl: what a person does with the tenants of a pool.
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/kubectl-vc/app"
)

func main() {
	os.Exit(app.Execute(ctrl.SetupSignalHandler(), genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}
