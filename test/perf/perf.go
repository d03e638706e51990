// Package perf measures a pool: it starts one on fake nodes, creates pods in it and, side by side, directly in the
// super cluster, and says how long that took and what it cost.
//
//	          ┌ t00 … tNN: etcd, kube-apiserver ┐ pool: pods of tenants        ┌ r1: etcd, kube-apiserver, kwok,
//	load ────►┤                                 ├── vc-scheduler, syncer ─────►│ kube-controller-manager,
//	          └ direct: namespaces of r1, with and without a ResourceQuota ───►└ kube-scheduler
//
// All programs share one machine, and its speed changes: only figures of one run are comparable.
package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Options say what to measure. The zero value is not usable; see DefaultOptions.
type Options struct {
	// Tenants is the number of tenants, and of namespaces in the direct cases; Pods is the number of pods of each in a
	// burst.
	Tenants, Pods int
	// Rounds is how often each burst is repeated; figures are medians.
	Rounds int
	// Rate is the number of pods per second of the paced case, over all tenants; 0 leaves the case out. PacedPods is
	// the number of pods of each tenant in it.
	Rate      float64
	PacedPods int
	// Greedy is how many pods one tenant creates at once while the others create a few, 0 for none. Restarts is how
	// often the syncer is asked to end, and how often it is killed, while the pods of a burst run.
	Greedy, Restarts int
	// Nodes is the number of fake nodes of the super cluster.
	Nodes int
	// Rest is for how long writes are counted while nothing changes; 0 leaves that out.
	Rest time.Duration
	// Folder gets a folder of all state, which is removed at the end; "" is /dev/shm where there is one, so that etcd
	// writes to memory.
	Folder string
	// Profiles is a folder for CPU profiles of our programs from the beginning of the last burst of the pool, "" for
	// none. Profiled is how long they are.
	Profiles string
	Profiled time.Duration
	// PoolOnly leaves the direct cases out.
	PoolOnly bool
	// Keep copies the logs of our programs to this folder at the end, "" for nowhere.
	Keep string
	// Workers is --concurrent-syncs of the syncer, 0 for its default.
	Workers int
	// Timeout bounds each wait: for the pods of a case to be Ready, and to be gone.
	Timeout time.Duration
}

// DefaultOptions returns those of docs/performance.md.
func DefaultOptions() Options {
	return Options{Tenants: 10, Pods: 100, Rounds: 3, Rate: 20, PacedPods: 30, Nodes: 20, Rest: 60 * time.Second, Profiled: 15 * time.Second, Timeout: 10 * time.Minute}
}

// Validate returns an error for options that cannot be used.
func (o *Options) Validate() error {
	switch {
	case o.Tenants < 1, o.Tenants > 100, o.Pods < 1, o.Rounds < 1, o.Nodes < 1, o.Nodes > 100:
		return fmt.Errorf("tenants, pods, rounds and nodes: use 1 or more, and at most 100 tenants and nodes")
	case o.Rate < 0, o.Rate > 0 && o.PacedPods < 1:
		return fmt.Errorf("rate %g of %d pods: use 0 for none, or pods", o.Rate, o.PacedPods)
	case o.Greedy < 0, o.Greedy > 0 && o.Tenants < 2, o.Restarts < 0:
		return fmt.Errorf("%d pods of a greedy tenant, %d restarts: use 0 for none; a greedy tenant is one of at least two", o.Greedy, o.Restarts)
	case o.Timeout <= 0:
		return fmt.Errorf("timeout %s: use more than 0", o.Timeout)
	}
	return nil
}

// Run measures. It says in log what it does, and leaves nothing behind.
func Run(ctx context.Context, options Options, log io.Writer) (report *Report, err error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	b, err := newBed(options, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.start(ctx); err != nil {
		return nil, fmt.Errorf("starting the pool: %w", err)
	}
	return b.measure(ctx)
}

// measure runs the cases in turn, so that what the machine does meanwhile meets all of them.
func (b *bed) measure(ctx context.Context) (*Report, error) {
	report := &Report{Options: b.options, Started: time.Now()}
	cases := []*scenario{b.direct(false), b.direct(true), b.pooled()}
	if b.options.PoolOnly {
		cases = cases[2:]
	}
	for _, c := range cases {
		if err := b.prepare(ctx, c); err != nil {
			return nil, err
		}
		// What is compiled, connected or cached at the first pod is not counted.
		if _, err := b.run(ctx, c, burst{pods: min(5, b.options.Pods)}); err != nil {
			return nil, err
		}
	}
	for round := range b.options.Rounds {
		for _, c := range cases {
			load := burst{pods: b.options.Pods}
			if last := round == b.options.Rounds-1; last && c.pooled {
				load.rest, load.profile = true, b.options.Profiles
			}
			result, err := b.run(ctx, c, load)
			if err != nil {
				return nil, err
			}
			report.add(c.name, result)
		}
	}
	for _, c := range cases {
		if c.name == directWithQuota || b.options.Rate == 0 {
			continue
		}
		result, err := b.run(ctx, c, burst{pods: b.options.PacedPods, rate: b.options.Rate})
		if err != nil {
			return nil, err
		}
		report.addPaced(c.name, result)
	}
	return report, b.beside(ctx, report, cases)
}

// beside measures what is no burst alone.
func (b *bed) beside(ctx context.Context, report *Report, cases []*scenario) (err error) {
	for _, c := range cases {
		if b.options.Greedy > 0 {
			shown, err := b.fairness(ctx, c)
			if err != nil {
				return err
			}
			report.addFairness(c.name, shown)
		}
		if c.pooled && b.options.Restarts > 0 {
			if report.restarts, err = b.restarts(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}
