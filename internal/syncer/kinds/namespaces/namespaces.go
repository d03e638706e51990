// Package namespaces syncs namespaces, and the quota of each.
package namespaces

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// labelPodSecurity is the label of the Pod Security Standard that the super cluster enforces in a namespace.
const labelPodSecurity = "pod-security.kubernetes.io/enforce"

// Namespaces keeps a super namespace, and in it the quota, for every tenant namespace that
//
//   - is placed here: the quota bounds requests at what is reserved;
//   - has Services, while its tenant has a placement here: the quota allows no pods.
//
// A super namespace whose tenant namespace is no longer placed here becomes one for Services or is deleted, once no pod
// of it is assigned here.
type Namespaces struct{ env *kind.Env }

var _ engine.Kind = &Namespaces{}

// Name implements engine.Kind.
func (n *Namespaces) Name() string { return kind.Namespace }

// Keys implements engine.Kind.
func (n *Namespaces) Keys() []engine.Key { return n.env.Keys(kind.Namespace) }

// SuperNamespace sets superNamespace to the desired super namespace of tenantNamespace. Policies of a super cluster
// trust the labels of namespaces, so it has those of the tenant under the keys of tenancy.LabelKey only.
func SuperNamespace(tenantNamespace, superNamespace *corev1.Namespace, owner tenancy.Owner, rules *kind.Rules, podSecurityLevel string) {
	superNamespace.Name = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	kind.CopyMeta(tenantNamespace, superNamespace, "namespaces", owner, rules)
	kind.TranslateLabels(tenantNamespace, superNamespace)
	if podSecurityLevel != "" {
		superNamespace.Labels[labelPodSecurity] = podSecurityLevel
	}
}

// Reconcile implements engine.Kind.
func (n *Namespaces) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	superNamespace, exists, synced := kind.Get[*corev1.Namespace](n.env.SuperCache, kind.Namespace, "", tenancy.SuperNamespace(key.Tenant, key.Name))
	if !synced {
		return 0, engine.Waitf("the cache of super namespaces")
	}
	if standingsOf(n.env).changes(key, standingOf(n.env, key, superNamespace)) {
		n.env.Resync(n.env.InNamespace(key.Tenant, key.Name))
	}
	assignment, err := n.env.Assignments.Of(ctx, key.Tenant, key.Name)
	if err != nil {
		return 0, fmt.Errorf("reading the assignment of namespace %s: %w", key.Name, err)
	}
	if missing, err := keepsMissing(ctx, n.env, key, superNamespace); err != nil || missing {
		return 0, err // patrol enqueues the key, and a session of the tenant
	}
	switch assignment.State {
	case assign.Placed:
		return 0, n.ensure(ctx, key, assignment, superNamespace)
	case assign.ServicesOnly:
		return 0, n.serve(ctx, key, assignment, superNamespace)
	case assign.Leaving, assign.Unknown:
		return 0, nil // the deletion of the last pod, the sync of a cache (Env.Filled) and patrol enqueue the key
	case assign.Kept:
		return 0, n.keep(ctx, key, superNamespace)
	case assign.None:
		if exists {
			return 0, n.withdraw(ctx, key, superNamespace)
		}
		n.settle(key)
	}
	return 0, nil
}

// serve keeps the super namespace of a namespace that is ServicesOnly. superNamespace is nil if there is none.
func (n *Namespaces) serve(ctx context.Context, key engine.Key, assignment assign.Assignment, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil || assignment.UID == "" {
		return nil // the informer of the tenant's namespaces enqueues the key when it adds this one
	}
	if superNamespace != nil && !kind.ServicesOnly(superNamespace) {
		owner, owned := tenancy.GetOwner(superNamespace)
		if owned && tenant.Owns(owner, key.Name) && superNamespace.DeletionTimestamp == nil {
			if done, err := n.clear(ctx, key, superNamespace.Name); err != nil || !done {
				return err
			}
		}
	}
	return n.ensure(ctx, key, assignment, superNamespace)
}

// keep lets the super namespace of a namespace that its tenant lacks hold claims alone, and answers vc-scheduler that
// nothing else may be there: what it had reserved is free. Pods go by their own kind.
func (n *Namespaces) keep(ctx context.Context, key engine.Key, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil || superNamespace == nil {
		return nil
	}
	owner, owned := tenancy.GetOwner(superNamespace)
	if !owned || !tenant.Owns(owner, key.Name) {
		return nil
	}
	if done, err := n.clear(ctx, key, superNamespace.Name); err != nil || !done {
		return err
	}
	confirmed, _, err := n.confirm(ctx, key)
	if err != nil || confirmed.State != assign.Kept {
		return err
	}
	confirmed.Reserved = nil
	return n.ensureQuota(ctx, tenant, owner, confirmed)
}

