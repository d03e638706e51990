package scheduling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/coscheduling"
	"github.com/superpool/superpool/plugins/namespaceplacement"
)

const (
	// controllerName is the reporting controller of Events in tenant control planes.
	controllerName = "vc-scheduler"

	// tenantQPS and tenantBurst bound the requests to one tenant control plane. A burst of pods costs one request each.
	tenantQPS, tenantBurst = 500, 1000

	// eventsPerSecond and eventBurst bound the Events that are recorded in one tenant control plane.
	eventsPerSecond, eventBurst = 50, 1000
)

// Part is what a Tenants does for each tenant.
type Part int

const (
	// PartAll is all of it.
	PartAll Part = iota
	// PartPlacements is the controller of the tenant's NamespacePlacements: it needs the Usage of the pool's leader.
	PartPlacements
	// PartPods is the tenant's pod scheduler, and the repair of what pods say about their super clusters. It needs
	// nothing but the two API servers.
	PartPods
)

// Tenants runs, for each tenant, a pod scheduler and the controller of its NamespacePlacements, or one of them.
type Tenants struct {
	// Part is what it does. Of the other fields, PartPods needs Client, Store, Holds, Dispatcher, PodConfig and
	// OutOfTree.
	Part Part
	// Lead is called before anything of a tenant is read, by the UID of its VirtualCluster. The connection ends with
	// led, which ends with ctx. wrap makes a transport that writes nothing once another process may do the same for the
	// tenant, and leave is called when all has ended. An error ends the connection. Nil: this process is the only one.
	Lead func(ctx context.Context, tenant types.UID) (
		led context.Context, wrap func(http.RoundTripper) http.RoundTripper, leave func(), err error,
	)
	// Client reads the meta cluster from a cache.
	Client client.Reader
	// Store reads and writes NamespacePlacements.
	Store *Store
	// Usage tells what super clusters run.
	Usage Usage
	// Holds reads live of which namespaces of the VirtualCluster with that cluster key and UID a super cluster of the
	// pool holds super namespaces. Nil: nobody can say.
	Holds func(ctx context.Context, superCluster, key string, uid types.UID) (sets.Set[string], error)
	// Dispatcher routes the events of the meta cluster.
	Dispatcher *Dispatcher
	// PodConfig holds the profiles of the pod schedulers.
	PodConfig *config.KubeSchedulerConfiguration
	// Profiles are the names of the namespace scheduler's profiles.
	Profiles sets.Set[string]
	// DefaultSlice is the slice size for resources that a tenant does not name.
	DefaultSlice slice.Amounts
	// QuotaGrace is how long a namespace keeps what it has once it has no quota any more. 0: it keeps nothing.
	QuotaGrace time.Duration
	// Metrics counts evictions; nil counts none.
	Metrics *Metrics
	// OutOfTree are further plugins of the pod schedulers.
	OutOfTree frameworkruntime.Registry

	// patience is how long lists that fail are retried, 0: listPatience.
	patience time.Duration
}

// heldOf returns the memory of what super clusters hold of a tenant.
func (t *Tenants) heldOf(tenant *tenants.Tenant) *heldNamespaces {
	held := &heldNamespaces{clock: clock.RealClock{}}
	if t.Holds != nil {
		held.read = func(ctx context.Context, superCluster string) (sets.Set[string], error) {
			return t.Holds(ctx, superCluster, tenant.Key, tenant.UID)
		}
	}
	return held
}

// Engage works on one tenant until ctx ends. It is a tenants.Engage. A panic of an event handler or of the projection
// of pods ends it with a Failure, so that the next connection reads everything again. A panic in kube-scheduler's own
// goroutines, its plugins' included, still ends the process.
func (t *Tenants) Engage(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
	cfg := rest.CopyConfig(tenant.Config)
	cfg.QPS, cfg.Burst = tenantQPS, tenantBurst
	if t.Lead != nil {
		led, wrap, leave, err := t.Lead(ctx, tenant.UID)
		if err != nil {
			return err
		}
		defer leave()
		ctx = led
		cfg.Wrap(wrap)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := t.engage(ctx, tenant, cfg, ready, cancel)
	var panicked *engage.Failure
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &panicked):
		return panicked
	case cause != nil && !errors.Is(cause, context.Canceled):
		return cause // that of led
	}
	return err
}

