package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// Standby starts a pool without faults whose only syncer has two replicas. Times times it kills the one that leads, and
// returns how long after each kill a new pod was Ready in its tenant.
func Standby(ctx context.Context, options Options, times int, out io.Writer) (taken []time.Duration, err error) {
	options.Tenants, options.SuperClusters, options.Length = 1, 1, time.Second
	if err := options.Validate(); err != nil {
		return nil, err
	}
	b, err := newBed(options, out, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.start(ctx); err != nil {
		return nil, fmt.Errorf("starting the pool: %w", err)
	}
	a := &actor{client: b.tenants[0].client, random: rand.New(rand.NewPCG(options.Seed, 2))} //nolint:gosec // names of pods
	if err := a.makeNamespace(ctx, "n"); err != nil {
		return nil, err
	}
	if err := b.ready(ctx, a, "first"); err != nil {
		return nil, err
	}
	leader := b.Programs[len(b.Programs)-1]
	for i := range times {
		next := *leader
		if err := b.Launch(&next); err != nil {
			return nil, err
		}
		if err := b.eventually(ctx, patience, func(context.Context) error { return engaged(next.Process, i+2) }); err != nil {
			return nil, err
		}
		leader.Process.Kill()
		killed := time.Now()
		if err := b.ready(ctx, a, "pod-"+strconv.Itoa(i)); err != nil {
			return nil, err
		}
		taken = append(taken, time.Since(killed))
		b.Say("A pod was Ready %s after its syncer was killed", taken[i].Round(10*time.Millisecond))
		leader = &next
	}
	return taken, nil
}

// engaged returns an error until the log of the syncers, which all of them write to, shows that so many have filled
// their caches of the tenant.
func engaged(process *launch.Process, times int) error {
	content, err := os.ReadFile(process.Log)
	if err != nil {
		return err
	}
	if found := bytes.Count(content, []byte("Tenant engaged")); found < times {
		return fmt.Errorf("%d syncers read the tenant, not %d", found, times)
	}
	return nil
}

// ready makes a pod, and returns once it is Ready.
func (b *bed) ready(ctx context.Context, a *actor, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: a.podSpec()}
	pod.Spec.Containers[0].EnvFrom = nil
	pod.Spec.Containers[0].Resources = builders.Requests("cpu", "10m", "memory", "10Mi")
	// An API server refuses pods until somebody has counted the quota.
	if err := b.eventually(ctx, patience, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(a.client.Create(ctx, pod.DeepCopy()))
	}); err != nil {
		return err
	}
	watch, err := a.client.Watch(ctx, &corev1.PodList{}, client.InNamespace("n"))
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	defer watch.Stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-watch.ResultChan():
			if !open {
				return errors.New("the watch of pods ended")
			}
			if seen, ok := event.Object.(*corev1.Pod); ok && seen.Name == name && isReady(seen) {
				return nil
			}
		}
	}
}