// clear deletes all objects but Services and EndpointSlices in the super namespace of a namespace that is no longer
// placed here, after Confirm. It returns whether none are left.
func (n *Namespaces) clear(ctx context.Context, key engine.Key, name string) (bool, error) {
	if !n.env.Extended() {
		return false, engine.Waitf("the SyncPolicies: their copies are to go, too")
	}
	// What is created from here on may be for a namespace that is placed here again: the Proof says nothing of it.
	var left []copied
	specs := n.env.Specs()
	for i := range specs {
		if spec := &specs[i]; spec.Cleared {
			found, err := n.copiedOf(key, spec, name)
			if err != nil {
				return false, err
			}
			left = append(left, found...)
		}
	}
	_, proven, err := n.confirm(ctx, key)
	if err != nil || !proven.Holds() {
		return false, err
	}
	for _, each := range left {
		if err := n.env.Remove(ctx, n.env.Super, each.kind, "delete", each.object, nil, proven); err != nil {
			return false, err
		}
	}
	if len(left) > 0 {
		return false, engine.Waitf("the deletion of the objects in namespace %s", name)
	}
	return true, nil
}

// copied is an object of a kind in a super namespace.
type copied struct {
	kind   string
	object client.Object
}

// copiedOf returns the objects of a kind that are in a super namespace for its tenant.
func (n *Namespaces) copiedOf(key engine.Key, spec *kind.Spec, name string) ([]copied, error) {
	if _, synced := n.env.SuperCache.Get(spec.Name, name, ""); !synced {
		return nil, engine.Waitf("the cache of the super cluster's %ss", kind.TitleOf(spec.Name))
	}
	var found []copied
	for _, object := range n.env.SuperCache.InNamespace(spec.Name, name) {
		if owner, ours := spec.KeyOf(object); ours && owner.Tenant == key.Tenant && owner.Namespace == key.Name {
			found = append(found, copied{spec.Name, object})
		}
	}
	return found, nil
}

// confirm returns the Assignment by live reads of a namespace that is not Placed by the caches, and the Proof of it. It
// returns a WaitError if it is Placed, because the cache lags, and if it is Unknown.
func (n *Namespaces) confirm(ctx context.Context, key engine.Key) (assign.Assignment, proof.Proof, error) {
	live, proven, err := n.env.Assignments.Confirm(ctx, key.Tenant, key.Name)
	switch {
	case err != nil:
		return assign.Assignment{}, proof.Proof{}, fmt.Errorf("confirming the assignment of namespace %s: %w", key.Name, kind.Unproven(err))
	case live.State == assign.Placed:
		return live, proof.Proof{}, engine.Waitf("the cache of NamespacePlacements")
	case live.State == assign.Unknown:
		return live, proof.Proof{}, engine.Waitf("the tenant, or the deletion of its VirtualCluster, to say that namespace %s is gone", key.Name)
	}
	return live, proven, nil
}

// ensure creates or updates the super namespace of an assignment, then its quota. superNamespace is nil if there is
// none.
func (n *Namespaces) ensure(ctx context.Context, key engine.Key, assignment assign.Assignment, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return nil
	}
	tenantNamespace, exists, _ := kind.Get[*corev1.Namespace](tenant.Cache, kind.Namespace, "", key.Name)
	if !exists || tenantNamespace.UID != assignment.UID {
		return nil // a cache lags: its informer enqueues the key with the change (Spec.OwnKeys, Env.NamespaceChanged)
	}
	owner := tenant.Owner(key.Name, assignment.UID)
	if superNamespace == nil {
		live, err := n.create(ctx, tenant, key, tenantNamespace, assignment.State)
		if err != nil || live == nil {
			return err
		}
		superNamespace = live
	}
	if err := n.env.Relabel(ctx, kind.Namespace, superNamespace, owner); err != nil {
		return err
	}
	actual, owned := tenancy.GetOwner(superNamespace)
	switch {
	case !owned || !tenant.Owns(actual, key.Name):
		n.env.WarnOnce(tenant, key, tenantNamespace, kind.ReasonNamespaceConflict, fmt.Sprintf(
			"Super cluster %s has a namespace %s of another owner: nothing of this namespace is synced there", n.env.ID, superNamespace.Name))
		return nil
	case superNamespace.DeletionTimestamp != nil:
		n.warnTerminating(tenant, key, tenantNamespace, superNamespace)
		return nil
	case actual.UID != owner.UID:
		return n.replace(ctx, tenant, tenantNamespace, superNamespace, actual)
	}
	if updated, err := n.update(ctx, tenant, key, tenantNamespace, superNamespace, assignment.State); err != nil || updated {
		return err
	}
	err := n.ensureQuota(ctx, tenant, owner, assignment)
	if err == nil {
		n.env.Warnings.Clear(ofQuota(key))
	}
	n.env.WarnRefusedAbout(tenant, ofQuota(key), tenantNamespace, kind.ReasonFailedCreate, err)
	return err
}