// engage is Engage, by a client of cfg, until ctx ends. fail ends ctx.
func (t *Tenants) engage(ctx context.Context, tenant *tenants.Tenant, cfg *rest.Config, ready func(), fail func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	optional := rest.CopyConfig(cfg) // what the control plane need not serve is no failure
	failures := &readFailures{}
	cfg.Wrap(failures.wrap)
	api, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, controllerName))
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	broadcaster := events.NewBroadcaster(&eventWriter{sink: &events.EventSinkImpl{Interface: api.EventsV1()}})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("recording Events: %w", err)
	}
	defer broadcaster.Shutdown()

	nodes := view.NewNodeSource()
	chosen := t.choices()
	storage := shownStorage{all: t.Dispatcher.storage, shows: showsClass(tenant.Policy)}
	factory := tenantInformers(ctx, api, nodes, storage, chosen, tenant.Bounds, fail)
	eventRate := rate.NewLimiter(eventsPerSecond, eventBurst)
	recorder := boundedRecorder{broadcaster.NewRecorder(scheme.Scheme, controllerName), eventRate}
	controller := newTenantController(t, tenant, api, factory, nodes, chosen, recorder, fail)
	if err := controller.releaseSnapshots(optional); err != nil {
		return err
	}
	pods := &tenantPods{}
	if t.Part != PartPlacements {
		pods, err = t.tenantPods(ctx, tenant, chosen, cfg, optional, api, factory, recorder, func(name string) events.EventRecorder {
			return podRecorder{boundedRecorder{broadcaster.NewRecorder(scheme.Scheme, name), eventRate}}
		})
		if err != nil {
			return err
		}
		if pods.groups != nil {
			stopped := pods.groups.start(ctx, tenant.Bounds, fail)
			defer func() { <-stopped }()
			defer cancel()
		}
		if pods.judge.nodes != nil {
			stopped := pods.judge.nodes.start(ctx, tenant.Bounds, fail)
			defer func() { <-stopped }()
			defer cancel()
		}
		// kube-scheduler tries pods as soon as its informers have synced: the nodes must be in the view by then.
		if err := controller.nodes.project(ctx); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel() // before Shutdown, which waits for the informers
	if err := waitForCaches(ctx, factory, failures, cmp.Or(t.patience, listPatience)); err != nil {
		return err
	}
	chosen.listed()
	if !pods.begin(ctx, fail) {
		return nil // ctx ended
	}
	ready()
	klog.FromContext(ctx).Info("Tenant engaged")
	ended := pods.run(ctx)
	err = controller.run(ctx)
	cancel()
	<-ended
	return err
}

// showsClass returns whether a policy shows its tenant a StorageClass of super clusters.
func showsClass(ref *policy.Ref) func(class string) bool {
	return func(class string) bool { return ref.Get().MayOffer(policy.StorageClasses, class) }
}

// choices returns the choices of a tenant's pod scheduler, nil where it runs in another process.
func (t *Tenants) choices() *choices {
	if t.Part == PartPlacements {
		return nil
	}
	return newChoices(profileNames(t.PodConfig)...)
}

// tenantPods is the pod scheduler of one tenant. The zero tenantPods is of one that runs in another process, and does
// nothing.
type tenantPods struct {
	scheduler *scheduler.Scheduler
	// groups are the tenant's PodGroups, nil if no profile asks for them.
	groups *podGroups
	// judge has the tenant's Nodes, if any are read.
	judge   *judge
	waiting *tenantQueue
	policy  *policy.Ref
	pods    corev1listers.PodLister
}

