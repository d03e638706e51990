// The command vc-manager makes the control planes of tenants that name a ClusterVersion.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/vc-manager/app"
)

func main() {
	command := app.NewCommand()
	command.SetContext(ctrl.SetupSignalHandler())
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, "vc-manager:", err)
		os.Exit(1)
	}
}
