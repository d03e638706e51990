package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonTooManyNetworkPolicies: it takes more policies than the bound to select the pods that no NetworkPolicy of a
// namespace selects, or those policies or their podSelectors exceed a bound that the message names; nothing is allowed
// to those pods in the directions that the message names. The Event is on the youngest policy.
const ReasonTooManyNetworkPolicies = "TooManyNetworkPolicies"

const (
	// LabelIsolation is on the NetworkPolicies that the syncer adds in super namespaces, to close what no policy of the
	// tenant selects (kind isolation); kind networkpolicy ignores them.
	// Written by the syncer; read by the syncer.
	LabelIsolation = "tenancy.x-k8s.io/isolation"
	// isolationFloor is the name of the policy that allows nothing to any pod of a super namespace. So a pod that no
	// other policy selects, while policies change, is closed and not open.
	isolationFloor = "superpool-isolation"
	// maxIsolation bounds the policies that allow what isolated pods may do, in each direction.
	maxIsolation = 16
	// MaxIsolationBytes bounds their size together, in each direction: each has the addresses of the pool, and the
	// selectors of the tenant.
	MaxIsolationBytes = 32 << 10
)

// IsolationSpec is that of NetworkPolicies of our own.
func IsolationSpec() kind.Spec {
	spec := kind.Spec{
		Name: kind.Isolation, From: kind.Namespace, Scope: kind.ScopePlaced, Cleared: true,
		TenantKey: func(tenant string, namespace client.Object) (engine.Key, bool) {
			return isolationKey(tenant, namespace.GetName()), true
		},
		Super: kind.WatchOwned(&networkingv1.NetworkPolicy{}, LabelIsolation), SuperKey: isolationSuperKey,
		OfNamespace: func(_ *kind.Env, tenant, namespace string) []engine.Key {
			return []engine.Key{isolationKey(tenant, namespace)}
		},
		New: func(env *kind.Env) engine.Kind { return &Isolation{env: env} },
	}
	look := func(matters func(*kind.Env, *kind.Change) bool) func(*kind.Env, kind.Change) []engine.Key {
		return func(env *kind.Env, change kind.Change) []engine.Key {
			if change.Side == kind.SuperSide && matters(env, &change) {
				return []engine.Key{{Kind: kind.Isolation}}
			}
			return nil
		}
	}
	spec.Wakes = map[string]func(*kind.Env, kind.Change) []engine.Key{
		kind.Isolation: func(env *kind.Env, change kind.Change) []engine.Key {
			keys := spec.OwnKeys(env, change)
			// Pods wait for the floor (Isolated).
			if owner, ours := kind.OwnerOfNew(&change); ours && change.Current.GetName() == isolationFloor {
				keys = append(keys, env.PodsIn(owner.ClusterKey, owner.Namespace)...)
			}
			return keys
		},
		kind.Namespace:     superNamespaceWakesIsolation,
		kind.NetworkPolicy: policyWakesIsolation,
		kind.Node:          look(nodeMoves),
		kind.Pod:           look(podIsSeenElsewhere),
		kind.APIServer:     look(func(*kind.Env, *kind.Change) bool { return true }),
		kind.ServiceCIDR:   look(func(*kind.Env, *kind.Change) bool { return true }),
	}
	return spec
}

// superNamespaceWakesIsolation enqueues the isolation of a super namespace.
func superNamespaceWakesIsolation(_ *kind.Env, change kind.Change) []engine.Key {
	if owner, ours := tenancy.GetOwner(change.Object()); change.Side == kind.SuperSide && ours {
		return []engine.Key{isolationKey(owner.ClusterKey, owner.Namespace)}
	}
	return nil
}

// policyWakesIsolation enqueues the isolation of the namespace of a tenant's policy, unless it selects the same pods.
func policyWakesIsolation(_ *kind.Env, change kind.Change) []engine.Key {
	before, isOld := change.Old.(*networkingv1.NetworkPolicy)
	after, isNew := change.Current.(*networkingv1.NetworkPolicy)
	if change.Side != kind.TenantSide || isOld && isNew && before != after && selectsSame(&before.Spec, &after.Spec) {
		return nil
	}
	return []engine.Key{isolationKey(change.Tenant, change.Object().GetNamespace())}
}

