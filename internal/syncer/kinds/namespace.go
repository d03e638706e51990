package kinds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// KindNamespace is the kind of namespaces.
const KindNamespace = "namespace"

func namespaceSpec() Spec {
	spec := Spec{
		Name: KindNamespace, Scope: ScopeTenant, ClusterScoped: true, Rewatch: true,
		Tenant: watchAll(&corev1.Namespace{}), Super: watchOwned(&corev1.Namespace{}), SuperKey: namespaceSuperKey,
		New: func(env *Env) engine.Kind { return &Namespaces{env: env} },
	}
	spec.Wakes = map[string]func(*Env, Change) []engine.Key{
		KindNamespace: func(env *Env, change Change) []engine.Key {
			keys := spec.ownKeys(env, change)
			if change.Side == TenantSide && !change.createdOrDeleted() {
				return keys
			}
			for _, key := range keys {
				keys = append(keys, env.inNamespace(key.Tenant, key.Name)...)
			}
			return keys
		},
		KindPod:     wakesNamespace(func(change *Change) bool { return change.Current == nil }),
		KindService: wakesNamespace((*Change).createdOrDeleted),
	}
	return spec
}

// namespaceSuperKey returns the key of a super namespace, or of the quota in it.
func namespaceSuperKey(superObject client.Object) (engine.Key, bool) {
	owner, owned := tenancy.GetOwner(superObject)
	return engine.Key{Tenant: owner.ClusterKey, Kind: KindNamespace, Name: owner.Namespace}, owned
}

// wakesNamespace enqueues the namespace of a tenant's object whose change matters: the first or the last one decides
// whether a namespace that is not placed here has a super namespace.
func wakesNamespace(matters func(*Change) bool) func(*Env, Change) []engine.Key {
	return func(_ *Env, change Change) []engine.Key {
		if change.Side != TenantSide || !matters(&change) {
			return nil
		}
		return []engine.Key{{Tenant: change.Tenant, Kind: KindNamespace, Name: change.object().GetNamespace()}}
	}
}

// labelPodSecurity is the level that the super cluster enforces in a namespace.
const labelPodSecurity = "pod-security.kubernetes.io/enforce"

// annotationServicesOnly is "true" on a super namespace that is there for the Services of a tenant namespace which
// holds nothing here.
const annotationServicesOnly = "tenancy.x-k8s.io/services-only"

// ServicesOnly says whether a super namespace is there for Services alone.
func ServicesOnly(superNamespace client.Object) bool {
	return superNamespace.GetAnnotations()[annotationServicesOnly] == "true"
}

// Namespaces keeps a super namespace and in it the quota, for every tenant namespace that
//
//   - is placed here: the quota says what is reserved;
//   - has Services, while its tenant holds anything here: the quota allows no pods.
//
// What is no longer placed here becomes the second or goes away, once no pod of it is assigned here.
type Namespaces struct{ env *Env }

var _ engine.Kind = &Namespaces{}

// Name implements engine.Kind.
func (n *Namespaces) Name() string { return KindNamespace }

// Keys implements engine.Kind.
func (n *Namespaces) Keys() []engine.Key { return n.env.keys(KindNamespace) }

// SuperNamespace writes onto superNamespace what it should be for tenantNamespace.
func SuperNamespace(tenantNamespace, superNamespace *corev1.Namespace, owner tenancy.Owner, opaque []string, podSecurityLevel string) {
	superNamespace.Name = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	copyMeta(tenantNamespace, superNamespace, owner, opaque)
	if podSecurityLevel != "" {
		superNamespace.Labels[labelPodSecurity] = podSecurityLevel
	}
}

