package scheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
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
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins"
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

// Tenants runs, for each tenant, a pod scheduler and the controller of its NamespacePlacements.
type Tenants struct {
	// Client reads the meta cluster from a cache.
	Client client.Reader
	// Store reads and writes NamespacePlacements.
	Store *Store
	// Usage tells what super clusters run.
	Usage Usage
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
}

// Engage works on one tenant until ctx ends. It is a tenants.Engage. A panic of an event handler or of the projection
// of pods ends it with a Failure, so that the next connection reads everything again. A panic in kube-scheduler's own
// goroutines, its plugins' included, still ends the process.
func (t *Tenants) Engage(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := t.engage(ctx, tenant, ready, cancel)
	var panicked *engage.Failure
	if errors.As(context.Cause(ctx), &panicked) {
		return panicked
	}
	return err
}

// engage is Engage until ctx ends. fail ends ctx.
func (t *Tenants) engage(ctx context.Context, tenant *tenants.Tenant, ready func(), fail func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	cfg := rest.CopyConfig(tenant.Config)
	cfg.QPS, cfg.Burst = tenantQPS, tenantBurst
	failures := &readFailures{}
	cfg.Wrap(failures.wrap)
	api, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, controllerName))
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: api.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("recording Events: %w", err)
	}
	defer broadcaster.Shutdown()

	nodes := view.NewNodeSource()
	chosen := newChoices(profileNames(t.PodConfig)...)
	factory := tenantInformers(ctx, api, nodes, chosen, tenant.Bounds, fail)
	eventRate := rate.NewLimiter(eventsPerSecond, eventBurst)
	recorder := boundedRecorder{broadcaster.NewRecorder(scheme.Scheme, controllerName), eventRate}
	controller := newTenantController(t, tenant, api, factory, nodes, chosen, recorder, fail)
	sched, err := t.podScheduler(ctx, tenant.Policy, chosen, cfg, api, factory, func(name string) events.EventRecorder {
		return podRecorder{boundedRecorder{broadcaster.NewRecorder(scheme.Scheme, name), eventRate}}
	})
	if err != nil {
		return err
	}
	waiting := newTenantQueue(sched.SchedulingQueue, tenant.Policy, recorder, klog.FromContext(ctx))
	sched.SchedulingQueue = waiting
	// kube-scheduler tries pods as soon as its informers have synced: the nodes must be in the view by then.
	if err := controller.nodes.project(ctx); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel() // before Shutdown, which waits for the informers
	if err := waitForCaches(ctx, factory, failures, listPatience); err != nil {
		return err
	}
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return nil // ctx ended
	}
	waiting.open()
	_, policyChanged := tenant.Policy.Watch()
	go func() {
		defer engage.Recover(ctx, "pod scheduler of the tenant", fail)
		retryWaiting(ctx, tenant.Policy, policyChanged, factory.Core().V1().Pods().Lister(), waiting)
	}()
	ready()
	klog.FromContext(ctx).Info("Tenant engaged")
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	err = controller.run(ctx)
	cancel()
	<-done
	return err
}

func (t *Tenants) podScheduler(
	ctx context.Context, ref *policy.Ref, chosen *choices, cfg *rest.Config, api kubernetes.Interface,
	factory informers.SharedInformerFactory, recorders profile.RecorderFactory,
) (*scheduler.Scheduler, error) {
	return kubescheduler.Instance{
		Client:     api,
		KubeConfig: cfg,
		Informers:  factory,
		Config:     t.PodConfig,
		Plugins:    plugins.Options{Chose: chosen.chose},
		Recorders:  recorders,
		Failed:     chosen.failed,
		Refused:    func(pod *corev1.Pod) string { return schedulerRefused(ref, pod) },
	}.Build(ctx)
}

// schedulerRefused returns why a pod must not be placed by the profile that it names, "" if it may.
func schedulerRefused(ref *policy.Ref, pod *corev1.Pod) string {
	current := ref.Get()
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
		all, err := pods.List(labels.Everything())
		utilruntime.Must(err) // a lister fails on an invalid selector only
		waiting := map[string]*corev1.Pod{}
		for _, pod := range all {
			if pod.Spec.NodeName == "" {
				waiting[pod.Namespace+"/"+pod.Name] = pod
			}
		}
		queue.Activate(klog.FromContext(ctx), waiting)
	}
}

// boundedRecorder drops Events beyond a rate: each one is a goroutine until the tenant's API server has answered, or is
// given up.
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
