// The command vc-scheduler places tenant namespaces and their pods over a pool of super clusters.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/vc-scheduler/app"
)

func main() {
	command := app.NewCommand()
	command.SetContext(ctrl.SetupSignalHandler())
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, "vc-scheduler:", err)
		os.Exit(1)
	}
}
