package scheduling

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
)

// Reasons of Events in tenant control planes.
const (
	reasonPlaced             = "Placed"
	reasonNotPlaced          = "NotPlaced"
	reasonSliceTooLarge      = "SliceLargerThanQuota"
	reasonPlacementsRestored = "PlacementsRestored"
)

// Subjects of Events on namespaces. What is said about one replaces what was said before.
const (
	aboutWish  = "wish"
	aboutPlace = "place"
)

// request is one item of work of a placementController: a namespace, one of its pods, or the nodes of the pod view.
type request struct {
	// namespace is "" for the nodes.
	namespace string
	// pod is "" for the namespace itself.
	pod string
}

// placementController keeps the NamespacePlacements of one tenant in line with its namespaces, shows them to the tenant, and keeps
// what tenants write about placements from having an effect.
type placementController struct {
	*Tenants
	tenant     *tenants.Tenant
	api        kubernetes.Interface
	recorder   events.EventRecorder
	nodes      *view.Source
	namespaces corev1listers.NamespaceLister
	quotas     corev1listers.ResourceQuotaLister
	pods       corev1listers.PodLister
	queue      workqueue.TypedRateLimitingInterface[request]

	// The fields below belong to the one worker. They only spare Events and work, and are empty after a restart.

	// said holds reason and message of the last Event by namespace and subject.
	said map[[2]string]string
	// shown holds the placements that were last written onto a namespace.
	shown map[string]string
	// held holds the placements of a namespace that its waiting pods were last compared with.
	held map[string]string
}

func newPlacementController(t *Tenants, tenant *tenants.Tenant, api kubernetes.Interface, factory informers.SharedInformerFactory, nodes *view.Source, recorder events.EventRecorder) *placementController {
	c := &placementController{
		Tenants: t, tenant: tenant, api: api, recorder: recorder, nodes: nodes,
		namespaces: factory.Core().V1().Namespaces().Lister(),
		quotas:     factory.Core().V1().ResourceQuotas().Lister(),
		pods:       factory.Core().V1().Pods().Lister(),
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[request](50*time.Millisecond, time.Minute)),
		said:       map[[2]string]string{},
		shown:      map[string]string{},
		held:       map[string]string{},
	}
	// Adding a handler fails only on a stopped informer.
	_, _ = factory.Core().V1().Namespaces().Informer().AddEventHandler(handlerOf(func(namespace *corev1.Namespace) {
		c.queue.Add(request{namespace: namespace.Name})
	}))
	_, _ = factory.Core().V1().ResourceQuotas().Informer().AddEventHandler(handlerOf(func(quota *corev1.ResourceQuota) {
		c.queue.Add(request{namespace: quota.Namespace})
	}))
	_, _ = factory.Core().V1().Pods().Informer().AddEventHandler(c.podHandler())
	return c
}

func (c *placementController) subscriber() subscriber {
	return subscriber{
		placementChanged: func(namespace string) {
			c.queue.Add(request{})
			c.queue.Add(request{namespace: namespace})
		},
		nodesChanged: func() { c.queue.Add(request{}) },
	}
}

// run works until ctx ends. One worker is enough: a tenant has few namespaces, and each tenant has a worker.
func (c *placementController) run(ctx context.Context) error {
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := c.Client.List(ctx, placements, client.InNamespace(c.tenant.Key)); err != nil {
		return fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	for i := range placements.Items { // namespaces that went while nobody looked
		c.queue.Add(request{namespace: placements.Items[i].Name})
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for c.next(ctx) {
		}
	}, time.Second)
	return nil
}

func (c *placementController) next(ctx context.Context) bool {
	item, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(item)
	if err := c.reconcile(ctx, item); err != nil {
		if !apierrors.IsConflict(err) && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Reconciling a namespace", "namespace", item.namespace, "pod", item.pod)
		}
		c.queue.AddRateLimited(item)
		return true
	}
	c.queue.Forget(item)
	return true
}

func (c *placementController) reconcile(ctx context.Context, item request) error {
	switch {
	case item.namespace == "":
		return c.projectNodes(ctx)
	case item.pod != "":
		return c.repairPod(ctx, item)
	}
	return c.reconcileNamespace(ctx, item.namespace)
}

