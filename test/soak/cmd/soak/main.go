// The command soak lets tenants, operators and failures act at random on a pool, and checks that all sides agree in the
// end. Package soak says how.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/test/soak"
)

func main() {
	ctrl.SetLogger(klog.Background())
	options := soak.DefaultOptions()
	flag.DurationVar(&options.Length, "length", options.Length, "how long everybody acts")
	flag.Uint64Var(&options.Seed, "seed", uint64(time.Now().Unix()), "where random begins; default the time")
	flag.IntVar(&options.Tenants, "tenants", options.Tenants, "number of tenants")
	flag.IntVar(&options.SuperClusters, "super-clusters", options.SuperClusters, "number of super clusters")
	flag.DurationVar(&options.Pause, "pause", options.Pause, "about how long a tenant rests between two acts")
	flag.DurationVar(&options.Settle, "settle", options.Settle, "how long both sides may take to agree in the end")
	flag.StringVar(&options.Folder, "folder", options.Folder, "where a folder of all state is made, and removed at the end; default /dev/shm, where etcd writes to memory")
	flag.StringVar(&options.Keep, "keep-logs", options.Keep, "folder for the logs of our programs")
	standby := flag.Int("standby", 0, "do not soak: kill the leader of two replicas of a syncer so many times, and say how long a new pod takes then")
	flag.Parse()
	if *standby > 0 {
		if _, err := soak.Standby(ctrl.SetupSignalHandler(), options, *standby, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			os.Exit(1)
		}
		return
	}
	if err := soak.Run(ctrl.SetupSignalHandler(), options, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
