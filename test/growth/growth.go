// Package growth runs what decides in vc-scheduler in one process, for more and more tenants, and measures what a
// namespace, a tenant and a pod cost: the namespace scheduler over all NamespacePlacements, and a pod scheduler for each
// tenant. API servers are in memory and hold nothing, so that they cost next to no memory and little time; the
// controllers that keep NamespacePlacements, and syncers, do not run.
package growth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
)

// Options say how large the pool is.
type Options struct {
	Tenants, Namespaces, Pods, SuperClusters int
	// More is how many namespaces and pods are decided one by one in the end.
	More int
	// Profile is a folder for profiles of the heap and of the CPU time of the pods, "" for none.
	Profile string
}

// Figures are what a pool costs. Times are CPU time of the process, but for those that are by the clock.
type Figures struct {
	Options
	// Namespace and Pod are the CPU time of one among all that come at once, and Engage that of a tenant that connects.
	Namespace, Pod, Engage time.Duration
	// OneNamespace, OnePod, NamespaceClock and PodClock are medians of one more that comes alone, and Slowest the
	// slowest of these, in milliseconds.
	OneNamespace, OnePod, NamespaceClock, PodClock float64
	SlowestNamespace, SlowestPod                   float64
	// Idle is the CPU time of a tenant in a second in which nothing comes. It is part of the other times: the longer a
	// machine takes, the more.
	Idle time.Duration
	// NamespaceBytes, TenantBytes and PodBytes are what each adds to heap and stacks, and Bytes all of them.
	NamespaceBytes, TenantBytes, PodBytes, Bytes float64
	// Resident is the largest resident size, in bytes.
	Resident   float64
	Goroutines int
}

// patience is how long all that comes at once may take.
const patience = 30 * time.Minute

// resting is for how long nothing comes.
const resting = 10 * time.Second

// Run measures one pool.
func Run(ctx context.Context, o Options) (*Figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &world{Options: o, events: make(chan struct{}, 1)}
	f := &Figures{Options: o}
	if err := w.startNamespaces(ctx); err != nil {
		return nil, err
	}
	defer w.running.Wait()
	defer cancel()
	// What the first namespace finds is there for all of them.
	w.ask("tenant-0", "first")
	if err := w.wait(ctx, "namespaces are placed", func() int { return int(w.placed.Load()) }, 1); err != nil {
		return nil, err
	}
	before := memory()
	used := schedulertest.CPUTime()
	for t := range o.Tenants {
		for n := range o.Namespaces {
			w.ask(fmt.Sprintf("tenant-%d", t), fmt.Sprintf("namespace-%d", n))
		}
	}
	all := o.Tenants * o.Namespaces
	if err := w.wait(ctx, "namespaces are placed", func() int { return int(w.placed.Load()) }, 1+all); err != nil {
		return nil, err
	}
	f.Namespace = (schedulertest.CPUTime() - used) / time.Duration(all)
	held := memory()
	f.NamespaceBytes = (held - before) / float64(all)

	used = schedulertest.CPUTime()
	if err := w.engage(ctx); err != nil {
		return nil, err
	}
	f.Engage = (schedulertest.CPUTime() - used) / time.Duration(o.Tenants)
	engaged := memory()
	f.TenantBytes = (engaged - held) / float64(o.Tenants)
	f.Goroutines = runtime.NumGoroutine()
	used = schedulertest.CPUTime()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(resting):
	}
	f.Idle = (schedulertest.CPUTime() - used) / (time.Duration(o.Tenants) * resting / time.Second)
	if err := w.pods(ctx, f, engaged); err != nil {
		return nil, err
	}
	err := w.more(ctx, f)
	f.Bytes, f.Resident = memory()-before, resident()
	return f, err
}

// memory returns what heap and stacks hold.
func memory() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// world is the pool that runs.
type world struct {
	Options
	meta       *meta
	dispatcher *dispatch.Dispatcher
	apis       []*api
	running    sync.WaitGroup

	placed, chosen atomic.Int64
	refused        atomic.Pointer[string]
	// events has an element after one of these has changed.
	events chan struct{}
}

func (w *world) changed() {
	select {
	case w.events <- struct{}{}:
	default:
	}
}

// wait waits until count returns as many as are wanted.
func (w *world) wait(ctx context.Context, what string, count func() int, want int) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for count() < want {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("%d of %d %s", count(), want, what)
		case <-w.events:
		}
		if why := w.refused.Load(); why != nil {
			return errors.New("a namespace is refused: " + *why)
		}
	}
	return nil
}

// startNamespaces starts the namespace scheduler.
func (w *world) startNamespaces(ctx context.Context) error {
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	if err != nil {
		return fmt.Errorf("reading the profiles of namespaces: %w", err)
	}
	namespaces := view.NewNamespaces()
	w.meta = &meta{
		namespaces: namespaces, all: map[string]map[string]*schedulerv1alpha1.NamespacePlacement{},
		placed:  func() { w.placed.Add(1); w.changed() },
		refused: func(why string) { w.refused.Store(&why); w.changed() },
	}
	p := &placer.Placer{Namespaces: namespaces, Nodes: view.NewNodeSource(), Config: cfg, Sink: w.meta}
	w.dispatcher = dispatch.New(true)
	for i := range w.SuperClusters {
		node := builders.VirtualNode(fmt.Sprintf("r%03d", i), "cpu", "100000", "memory", "400000Gi", "pods", "1000000").Obj()
		p.Nodes.Set(node.Name, view.NamespaceNode(node))
		w.dispatcher.Node(node, false)
	}
	w.running.Go(func() {
		if err := p.Run(ctx); err != nil {
			why := err.Error()
			w.refused.Store(&why)
			w.changed()
		}
	})
	return nil
}