// projectNodes brings the nodes of the pod view in line with the tenant's placements.
func (c *placementController) projectNodes(ctx context.Context) error {
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := c.Client.List(ctx, placements, client.InNamespace(c.tenant.Key)); err != nil {
		return fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	projected := view.TenantNodes(c.Hub.virtualNodes(), placements.Items)
	objects := make([]client.Object, len(projected))
	for i := range projected {
		objects[i] = projected[i]
	}
	c.nodes.Set("", objects...)
	return nil
}

func (c *placementController) reconcileNamespace(ctx context.Context, name string) error {
	np := &schedulerv1alpha1.NamespacePlacement{}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.tenant.Key, Name: name}, np); apierrors.IsNotFound(err) {
		np = nil
	} else if err != nil {
		return fmt.Errorf("reading the NamespacePlacement: %w", err)
	}
	c.recheckPods(name, np)
	namespace, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return c.remove(ctx, name, np)
	}
	if err != nil {
		return fmt.Errorf("reading the namespace: %w", err)
	}
	if np != nil && np.Spec.NamespaceUID != namespace.UID {
		return c.remove(ctx, name, np) // of an earlier namespace of this name
	}
	if namespace.DeletionTimestamp != nil {
		return nil // its pods still run
	}
	quotas, err := c.quotas.ResourceQuotas(name).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing quotas: %w", err)
	}
	var previous *schedulerv1alpha1.NamespacePlacementSpec
	if np != nil {
		previous = &np.Spec
	}
	spec, problem := placement.Spec(namespace, valuesOf(quotas), previous, c.DefaultSlice)
	if unknown := c.checkProfile(&spec, previous); problem == nil {
		problem = unknown
	}
	if problem != nil {
		c.event(namespace, aboutWish, corev1.EventTypeWarning, problem.Reason, problem.Message)
	} else if message := placement.SliceLargerThanQuota(namespace, &spec); message != "" {
		c.event(namespace, aboutWish, corev1.EventTypeWarning, reasonSliceTooLarge, message)
	} else {
		delete(c.said, [2]string{name, aboutWish})
	}
	if np, err = c.write(ctx, name, np, spec, problem); err != nil {
		return err
	}
	if np != nil {
		c.announce(namespace, np)
	}
	return c.show(ctx, namespace, np)
}

// checkProfile puts the last good profile in place of one that is not there: nobody would place the slices, or say why not.
func (c *placementController) checkProfile(spec, previous *schedulerv1alpha1.NamespacePlacementSpec) *tenancy.Reason {
	wanted := spec.SchedulerName
	if wanted == "" || c.Profiles.Has(wanted) {
		return nil
	}
	spec.SchedulerName = ""
	if previous != nil && c.Profiles.Has(previous.SchedulerName) {
		spec.SchedulerName = previous.SchedulerName
	}
	return &tenancy.Reason{Reason: schedulerv1alpha1.ReasonUnknownScheduler, Message: fmt.Sprintf(
		"Annotation %s: no profile is named %q: use one of %q, or none", schedulerv1alpha1.AnnotationScheduler, wanted, sets.List(c.Profiles))}
}

// write brings spec and status of the NamespacePlacement in line and returns it as it is then, nil if there is none.
func (c *placementController) write(ctx context.Context, name string, np *schedulerv1alpha1.NamespacePlacement, spec schedulerv1alpha1.NamespacePlacementSpec, problem *tenancy.Reason) (*schedulerv1alpha1.NamespacePlacement, error) {
	switch {
	case np == nil && problem == nil && len(spec.Quota) == 0:
		return nil, nil
	case np == nil:
		np = &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: c.tenant.Key, Name: name}, Spec: spec}
		if err := c.Client.Create(ctx, np); err != nil {
			return nil, fmt.Errorf("creating the NamespacePlacement: %w", err)
		}
	case !equality.Semantic.DeepEqual(np.Spec, spec):
		np = np.DeepCopy()
		np.Spec = spec
		if err := c.Client.Update(ctx, np); err != nil {
			return nil, fmt.Errorf("updating the NamespacePlacement: %w", err)
		}
	}
	facts := placement.Facts{Now: time.Now(), Accepted: &tenancy.Reason{}}
	if problem != nil {
		facts.Accepted = problem
	}
	if placement.NeedsUsed(np) {
		var err error
		if facts.Used, err = c.used(name); err != nil {
			return nil, err
		}
	}
	status := np.DeepCopy()
	status.Status, _, _ = placement.Next(np, facts)
	if equality.Semantic.DeepEqual(np.Status, status.Status) {
		return np, nil
	}
	if err := c.Client.Status().Update(ctx, status); err != nil {
		return nil, fmt.Errorf("updating the NamespacePlacement's status: %w", err)
	}
	return status, nil
}

// used returns what the pods of a namespace request in each super cluster.
func (c *placementController) used(namespace string) (map[string]slice.Amounts, error) {
	pods, err := c.pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	used := map[string]slice.Amounts{}
	for _, pod := range pods {
		if cluster := pod.Spec.NodeName; cluster != "" {
			used[cluster] = used[cluster].Plus(view.Used(pod))
		}
	}
	return used, nil
}

