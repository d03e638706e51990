package kinds

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// quietTime is for how long a pod makes no Event while it waits for what is usually there in a moment: a service account, an address,
	// a quota that still counts what was just deleted.
	quietTime = 1500 * time.Millisecond
	// recountTime is for how long the quota refuses a pod until what it counts is checked.
	recountTime = 6 * time.Second
	// configTime is for how long a pod waits for ConfigMaps and Secrets to come down.
	configTime = 12 * time.Second
)

// Pods syncs pods: down what the tenant wants, up where they run and how they fare. A pod goes through these states:
//
//	tenant pod      super pod         step
//	pending         -                 create the super pod
//	pending         unscheduled       tell the tenant why
//	pending         on a node         make the tenant's Node, bind
//	bound           on that node      copy labels, images, sizes down; status up
//	bound           being deleted     delete the tenant pod, with the same grace
//	deleted         exists            delete the super pod, with the grace that is left
//	deleted         -                 remove the tenant pod
//	-               exists            delete the super pod (proof: live read)
//	bound           -                 remove the tenant pod (proof: live read); a finished one stays
//	other UID       exists            delete the super pod
//	bound elsewhere exists            delete the super pod
type Pods struct{ env *Env }

var _ engine.Kind = &Pods{}

// Name implements engine.Kind.
func (p *Pods) Name() string { return KindPod }

// Keys implements engine.Kind.
func (p *Pods) Keys() []engine.Key { return p.env.keys(KindPod) }

// Reconcile implements engine.Kind.
func (p *Pods) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := p.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	tenantPod, inTenant, synced := get[*corev1.Pod](tenant.Cache, KindPod, key.Namespace, key.Name)
	superPod, inSuper, superSynced := get[*corev1.Pod](p.env.SuperCache, KindPod, tenancy.SuperNamespace(key.Tenant, key.Namespace), key.Name)
	if !synced || !superSynced {
		return 0, nil // their filling brings the key back
	}
	if !inSuper {
		if !inTenant {
			p.env.calm(key)
			return 0, nil
		}
		return 0, p.alone(ctx, tenant, key, tenantPod, waited)
	}
	owner, marked := tenancy.OwnerOf(superPod)
	switch {
	case !marked || !tenant.owns(owner, key.Namespace):
		if inTenant {
			p.conflict(tenant, key, tenantPod)
		}
		return 0, nil
	case !inTenant:
		return 0, p.orphan(ctx, tenant, key, superPod, owner.UID)
	case owner.UID != tenantPod.UID, tenantPod.Spec.NodeName != "" && !p.boundHere(tenantPod):
		return 0, p.deleteSuper(ctx, superPod, nil)
	case tenantPod.DeletionTimestamp != nil:
		if err := p.deleteSuper(ctx, superPod, p.grace(tenantPod, superPod)); err != nil {
			return 0, err
		}
		return 0, p.up(ctx, tenant, key, tenantPod, superPod, false)
	}
	// What the super cluster refuses, as a privileged container to debug with, may never come down. The status comes up all the same.
	isDown, err := p.down(ctx, tenant, key, tenantPod, superPod)
	return 0, errors.Join(err, p.up(ctx, tenant, key, tenantPod, superPod, isDown))
}

// alone handles a tenant pod that has no super pod, as far as the cache knows.
func (p *Pods) alone(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, waited time.Duration) error {
	spec := &tenantPod.Spec
	scheduled := conditionOf(&tenantPod.Status, corev1.PodScheduled)
	bound := spec.NodeName != "" && scheduled != nil && scheduled.Status == corev1.ConditionTrue
	finished := isFinished(tenantPod)
	switch {
	case tenantPod.DeletionTimestamp != nil:
		if spec.NodeName != "" && !p.boundHere(tenantPod) || ptr.Deref(tenantPod.DeletionGracePeriodSeconds, 1) == 0 && !needsEnd(tenantPod) {
			return nil // it is another syncer's, or waits for finalizers
		}
		return p.removeTenant(ctx, tenant, key, tenantPod, "")
	case finished, bound && !p.boundHere(tenantPod):
		return nil
	case bound:
		return p.removeTenant(ctx, tenant, key, tenantPod, fmt.Sprintf("Super cluster %s no longer has this pod", p.env.ID))
	case spec.NodeName != "":
		p.env.warn(tenant, key, tenantPod, ReasonNodeNameNotSupported, "spec.nodeName was set without a Binding: only the scheduler chooses nodes")
		return nil
	case len(spec.SchedulingGates) > 0:
		return nil
	}
	if placed, err := p.placed(ctx, tenant, key, tenantPod); err != nil || !placed {
		return err
	}
	return p.create(ctx, tenant, key, tenantPod, waited)
}

