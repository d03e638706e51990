package scheduling

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	storagev1listers "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/claims"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/eviction"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/podscheduler"
	"github.com/superpool/superpool/internal/scheduling/rebalance"
	"github.com/superpool/superpool/internal/scheduling/requests"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
)

const (
	// tenantControllerName is the name of all tenants' controllers, in metrics.
	tenantControllerName = "tenant"
	// reconcileTimeout bounds one reconcile: a tenant's API server that accepts connections may never answer.
	reconcileTimeout = time.Minute
)

// reconcilers holds the reconciler of each concern. A controller of its own for each would cost a tenant 20 goroutines
// and 120 kB more (BenchmarkIdleController).
type reconcilers map[dispatch.Concern]reconcile.TypedReconciler[dispatch.Request]

// Reconcile passes a request to the reconciler of its concern. A conflict means that an informer is behind: the request
// is requeued, and it is no error.
func (r reconcilers) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	reconciler, exists := r[item.Concern]
	if !exists {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("no reconciler for %q", item.Concern))
	}
	result, err := reconciler.Reconcile(ctx, item)
	if apierrors.IsConflict(err) {
		//nolint:staticcheck // RequeueAfter forgets the backoff, and a tenant's webhook can answer each patch with a conflict.
		return reconcile.Result{Requeue: true}, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return reconcile.Result{}, nil // the controller ends
	}
	return result, err
}

// tenantController is the controller of one tenant: informers and the Dispatcher fill its queue, one worker empties it.
// A panic costs the request that caused it one attempt: it is recovered, counted
// (controller_runtime_reconcile_panics_total) and tried again with backoff.
type tenantController struct {
	key        string
	informers  informers.SharedInformerFactory
	dispatcher *dispatch.Dispatcher
	placements client.Reader
	nodes      *podscheduler.NodeReconciler
	policy     *policy.Ref
	limits     *namespaces.Limits
	choices    *podscheduler.Choices
	reconcile  reconcilers
	evictor    *eviction.Evictor
	// fail ends the connection: an event handler panicked, and its event is lost.
	fail func(error)
}

// newTenantController requests the informers that the controller needs: factory is started afterwards. chosen is nil
// where the tenant's pod scheduler runs in another process.
func newTenantController(
	t *Tenants, tenant *tenants.Tenant, api kubernetes.Interface, factory informers.SharedInformerFactory, nodes *view.Source,
	chosen *podscheduler.Choices, recorder events.EventRecorder, fail func(error),
) *tenantController {
	c := &tenantController{
		key: tenant.Key, informers: factory, dispatcher: t.Dispatcher, placements: t.Client, fail: fail,
		policy: tenant.Policy, limits: namespaces.NewLimits(tenant.Policy), choices: chosen, reconcile: reconcilers{},
		nodes: &podscheduler.NodeReconciler{Key: tenant.Key, Placements: t.Client, VirtualNodes: t.Dispatcher.VirtualNodes, Nodes: nodes},
	}
	if t.Part != PartPlacements {
		c.reconcile[dispatch.ConcernNodes] = c.nodes
		c.reconcile[dispatch.ConcernPod] = &podscheduler.Reconciler{
			Key: tenant.Key, Store: t.Store, API: api, Pods: factory.Core().V1().Pods().Lister(), Choices: chosen, Policy: tenant.Policy, Recorder: recorder,
			VirtualNodes: t.Dispatcher.VirtualNodes, Clock: clock.RealClock{},
		}
	}
	if chosen != nil { // then the informers project claims, too
		c.reconcile[dispatch.ConcernClaim] = &claims.Reconciler{
			Key: tenant.Key, API: api, Placements: t.Client, VirtualNodes: t.Dispatcher.VirtualNodes, Recorder: recorder, Clock: clock.RealClock{},
			Claims: factory.Core().V1().PersistentVolumeClaims().Lister(), Classes: factory.Storage().V1().StorageClasses().Lister(),
		}
		held := t.heldOf(tenant)
		c.reconcile[dispatch.ConcernClaimRelease] = &claims.Releaser{
			API: api, Claims: factory.Core().V1().PersistentVolumeClaims().Lister(), Pool: t.Dispatcher, Meta: t.Store.Live, Clock: clock.RealClock{}, Held: held,
		}
		c.reconcile[dispatch.ConcernClaimHome] = &claims.HomeReleaser{
			Key: tenant.Key, API: api, Claims: factory.Core().V1().PersistentVolumeClaims().Lister(), Store: t.Store, Pool: t.Dispatcher, Recorder: recorder,
			Clock: clock.RealClock{}, Held: held,
		}
	}
	if t.Part != PartPods {
		c.addPlacements(t, tenant, api, recorder)
	}
	return c
}

