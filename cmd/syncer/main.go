// The command syncer connects one super cluster of the pool to the tenants that hold placements in it.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/syncer/app"
)

func main() {
	command, err := app.NewCommand()
	if err == nil {
		command.SetContext(ctrl.SetupSignalHandler())
		err = cli.RunNoErrOutput(command)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "syncer:", err)
		os.Exit(1)
	}
}