// nodeMoves returns whether addresses or pod ranges of a node have changed.
func nodeMoves(_ *kind.Env, change *kind.Change) bool {
	before, isOld := change.Old.(*corev1.Node)
	after, isNew := change.Current.(*corev1.Node)
	return !isOld || !isNew || !sameAddresses(before, after)
}

// podIsSeenElsewhere returns whether a super pod has an address where none was seen before.
func podIsSeenElsewhere(env *kind.Env, change *kind.Change) bool {
	pod, exists := change.Current.(*corev1.Pod)
	return exists && networkOf(env).learn(pod)
}

func isolationKey(tenant, namespace string) engine.Key {
	return engine.Key{Tenant: tenant, Kind: kind.Isolation, Namespace: namespace, Name: isolationFloor}
}

// isolationSuperKey returns the key of the namespace of a policy of ours.
func isolationSuperKey(superPolicy client.Object) (engine.Key, bool) {
	owner, owned := tenancy.GetOwner(superPolicy)
	if !owned || superPolicy.GetLabels()[LabelIsolation] == "" {
		return engine.Key{}, false
	}
	return isolationKey(owner.ClusterKey, owner.Namespace), true
}

// selectsSame returns whether two policies apply to the same pods, in the same directions.
func selectsSame(a, b *networkingv1.NetworkPolicySpec) bool {
	return equality.Semantic.DeepEqual(a.PodSelector, b.PodSelector) && slices.Equal(directionsOf(a), directionsOf(b))
}

func sameAddresses(a, b *corev1.Node) bool {
	before, moreBefore := kind.NodeAddresses(a)
	after, moreAfter := kind.NodeAddresses(b)
	return slices.Equal(before, after) && moreBefore == moreAfter && slices.Equal(podRanges(a), podRanges(b))
}

// Isolated returns whether pods of a tenant namespace may be created as far as the network is concerned: it is open, or
// the floor is there, which Isolation writes last.
func Isolated(e *kind.Env, tenant *kind.Tenant, namespace string) bool {
	if confinement(e, tenant) == nil {
		return true
	}
	floor, _ := e.SuperCache.Get(kind.Isolation, tenancy.SuperNamespace(tenant.Key, namespace), isolationFloor)
	return floor != nil && floor.GetDeletionTimestamp() == nil
}

// Isolation keeps our NetworkPolicies in every super namespace with pods of a tenant whose network is not open:
//
//   - a floor, which selects all pods in both directions and allows nothing;
//   - policies that allow what an isolated pod may do to pods that no policy of the tenant selects in a direction. They
//     select no other pods: NetworkPolicies allow by union, so they would undo what the tenant denies.
type Isolation struct{ env *kind.Env }

var _ engine.Kind = &Isolation{}

// Name implements engine.Kind.
func (i *Isolation) Name() string { return kind.Isolation }

// Keys implements engine.Kind.
func (i *Isolation) Keys() []engine.Key {
	return append(isolationKeys(i.env), engine.Key{Kind: kind.Isolation})
}

// isolationKeys returns the keys of all super namespaces.
func isolationKeys(e *kind.Env) []engine.Key {
	var keys []engine.Key
	for _, object := range e.SuperCache.List(kind.Namespace) {
		if owner, owned := tenancy.GetOwner(object); owned {
			keys = append(keys, isolationKey(owner.ClusterKey, owner.Namespace))
		}
	}
	return keys
}