// releaseSnapshots lets the finalizers of super clusters on VolumeSnapshots be taken off, too, where those of claims
// are.
func (c *tenantController) releaseSnapshots(cfg *rest.Config) (err error) {
	if releaser, releases := c.reconcile[dispatch.ConcernClaimRelease].(*claims.Releaser); releases {
		releaser.Snapshots, err = claims.SnapshotsOf(cfg)
	}
	return err
}

// addPlacements adds what keeps the tenant's NamespacePlacements.
func (c *tenantController) addPlacements(t *Tenants, tenant *tenants.Tenant, api kubernetes.Interface, recorder events.EventRecorder) {
	lister := c.informers.Core().V1().Namespaces().Lister()
	quotas := c.informers.Core().V1().ResourceQuotas().Lister()
	pods := c.informers.Core().V1().Pods().Lister()
	var claims corev1listers.PersistentVolumeClaimLister
	var classes storagev1listers.StorageClassLister
	if c.choices != nil { // then the informers project claims, too
		claims = c.informers.Core().V1().PersistentVolumeClaims().Lister()
		classes = c.informers.Storage().V1().StorageClasses().Lister()
	}
	about := tenantevents.NamespaceEvents{Quotas: quotas, Recorder: recorder}
	c.evictor = &eviction.Evictor{
		Post: eviction.PostEvictions(api), Remove: eviction.Deletions(api), Pods: pods, Namespaces: lister, Events: about, Clock: clock.RealClock{}, Metrics: t.Metrics,
	}
	maps.Copy(c.reconcile, reconcilers{
		dispatch.ConcernNamespace: &namespaces.Reconciler{
			Key: tenant.Key, Store: t.Store, API: api, Namespaces: lister, Quotas: quotas, Usage: t.Usage,
			Clock: clock.RealClock{}, Profiles: t.Profiles, DefaultSlice: t.DefaultSlice, QuotaGrace: t.QuotaGrace,
			Policy: tenant.Policy, Limits: c.limits, Events: about, Changes: namespaces.NewChanges(),
			Evictor:    c.evictor,
			Recognized: func(ctx context.Context) (types.UID, error) { return controlPlaneOf(ctx, t.Client, tenant) },
		},
		dispatch.ConcernAnnotation: &namespaces.AnnotationReconciler{
			Key: tenant.Key, Store: t.Store, API: api, Namespaces: lister, Events: about,
			Clock: clock.RealClock{}, Policy: tenant.Policy, Limits: c.limits, Restores: namespaces.NewRestoreLimiter(),
		},
		dispatch.ConcernEvent: &tenantevents.Reconciler{Key: tenant.Key, Store: t.Store, Namespaces: lister, Events: about},
		dispatch.ConcernRelocation: &requests.RelocationReconciler{
			Key: tenant.Key, Store: t.Store, Pods: pods, Claims: claims, Classes: classes, Namespaces: lister, Usage: t.Usage,
			VirtualNodes: t.Dispatcher.VirtualNodes, Judge: &t.Dispatcher.Judge, Judgements: rate.NewLimiter(requests.JudgementsPerSecond, requests.JudgementsBurst),
			Policy: tenant.Policy, Limits: c.limits, Clock: clock.RealClock{}, Events: about, Recorder: recorder, Attempts: map[string]requests.Attempt{},
		},
		dispatch.ConcernMove: &rebalance.MoveReconciler{
			Key: tenant.Key, Store: t.Store, Namespaces: lister, Usage: t.Usage, Policy: tenant.Policy, Limits: c.limits, Clock: clock.RealClock{}, Events: about,
		},
		dispatch.ConcernOutOfService: &eviction.OutOfServiceReconciler{Key: tenant.Key, API: api, VirtualNodes: t.Dispatcher.VirtualNodes, Meta: t.Store.Live, Clock: clock.RealClock{}},
	})
}

// controlPlaneOf returns the UID of a tenant's control plane as its VirtualCluster records it.
func controlPlaneOf(ctx context.Context, reader client.Reader, tenant *tenants.Tenant) (types.UID, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := reader.Get(ctx, tenant.VirtualCluster, vc); err != nil {
		return "", fmt.Errorf("reading the VirtualCluster: %w", err)
	}
	if vc.UID != tenant.UID {
		return "", nil // another tenant
	}
	return vc.Status.ControlPlaneUID, nil
}

// run works until ctx ends. The informers are synced.
func (c *tenantController) run(ctx context.Context) error {
	if c.evictor != nil {
		defer c.evictor.Stop()
	}
	return runController(ctx, c.reconcile, c.watch)
}