// boundHere says whether a tenant pod is bound to a node of this super cluster. That never changes.
func (p *Pods) boundHere(tenantPod *corev1.Pod) bool {
	superCluster, _ := tenancy.NodeSuperCluster(tenantPod.Spec.NodeName)
	return superCluster == p.env.ID
}

// placed says whether the pod's namespace is placed here, and warns the tenant when it is not.
func (p *Pods) placed(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod) (bool, error) {
	found, err := p.env.Assignments.Of(ctx, tenant.Key, key.Namespace)
	if err == nil && found.State != assign.Placed {
		// The pod's event may have overtaken the placement's.
		found, err = p.env.Assignments.Confirm(ctx, tenant.Key, key.Namespace)
	}
	if err != nil {
		return false, fmt.Errorf("reading what namespace %s holds: %w", key.Namespace, err)
	}
	namespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", key.Namespace)
	if !exists {
		return false, nil // the namespace's event brings its pods back
	}
	if found.State != assign.Placed || found.UID != namespace.UID {
		p.env.warn(tenant, key, tenantPod, ReasonNotPlaced, fmt.Sprintf("Namespace %s holds nothing in super cluster %s: the pod is not synced there", key.Namespace, p.env.ID))
		return false, nil
	}
	return true, nil
}

func (p *Pods) create(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, waited time.Duration) error {
	placed, err := p.env.namespacePlaced(ctx, tenant, key.Namespace)
	if err != nil || !placed {
		return err // an update of the super namespace or its quota enqueues its objects (namespaceChanged)
	}
	superNamespace := tenancy.SuperNamespace(tenant.Key, key.Namespace)
	// Without it the super cluster refuses the pod.
	if _, exists, _ := get[*corev1.ServiceAccount](p.env.SuperCache, KindServiceAccount, superNamespace, tenantPod.Spec.ServiceAccountName); !exists {
		if waited >= quietTime {
			p.env.warn(tenant, key, tenantPod, ReasonFailedCreate, fmt.Sprintf("Super cluster %s: there is no service account %s", p.env.ID, tenantPod.Spec.ServiceAccountName))
		}
		return engine.Waitf("service account %s in the super cluster", tenantPod.Spec.ServiceAccountName)
	}
	if missing := p.env.missing(tenant, tenantPod); missing != "" && waited < configTime {
		return engine.Waitf("%s in the super cluster", missing)
	}
	around, err := p.env.surroundings(tenant, tenantPod, waited)
	if err != nil {
		return err
	}
	superPod := &corev1.Pod{}
	SuperPod(tenantPod, superPod, tenant.owner(key.Namespace, tenantPod.UID), tenant.OpaqueMetaPrefixes, &around)
	err = p.env.Super.Create(ctx, superPod)
	switch {
	case err == nil:
		p.env.calm(key)
		if usesClusterDNS(&tenantPod.Spec) && len(around.Nameservers) == 0 {
			p.env.warn(tenant, key, tenantPod, ReasonMissingClusterDNS, fmt.Sprintf(
				"There is no Service %s/%s with an address: the pod gets the DNS of its node in super cluster %s", metav1.NamespaceSystem, dnsService, p.env.ID))
		}
	case apierrors.IsAlreadyExists(err):
		return p.collision(ctx, tenant, key, tenantPod, superPod)
	case isQuotaRefusal(err):
		return p.refusedByQuota(ctx, tenant, key, tenantPod, err, waited)
	default:
		p.env.refused(tenant, key, tenantPod, ReasonFailedCreate, err)
	}
	return p.env.done(ctx, KindPod, "create", err)
}