// Reconcile implements engine.Kind.
func (i *Isolation) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	if key.Tenant == "" {
		return i.look(), nil
	}
	tenant := i.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil // the addition of the tenant's objects enqueues the key, or patrol
	}
	if placed, err := i.env.NamespacePlaced(ctx, tenant, key.Namespace); err != nil || !placed {
		if err == nil {
			i.env.Warnings.Clear(ofRefusal(key))
		}
		return 0, err // a change of the super namespace or of its quota enqueues the key
	}
	if _, synced := tenant.Cache.Get(kind.NetworkPolicy, key.Namespace, ""); !synced {
		return 0, engine.Waitf("the cache of the tenant's NetworkPolicies")
	}
	namespace, exists, _ := kind.Get[*corev1.Namespace](tenant.Cache, kind.Namespace, "", key.Namespace)
	if !exists {
		return 0, nil // patrol enqueues the key
	}
	policies := i.policies(tenant, key)
	err := i.ensure(ctx, tenant.Owner(key.Namespace, namespace.UID), policies)
	if err == nil {
		i.env.Warnings.Clear(ofRefusal(key))
	}
	i.env.WarnRefusedAbout(tenant, ofRefusal(key), namespace, kind.ReasonFailedCreate, err)
	return 0, err
}

// look reads the network of the super cluster anew. Once that has changed, it enqueues all that follows from it.
func (i *Isolation) look() time.Duration {
	changed, after := networkOf(i.env).look(i.env)
	if changed {
		i.env.Resync(append(networkKeys(i.env), takeUpKeys(i.env)...))
		i.env.Resync(isolationKeys(i.env))
		i.env.Resync(i.env.Keys(kind.NetworkPolicy))
		i.env.Resync(i.env.Keys(kind.EndpointSlice))
	}
	return after
}

// policies returns the desired policies of a tenant namespace, the floor last; none if the tenant's network is open. It
// warns the tenant where the bound leaves some out.
func (i *Isolation) policies(tenant *kind.Tenant, key engine.Key) []*networkingv1.NetworkPolicy {
	confinement := confinement(i.env, tenant)
	if confinement == nil {
		i.env.Settle(key)
		i.env.Warnings.Clear(ofElsewhere(key))
		return nil
	}
	var own []*networkingv1.NetworkPolicy
	for _, object := range tenant.Cache.InNamespace(kind.NetworkPolicy, key.Namespace) {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
			own = append(own, policy)
		}
	}
	policies, closed, bound := i.tolerable(tenant, key, own, confinement)
	if len(closed) == 0 || len(own) == 0 {
		i.env.Settle(key)
		return policies
	}
	youngest := slices.MaxFunc(own, compareAge)
	if bound != "" {
		i.env.WarnOnce(tenant, key, youngest, ReasonTooManyNetworkPolicies, fmt.Sprintf(
			"Super cluster %s: %s: nothing is allowed to the pods of namespace %s that no NetworkPolicy selects (%s)",
			i.env.ID, bound, key.Namespace, strings.Join(closed, ", ")))
		return policies
	}
	i.env.WarnOnce(tenant, key, youngest, ReasonTooManyNetworkPolicies, fmt.Sprintf(
		"Super cluster %s: it takes more than %d NetworkPolicies to select the pods that none of the %d of namespace %s selects: nothing is allowed to those pods (%s). "+
			"One with an empty podSelector, or selectors of fewer labels, need none", i.env.ID, maxIsolation, len(own), key.Namespace, strings.Join(closed, ", ")))
	return policies
}

// tolerable returns IsolationPolicies, without the tenant's pods in other super clusters if there are too many of these
// for them, and tells the tenant which of those are closed.
func (i *Isolation) tolerable(tenant *kind.Tenant, key engine.Key, own []*networkingv1.NetworkPolicy, confinement *Confinement) (policies []*networkingv1.NetworkPolicy, closed []string, bound string) {
	policies, closed, bound = IsolationPolicies(own, tenant.Key, confinement)
	left := ""
	if elsewhere := othersOf(i.env).of(i.env, tenant.Key); elsewhere != nil && len(elsewhere.left) > 0 {
		left = "some of those in " + kind.SomeOf(elsewhere.left)
	}
	for _, without := range [...]func() *Confinement{confinement.withoutRemotes, confinement.withoutOthers} {
		if len(closed) == 0 || confinement.others() == 0 {
			break
		}
		narrower, still, also := IsolationPolicies(own, tenant.Key, without())
		if len(still) < len(closed) {
			left, policies, closed, bound = "all of those in other super clusters", narrower, still, also
		}
	}
	namespace, exists, _ := kind.Get[*corev1.Namespace](tenant.Cache, kind.Namespace, "", key.Namespace)
	if left == "" || !exists {
		i.env.Warnings.Clear(ofElsewhere(key))
		return policies, closed, bound
	}
	i.env.WarnAbout(tenant, ofElsewhere(key), namespace, ReasonTooManyPodsElsewhere, fmt.Sprintf(
		"Super cluster %s: pods of this namespace and %s do not reach each other: policies name at most %d addresses of pods in other super clusters. Fewer pods, or a namespace in one super cluster, help",
		i.env.ID, left, maxTold))
	return policies, closed, bound
}