// runController runs an unmanaged controller whose queue watch fills, until ctx ends.
func runController(ctx context.Context, reconciler reconcile.TypedReconciler[dispatch.Request], watch source.TypedFunc[dispatch.Request]) error {
	logger := klog.FromContext(ctx)
	unmanaged, err := controller.NewTypedUnmanaged(tenantControllerName, controller.TypedOptions[dispatch.Request]{
		SkipNameValidation:    ptr.To(true), // a thousand tenants share the name
		RecoverPanic:          ptr.To(true),
		ReconciliationTimeout: reconcileTimeout,
		Reconciler:            reconciler,
		RateLimiter:           workqueue.NewTypedItemExponentialFailureRateLimiter[dispatch.Request](50*time.Millisecond, time.Minute),
		LogConstructor: func(item *dispatch.Request) logr.Logger {
			if item == nil {
				return logger.V(2) // that it starts and stops
			}
			return logger.WithValues("concern", item.Concern, "namespace", item.Namespace, "name", item.Name)
		},
	})
	if err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	if err := unmanaged.Watch(watch); err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	if err := unmanaged.Start(ctx); err != nil {
		return fmt.Errorf("running the controller: %w", err)
	}
	return nil
}

// watch enqueues what exists, and then every change, until ctx ends.
func (c *tenantController) watch(ctx context.Context, queue workqueue.TypedRateLimitingInterface[dispatch.Request]) error {
	queue = concerned{queue, c.reconcile}
	context.AfterFunc(ctx, c.dispatcher.Subscribe(c.key, dispatch.Subscriber{
		PlacementChanged: func(change dispatch.PlacementChange) {
			for _, item := range requestsFor(change) {
				queue.Add(item)
			}
			queue.Add(dispatch.Request{Concern: dispatch.ConcernClaim})
		},
		Freed: func(namespace string) {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: namespace})
		},
		NodesChanged: func() {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernNodes})
			queue.Add(dispatch.Request{Concern: dispatch.ConcernOutOfService})
			queue.Add(dispatch.Request{Concern: dispatch.ConcernClaim})
			queue.Add(dispatch.Request{Concern: dispatch.ConcernClaimRelease})
			queue.Add(dispatch.Request{Concern: dispatch.ConcernClaimHome})
		},
	}))
	queue.Add(dispatch.Request{Concern: dispatch.ConcernNodes})
	queue.Add(dispatch.Request{Concern: dispatch.ConcernOutOfService})
	if c.choices != nil {
		c.choices.Bind(func(namespace, name string) {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernPod, Namespace: namespace, Name: name})
		})
	}
	if _, keeps := c.reconcile[dispatch.ConcernNamespace]; keeps {
		if err := c.watchNamespaces(ctx, queue); err != nil {
			return err
		}
	}
	c.handle(c.informers.Core().V1().Pods().Informer(), podHandler(queue, c.choices, clock.RealClock{}))
	if _, gives := c.reconcile[dispatch.ConcernClaim]; gives {
		c.watchClaims(queue)
	}
	return nil
}

// watchClaims is watch for the homes of claims.
func (c *tenantController) watchClaims(queue workqueue.TypedRateLimitingInterface[dispatch.Request]) {
	claimChanged := func(claim *corev1.PersistentVolumeClaim) {
		if claims.Homeless(claim) {
			queue.Add(claims.HomeRequest(claim))
		}
		if claims.MayBeStranded(claim) {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernClaimHome, Namespace: claim.Namespace})
		}
		if len(claims.WitnessesOf(claim)) > 0 {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernClaimRelease, Namespace: claim.Namespace, Name: claim.Name})
		}
	}
	claimGone := func(claim *corev1.PersistentVolumeClaim) {
		queue.Add(dispatch.Request{Concern: dispatch.ConcernClaim, Namespace: claim.Namespace, Name: claim.Name})
		if claimhome.Of(claim) != "" { // there is room for others
			queue.Add(dispatch.Request{Concern: dispatch.ConcernClaim, Namespace: claim.Namespace})
		}
	}
	c.handle(c.informers.Core().V1().PersistentVolumeClaims().Informer(), engage.ObjectHandler(claimChanged, claimGone))
	queue.Add(dispatch.Request{Concern: dispatch.ConcernClaimRelease})
	classChanged := func(*storagev1.StorageClass) { queue.Add(dispatch.Request{Concern: dispatch.ConcernClaim}) }
	c.handle(c.informers.Storage().V1().StorageClasses().Informer(), engage.ObjectHandler(classChanged, classChanged))
}

// handle adds a handler to an informer of the tenant, which recovers its panics (boundedFactory).
func (c *tenantController) handle(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
	// Adding a handler fails only on a stopped informer.
	_, _ = informer.AddEventHandler(handler)
}