// Reconcile implements engine.Kind.
func (n *Namespaces) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	found, err := n.env.Assignments.Of(ctx, key.Tenant, key.Name)
	if err != nil {
		return 0, fmt.Errorf("reading what namespace %s holds: %w", key.Name, err)
	}
	superNamespace, exists, synced := get[*corev1.Namespace](n.env.SuperCache, KindNamespace, "", tenancy.SuperNamespace(key.Tenant, key.Name))
	if !synced {
		return 0, engine.Waitf("the cache of super namespaces")
	}
	switch found.State {
	case assign.Placed:
		return 0, n.ensure(ctx, key, found, superNamespace)
	case assign.ServicesOnly:
		return 0, n.serve(ctx, key, found, superNamespace)
	case assign.Leaving, assign.Unknown:
		return 0, nil // the last pod's deletion enqueues the key, patrol does once more is known
	case assign.None:
		if exists {
			return 0, n.withdraw(ctx, key, superNamespace)
		}
		n.env.clearWarning(key)
	}
	return 0, nil
}

// serve makes the super namespace of a namespace that is here for its Services alone. superNamespace is nil when there
// is none.
func (n *Namespaces) serve(ctx context.Context, key engine.Key, found assign.Assignment, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil || found.UID == "" {
		return nil // the informer of the tenant's namespaces enqueues the key when it shows this one
	}
	if superNamespace != nil && !ServicesOnly(superNamespace) {
		owner, owned := tenancy.GetOwner(superNamespace)
		if owned && tenant.owns(owner, key.Name) && superNamespace.DeletionTimestamp == nil {
			if done, err := n.clear(ctx, key, superNamespace.Name); err != nil || !done {
				return err
			}
		}
	}
	return n.ensure(ctx, key, found, superNamespace)
}

// clear removes all but Services from the super namespace of a namespace that is no longer placed here, once no pod of
// it is assigned here. It says whether nothing is left.
func (n *Namespaces) clear(ctx context.Context, key engine.Key, name string) (bool, error) {
	if confirmed, err := n.confirm(ctx, key); err != nil || confirmed != assign.ServicesOnly && confirmed != assign.None {
		return false, err
	}
	left := false
	for i := range n.env.kinds().specs {
		if spec := &n.env.kinds().specs[i]; spec.Cleared {
			some, err := n.clearKind(ctx, key, spec, name)
			if err != nil {
				return false, err
			}
			left = left || some
		}
	}
	if left {
		return false, engine.Waitf("what namespace %s held to go", name)
	}
	return true, nil
}

// clearKind deletes what a super namespace holds of a kind. It says whether that was anything.
func (n *Namespaces) clearKind(ctx context.Context, key engine.Key, spec *Spec, name string) (bool, error) {
	left := false
	for _, object := range n.env.SuperCache.InNamespace(spec.Name, name) {
		if found, ours := spec.superKey(object); !ours || found.Tenant != key.Tenant || found.Namespace != key.Name {
			continue
		}
		left = true
		if err := n.env.remove(ctx, n.env.Super, spec.Name, "delete", object, nil); err != nil {
			return left, err
		}
	}
	return left, nil
}

// confirm returns the live State of a namespace that the caches do not show as Placed. It waits for the cache where
// that is behind.
func (n *Namespaces) confirm(ctx context.Context, key engine.Key) (assign.State, error) {
	live, err := n.env.Assignments.Confirm(ctx, key.Tenant, key.Name)
	switch {
	case err != nil:
		return assign.Unknown, fmt.Errorf("confirming what namespace %s holds: %w", key.Name, err)
	case live.State == assign.Placed:
		return live.State, engine.Waitf("the cache of placements")
	}
	return live.State, nil
}