// ofRefusal is what is said where the super cluster refuses the policies that isolate a namespace, ofElsewhere of pods
// in other super clusters, and the key itself has what is said of the youngest policy.
func ofRefusal(key engine.Key) kind.Topic   { return kind.Topic{Key: key, Of: "refusal"} }
func ofElsewhere(key engine.Key) kind.Topic { return kind.Topic{Key: key, Of: "elsewhere"} }

// compareAge is negative if a is older than b. No two policies of a namespace are of one age: names decide.
func compareAge(a, b *networkingv1.NetworkPolicy) int {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	return strings.Compare(a.Name, b.Name)
}

// IsolationPolicies returns the policies of ours, besides those of a tenant in one of its namespaces, the floor last,
// and the directions in which more than maxIsolation would be needed and none is written. bound says which other bound
// the tenant's exceed, "" for none.
func IsolationPolicies(own []*networkingv1.NetworkPolicy, clusterKey string, confinement *Confinement) (policies []*networkingv1.NetworkPolicy, closed []string, bound string) {
	directions := [...]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	for _, direction := range directions {
		selecting := own
		if len(own) <= maxSelectors {
			selecting = slices.DeleteFunc(slices.Clone(own), func(policy *networkingv1.NetworkPolicy) bool {
				return !slices.Contains(directionsOf(&policy.Spec), direction)
			})
		}
		if exceeded := exceededBy(selecting); exceeded != "" {
			bound = cmp.Or(bound, exceeded)
			closed = append(closed, string(direction))
			continue
		}
		selectors := make([]metav1.LabelSelector, 0, len(selecting))
		for _, policy := range selecting {
			selector := policy.Spec.PodSelector.DeepCopy()
			tenancy.TranslateSelector(selector)
			selectors = append(selectors, *selector)
		}
		unselected, ok := Unselected(selectors, maxIsolation)
		if !ok {
			closed = append(closed, string(direction))
		}
		allowing, size := make([]*networkingv1.NetworkPolicy, 0, len(unselected)), 0
		for number, selector := range unselected {
			policy := isolationPolicy(direction, number, selector, clusterKey, confinement)
			allowing, size = append(allowing, policy), size+policy.Size()
		}
		if size > MaxIsolationBytes && len(allowing) > 1 {
			bound = cmp.Or(bound, fmt.Sprintf("the policies that select the pods which no NetworkPolicy selects take %d bytes, and at most %d may", size, MaxIsolationBytes))
			closed = append(closed, string(direction))
			continue
		}
		policies = append(policies, allowing...)
	}
	floor := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: isolationFloor, Labels: map[string]string{LabelIsolation: "floor"}},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: directions[:]},
	}
	return append(policies, floor), closed, bound
}