// watchNamespaces is watch for what NamespacePlacements are made of.
func (c *tenantController) watchNamespaces(ctx context.Context, queue workqueue.TypedRateLimitingInterface[dispatch.Request]) error {
	namespace := func(name string) { queue.Add(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: name}) }
	c.limits.Bind(namespace)
	_, policyChanged := c.policy.Watch()
	go c.followPolicy(ctx, policyChanged, namespace)
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := c.placements.List(ctx, placements, client.InNamespace(c.key)); err != nil {
		return fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	for i := range placements.Items { // namespaces that were deleted while no controller ran
		namespace(placements.Items[i].Name)
		if placements.Items[i].Annotations[schedulerv1alpha1.AnnotationMove] != "" {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernMove, Namespace: placements.Items[i].Name})
		}
	}
	namespaceChanged := func(changed *corev1.Namespace) {
		namespace(changed.Name)
		queue.Add(dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: changed.Name})
	}
	c.handle(c.informers.Core().V1().Namespaces().Informer(), engage.ObjectHandler(namespaceChanged, namespaceChanged))
	quotaChanged := func(quota *corev1.ResourceQuota) { namespace(quota.Namespace) }
	quotas := engage.ObjectHandler(quotaChanged, quotaChanged)
	c.handle(c.informers.Core().V1().ResourceQuotas().Informer(), cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: quotas.OnAdd, DeleteFunc: quotas.OnDelete,
		UpdateFunc: func(before, after any) {
			if !sameButForUse(before, after) {
				quotas.OnUpdate(before, after)
			}
		},
	})
	return nil
}

// sameButForUse returns whether nothing but the status of a quota has changed: what is used of it, which each pod
// changes and no NamespacePlacement is made of.
func sameButForUse(before, after any) bool {
	old, wasQuota := before.(*corev1.ResourceQuota)
	current, isQuota := after.(*corev1.ResourceQuota)
	return wasQuota && isQuota && old.UID == current.UID && old.DeletionTimestamp.Equal(current.DeletionTimestamp) &&
		slice.DeepEqual(&old.Spec, &current.Spec)
}

// concerned is a queue that takes what there is a reconciler for: the others run in another process.
type concerned struct {
	workqueue.TypedRateLimitingInterface[dispatch.Request]
	reconcile reconcilers
}

// Add implements workqueue.TypedInterface.
func (q concerned) Add(item dispatch.Request) {
	if _, here := q.reconcile[item.Concern]; here {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q concerned) AddAfter(item dispatch.Request, delay time.Duration) {
	if _, here := q.reconcile[item.Concern]; here {
		q.TypedRateLimitingInterface.AddAfter(item, delay)
	}
}

// followPolicy calls changed for each namespace of the tenant that asks for anything, whenever another policy is in
// force, until ctx ends.
func (c *tenantController) followPolicy(ctx context.Context, policyChanged <-chan struct{}, changed func(namespace string)) {
	defer engage.Recover(ctx, "policy of the tenant", c.fail)
	c.policy.Follow(ctx, policyChanged, func() {
		for _, namespace := range c.limits.All() {
			changed(namespace)
		}
	})
}

// requestsFor returns the requests that a change of a NamespacePlacement enqueues.
func requestsFor(change dispatch.PlacementChange) []dispatch.Request {
	np := change.Current
	if np == nil {
		np = change.Old
	}
	items := []dispatch.Request{
		{Concern: dispatch.ConcernNodes},
		{Concern: dispatch.ConcernNamespace, Namespace: np.Name},
		{Concern: dispatch.ConcernAnnotation, Namespace: np.Name},
		{Concern: dispatch.ConcernClaimHome, Namespace: np.Name},
	}
	if np.Annotations[schedulerv1alpha1.AnnotationMove] != "" {
		items = append(items, dispatch.Request{Concern: dispatch.ConcernMove, Namespace: np.Name})
	}
	for _, condition := range tenantevents.Announced(change) {
		items = append(items, dispatch.Request{Concern: dispatch.ConcernEvent, Namespace: np.Name, Name: condition})
	}
	if change.LosesCluster() {
		items = append(items, dispatch.Request{Concern: dispatch.ConcernPod, Namespace: np.Name})
	}
	return items
}

// podHandler enqueues the pods that may need a repair, and the namespaces of those that wait. However many pods of a
// namespace wait, the queue holds their namespace once.
func podHandler(queue workqueue.TypedRateLimitingInterface[dispatch.Request], chosen *podscheduler.Choices, clock clock.PassiveClock) cache.ResourceEventHandler {
	repair := func(pod *corev1.Pod) {
		if chosen.MayNeedRepair(pod) {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernPod, Namespace: pod.Namespace, Name: pod.Name})
		}
		if _, waits := requests.WaitsSince(pod, clock.Now()); waits {
			queue.AddAfter(dispatch.Request{Concern: dispatch.ConcernRelocation, Namespace: pod.Namespace}, requests.RelocationDelay)
		}
	}
	return engage.ObjectHandler(repair, func(*corev1.Pod) {})
}
