package perf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// The scenarios, by name.
const (
	inPool          = "pool"
	direct          = "direct"
	directWithQuota = "direct with a ResourceQuota"
)

// scenario is where and how pods are created.
type scenario struct {
	name    string
	targets []target
	// pooled is whether the targets are tenants, and quota whether each namespace has a ResourceQuota.
	pooled, quota bool
}

// burst says how many pods of each target a load has.
type burst struct {
	pods int
	// rate is that of paced, in pods a second; 0 is as fast as the API servers take them.
	rate float64
	// rest looks at the pool while all pods run and nothing changes.
	rest bool
	// profile is the folder for profiles of our programs, "" for none.
	profile string
}

// result is what one load showed.
type result struct {
	pods int
	// total is from the first request to the last pod that is Ready, deletion from the first request to the last pod
	// that is gone everywhere. Both in seconds.
	total, deletion float64
	// ready is from the request to Ready, for each pod. Of it, down is until the pod is in the super cluster, below is
	// until it is Ready there, and up is until it is Ready in the tenant.
	ready, down, below, up []float64
	// cpu is the CPU time of each group of programs until all pods were Ready, cpuDeletion that of the deletion.
	cpu, cpuDeletion map[string]float64
	// requests are what API servers answered until all pods were Ready, and in the deletion, where rest was asked for.
	requests, requestsDeletion requests
	rest                       *idle
}

// idle is what the pool does and holds while all pods run.
type idle struct {
	// writes is how many requests that change something each of our programs sends in 20 seconds.
	writes map[string]float64
	// cpu is the CPU time of each group of programs in a second.
	cpu map[string]float64
	// requests are what API servers answer in 20 seconds, those of their own included.
	requests requests
	// heap and rss are what each of our programs has gained by a pod, in bytes.
	heap, rss map[string]float64
}

func (b *bed) direct(quota bool) *scenario {
	s, prefix := &scenario{name: direct}, "direct"
	if quota {
		s, prefix = &scenario{name: directWithQuota, quota: true}, "quota"
	}
	for i := range b.options.Tenants {
		s.targets = append(s.targets, target{namespace: fmt.Sprintf("%s-%02d", prefix, i), client: b.super})
	}
	return s
}

func (b *bed) pooled() *scenario {
	s := &scenario{name: inPool, pooled: true, quota: true}
	for _, tenant := range b.tenants {
		s.targets = append(s.targets, target{namespace: "perf", client: tenant})
	}
	return s
}

// hard is the quota of a namespace: twice what its pods request, and whole slices of the default size.
func (b *bed) hard() corev1.ResourceList {
	cores := max(20, b.options.Pods/5, b.options.Greedy/5)
	return corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(int64(cores), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(cores)<<30, resource.BinarySI),
	}
}

// prepare makes the namespaces of a scenario, and waits until pods can be created there.
func (b *bed) prepare(ctx context.Context, s *scenario) error {
	for _, to := range s.targets {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: to.namespace}}
		if _, err := to.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("making a namespace: %w", err)
		}
		if err := ensureAccount(ctx, to, !s.pooled); err != nil {
			return fmt.Errorf("waiting for the service account: %w", err)
		}
		if !s.quota {
			continue
		}
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "perf"}, Spec: corev1.ResourceQuotaSpec{Hard: b.hard()}}
		if _, err := to.client.CoreV1().ResourceQuotas(to.namespace).Create(ctx, quota, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("making a quota: %w", err)
		}
	}
	for _, to := range s.targets {
		if err := b.Eventually(ctx, func(ctx context.Context) error { return s.admits(ctx, to) }); err != nil {
			return err
		}
	}
	return nil
}

// admits returns an error while pods cannot be created at a target.
func (s *scenario) admits(ctx context.Context, to target) error {
	if s.pooled {
		namespace, err := to.client.CoreV1().Namespaces().Get(ctx, to.namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if namespace.Annotations[schedulerv1alpha1.AnnotationPlacements] == "" {
			return errors.New("namespace perf of a tenant is not placed")
		}
		return resetQuota(ctx, to)
	}
	if !s.quota {
		return nil
	}
	quota, err := to.client.CoreV1().ResourceQuotas(to.namespace).Get(ctx, "perf", metav1.GetOptions{})
	if err == nil && len(quota.Status.Hard) == 0 {
		err = errors.New("nobody has counted the quota")
	}
	return err
}

// resetQuota says what a controller would that finds no pods: a tenant's API server counts on from there.
func resetQuota(ctx context.Context, to target) error {
	quotas := to.client.CoreV1().ResourceQuotas(to.namespace)
	quota, err := quotas.Get(ctx, "perf", metav1.GetOptions{})
	if err != nil {
		return err
	}
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		quota.Status.Used[name] = resource.Quantity{}
	}
	_, err = quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	return err
}

