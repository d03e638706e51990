package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/kubescheduler"
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

	// listPatience is how long lists that fail are tried before the tenant is called unreachable.
	listPatience = time.Minute
)

// Tenants works on tenants: for each it runs a pod scheduler and the controller of its namespaces' placements.
type Tenants struct {
	// Client reads and writes the meta cluster; reads come from a cache.
	Client client.Client
	// Hub tells of changes in the meta cluster.
	Hub *Hub
	// PodConfig holds the profiles of the pod schedulers.
	PodConfig *config.KubeSchedulerConfiguration
	// Profiles are the names of the namespace scheduler's profiles.
	Profiles sets.Set[string]
	// DefaultSlice is the slice size for resources that a tenant does not name.
	DefaultSlice slice.Amounts
}

// Engage works on one tenant until ctx ends. It is a tenants.Engage.
func (t *Tenants) Engage(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	cfg := rest.CopyConfig(tenant.Config)
	cfg.QPS, cfg.Burst = tenantQPS, tenantBurst
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
	factory := tenantInformers(api, nodes)
	controller := newPlacementController(t, tenant, api, factory, nodes, broadcaster.NewRecorder(scheme.Scheme, controllerName))
	defer controller.queue.ShutDown()
	unsubscribe := t.Hub.subscribe(tenant.Key, controller.subscriber())
	defer unsubscribe()

	sched, err := t.podScheduler(ctx, cfg, api, factory, broadcaster)
	if err != nil {
		return err
	}
	// The nodes must be there before the first pod is tried.
	if err := controller.projectNodes(ctx); err != nil {
		return err
	}
	failure := watchFailure(factory)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel() // before Shutdown, which waits for the informers
	if err := waitForCaches(ctx, factory, failure, listPatience); err != nil {
		return err
	}
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return nil // ctx ended
	}
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

// tenantInformers returns the informers of a tenant: its pods through the pod view's projection, and nodes from the view alone.
func tenantInformers(api kubernetes.Interface, nodes *view.Source) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithTransform(ctrlcache.TransformStripManagedFields()))
	pods := factory.InformerFor(&corev1.Pod{}, func(api kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return coreinformers.NewFilteredPodInformer(api, metav1.NamespaceAll, 0, indexers, func(options *metav1.ListOptions) {
			options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
		})
	})
	// InformerFor sets the factory's own transform, so ours comes after it. It fails only on a started informer.
	_ = pods.SetTransform(view.TenantPod)
	factory.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(nodes, &corev1.Node{}, 0, cache.Indexers{})
	})
	return factory
}

// watchFailure returns where the last error of an informer that reads the tenant control plane will stand. The informers are not started yet.
func watchFailure(factory informers.SharedInformerFactory) *atomic.Pointer[error] {
	failure := &atomic.Pointer[error]{}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Pods().Informer(), factory.Core().V1().Namespaces().Informer(),
		factory.Core().V1().ResourceQuotas().Informer(), factory.Policy().V1().PodDisruptionBudgets().Informer(),
	} {
		// It fails only on a started informer.
		_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
			failure.Store(&err)
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		})
	}
	return failure
}

// waitForCaches waits until everything is listed. When that takes longer than patience because a list fails, it returns why: a kubeconfig
// without the rights that are needed would else leave a tenant connecting for ever, with the reason in the log alone.
func waitForCaches(ctx context.Context, factory informers.SharedInformerFactory, failure *atomic.Pointer[error], patience time.Duration) error {
	for ctx.Err() == nil {
		waiting, stop := context.WithTimeout(ctx, patience)
		synced := factory.WaitForCacheSync(waiting.Done())
		stop()
		if !slices.Contains(slices.Collect(maps.Values(synced)), false) {
			return nil
		}
		if reason := failure.Swap(nil); reason != nil {
			return fmt.Errorf("reading objects: %w", *reason)
		}
	}
	return nil
}

func (t *Tenants) podScheduler(
	ctx context.Context, cfg *rest.Config, api kubernetes.Interface, factory informers.SharedInformerFactory,
	broadcaster events.EventBroadcaster,
) (*scheduler.Scheduler, error) {
	return kubescheduler.Instance{
		Client:     api,
		KubeConfig: cfg,
		Informers:  factory,
		Config:     t.PodConfig,
		Plugins:    plugins.Options{},
		Recorders: func(name string) events.EventRecorder {
			return podRecorder{broadcaster.NewRecorder(scheme.Scheme, name)}
		},
		Failed: explain,
	}.Build(ctx)
}

// reasonScheduled is kube-scheduler's reason of an Event for every pod that it binds.
const reasonScheduled = "Scheduled"

// podRecorder leaves out that a pod was scheduled: the super cluster's scheduler says it next, and the syncer tells the tenant with the
// node's name, as in any cluster. Each such Event costs the tenant's API server a request.
type podRecorder struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r podRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if reason != reasonScheduled {
		r.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
	}
}

// explain gives a reason to a pod whose tenant holds nothing in the pool: kube-scheduler does not ask plugins when there are no nodes.
func explain(_ context.Context, pod *corev1.Pod, status *fwk.Status) *fwk.Status {
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
