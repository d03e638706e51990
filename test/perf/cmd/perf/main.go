// The command perf measures a pool beside the same pods without one, and prints a table. Package perf says how.
package main

import (
	"flag"
	"fmt"
	"os"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/test/perf"
)

func main() {
	ctrl.SetLogger(klog.Background())
	options := perf.DefaultOptions()
	flag.IntVar(&options.Tenants, "tenants", options.Tenants, "number of tenants, and of namespaces of the direct cases")
	flag.IntVar(&options.Pods, "pods", options.Pods, "pods of each tenant in a burst")
	flag.IntVar(&options.Rounds, "rounds", options.Rounds, "how often each burst is repeated; figures are medians")
	flag.Float64Var(&options.Rate, "rate", options.Rate, "pods per second of the paced case, over all tenants; 0 leaves it out")
	flag.IntVar(&options.PacedPods, "paced-pods", options.PacedPods, "pods of each tenant in the paced case")
	flag.IntVar(&options.Greedy, "greedy", options.Greedy, "pods that one tenant creates at once while the others create a few; 0 leaves it out")
	flag.IntVar(&options.Restarts, "restarts", options.Restarts, "how often the syncer is asked to end and killed, each time started again, with the pods of a burst; 0 leaves it out")
	flag.IntVar(&options.Nodes, "nodes", options.Nodes, "fake nodes of the super cluster")
	flag.DurationVar(&options.Rest, "rest", options.Rest, "for how long writes at rest are counted; 0 leaves it out")
	flag.StringVar(&options.Folder, "folder", options.Folder, "where a folder of all state is made, and removed at the end; default /dev/shm, where etcd writes to memory")
	flag.StringVar(&options.Profiles, "profiles", options.Profiles, "folder for CPU profiles of our programs during the last burst")
	flag.DurationVar(&options.Profiled, "profiled", options.Profiled, "how long the profiles are")
	flag.BoolVar(&options.PoolOnly, "pool-only", options.PoolOnly, "leave the direct cases out")
	flag.StringVar(&options.Keep, "keep-logs", options.Keep, "folder for the logs of our programs")
	flag.IntVar(&options.Workers, "workers", options.Workers, "--concurrent-syncs of the syncer; 0 for its default")
	flag.DurationVar(&options.Timeout, "timeout", options.Timeout, "how long all pods of a case may take to be Ready, and to be gone")
	flag.Parse()
	report, err := perf.Run(ctrl.SetupSignalHandler(), options, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
	_, _ = fmt.Fprint(os.Stdout, report.Table())
}
