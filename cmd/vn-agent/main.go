// The command vn-agent serves the kubelet API of a super cluster's nodes to tenants' API servers.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/vn-agent/app"
)

func main() {
	command := app.NewCommand()
	command.SetContext(ctrl.SetupSignalHandler())
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, "vn-agent:", err)
		os.Exit(1)
	}
}
