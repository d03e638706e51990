// Package forecast is the verbs that try in memory, by the namespace scheduler's own code, what becomes of a pool: why a
// namespace waits, where everything would go, and which slices could move.
package forecast

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/manifests/profiles"
)

// verbs is what the verbs of this package are methods of.
type verbs struct{ *cli.CLI }

// Commands returns the verbs.
func Commands(shared *cli.CLI) []*cobra.Command {
	c := &verbs{shared}
	return []*cobra.Command{c.explain(), c.simulate(), c.rebalance()}
}

// Profiles are those of the namespace scheduler. The meta cluster does not say which ones vc-scheduler has.
type Profiles struct {
	// file has them, "" for those that are shipped.
	file string
}

// AddFlags adds the flag that names their file.
func (p *Profiles) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.file, "namespace-scheduler-config", "", "file with the KubeSchedulerConfiguration that vc-scheduler has of the flag of this name; default: the one that is shipped")
}

// Load reads them.
func (p *Profiles) Load() (*config.KubeSchedulerConfiguration, error) {
	read, err := kubescheduler.LoadConfig(p.file, profiles.NamespaceScheduler)
	if err != nil {
		return nil, fmt.Errorf("--namespace-scheduler-config: %w", err)
	}
	return read, nil
}

// Simulate places all that waits in a pool.
func Simulate(ctx context.Context, c *cli.CLI, cfg *config.KubeSchedulerConfiguration, pool *simulation.Pool) (report *simulation.Report, err error) {
	err = c.Doing(trying(pool), func() error {
		report, err = simulation.Simulate(quiet(ctx), cfg, pool)
		return err //nolint:wrapcheck // it says what was simulated
	})
	return report, err //nolint:wrapcheck // as above
}

// trying says what is being tried.
func trying(pool *simulation.Pool) string {
	return fmt.Sprintf("trying %s and %s in memory", text.Count(len(pool.Placements), "namespace", "namespaces"), text.Count(len(pool.Nodes), "super cluster", "super clusters"))
}

// quiet returns ctx without a log: what a scheduler logs about objects in memory is about no cluster.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
