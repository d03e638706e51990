// The command vn-agent serves the kubelet API of a super cluster's nodes to tenants' API servers.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/vn-agent/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "vn-agent:", err)
		os.Exit(1)
	}
}