// run creates the pods of a load, waits until they are Ready, deletes them, and waits until they are gone.
func (b *bed) run(ctx context.Context, s *scenario, burst burst) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := newLoad("r"+utilrand.String(8), s.pooled)
	names := l.plan(s.targets, burst.pods)
	if err := b.watchAll(ctx, s, l); err != nil {
		return nil, err
	}
	return b.apply(ctx, s, l, names, burst)
}

// watchAll watches the pods of a load on all sides, until ctx ends.
func (b *bed) watchAll(ctx context.Context, s *scenario, l *load) error {
	for _, to := range s.targets {
		if err := l.watch(ctx, to.client, to.namespace, l.seen); err != nil {
			return err
		}
		if s.pooled {
			if err := resetQuota(ctx, to); err != nil {
				return err
			}
		}
	}
	if !s.pooled {
		return nil
	}
	return l.watch(ctx, b.super, metav1.NamespaceAll, l.seenInSuper)
}

// apply runs a load whose watches are there.
func (b *bed) apply(ctx context.Context, s *scenario, l *load, names [][]string, burst burst) (*result, error) {
	empty, err := b.memory(ctx, burst.rest)
	if err != nil {
		return nil, err
	}
	answered, err := b.requestsIf(ctx, burst.rest)
	if err != nil {
		return nil, err
	}
	profiles := b.profile(ctx, burst.profile)
	counted := b.counted(s)
	r := &result{pods: len(l.pods)}
	begin := time.Now()
	if r.cpu, err = spent(counted, func() error {
		create := func() error { return l.burst(ctx, s.targets, names) }
		if burst.rate > 0 {
			create = func() error { return l.paced(ctx, s.targets, names, burst.rate) }
		}
		if err := create(); err != nil {
			return err
		}
		return b.await(ctx, l.allReady, func() string { return fmt.Sprintf("%d of %d pods are Ready", l.target.ready, len(l.pods)) }, l)
	}); err != nil {
		return nil, err
	}
	l.measure(r, begin)
	if err := profiles.wait(); err != nil {
		return nil, err
	}
	now, err := b.requestsIf(ctx, burst.rest)
	if err != nil {
		return nil, err
	}
	r.requests = now.minus(answered)
	if burst.rest && b.options.Rest > 0 {
		if r.rest, err = b.watchRest(ctx, empty, float64(r.pods)); err != nil {
			return nil, err
		}
	}
	return r, b.delete(ctx, s, l, r, burst)
}

// delete deletes the pods of a load and notes what that took.
func (b *bed) delete(ctx context.Context, s *scenario, l *load, r *result, burst burst) error {
	answered, err := b.requestsIf(ctx, burst.rest)
	if err != nil {
		return err
	}
	begin := time.Now()
	r.cpuDeletion, err = spent(b.counted(s), func() error {
		if err := l.remove(ctx, s.targets); err != nil {
			return err
		}
		return b.await(ctx, l.allGone, func() string {
			return fmt.Sprintf("%d and %d of %d pods are gone", l.target.gone, l.super.gone, len(l.pods))
		}, l)
	})
	if err != nil {
		return err
	}
	r.deletion = time.Since(begin).Seconds()
	now, err := b.requestsIf(ctx, burst.rest)
	r.requestsDeletion = now.minus(answered)
	b.Say("%s, %d pods%s: Ready after %.1f s, p50 %.2f s, p99 %.2f s, gone after %.1f s; CPU time %.1f ms a pod", s.name, r.pods, pace(burst.rate), r.total,
		quantile(r.ready, 0.5), quantile(r.ready, 0.99), r.deletion, 1000*sum(r.cpu)/float64(r.pods))
	return err
}

// requestsIf is requests where somebody asks for them.
func (b *bed) requestsIf(ctx context.Context, asked bool) (requests, error) {
	if !asked {
		return nil, nil
	}
	return b.requests(ctx)
}

func pace(rate float64) string {
	if rate == 0 {
		return ""
	}
	return " at " + strconv.FormatFloat(rate, 'g', -1, 64) + " a second"
}