// ofQuota is what is said of the quota of a super namespace.
func ofQuota(key engine.Key) kind.Topic { return kind.Topic{Key: key, Of: "quota"} }

// settle clears the warnings about a super namespace that is to be no more, and about its quota.
func (n *Namespaces) settle(key engine.Key) {
	n.env.Settle(key)
	n.env.Warnings.Clear(ofQuota(key))
}

// create creates a super namespace, if it fits. If one of that name exists that the cache does not have, it returns
// that one, else nil.
func (n *Namespaces) create(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantNamespace *corev1.Namespace, state assign.State) (*corev1.Namespace, error) {
	if !n.env.Bounded(tenant, key, tenantNamespace, policy.ExcessOfMetadata(tenantNamespace)) {
		return nil, nil //nolint:nilnil // none was made, and none is in the way
	}
	created := &corev1.Namespace{}
	n.write(tenant, tenantNamespace, created, state, true)
	if !n.fits(tenant, key, tenantNamespace, created, nil, state) {
		return nil, nil //nolint:nilnil // the deletion of a super namespace, or a change of the policy, enqueues the key
	}
	err := n.env.Super.Create(ctx, created)
	n.env.Unadmit(key, nil, err)
	if !apierrors.IsAlreadyExists(err) {
		n.env.WarnRefused(tenant, key, tenantNamespace, kind.ReasonFailedCreate, err)
		return nil, n.env.Done(ctx, kind.Namespace, "create", err)
	}
	// It has another owner, or the cache lags: a live read tells which.
	live := &corev1.Namespace{}
	if err := n.env.Super.Get(ctx, client.ObjectKeyFromObject(created), live); err != nil {
		return nil, fmt.Errorf("reading super namespace %s: %w", created.Name, err)
	}
	return live, nil
}

// update writes a super namespace of ours if it differs from the desired one, and returns whether it did. What of the
// tenant does not fit stays as it is, and what Superpool sets is written all the same.
func (n *Namespaces) update(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantNamespace, superNamespace *corev1.Namespace, state assign.State) (bool, error) {
	fits := n.env.Bounded(tenant, key, tenantNamespace, policy.ExcessOfMetadata(tenantNamespace))
	desired := superNamespace.DeepCopy()
	n.write(tenant, tenantNamespace, desired, state, fits)
	if fits && !equality.Semantic.DeepEqual(superNamespace, desired) && !n.fits(tenant, key, tenantNamespace, desired, superNamespace, state) {
		fits, desired = false, superNamespace.DeepCopy()
		n.write(tenant, tenantNamespace, desired, state, false)
	}
	if equality.Semantic.DeepEqual(superNamespace, desired) {
		if fits {
			n.env.Settle(key)
		}
		return false, nil
	}
	err := n.env.Super.Update(ctx, desired)
	n.env.Unadmit(key, superNamespace, err)
	n.env.WarnRefused(tenant, key, tenantNamespace, kind.ReasonFailedUpdate, err)
	return true, n.env.Done(ctx, kind.Namespace, "update", err)
}

// fits returns whether the tenant may have another super namespace here, or this change of existing. vc-scheduler
// bounds those that are placed, not those that were placed and those for Services: so the former find room when the
// latter have filled theirs. Without a pool nobody else bounds any.
func (n *Namespaces) fits(tenant *kind.Tenant, key engine.Key, tenantNamespace, desired *corev1.Namespace, existing client.Object, state assign.State) bool {
	rules := tenant.Policy.Get()
	objects, bytes, _ := rules.ObjectLimit(kind.ResourceOf(kind.Namespace))
	switch {
	case n.env.Assignments.Whole():
		objects = int64(rules.Spec().Limits.Namespaces)
	case state == assign.Placed:
		objects += int64(rules.Spec().Limits.Namespaces)
	}
	return n.env.Within(tenant, key, tenantNamespace, desired, existing, kind.Limit{Amount: kind.Amount{Objects: objects, Bytes: bytes}, Field: "limits.namespaces of TenantPolicy " + rules.Name()})
}

