// Command vc-scheduler places tenant namespaces and their pods over a pool of super clusters.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"github.com/superpool/superpool/cmd/vc-scheduler/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}