// refusedByQuota waits for a while, then checks what the quota counts, and tells the tenant when that is right.
func (p *Pods) refusedByQuota(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, refusal error, waited time.Duration) error {
	p.env.Line.Join(key)
	if waited < quietTime {
		return engine.Waitf("the quota: %v", refusal)
	}
	if waited >= recountTime {
		corrected, err := p.env.recount(ctx, tenancy.SuperNamespace(key.Tenant, key.Namespace))
		switch {
		case err != nil:
			return err
		case corrected:
			return engine.Waitf("the quota, which was counted again")
		}
	}
	p.env.refused(tenant, key, tenantPod, ReasonFailedCreate, refusal)
	return p.env.done(ctx, KindPod, "create", refusal)
}

// collision handles a name that is taken though the cache does not show it.
func (p *Pods) collision(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod, wanted *corev1.Pod) error {
	live := &corev1.Pod{}
	if err := p.env.Super.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
		return fmt.Errorf("reading super pod %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	owner, marked := tenancy.OwnerOf(live)
	switch {
	case !marked || !tenant.owns(owner, key.Namespace):
		p.conflict(tenant, key, tenantPod)
		return nil
	case owner.UID != tenantPod.UID:
		return p.deleteSuper(ctx, live, nil)
	}
	return nil // it is ours; the cache will show it
}

// down brings changes of the tenant's pod to its super pod. It says whether that has all of them.
func (p *Pods) down(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod, superPod *corev1.Pod) (bool, error) {
	if superPod.DeletionTimestamp != nil {
		return false, nil
	}
	// Without the status, which an update leaves as it is: every patrol comes by here with every pod.
	desired := &corev1.Pod{ObjectMeta: *superPod.ObjectMeta.DeepCopy(), Spec: *superPod.Spec.DeepCopy()}
	SuperPod(tenantPod, desired, tenant.owner(key.Namespace, tenantPod.UID), tenant.OpaqueMetaPrefixes, nil)
	if equality.Semantic.DeepEqual(&superPod.ObjectMeta, &desired.ObjectMeta) && equality.Semantic.DeepEqual(&superPod.Spec, &desired.Spec) {
		debugs, debugErr := p.debug(ctx, tenant, key, tenantPod, superPod)
		resized, resizeErr := p.resize(ctx, tenant, key, tenantPod, superPod)
		return debugs && resized, errors.Join(debugErr, resizeErr)
	}
	err := p.env.Super.Update(ctx, desired)
	p.env.refused(tenant, key, tenantPod, ReasonFailedUpdate, err)
	return false, p.env.done(ctx, KindPod, "update", err)
}

// debug brings new ephemeral containers down. It says whether there were none.
func (p *Pods) debug(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod, superPod *corev1.Pod) (bool, error) {
	if len(missingEphemeral(tenantPod, superPod)) == 0 {
		return true, nil
	}
	around, err := p.env.surroundings(tenant, tenantPod, quietTime)
	if err != nil {
		return false, err
	}
	desired := superPod.DeepCopy()
	AddEphemeralContainers(tenantPod, desired, tenant.owner(key.Namespace, tenantPod.UID), tenant.OpaqueMetaPrefixes, &around)
	err = p.env.Super.SubResource("ephemeralcontainers").Update(ctx, desired)
	p.env.refused(tenant, key, tenantPod, ReasonFailedUpdate, err)
	return false, p.env.done(ctx, KindPod, "ephemeral", err)
}

// resize brings changed requests and limits down. It says whether there were none.
func (p *Pods) resize(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod, superPod *corev1.Pod) (bool, error) {
	// A tenant that has never changed the pod has not resized it: what differs is the super cluster's own doing.
	if tenantPod.Generation <= 1 {
		return true, nil
	}
	desired := &corev1.Pod{ObjectMeta: superPod.ObjectMeta, Spec: *superPod.Spec.DeepCopy()}
	ResizePod(tenantPod, desired)
	if equality.Semantic.DeepEqual(&superPod.Spec, &desired.Spec) {
		return true, nil
	}
	err := p.env.Super.SubResource("resize").Update(ctx, desired)
	p.env.refused(tenant, key, tenantPod, ReasonFailedUpdate, err)
	return false, p.env.done(ctx, KindPod, "resize", err)
}

// up binds the tenant's pod to the node of its super pod, or brings the status up. isDown says that the super pod is what the tenant wants.
func (p *Pods) up(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod, superPod *corev1.Pod, isDown bool) error {
	nodeName := ""
	if superPod.Spec.NodeName != "" {
		nodeName = tenancy.NodeName(p.env.ID, superPod.Spec.NodeName)
	}
	switch {
	case nodeName == "" && tenantPod.Spec.NodeName != "":
		return nil // made again, and not on a node yet
	case tenantPod.Spec.NodeName == nodeName:
	case tenantPod.Spec.NodeName != "":
		// A pod cannot move, so the one that the tenant sees is not the one that runs.
		return p.env.remove(ctx, tenant.Client, KindPod, "remove", tenantPod, ptr.To[int64](0))
	case tenantPod.DeletionTimestamp == nil:
		return p.bind(ctx, tenant, key, tenantPod, superPod, nodeName)
	}
	status, ok := TenantPodStatus(tenantPod, superPod, p.env.ID)
	if ok && isDown && nodeName != "" && superPod.Generation > 0 && superPod.Status.ObservedGeneration == superPod.Generation {
		status.ObservedGeneration = tenantPod.Generation
	}
	if !ok || equality.Semantic.DeepEqual(&tenantPod.Status, status) {
		return p.end(ctx, tenant, key, tenantPod, superPod)
	}
	desired := tenantPod.DeepCopy()
	desired.Status = *status
	// The lock makes sure that lists were computed from what is there.
	patch := client.MergeFromWithOptions(tenantPod, client.MergeFromWithOptimisticLock{})
	return p.env.done(ctx, KindPod, "status", client.IgnoreNotFound(tenant.Client.Status().Patch(ctx, desired, patch)))
}

// end lets a tenant pod end together with its super pod, which the super cluster deletes: its node is drained, or a kubelet evicts it. So
// Services leave it out and controllers replace it while its containers stop, and not only when they have. What has finished stays.
func (p *Pods) end(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod, superPod *corev1.Pod) error {
	if superPod.DeletionTimestamp == nil || tenantPod.DeletionTimestamp != nil || tenantPod.Spec.NodeName == "" || isFinished(superPod) {
		return nil
	}
	p.env.warn(tenant, key, tenantPod, ReasonLost, fmt.Sprintf("Super cluster %s deletes this pod", p.env.ID))
	return p.env.remove(ctx, tenant.Client, KindPod, "end", tenantPod, superPod.DeletionGracePeriodSeconds)
}

func (p *Pods) bind(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod, superPod *corev1.Pod, nodeName string) error {
	if err := ensureNode(ctx, p.env, tenant, superPod.Spec.NodeName); err != nil {
		if foreign := (&foreignNodeError{}); errors.As(err, &foreign) {
			p.env.warn(tenant, key, tenantPod, ReasonConflict, fmt.Sprintf("Super cluster %s: %v", p.env.ID, foreign))
		}
		return err
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantPod.Namespace, Name: tenantPod.Name, UID: tenantPod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
	}
	p.env.calm(key)
	return p.env.done(ctx, KindPod, "bind", client.IgnoreNotFound(tenant.Client.SubResource("binding").Create(ctx, tenantPod.DeepCopy(), binding)))
}

// orphan deletes a super pod whose tenant pod is gone, replaced, or assigned elsewhere before it ran here.
func (p *Pods) orphan(ctx context.Context, tenant *Tenant, key engine.Key, superPod *corev1.Pod, uid types.UID) error {
	if superPod.DeletionTimestamp != nil {
		return nil
	}
	live := &corev1.Pod{}
	err := tenant.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, live)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the tenant's pod: %w", err)
	}
	if err == nil && live.UID == uid {
		if live.Labels[schedulerv1alpha1.LabelSuperCluster] == p.env.ID {
			return engine.Waitf("the cache of the tenant's pods")
		}
		if p.boundHere(live) {
			return nil // it runs here; vc-scheduler puts the label back
		}
	}
	return p.deleteSuper(ctx, superPod, nil)
}