// tenantPods builds a tenant's pod scheduler. optional is for what its control plane need not serve. factory is started
// afterwards.
func (t *Tenants) tenantPods(
	ctx context.Context, tenant *tenants.Tenant, chosen *choices, cfg, optional *rest.Config, api kubernetes.Interface,
	factory informers.SharedInformerFactory, recorder events.EventRecorder, recorders profile.RecorderFactory,
) (*tenantPods, error) {
	options := plugins.Options{
		Chose: chosen.chose, ShowsTaint: func(taint *corev1.Taint) bool { return tenant.Policy.Get().Shows(taint) },
		OutOfTree: t.OutOfTree, PodGangs: coscheduling.Options{MaxMembers: gangLimit(tenant.Policy), State: coscheduling.NewState()},
	}
	groups, err := t.podGroups(optional)
	if err != nil {
		return nil, err
	}
	if groups != nil {
		options.PodGangs.Groups = groups
	}
	nodes, err := nodesOfTenant(tenant, optional)
	if err != nil {
		return nil, err
	}
	judges := &judge{policy: tenant.Policy, nodes: nodes}
	sched, err := t.podScheduler(ctx, tenant.Policy, judges, chosen, options, cfg, api, factory, recorders)
	if err != nil {
		return nil, err
	}
	waiting := newTenantQueue(sched.SchedulingQueue, tenant.Policy, recorder, klog.FromContext(ctx), options.PodGangs.State)
	waiting.replaceThatOf(sched)
	return &tenantPods{
		scheduler: sched, groups: groups, judge: judges, waiting: waiting, policy: tenant.Policy, pods: factory.Core().V1().Pods().Lister(),
	}, nil
}

// begin lets pods into the queue once the informers, which have synced, have passed them on. It returns false when ctx
// ended.
func (p *tenantPods) begin(ctx context.Context, fail func(error)) bool {
	if p.scheduler == nil {
		return true
	}
	if err := p.scheduler.WaitForHandlersSync(ctx); err != nil {
		return false
	}
	p.waiting.open()
	_, policyChanged := p.policy.Watch()
	go func() {
		defer engage.Recover(ctx, "pod scheduler of the tenant", fail)
		retryWaiting(ctx, p.policy, policyChanged, p.pods, p.waiting)
	}()
	if p.judge.nodes != nil {
		go func() {
			defer engage.Recover(ctx, "pods that name labels of Nodes", fail)
			p.judge.retry(ctx, p.pods, p.waiting)
		}()
	}
	return true
}

// run schedules until ctx ends, and closes what it returns then.
func (p *tenantPods) run(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.scheduler != nil {
			p.scheduler.Run(ctx)
		}
	}()
	return done
}

// podGroups returns the PodGroups of a tenant, nil if no profile asks for them.
func (t *Tenants) podGroups(cfg *rest.Config) (*podGroups, error) {
	if !plugins.Enables(t.PodConfig, coscheduling.Name) {
		return nil, nil
	}
	source, err := podGroupsOf(cfg)
	if err != nil {
		return nil, err
	}
	return newPodGroups(source), nil
}

func (t *Tenants) podScheduler(
	ctx context.Context, ref *policy.Ref, judges *judge, chosen *choices, options plugins.Options, cfg *rest.Config,
	api kubernetes.Interface, factory informers.SharedInformerFactory, recorders profile.RecorderFactory,
) (*scheduler.Scheduler, error) {
	return kubescheduler.Instance{
		Client:        api,
		KubeConfig:    cfg,
		Informers:     factory,
		Config:        t.PodConfig,
		Plugins:       options,
		Recorders:     recorders,
		Failed:        chosen.failed,
		Refused:       func(pod *corev1.Pod) string { return refusedByPolicy(ref.Get(), pod) },
		Judged:        judges.judged,
		Hinted:        judges.hinted,
		RefusedReason: tenancy.ReasonPolicyForbids,
	}.Build(ctx)
}