// ask lets a namespace ask for three slices.
func (w *world) ask(tenant, name string) {
	np := builders.Placement(tenant, name).UID(types.UID(tenant+"-"+name)).Slice("cpu", "2", "memory", "4Gi", "pods", "20").
		Quota("cpu", "6", "memory", "12Gi", "pods", "60").Obj()
	np.ResourceVersion = "1"
	w.meta.set(np)
	w.meta.namespaces.Set(np)
}

// engage starts the pod schedulers of all tenants.
func (w *world) engage(ctx context.Context) error {
	podConfig, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	if err != nil {
		return fmt.Errorf("reading the profiles of pods: %w", err)
	}
	work := &scheduling.Tenants{
		Part: scheduling.PartPods, Client: w.meta, Store: placements.NewStore(w.meta, w.meta), Dispatcher: w.dispatcher,
		PodConfig: podConfig, DefaultSlice: slice.Amounts{},
	}
	var ready atomic.Int64
	for t := range w.Tenants {
		a := &api{chosen: func() { w.chosen.Add(1); w.changed() }}
		w.apis = append(w.apis, a)
		tenant := &tenants.Tenant{
			Key: fmt.Sprintf("tenant-%d", t), Policy: &policy.Ref{}, Config: &rest.Config{Host: "https://tenant", Transport: a},
		}
		w.running.Go(func() {
			if err := work.Engage(ctx, tenant, func() { ready.Add(1); w.changed() }); err != nil && ctx.Err() == nil {
				why := err.Error()
				w.refused.Store(&why)
				w.changed()
			}
		})
	}
	return w.wait(ctx, "tenants are engaged", func() int { return int(ready.Load()) }, w.Tenants)
}

// pods creates the pods of all tenants at once.
func (w *world) pods(ctx context.Context, f *Figures, before float64) error {
	if w.Profile != "" {
		stop, err := w.profile()
		if err != nil {
			return err
		}
		defer stop()
	}
	used := schedulertest.CPUTime()
	var creating sync.WaitGroup
	failed := make(chan error, len(w.apis))
	for _, a := range w.apis {
		creating.Go(func() {
			for i := range w.Pods {
				if _, err := a.send("ADDED", podOf(fmt.Sprintf("namespace-%d", i%w.Namespaces), fmt.Sprintf("pod-%d", i))); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	creating.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	all := w.Tenants * w.Pods
	if err := w.wait(ctx, "pods have a super cluster", func() int { return int(w.chosen.Load()) }, all); err != nil {
		return err
	}
	f.Pod = (schedulertest.CPUTime() - used) / time.Duration(all)
	f.PodBytes = (memory() - before) / float64(all)
	return nil
}

// profile begins a profile of CPU time, and returns what ends it and writes one of the heap.
func (w *world) profile() (func(), error) {
	name := fmt.Sprintf("%s/%d-tenants", w.Profile, w.Tenants)
	file, err := os.Create(name + ".cpu.pprof")
	if err != nil {
		return nil, fmt.Errorf("writing a profile: %w", err)
	}
	heap, err := os.Create(name + ".heap.pprof")
	if err != nil {
		return nil, fmt.Errorf("writing a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = pprof.Lookup("heap").WriteTo(heap, 0) // a profile is for people who look
		_, _ = file.Close(), heap.Close()
	}, nil
}

// more decides namespaces and pods one by one.
func (w *world) more(ctx context.Context, f *Figures) error {
	var namespaces, pods schedulertest.LatencyRecorder
	for i := range w.More {
		tenant := fmt.Sprintf("tenant-%d", i*w.Tenants/w.More)
		next := int(w.placed.Load()) + 1
		namespaces.Start()
		w.ask(tenant, fmt.Sprintf("more-%d", i))
		if err := w.wait(ctx, "namespaces are placed", func() int { return int(w.placed.Load()) }, next); err != nil {
			return err
		}
		namespaces.Stop()
	}
	for i := range w.More {
		a := w.apis[i*w.Tenants/w.More]
		next := int(w.chosen.Load()) + 1
		pods.Start()
		if _, err := a.send("ADDED", podOf(fmt.Sprintf("namespace-%d", i%w.Namespaces), fmt.Sprintf("more-%d", i))); err != nil {
			return err
		}
		if err := w.wait(ctx, "pods have a super cluster", func() int { return int(w.chosen.Load()) }, next); err != nil {
			return err
		}
		pods.Stop()
	}
	f.NamespaceClock, f.OneNamespace = namespaces.Quantile(0.5)
	f.SlowestNamespace, _ = namespaces.Quantile(1)
	f.PodClock, f.OnePod = pods.Quantile(0.5)
	f.SlowestPod, _ = pods.Quantile(1)
	return nil
}