// replace deletes the super namespace of a namespace that was deleted and created again, after live reads of that, and
// of what it holds: while the tenant deletes a namespace, its claims wait until they are gone here.
func (n *Namespaces) replace(ctx context.Context, tenant *kind.Tenant, tenantNamespace, superNamespace *corev1.Namespace, actual tenancy.Owner) error {
	key := engine.Key{Tenant: tenant.Key, Kind: kind.Namespace, Name: actual.Namespace}
	none, lacksData, err := Sides(n.env).LacksData(ctx, tenant.Key, actual.Namespace)
	switch {
	case err != nil:
		return kind.Unproven(err)
	case !lacksData:
		n.env.WarnOnce(tenant, key, tenantNamespace, kind.ReasonClaimsKept, fmt.Sprintf(
			"Super cluster %s keeps PersistentVolumeClaims or VolumeSnapshots of an earlier namespace of this name, whose deletion it has not seen: nothing of this namespace is synced there until the operator deletes them",
			n.env.ID))
		return nil // the deletion of the last one enqueues the key
	}
	live := &corev1.Namespace{}
	proven, lacks, err := tenant.ControlPlane().Lacks(ctx, types.NamespacedName{Name: actual.Namespace}, live, func() bool { return live.UID == actual.UID })
	switch {
	case err != nil:
		return kind.Unproven(err)
	case !lacks:
		return engine.Waitf("the cache of the tenant's namespaces")
	}
	return n.env.Remove(ctx, n.env.Super, kind.Namespace, "delete", superNamespace, nil, proven.And(none))
}

// terminatingTime is how long a super namespace may be terminating before the tenant gets an Event. That of an empty
// one takes some seconds.
const terminatingTime = time.Minute

// warnTerminating warns the tenant that nothing of its namespace can be synced, because the super namespace is stuck in
// its deletion, as one with a pod on a node that has died.
func (n *Namespaces) warnTerminating(tenant *kind.Tenant, key engine.Key, tenantNamespace, superNamespace *corev1.Namespace) {
	if n.env.Clock.Since(superNamespace.DeletionTimestamp.Time) < terminatingTime {
		return // patrol enqueues the key
	}
	n.env.WarnOnce(tenant, key, tenantNamespace, kind.ReasonSuperNamespaceTerminating, fmt.Sprintf(
		"Super cluster %s deletes what an earlier placement of this namespace has left there since %s, and has not ended: nothing of this namespace is synced there until then",
		n.env.ID, superNamespace.DeletionTimestamp.UTC().Format(time.RFC3339)))
}

// write sets superNamespace to the desired super namespace for a state. Labels and annotations of the tenant's stay as
// they are unless they fit.
func (n *Namespaces) write(tenant *kind.Tenant, tenantNamespace, superNamespace *corev1.Namespace, state assign.State, fit bool) {
	level := n.env.SecurityLevelOf(tenant)
	switch {
	case fit:
		SuperNamespace(tenantNamespace, superNamespace, tenant.Owner(tenantNamespace.Name, tenantNamespace.UID), tenant.Rules(), level)
	case level != "":
		metav1.SetMetaDataLabel(&superNamespace.ObjectMeta, labelPodSecurity, level)
	}
	value := ""
	if state == assign.ServicesOnly {
		value = "true"
	}
	kind.SetOrDelete(superNamespace.Annotations, kind.AnnotationServicesOnly, value)
}

