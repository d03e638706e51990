// The command packing prints how much of a pool is stranded by the size of slices, and draws it. Package packing says
// how it is measured.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/test/packing"
)

func main() {
	klog.SetLogger(logr.Discard()) // the scheduler's own messages
	seeds := flag.Int("seeds", 3, "how many loads are drawn of each kind; figures are means")
	figure := flag.String("svg", "", "file of a chart")
	flag.Parse()
	if err := packing.Main(ctrl.SetupSignalHandler(), *seeds, *figure, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "packing:", err)
		os.Exit(1)
	}
}