// removeTenant removes a tenant pod that has no super pod any more, with proof. message becomes an Event unless it is "".
func (p *Pods) removeTenant(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, message string) error {
	name := types.NamespacedName{Namespace: tenancy.SuperNamespace(key.Tenant, key.Namespace), Name: key.Name}
	live := &corev1.Pod{}
	switch err := p.env.Super.Get(ctx, name, live); {
	case err == nil:
		if owner, marked := tenancy.OwnerOf(live); marked && owner == tenant.owner(key.Namespace, tenantPod.UID) {
			return engine.Waitf("the cache of super pods")
		}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading super pod %s: %w", name, err)
	}
	if message != "" {
		p.env.warn(tenant, key, tenantPod, ReasonLost, message)
	}
	if needsEnd(tenantPod) {
		if err := p.fail(ctx, tenant, tenantPod, message); err != nil {
			return err
		}
	}
	return p.env.remove(ctx, tenant.Client, KindPod, "remove", tenantPod, ptr.To[int64](0))
}

// needsEnd says whether somebody waits for a pod that ran to be finished before he lets it go, as Jobs do.
func needsEnd(tenantPod *corev1.Pod) bool {
	return tenantPod.Spec.NodeName != "" && len(tenantPod.Finalizers) > 0 && !isFinished(tenantPod)
}