// ensureQuota creates or updates the quota of a super namespace.
//
// A write may hang and come into force at any time, as long as nothing else was written over what it is based on. So a
// quota is created with no room for pods and reserved storage, and all room comes with updates: these are decided by a
// read of the NamespacePlacement that is younger than the quota which they write over. vc-scheduler gives room away
// once a quota answers its decision (placement.Use.Answers).
func (n *Namespaces) ensureQuota(ctx context.Context, tenant *kind.Tenant, owner tenancy.Owner, assignment assign.Assignment) error {
	extended, synced := extendedOf(n.env).all(n.env.SuperCache)
	if !synced {
		return engine.Waitf("the cache of the super cluster's nodes")
	}
	limits := &tenant.Policy.Get().Spec().Limits
	none := Held{}
	if assignment.Storage != nil {
		none.Storage = &resource.Quantity{}
	}
	quota, err := n.someQuota(ctx, func(quota *corev1.ResourceQuota) { SuperQuota(quota, owner, none, extended, limits) })
	if err != nil {
		return err
	}
	desired := func() *corev1.ResourceQuota {
		desired := quota.DeepCopy()
		SuperQuota(desired, owner, Held{Pods: assignment.Reserved, Storage: assignment.Storage}, extended, limits)
		answer(desired, assignment.Decision)
		return desired
	}
	if slice.DeepEqual(quota, desired()) {
		return nil
	}
	if assignment.State == assign.Placed {
		assignment, err = n.env.Assignments.ConfirmPlaced(ctx, owner.ClusterKey, owner.Namespace)
		switch {
		case err != nil:
			return fmt.Errorf("confirming the assignment of namespace %s: %w", owner.Namespace, err)
		case assignment.State != assign.Placed, assignment.UID != owner.UID:
			return engine.Waitf("the cache of NamespacePlacements")
		}
	}
	return n.env.Done(ctx, kind.Quota, "update", n.env.Super.Update(ctx, desired()))
}

// someQuota returns the quota of a super namespace, from the cache where that has it. Where there is none, it creates
// the one that initial sets.
func (n *Namespaces) someQuota(ctx context.Context, initial func(*corev1.ResourceQuota)) (*corev1.ResourceQuota, error) {
	created := &corev1.ResourceQuota{}
	initial(created)
	if quota, exists, _ := kind.Get[*corev1.ResourceQuota](n.env.SuperCache, kind.Quota, created.Namespace, created.Name); exists {
		return quota, nil
	}
	err := n.env.Super.Create(ctx, created)
	if !apierrors.IsAlreadyExists(err) {
		return created, n.env.Done(ctx, kind.Quota, "create", err)
	}
	// Its ownership label was removed, or the cache lags. The namespace is ours, so its quota is.
	quota := &corev1.ResourceQuota{}
	if err := n.env.Super.Get(ctx, client.ObjectKeyFromObject(created), quota); err != nil {
		return nil, fmt.Errorf("reading the quota of super namespace %s: %w", created.Namespace, err)
	}
	return quota, nil
}

// withdraw deletes the super namespace of a namespace whose State is None, after Confirm.
func (n *Namespaces) withdraw(ctx context.Context, key engine.Key, superNamespace *corev1.Namespace) error {
	owner, owned := tenancy.GetOwner(superNamespace)
	if !owned || owner.ClusterKey != key.Tenant || owner.Namespace != key.Name {
		return nil
	}
	if superNamespace.DeletionTimestamp != nil {
		n.blocks(key, owner, superNamespace)
		return nil
	}
	confirmed, proven, err := n.confirm(ctx, key)
	switch {
	case err != nil:
		return err
	case confirmed.State == assign.ServicesOnly:
		return engine.Waitf("the cache of the tenant's Services")
	case confirmed.State != assign.None:
		return nil
	case !proven.Holds(): // nothing was asked, for it is being deleted
		return engine.Waitf("the cache of super namespaces")
	}
	n.settle(key)
	if err := n.lastAnswer(ctx, superNamespace.Name, confirmed.Decision); err != nil {
		return err
	}
	return n.env.Remove(ctx, n.env.Super, kind.Namespace, "delete", superNamespace, nil, proven)
}

// lastAnswer lets the quota of a super namespace that is to be deleted answer a decision of vc-scheduler: that it is
// gone says nothing about another one that may be there already.
func (n *Namespaces) lastAnswer(ctx context.Context, superNamespace, decision string) error {
	quota, exists, _ := kind.Get[*corev1.ResourceQuota](n.env.SuperCache, kind.Quota, superNamespace, kind.QuotaName)
	if !exists || decision == "" || quota.Annotations[schedulerv1alpha1.AnnotationDecision] == decision {
		return nil
	}
	desired := quota.DeepCopy()
	answer(desired, decision)
	return n.env.Done(ctx, kind.Quota, "update", client.IgnoreNotFound(n.env.Super.Update(ctx, desired)))
}

// blocks warns the tenant whose namespace was created again while the super namespace of the earlier one is stuck: the
// earlier placement stays until that is gone, so that the new namespace cannot have one.
func (n *Namespaces) blocks(key engine.Key, owner tenancy.Owner, superNamespace *corev1.Namespace) {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return
	}
	if again, exists, _ := kind.Get[*corev1.Namespace](tenant.Cache, kind.Namespace, "", key.Name); exists && again.UID != owner.UID {
		n.warnTerminating(tenant, key, again, superNamespace)
	}
}