// ensure makes the super namespace of an assignment. superNamespace is nil when there is none.
func (n *Namespaces) ensure(ctx context.Context, key engine.Key, assignment assign.Assignment, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return nil
	}
	tenantNamespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", key.Name)
	if !exists || tenantNamespace.UID != assignment.UID {
		return nil // a cache is behind: its informer enqueues the key (namespaceChanged) when it shows the change
	}
	owner := tenant.owner(key.Name, assignment.UID)
	if superNamespace == nil {
		created := &corev1.Namespace{}
		n.write(tenant, tenantNamespace, created, assignment.State)
		err := n.env.Super.Create(ctx, created)
		if !apierrors.IsAlreadyExists(err) {
			return n.env.done(ctx, KindNamespace, "create", err)
		}
		// It is not ours, or the cache is behind: only the live object says which.
		superNamespace = &corev1.Namespace{}
		if err := n.env.Super.Get(ctx, client.ObjectKeyFromObject(created), superNamespace); err != nil {
			return fmt.Errorf("reading super namespace %s: %w", created.Name, err)
		}
	}
	actual, owned := tenancy.GetOwner(superNamespace)
	switch {
	case !owned || !tenant.owns(actual, key.Name):
		n.env.warnOnce(tenant, key, tenantNamespace, ReasonNamespaceConflict, fmt.Sprintf(
			"Super cluster %s has a namespace %s of another owner: nothing of this namespace is synced there", n.env.ID, superNamespace.Name))
		return nil
	case superNamespace.DeletionTimestamp != nil:
		return nil
	case actual.UID != owner.UID:
		return n.env.remove(ctx, n.env.Super, KindNamespace, "delete", superNamespace, nil)
	}
	n.env.clearWarning(key)
	desired := superNamespace.DeepCopy()
	n.write(tenant, tenantNamespace, desired, assignment.State)
	if !equality.Semantic.DeepEqual(superNamespace, desired) {
		return n.env.done(ctx, KindNamespace, "update", n.env.Super.Update(ctx, desired))
	}
	return n.ensureQuota(ctx, owner, assignment.Reserved)
}

// write writes onto superNamespace all that it should be.
func (n *Namespaces) write(tenant *Tenant, tenantNamespace, superNamespace *corev1.Namespace, state assign.State) {
	SuperNamespace(tenantNamespace, superNamespace, tenant.owner(tenantNamespace.Name, tenantNamespace.UID), tenant.OpaqueMetaPrefixes, n.env.PodSecurityLevel)
	value := ""
	if state == assign.ServicesOnly {
		value = "true"
	}
	setOrDelete(superNamespace.Annotations, annotationServicesOnly, value)
}

func (n *Namespaces) ensureQuota(ctx context.Context, owner tenancy.Owner, reserved corev1.ResourceList) error {
	name := tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	quota, exists, _ := get[*corev1.ResourceQuota](n.env.SuperCache, KindQuota, name, quotaName)
	if !exists {
		quota = &corev1.ResourceQuota{}
		SuperQuota(quota, owner, reserved)
		err := n.env.Super.Create(ctx, quota)
		if !apierrors.IsAlreadyExists(err) {
			return n.env.done(ctx, KindQuota, "create", err)
		}
		// Somebody took the marks off, or the cache is behind. The namespace is ours, so is its quota.
		quota = &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: quotaName}}
		if err := n.env.Super.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return fmt.Errorf("reading the quota of super namespace %s: %w", name, err)
		}
	}
	desired := quota.DeepCopy()
	SuperQuota(desired, owner, reserved)
	if equality.Semantic.DeepEqual(quota, desired) {
		return nil
	}
	return n.env.done(ctx, KindQuota, "update", n.env.Super.Update(ctx, desired))
}

// withdraw deletes the super namespace of a namespace of which nothing belongs here any more, with proof.
func (n *Namespaces) withdraw(ctx context.Context, key engine.Key, superNamespace *corev1.Namespace) error {
	owner, owned := tenancy.GetOwner(superNamespace)
	if !owned || owner.ClusterKey != key.Tenant || owner.Namespace != key.Name || superNamespace.DeletionTimestamp != nil {
		return nil
	}
	confirmed, err := n.confirm(ctx, key)
	switch {
	case err != nil:
		return err
	case confirmed == assign.ServicesOnly:
		return engine.Waitf("the cache of the tenant's Services")
	case confirmed != assign.None:
		return nil
	}
	n.env.clearWarning(key)
	return n.env.remove(ctx, n.env.Super, KindNamespace, "delete", superNamespace, nil)
}