// exceededBy returns which bound the selectors of policies exceed, "" for none. It is cheap however large they are:
// they are the tenant's, as its API server has them.
func exceededBy(policies []*networkingv1.NetworkPolicy) string {
	if len(policies) > maxSelectors {
		return fmt.Sprintf("there are more than %d NetworkPolicies", maxSelectors)
	}
	values := 0
	for _, policy := range policies {
		selector := &policy.Spec.PodSelector
		if len(selector.MatchLabels)+len(selector.MatchExpressions) > maxRequirements {
			return fmt.Sprintf("the podSelector of NetworkPolicy %s has more than %d requirements", policy.Name, maxRequirements)
		}
		for i := range selector.MatchExpressions {
			if len(selector.MatchExpressions[i].Values) > maxValues {
				return fmt.Sprintf("the podSelector of NetworkPolicy %s has a requirement of more than %d values", policy.Name, maxValues)
			}
		}
		if values += valuesOf(selector); values > maxAllValues {
			return fmt.Sprintf("the podSelectors of the NetworkPolicies have more than %d values", maxAllValues)
		}
	}
	return ""
}

// isolationPolicy returns the policy that allows everybody but the pool to the pods of a selector, in one direction.
func isolationPolicy(direction networkingv1.PolicyType, number int, selector metav1.LabelSelector, clusterKey string, confinement *Confinement) *networkingv1.NetworkPolicy {
	name := strings.ToLower(string(direction))
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", isolationFloor, name, number), Labels: map[string]string{LabelIsolation: name}},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: selector, PolicyTypes: []networkingv1.PolicyType{direction}},
	}
	if direction == networkingv1.PolicyTypeIngress {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	} else {
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	}
	confinement.confine(&policy.Spec, clusterKey, "")
	return policy
}

// directionsOf returns the directions in which a policy applies. API servers set policyTypes to these where they are
// empty.
func directionsOf(spec *networkingv1.NetworkPolicySpec) []networkingv1.PolicyType {
	switch {
	case len(spec.PolicyTypes) > 0:
		return spec.PolicyTypes
	case len(spec.Egress) > 0:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
}

// ensure writes the desired policies of a super namespace, the floor last, and deletes others of ours, the floor first:
// a pod is closed meanwhile, not open.
func (i *Isolation) ensure(ctx context.Context, owner tenancy.Owner, desired []*networkingv1.NetworkPolicy) error {
	name := tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	actual := map[string]*networkingv1.NetworkPolicy{}
	for _, object := range i.env.SuperCache.InNamespace(kind.Isolation, name) {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
			actual[policy.Name] = policy
		}
	}
	for _, policy := range desired {
		policy.Namespace = name
		tenancy.SetOwner(policy, owner)
		if err := i.write(ctx, actual[policy.Name], policy); err != nil {
			return err
		}
		delete(actual, policy.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(actual)) { // the floor's name sorts first
		if err := i.env.Remove(ctx, i.env.Super, kind.Isolation, "delete", actual[name], nil, proof.NotNeeded("others of our own policies take its place")); err != nil {
			return err
		}
	}
	return nil
}

// write creates or updates one policy. actual is nil if the cache has none. One of that name which is not ours, as a
// tenant can write with ours not there yet, becomes ours: all in a super namespace is.
func (i *Isolation) write(ctx context.Context, actual, desired *networkingv1.NetworkPolicy) error {
	if actual == nil {
		err := i.env.Super.Create(ctx, desired.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			return i.env.Done(ctx, kind.Isolation, "create", err)
		}
		actual = &networkingv1.NetworkPolicy{}
		if err := i.env.Super.Get(ctx, client.ObjectKeyFromObject(desired), actual); err != nil {
			return fmt.Errorf("reading NetworkPolicy %s/%s: %w", desired.Namespace, desired.Name, err)
		}
	}
	if actual.DeletionTimestamp != nil {
		return engine.Waitf("the deletion of NetworkPolicy %s/%s", desired.Namespace, desired.Name)
	}
	updated := actual.DeepCopy()
	if updated.Labels == nil {
		updated.Labels = map[string]string{}
	}
	maps.Copy(updated.Labels, desired.Labels)
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	maps.Copy(updated.Annotations, desired.Annotations)
	updated.Spec = desired.Spec
	if equality.Semantic.DeepEqual(actual, updated) {
		return nil
	}
	return i.env.Done(ctx, kind.Isolation, "update", i.env.Super.Update(ctx, updated))
}