// remove deletes the NamespacePlacement of a namespace, once the tenant control plane itself says that the namespace is gone.
func (c *placementController) remove(ctx context.Context, name string, np *schedulerv1alpha1.NamespacePlacement) error {
	delete(c.shown, name)
	maps.DeleteFunc(c.said, func(key [2]string, _ string) bool { return key[0] == name })
	if np == nil {
		return nil
	}
	live, err := c.api.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && live.UID == np.Spec.NamespaceUID:
		c.queue.AddAfter(request{namespace: name}, time.Second) // the informer is behind
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("asking for the namespace: %w", err)
	}
	err = c.Client.Delete(ctx, np, client.Preconditions{UID: &np.UID, ResourceVersion: &np.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the NamespacePlacement: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Namespace is gone", "namespace", name)
	return nil
}

// show writes the placements onto the namespace, where the tenant reads them. A tenant that changed them finds them put back.
func (c *placementController) show(ctx context.Context, namespace *corev1.Namespace, np *schedulerv1alpha1.NamespacePlacement) error {
	want := ""
	if np != nil {
		want = placement.Encode(np.Status.Placements)
	}
	got := namespace.Annotations[schedulerv1alpha1.AnnotationPlacements]
	if got == want {
		c.shown[namespace.Name] = want
		return nil
	}
	var value any // null removes the annotation
	if want != "" {
		value = want
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": namespace.UID, "resourceVersion": namespace.ResourceVersion,
		"annotations": map[string]any{schedulerv1alpha1.AnnotationPlacements: value},
	}})
	if err != nil {
		return fmt.Errorf("encoding placements: %w", err)
	}
	if _, err := c.api.CoreV1().Namespaces().Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("showing placements: %w", err) // a conflict, mostly: the informer has not met what was written last
	}
	if last, known := c.shown[namespace.Name]; known && got != last {
		c.recorder.Eventf(namespace, nil, corev1.EventTypeWarning, reasonPlacementsRestored, "Restore",
			"Annotation %s shows the placements and was put back", schedulerv1alpha1.AnnotationPlacements)
	}
	c.shown[namespace.Name] = want
	return nil
}

// recheckPods queues the pods of a namespace that wait in a super cluster for a node, when its placements have changed: it may hold nothing
// there any more. The placements are the cache's, which repairPod looks at too: a pod that chose its super cluster just before a write is
// judged again after it. np is nil when there is none.
func (c *placementController) recheckPods(namespace string, np *schedulerv1alpha1.NamespacePlacement) {
	held := ""
	if np != nil {
		held = placement.Encode(np.Status.Placements)
	}
	if c.held[namespace] == held {
		return
	}
	c.held[namespace] = held
	if held == "" {
		delete(c.held, namespace)
	}
	pods, err := c.pods.Pods(namespace).List(labels.Everything())
	utilruntime.Must(err) // a lister fails on an invalid selector only
	for _, pod := range pods {
		if pod.Spec.NodeName != "" && pod.Annotations[view.AnnotationBoundNode] == "" {
			c.queue.Add(request{namespace: namespace, pod: pod.Name})
		}
	}
}

// announce tells the tenant, by an Event on its namespace, when the Placed condition changed.
func (c *placementController) announce(namespace *corev1.Namespace, np *schedulerv1alpha1.NamespacePlacement) {
	for i := range np.Status.Conditions {
		condition := &np.Status.Conditions[i]
		switch {
		case condition.Type != schedulerv1alpha1.ConditionPlaced, condition.Reason == schedulerv1alpha1.ReasonPending:
		case condition.Status == metav1.ConditionTrue:
			c.event(namespace, aboutPlace, corev1.EventTypeNormal, reasonPlaced, fmt.Sprintf("%s: %s", condition.Message, placement.Encode(np.Status.Placements)))
		default:
			c.event(namespace, aboutPlace, corev1.EventTypeWarning, reasonNotPlaced, condition.Message)
		}
	}
}

// event records an Event on a namespace unless the last one about the same subject said the same.
func (c *placementController) event(namespace *corev1.Namespace, subject, kind, reason, message string) {
	key, text := [2]string{namespace.Name, subject}, reason+": "+message
	if c.said[key] == text {
		return
	}
	c.said[key] = text
	c.recorder.Eventf(namespace, nil, kind, reason, "Place", "%s", message)
}

func valuesOf(quotas []*corev1.ResourceQuota) []corev1.ResourceQuota {
	values := make([]corev1.ResourceQuota, len(quotas))
	for i := range quotas {
		values[i] = *quotas[i]
	}
	return values
}
