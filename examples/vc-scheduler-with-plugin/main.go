// The command vc-scheduler-with-plugin is vc-scheduler with a plugin that is in none of its registries. Copy it to
// build a plugin of your own into the program; profiles.yaml beside it enables the plugin for pods.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/plugins/example"
)

func main() {
	command := app.NewCommand(app.WithPlugin(example.Name, example.New))
	command.SetContext(ctrl.SetupSignalHandler())
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, "vc-scheduler:", err)
		os.Exit(1)
	}
}
