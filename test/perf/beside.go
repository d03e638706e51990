package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/superpool/superpool/test/controlplane/launch"
)

const (
	// regularPods is the number of pods of each regular tenant beside a greedy one, and regularRate how many it creates
	// in a second.
	regularPods = 6
	regularRate = 1.0
)

// fairness is the time to Ready of regular tenants' pods, in seconds in the mean: alone, and beside a tenant that
// creates many at once.
type fairness struct {
	alone, beside float64
	// down, below and up are the parts of beside, in the pool: until a pod is in the super cluster, Ready there, and
	// Ready in the tenant.
	down, below, up float64
}

// fairness lets the first target be greedy, and the others regular.
func (b *bed) fairness(ctx context.Context, s *scenario) (*fairness, error) {
	regular, greedy := *s, *s
	greedy.targets, regular.targets = s.targets[:1], s.targets[1:]
	load := burst{pods: regularPods, rate: regularRate * float64(len(regular.targets))}
	alone, err := b.run(ctx, &regular, load)
	if err != nil {
		return nil, err
	}
	group := failing{}
	group.run(func() error {
		_, err := b.run(ctx, &greedy, burst{pods: b.options.Greedy})
		return err
	})
	if err := pause(ctx, time.Second); err != nil {
		return nil, err
	}
	beside, err := b.run(ctx, &regular, load)
	if err := group.wait(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	shown := &fairness{alone: mean(alone.ready), beside: mean(beside.ready)}
	if s.pooled {
		shown.down, shown.below, shown.up = mean(beside.down), mean(beside.below), mean(beside.up)
	}
	return shown, nil
}

func mean(values []float64) float64 {
	total := 0.0
	for _, value := range values {
		total += value
	}
	return total / float64(len(values))
}

// restarts is after how many seconds a pod was Ready that was created when the syncer started again, for each time that
// it was asked to end, and for each that it was killed. It elects no leader here: where it does, one that is killed
// leaves a Lease that has to expire first.
type restarts struct{ stopped, killed []float64 }

// restarts ends the syncer while pods run, in turn by a signal and by a kill, and starts it again.
func (b *bed) restarts(ctx context.Context, s *scenario) (*restarts, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running := newLoad("restart", true)
	names := running.plan(s.targets, b.options.Pods)
	if err := b.watchAll(ctx, s, running); err != nil {
		return nil, err
	}
	if err := running.burst(ctx, s.targets, names); err != nil {
		return nil, err
	}
	if err := b.await(ctx, running.allReady, func() string { return fmt.Sprintf("%d pods are Ready", running.target.ready) }, running); err != nil {
		return nil, err
	}
	one := *s
	one.targets = s.targets[:1]
	measured := &restarts{}
	for i := range 2 * b.options.Restarts {
		how, end, seconds := "was asked to end", (*launch.Process).Stop, &measured.stopped
		if i%2 == 1 {
			how, end, seconds = "was killed", (*launch.Process).Kill, &measured.killed
		}
		added := newLoad(fmt.Sprintf("restart-%d", i), true)
		names := added.plan(one.targets, 1)
		if err := b.watchAll(ctx, &one, added); err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := b.restart("syncer", end); err != nil {
			return nil, err
		}
		if err := added.burst(ctx, one.targets, names); err != nil {
			return nil, err
		}
		if err := b.await(ctx, added.allReady, func() string { return "the pod is not Ready" }, added); err != nil {
			return nil, err
		}
		*seconds = append(*seconds, time.Since(begin).Seconds())
		b.Say("The syncer %s with %d pods, and started again: a new one is Ready after %.2f s", how, len(running.pods), (*seconds)[i/2])
		if err := added.remove(ctx, one.targets); err != nil {
			return nil, err
		}
		if err := pause(ctx, settling); err != nil {
			return nil, err
		}
	}
	if err := running.remove(ctx, s.targets); err != nil {
		return nil, err
	}
	return measured, b.await(ctx, running.allGone, func() string { return fmt.Sprintf("%d pods are gone", running.target.gone) }, running)
}

// restart ends a program of ours and starts it again.
func (b *bed) restart(name string, end func(*launch.Process)) error {
	for _, p := range b.ours {
		if p.group != name {
			continue
		}
		end(p.process)
		if err := b.Launch(p.pooled); err != nil {
			return err
		}
		p.process = p.pooled.Process
	}
	return nil
}
