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
type reconcilers map[concern]reconcile.TypedReconciler[request]

// Reconcile passes a request to the reconciler of its concern. A conflict means that an informer is behind: the request
// is requeued, and it is no error.
func (r reconcilers) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	reconciler, exists := r[item.concern]
	if !exists {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("no reconciler for %q", item.concern))
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
	dispatcher *Dispatcher
	placements client.Reader
	nodes      *nodeReconciler
	policy     *policy.Ref
	limits     *tenantLimits
	choices    *choices
	reconcile  reconcilers
	evictor    *evictor
	// fail ends the connection: an event handler panicked, and its event is lost.
	fail func(error)
}

// newTenantController requests the informers that the controller needs: factory is started afterwards. chosen is nil
// where the tenant's pod scheduler runs in another process.
func newTenantController(
	t *Tenants, tenant *tenants.Tenant, api kubernetes.Interface, factory informers.SharedInformerFactory, nodes *view.Source,
	chosen *choices, recorder events.EventRecorder, fail func(error),
) *tenantController {
	c := &tenantController{
		key: tenant.Key, informers: factory, dispatcher: t.Dispatcher, placements: t.Client, fail: fail,
		policy: tenant.Policy, limits: newTenantLimits(tenant.Policy), choices: chosen, reconcile: reconcilers{},
		nodes: &nodeReconciler{key: tenant.Key, placements: t.Client, virtualNodes: t.Dispatcher.VirtualNodes, nodes: nodes},
	}
	if t.Part != PartPlacements {
		c.reconcile[concernNodes] = c.nodes
		c.reconcile[concernPod] = &podReconciler{
			key: tenant.Key, store: t.Store, api: api, pods: factory.Core().V1().Pods().Lister(), choices: chosen, policy: tenant.Policy, recorder: recorder,
			virtualNodes: t.Dispatcher.VirtualNodes, clock: clock.RealClock{},
		}
	}
	if chosen != nil { // then the informers project claims, too
		c.reconcile[concernClaim] = &claimReconciler{
			key: tenant.Key, api: api, placements: t.Client, virtualNodes: t.Dispatcher.VirtualNodes, free: t.Dispatcher.storage.sizes, recorder: recorder, clock: clock.RealClock{}, shows: tenant.Policy.ShowsClass,
			claims: factory.Core().V1().PersistentVolumeClaims().Lister(), classes: factory.Storage().V1().StorageClasses().Lister(),
		}
		held := t.heldOf(tenant)
		c.reconcile[concernClaimRelease] = &claimReleaser{
			api: api, claims: factory.Core().V1().PersistentVolumeClaims().Lister(), pool: t.Dispatcher, meta: t.Store.live, clock: clock.RealClock{}, held: held,
		}
		c.reconcile[concernClaimHome] = &homeReleaser{
			key: tenant.Key, api: api, claims: factory.Core().V1().PersistentVolumeClaims().Lister(), store: t.Store, pool: t.Dispatcher, recorder: recorder,
			clock: clock.RealClock{}, held: held,
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
	if releaser, releases := c.reconcile[concernClaimRelease].(*claimReleaser); releases {
		releaser.snapshots, err = snapshotsOf(cfg)
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
	shows := tenant.Policy.ShowsClass
	about := namespaceEvents{quotas: quotas, recorder: recorder}
	c.evictor = &evictor{
		post: postEvictions(api), remove: deletions(api), pods: pods, namespaces: lister, events: about, clock: clock.RealClock{}, metrics: t.Metrics,
	}
	maps.Copy(c.reconcile, reconcilers{
		concernNamespace: &namespaceReconciler{
			key: tenant.Key, store: t.Store, api: api, namespaces: lister, quotas: quotas, usage: t.Usage,
			clock: clock.RealClock{}, profiles: t.Profiles, defaultSlice: t.DefaultSlice, quotaGrace: t.QuotaGrace,
			policy: tenant.Policy, limits: c.limits, events: about, changes: newChangeLimiter(),
			evictor:    c.evictor,
			recognized: func(ctx context.Context) (types.UID, error) { return controlPlaneOf(ctx, t.Client, tenant) },
		},
		concernAnnotation: &annotationReconciler{
			key: tenant.Key, store: t.Store, api: api, namespaces: lister, events: about,
			clock: clock.RealClock{}, policy: tenant.Policy, limits: c.limits, restores: newRestoreLimiter(),
		},
		concernEvent: &eventReconciler{key: tenant.Key, store: t.Store, namespaces: lister, events: about},
		concernRelocation: &relocationReconciler{
			key: tenant.Key, store: t.Store, pods: pods, claims: claims, classes: classes, namespaces: lister, usage: t.Usage,
			virtualNodes: t.Dispatcher.VirtualNodes, judge: &t.Dispatcher.judge, judgements: rate.NewLimiter(judgementsPerSecond, judgementsBurst),
			storage: func(superCluster, class string, size int64) bool {
				return !shows(class) || t.Dispatcher.storage.sizes()[superCluster].Holds(class, size)
			},
			policy: tenant.Policy, limits: c.limits, clock: clock.RealClock{}, events: about, recorder: recorder, attempts: map[string]attempt{},
		},
		concernMove: &moveReconciler{
			key: tenant.Key, store: t.Store, namespaces: lister, usage: t.Usage, policy: tenant.Policy, limits: c.limits, clock: clock.RealClock{}, events: about,
		},
		concernOutOfService: &outOfServiceReconciler{key: tenant.Key, api: api, virtualNodes: t.Dispatcher.VirtualNodes, meta: t.Store.live, clock: clock.RealClock{}},
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
		defer c.evictor.stop()
	}
	return runController(ctx, c.reconcile, c.watch)
}

// runController runs an unmanaged controller whose queue watch fills, until ctx ends.
func runController(ctx context.Context, reconciler reconcile.TypedReconciler[request], watch source.TypedFunc[request]) error {
	logger := klog.FromContext(ctx)
	unmanaged, err := controller.NewTypedUnmanaged(tenantControllerName, controller.TypedOptions[request]{
		SkipNameValidation:    ptr.To(true), // a thousand tenants share the name
		RecoverPanic:          ptr.To(true),
		ReconciliationTimeout: reconcileTimeout,
		Reconciler:            reconciler,
		RateLimiter:           workqueue.NewTypedItemExponentialFailureRateLimiter[request](50*time.Millisecond, time.Minute),
		LogConstructor: func(item *request) logr.Logger {
			if item == nil {
				return logger.V(2) // that it starts and stops
			}
			return logger.WithValues("concern", item.concern, "namespace", item.namespace, "name", item.name)
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
func (c *tenantController) watch(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	queue = concerned{queue, c.reconcile}
	context.AfterFunc(ctx, c.dispatcher.subscribe(c.key, subscriber{
		placementChanged: func(change placementChange) {
			for _, item := range requestsFor(change) {
				queue.Add(item)
			}
			queue.Add(request{concern: concernClaim})
		},
		freed: func(namespace string) { queue.Add(request{concern: concernNamespace, namespace: namespace}) },
		nodesChanged: func() {
			queue.Add(request{concern: concernNodes})
			queue.Add(request{concern: concernOutOfService})
			queue.Add(request{concern: concernClaim})
			queue.Add(request{concern: concernClaimRelease})
			queue.Add(request{concern: concernClaimHome})
		},
		storageChanged: func() { queue.AddAfter(request{concern: concernClaim}, claimsInterval) },
	}))
	queue.Add(request{concern: concernNodes})
	queue.Add(request{concern: concernOutOfService})
	if c.choices != nil {
		c.choices.bind(func(namespace, name string) {
			queue.Add(request{concern: concernPod, namespace: namespace, name: name})
		})
	}
	if _, keeps := c.reconcile[concernNamespace]; keeps {
		if err := c.watchNamespaces(ctx, queue); err != nil {
			return err
		}
	}
	c.handle(c.informers.Core().V1().Pods().Informer(), podHandler(queue, c.choices, clock.RealClock{}))
	if _, gives := c.reconcile[concernClaim]; gives {
		c.watchClaims(queue)
	}
	return nil
}

// watchClaims is watch for the homes of claims.
func (c *tenantController) watchClaims(queue workqueue.TypedRateLimitingInterface[request]) {
	claimChanged := func(claim *corev1.PersistentVolumeClaim) {
		if homeless(claim) {
			queue.Add(homeRequest(claim))
		}
		if mayBeStranded(claim) {
			queue.Add(request{concern: concernClaimHome, namespace: claim.Namespace})
		}
		if len(witnessesOf(claim)) > 0 {
			queue.Add(request{concern: concernClaimRelease, namespace: claim.Namespace, name: claim.Name})
		}
	}
	claimGone := func(claim *corev1.PersistentVolumeClaim) {
		queue.Add(request{concern: concernClaim, namespace: claim.Namespace, name: claim.Name})
		if claimhome.Of(claim) != "" { // there is room for others
			queue.Add(request{concern: concernClaim, namespace: claim.Namespace})
		}
	}
	c.handle(c.informers.Core().V1().PersistentVolumeClaims().Informer(), engage.ObjectHandler(claimChanged, claimGone))
	queue.Add(request{concern: concernClaimRelease})
	classChanged := func(*storagev1.StorageClass) { queue.Add(request{concern: concernClaim}) }
	c.handle(c.informers.Storage().V1().StorageClasses().Informer(), engage.ObjectHandler(classChanged, classChanged))
}

// handle adds a handler to an informer of the tenant, which recovers its panics (boundedFactory).
func (c *tenantController) handle(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
	// Adding a handler fails only on a stopped informer.
	_, _ = informer.AddEventHandler(handler)
}

// watchNamespaces is watch for what NamespacePlacements are made of.
func (c *tenantController) watchNamespaces(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	namespace := func(name string) { queue.Add(request{concern: concernNamespace, namespace: name}) }
	c.limits.bind(namespace)
	_, policyChanged := c.policy.Watch()
	go c.followPolicy(ctx, policyChanged, namespace)
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := c.placements.List(ctx, placements, client.InNamespace(c.key)); err != nil {
		return fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	for i := range placements.Items { // namespaces that were deleted while no controller ran
		namespace(placements.Items[i].Name)
		if placements.Items[i].Annotations[schedulerv1alpha1.AnnotationMove] != "" {
			queue.Add(request{concern: concernMove, namespace: placements.Items[i].Name})
		}
	}
	namespaceChanged := func(changed *corev1.Namespace) {
		namespace(changed.Name)
		queue.Add(request{concern: concernAnnotation, namespace: changed.Name})
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
	workqueue.TypedRateLimitingInterface[request]
	reconcile reconcilers
}

// Add implements workqueue.TypedInterface.
func (q concerned) Add(item request) {
	if _, here := q.reconcile[item.concern]; here {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q concerned) AddAfter(item request, delay time.Duration) {
	if _, here := q.reconcile[item.concern]; here {
		q.TypedRateLimitingInterface.AddAfter(item, delay)
	}
}

// followPolicy calls changed for each namespace of the tenant that asks for anything, whenever another policy is in
// force, until ctx ends.
func (c *tenantController) followPolicy(ctx context.Context, policyChanged <-chan struct{}, changed func(namespace string)) {
	defer engage.Recover(ctx, "policy of the tenant", c.fail)
	for {
		select {
		case <-ctx.Done():
			return
		case <-policyChanged:
		}
		_, policyChanged = c.policy.Watch()
		for _, namespace := range c.limits.all() {
			changed(namespace)
		}
	}
}

// requestsFor returns the requests that a change of a NamespacePlacement enqueues.
func requestsFor(change placementChange) []request {
	np := change.current
	if np == nil {
		np = change.old
	}
	items := []request{
		{concern: concernNodes},
		{concern: concernNamespace, namespace: np.Name},
		{concern: concernAnnotation, namespace: np.Name},
		{concern: concernClaimHome, namespace: np.Name},
	}
	if np.Annotations[schedulerv1alpha1.AnnotationMove] != "" {
		items = append(items, request{concern: concernMove, namespace: np.Name})
	}
	for _, condition := range announced(change) {
		items = append(items, request{concern: concernEvent, namespace: np.Name, name: condition})
	}
	if change.losesCluster() {
		items = append(items, request{concern: concernPod, namespace: np.Name})
	}
	return items
}

// podHandler enqueues the pods that may need a repair, and the namespaces of those that wait, and forgets the choices
// that are settled. However many pods of a namespace wait, the queue holds their namespace once.
func podHandler(queue workqueue.TypedRateLimitingInterface[request], chosen *choices, clock clock.PassiveClock) cache.ResourceEventHandler {
	repair := func(pod *corev1.Pod) {
		if chosen.observe(pod) {
			queue.Add(request{concern: concernPod, namespace: pod.Namespace, name: pod.Name})
		}
		if _, waits := waitsSince(pod, clock.Now()); waits {
			queue.AddAfter(request{concern: concernRelocation, namespace: pod.Namespace}, relocationDelay)
		}
	}
	return engage.ObjectHandler(repair, func(pod *corev1.Pod) { chosen.forget(pod.UID) })
}