// refusedByPolicy returns why a policy forbids that a pod of the pod view is placed, "" if it does not: what the pod
// demands of nodes, its claims of volumes and devices, and the profile that it names. A pod that names labels that the
// policy does not show is not looked at, because all that is said about it says which nodes have them.
func refusedByPolicy(current *policy.Policy, pod *corev1.Pod) string {
	refusals := slices.Concat(policy.Demands(current, &pod.Spec), policy.Claims(current, &pod.Spec), policy.Devices(&pod.Spec))
	if len(refusals) > 0 {
		return policy.Words(current, refusals)
	}
	allowed := current.Spec().Scheduling.PodSchedulers
	if len(allowed) == 0 || slices.Contains(allowed, pod.Spec.SchedulerName) {
		return ""
	}
	return fmt.Sprintf("schedulerName %q is not allowed: use one of %q (scheduling.podSchedulers of TenantPolicy %s)",
		pod.Spec.SchedulerName, allowed, current.Name())
}

// retryWaiting lets more pods into queue, and tries again those that wait in it, whenever another policy is in force,
// until ctx ends.
func retryWaiting(ctx context.Context, ref *policy.Ref, changed <-chan struct{}, pods corev1listers.PodLister, queue *tenantQueue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		_, changed = ref.Watch()
		queue.policyChanged()
		activate(ctx, pods, queue, func(*corev1.Pod) bool { return true })
	}
}

// activate tries again the pods that wait in queue and of which is is true.
func activate(ctx context.Context, pods corev1listers.PodLister, queue *tenantQueue, is func(*corev1.Pod) bool) {
	all, err := pods.List(labels.Everything())
	utilruntime.Must(err) // a lister fails on an invalid selector only
	waiting := map[string]*corev1.Pod{}
	for _, pod := range all {
		if pod.Spec.NodeName == "" && is(pod) {
			waiting[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	queue.Activate(klog.FromContext(ctx), waiting)
}

// boundedRecorder drops Events beyond a rate: each one is a request to the tenant's API server, and the broadcaster
// remembers it for some minutes. How many wait for that API server is bounded by eventWriter.
type boundedRecorder struct {
	events.EventRecorder
	rate *rate.Limiter
}

// Eventf implements events.EventRecorder.
func (r boundedRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if r.rate.Allow() {
		r.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
	}
}

// reasonScheduled: kube-scheduler bound a pod. podRecorder drops these Events.
const reasonScheduled = "Scheduled"

// podRecorder drops the Events Scheduled, each of which costs the tenant's API server a request: the super cluster's
// scheduler records one next, and the syncer copies it to the tenant with the node's name.
type podRecorder struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r podRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if reason != reasonScheduled {
		r.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
	}
}

// profileNames returns the names of the profiles of a scheduler.
func profileNames(cfg *config.KubeSchedulerConfiguration) (names []string) {
	for i := range cfg.Profiles {
		names = append(names, cfg.Profiles[i].SchedulerName)
	}
	return names
}

// explain replaces kube-scheduler's status for a pod whose tenant has no placements by the refusal of
// NamespacePlacement, whose hints then queue the pod again: kube-scheduler calls no plugin when there are no nodes.
func explain(pod *corev1.Pod, status *fwk.Status) *fwk.Status {
	if status.AsError() != scheduler.ErrNoNodesAvailable { //nolint:errorlint // kube-scheduler compares it so too
		return status
	}
	diagnosis := framework.Diagnosis{
		NodeToStatus:         framework.NewDefaultNodeToStatus(),
		PreFilterMsg:         namespaceplacement.ErrReasonNoPlacement,
		UnschedulablePlugins: sets.New(namespaceplacement.Name),
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&framework.FitError{Pod: pod, Diagnosis: diagnosis})
}
