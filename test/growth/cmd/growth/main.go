// The command growth prints what namespaces, tenants and pods cost as tenants grow in number, and draws it. Package
// growth says how it is measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/test/growth"
)

func main() {
	klog.SetLogger(logr.Discard()) // the schedulers' own messages
	ctrl.SetLogger(logr.Discard())
	o := growth.Options{}
	tenants := flag.String("tenants", "1,10,100,1000", "numbers of tenants, of which each is measured in a process of its own")
	flag.IntVar(&o.Namespaces, "namespaces", 10, "namespaces of each tenant")
	flag.IntVar(&o.Pods, "pods", 100, "pods of each tenant")
	flag.IntVar(&o.SuperClusters, "super-clusters", 100, "super clusters")
	flag.IntVar(&o.More, "more", 50, "namespaces and pods that are decided one by one in the end")
	flag.StringVar(&o.Profile, "profiles", "", "folder for profiles")
	figure := flag.String("svg", "", "file of a chart")
	one := flag.String("one", "", "the options of one measurement in this process, as JSON")
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), *tenants, o, *figure, *one, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, tenants string, o growth.Options, figure, one string, w io.Writer) error {
	if one != "" {
		return growth.One(ctx, one, w) //nolint:wrapcheck // it is all there is
	}
	var counts []int
	for _, text := range strings.Split(tenants, ",") {
		count, err := strconv.Atoi(text)
		if err != nil || count < 1 {
			return fmt.Errorf("-tenants has %q: want numbers above zero, as 1,10,100", text)
		}
		counts = append(counts, count)
	}
	return growth.Grow(ctx, counts, o, figure, w, os.Stderr) //nolint:wrapcheck // it is all there is
}