// measure takes over what was seen until all pods were Ready.
func (l *load) measure(r *result, begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pods {
		r.total = max(r.total, p.target.ready.Sub(begin).Seconds())
		r.ready = append(r.ready, p.target.ready.Sub(p.sent).Seconds())
		if !p.super.ready.IsZero() {
			r.down = append(r.down, p.super.seen.Sub(p.sent).Seconds())
			r.below = append(r.below, p.super.ready.Sub(p.super.seen).Seconds())
			r.up = append(r.up, p.target.ready.Sub(p.super.ready).Seconds())
		}
	}
}

// await waits until a channel is closed; what says how far it came, with the load locked.
func (b *bed) await(ctx context.Context, done <-chan struct{}, what func() string, l *load) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.options.Timeout):
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("after %s %s", b.options.Timeout, what())
	}
}

// counted returns the programs that a scenario uses.
func (b *bed) counted(s *scenario) programs {
	if s.pooled {
		return b.programs
	}
	var used programs
	for _, p := range b.programs {
		if strings.HasPrefix(p.group, "super ") {
			used = append(used, p)
		}
	}
	return used
}

// spent returns the CPU time that programs use while do runs.
func spent(programs programs, do func() error) (map[string]float64, error) {
	before, err := programs.cpu()
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	after, err := programs.cpu()
	for group := range after {
		after[group] -= before[group]
	}
	return after, err
}

// footprint is what each of our programs holds, in bytes.
type footprint struct{ heap, rss map[string]float64 }

// memory returns what our programs hold after a garbage collection; nothing where nobody asks.
func (b *bed) memory(ctx context.Context, asked bool) (footprint, error) {
	held := footprint{heap: map[string]float64{}, rss: map[string]float64{}}
	if !asked || b.options.Rest == 0 {
		return held, nil
	}
	for _, p := range b.ours {
		var err error
		if held.heap[p.group], err = p.heap(ctx); err != nil {
			return held, err
		}
		if held.rss[p.group], err = p.rss(); err != nil {
			return held, err
		}
	}
	return held, nil
}

// settling is how long a pool may take to finish what a burst left: Events, counts, Leases that are due.
const settling = 10 * time.Second

// watchRest looks at the pool while nothing changes. The options say for how long.
func (b *bed) watchRest(ctx context.Context, empty footprint, pods float64) (*idle, error) {
	if err := pause(ctx, settling); err != nil {
		return nil, err
	}
	r := &idle{writes: map[string]float64{}, cpu: map[string]float64{}, heap: map[string]float64{}, rss: map[string]float64{}}
	full, err := b.memory(ctx, true)
	if err != nil {
		return nil, err
	}
	count := func(sign float64) error {
		for _, p := range b.ours {
			sent, err := p.writes(ctx)
			if err != nil {
				return err
			}
			r.writes[p.group] += sign * sent * 20 / b.options.Rest.Seconds()
		}
		return nil
	}
	answered, err := b.requests(ctx)
	if err != nil {
		return nil, err
	}
	if err := count(-1); err != nil {
		return nil, err
	}
	if r.cpu, err = spent(b.programs, func() error { return pause(ctx, b.options.Rest) }); err != nil {
		return nil, err
	}
	for group := range r.cpu {
		r.cpu[group] /= b.options.Rest.Seconds()
	}
	for _, p := range b.ours {
		r.heap[p.group] = (full.heap[p.group] - empty.heap[p.group]) / pods
		r.rss[p.group] = (full.rss[p.group] - empty.rss[p.group]) / pods
	}
	now, err := b.requests(ctx)
	if err != nil {
		return nil, err
	}
	r.requests = now.minus(answered)
	for kind := range r.requests {
		r.requests[kind] *= 20 / b.options.Rest.Seconds()
	}
	return r, count(1)
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}

// profile writes CPU profiles of our programs, of the first tenant's API server and of the super one into folder, from
// now on. wait of what it returns ends with them.
func (b *bed) profile(ctx context.Context, folder string) *failing {
	group := &failing{}
	if folder == "" {
		return group
	}
	seconds := strconv.Itoa(int(b.options.Profiled.Seconds()))
	write := func(name string, read func() ([]byte, error)) {
		group.run(func() error {
			content, err := read()
			if err != nil {
				return fmt.Errorf("taking a profile of %s: %w", name, err)
			}
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(folder, name+".pprof"), content, 0o644) //nolint:gosec // profiles are for readers
		})
	}
	for _, p := range b.ours {
		write(p.group, func() ([]byte, error) { return get(ctx, p.pprof+"profile?seconds="+seconds) })
	}
	for name, client := range map[string]*kubernetes.Clientset{"tenant": b.tenants[0], "super": b.super} {
		write(name+"-kube-apiserver", func() ([]byte, error) {
			return client.RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).DoRaw(ctx)
		})
	}
	return group
}