// fail ends a tenant pod whose super pod is gone. A kubelet deletes a pod right after it has written how it ended, so that may have been
// missed. lost is why it is gone if nobody in the tenant wanted that, else "".
func (p *Pods) fail(ctx context.Context, tenant *Tenant, tenantPod *corev1.Pod, lost string) error {
	desired := tenantPod.DeepCopy()
	desired.Status.Phase = corev1.PodFailed
	if lost != "" && conditionOf(&desired.Status, corev1.DisruptionTarget) == nil {
		desired.Status.Conditions = append(desired.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: ReasonLost, Message: lost, LastTransitionTime: metav1.NewTime(p.env.Clock.Now()),
		})
	}
	patch := client.MergeFromWithOptions(tenantPod, client.MergeFromWithOptimisticLock{})
	return p.env.done(ctx, KindPod, "fail", client.IgnoreNotFound(tenant.Client.Status().Patch(ctx, desired, patch)))
}

// deleteSuper deletes a super pod, unless that is under way with no more grace. grace is in seconds; nil leaves it to the pod.
func (p *Pods) deleteSuper(ctx context.Context, superPod *corev1.Pod, grace *int64) error {
	if superPod.DeletionTimestamp != nil && (grace == nil || ptr.Deref(superPod.DeletionGracePeriodSeconds, 0) <= *grace) {
		return nil
	}
	return p.env.remove(ctx, p.env.Super, KindPod, "delete", superPod, grace)
}

// grace returns how many seconds the super pod of a tenant pod that is being deleted gets, at least 1: with 0 the super cluster would forget
// the pod before its containers have ended. It is what is left of the tenant's. A super pod that is ending already gets less only when the
// tenant has given less since: what is left falls with each look, and each would be another deletion.
func (p *Pods) grace(tenantPod, superPod *corev1.Pod) *int64 {
	if superPod.DeletionTimestamp != nil {
		return ptr.To(max(1, ptr.Deref(tenantPod.DeletionGracePeriodSeconds, 0)))
	}
	return ptr.To(max(1, int64(tenantPod.DeletionTimestamp.Sub(p.env.Clock.Now()).Round(time.Second)/time.Second)))
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (p *Pods) conflict(tenant *Tenant, key engine.Key, tenantPod *corev1.Pod) {
	p.env.warn(tenant, key, tenantPod, ReasonConflict, fmt.Sprintf("Super cluster %s has a pod of that name which is not this tenant's", p.env.ID))
}
