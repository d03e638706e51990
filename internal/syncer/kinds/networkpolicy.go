package kinds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// KindNetworkPolicy is the kind of NetworkPolicies.
const KindNetworkPolicy = "networkpolicy"

// Reasons of Events on NetworkPolicies.
const (
	// ReasonNetworkPolicyNarrowed: selectors of a NetworkPolicy exceed the bounds, or name labels that are not copied
	// down; the syncer writes a policy to the super cluster that allows or selects less.
	ReasonNetworkPolicyNarrowed = "NetworkPolicyNarrowed"
	// ReasonTooManyNetworkPolicies: a NetworkPolicy selects namespaces by labels and as many older ones of its
	// namespace as may do so exist; the syncer leaves the one in the super cluster as it is, or creates it with
	// selectors that match nothing.
	ReasonTooManyNetworkPolicies = "TooManyNetworkPolicies"
)

const (
	// maxNamespaceSelectors bounds how many namespaceSelectors of one NetworkPolicy are evaluated against the tenant's
	// namespaces, and maxSelectedNamespaces how many names they select together: as many as fit an object. Each change
	// of a namespace's labels evaluates them again.
	maxNamespaceSelectors = 64
	maxSelectedNamespaces = 1024
	// maxSelectingPolicies bounds how many NetworkPolicies of one tenant namespace are evaluated so: the oldest.
	maxSelectingPolicies = 100
)

func networkPolicySpec() Spec {
	spec := Copied(networkPolicies())
	single := spec.New
	spec.New = func(env *Env) engine.Kind { return &networkPolicyKind{Kind: single(env), env: env} }
	return spec
}

func networkPolicies() Copy[*networkingv1.NetworkPolicy] {
	return Copy[*networkingv1.NetworkPolicy]{
		Name:      KindNetworkPolicy,
		New:       func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		Translate: translateNetworkPolicy,
		Wakes:     map[string]func(*Env, Change) []engine.Key{KindNamespace: wakesNetworkPolicies},
	}
}

// translateNetworkPolicy is SuperNetworkPolicy with the tenant's namespaces. A policy beyond maxSelectingPolicies stays
// as it is in the super cluster; a new one gets selectors that match nothing, for without it more would be allowed.
func translateNetworkPolicy(_ *Env, tenant *Tenant, tenantPolicy, superPolicy *networkingv1.NetworkPolicy) (Notice, error) {
	if _, synced := tenant.Cache.Get(KindNamespace, "", tenantPolicy.Namespace); !synced {
		return Notice{}, engine.Waitf("the cache of the tenant's namespaces")
	}
	if tooManySelect(tenantPolicy, tenant.Cache) {
		if superPolicy.ResourceVersion == "" {
			SuperNetworkPolicy(tenantPolicy, superPolicy, tenant.Key, nil)
		}
		return Notice{ReasonTooManyNetworkPolicies, fmt.Sprintf("at most %d NetworkPolicies of a namespace may select namespaces by labels, and %d older ones of namespace %s do: "+
			"this one stays as it was here, or selects no namespace by labels", maxSelectingPolicies, maxSelectingPolicies, tenantPolicy.Namespace)}, nil
	}
	if narrowed := SuperNetworkPolicy(tenantPolicy, superPolicy, tenant.Key, tenant.namespaceLabels()); narrowed {
		return Notice{ReasonNetworkPolicyNarrowed, fmt.Sprintf("at most %d namespaceSelectors that are not empty are evaluated, and %d namespaces that they select: "+
			"traffic of the others is not allowed", maxNamespaceSelectors, maxSelectedNamespaces)}, nil
	}
	if key := unsyncedKey(tenantPolicy, tenant.OpaqueMetaPrefixes); key != "" {
		return Notice{ReasonNetworkPolicyNarrowed, fmt.Sprintf("a podSelector names label %s, which pods do not have in super clusters", key)}, nil
	}
	return Notice{}, nil
}

// namespaceLabels returns the labels of the tenant's namespaces by name. They are in a cache and must not be changed.
func (t *Tenant) namespaceLabels() map[string]labels.Set {
	objects := t.Cache.List(KindNamespace)
	found := make(map[string]labels.Set, len(objects))
	for _, object := range objects {
		found[object.GetName()] = object.GetLabels()
	}
	return found
}

// SuperNetworkPolicy sets superPolicy to the desired one for tenantPolicy. namespaces are the labels of the tenant's
// namespaces by name. It returns whether namespaces were left out because there are too many.
//
//	tenant                         super cluster
//	podSelector                    the same, of pods of the tenant
//	namespaceSelector, empty       all super namespaces of the tenant
//	namespaceSelector              the super namespaces, by name, of those namespaces of the tenant that it selects
//	ipBlock, ports, policyTypes    the same
//
// namespaceSelectors are evaluated against the tenant's namespaces, because not all labels are copied to super
// namespaces.
func SuperNetworkPolicy(tenantPolicy, superPolicy *networkingv1.NetworkPolicy, clusterKey string, namespaces map[string]labels.Set) (narrowed bool) {
	spec := tenantPolicy.Spec.DeepCopy()
	confine(&spec.PodSelector, clusterKey)
	names := &namespaceNames{clusterKey: clusterKey, namespaces: namespaces}
	for _, peer := range peersOf(spec) {
		confine(peer.PodSelector, clusterKey)
		if selectsSome(peer.NamespaceSelector) {
			peer.NamespaceSelector = names.selector(peer.NamespaceSelector)
		}
		confine(peer.NamespaceSelector, clusterKey)
	}
	superPolicy.Spec = *spec
	return names.narrowed
}

// selectsByLabels returns whether a policy selects some of the tenant's namespaces by labels.
func selectsByLabels(policy *networkingv1.NetworkPolicy) bool {
	return slices.ContainsFunc(peersOf(&policy.Spec), func(peer *networkingv1.NetworkPolicyPeer) bool { return selectsSome(peer.NamespaceSelector) })
}

// tooManySelect returns whether a policy selects namespaces by labels and maxSelectingPolicies older ones of its
// namespace do.
func tooManySelect(policy *networkingv1.NetworkPolicy, cache Cache) bool {
	if !selectsByLabels(policy) {
		return false
	}
	older := 0
	for _, object := range cache.InNamespace(KindNetworkPolicy, policy.Namespace) {
		other, ok := object.(*networkingv1.NetworkPolicy)
		if !ok || compareAge(other, policy) >= 0 || !selectsByLabels(other) {
			continue
		}
		if older++; older == maxSelectingPolicies {
			return true
		}
	}
	return false
}

// compareAge is negative if a is older than b. No two policies of a namespace are of one age: names decide.
func compareAge(a, b *networkingv1.NetworkPolicy) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// peersOf returns all peers of a policy.
func peersOf(spec *networkingv1.NetworkPolicySpec) []*networkingv1.NetworkPolicyPeer {
	var peers []*networkingv1.NetworkPolicyPeer
	for i := range spec.Ingress {
		for j := range spec.Ingress[i].From {
			peers = append(peers, &spec.Ingress[i].From[j])
		}
	}
	for i := range spec.Egress {
		for j := range spec.Egress[i].To {
			peers = append(peers, &spec.Egress[i].To[j])
		}
	}
	return peers
}

// selectsSome returns whether a namespaceSelector is neither nil nor empty.
func selectsSome(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0
}

// namespaceNames replaces selectors of a tenant's namespaces by names of super namespaces, within the bounds of one
// policy.
type namespaceNames struct {
	clusterKey string
	namespaces map[string]labels.Set
	// sorted are the names of namespaces; nil before the first selector.
	sorted []string
	// selectors and names count those so far, for the bounds.
	selectors, names int
	// narrowed is whether namespaces were left out.
	narrowed bool
}

// selector returns a selector of super namespaces by label kubernetes.io/metadata.name, which the API server sets, or
// one that matches nothing: a peer must not be removed, because a rule without peers allows all traffic.
func (n *namespaceNames) selector(selector *metav1.LabelSelector) *metav1.LabelSelector {
	nothing := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
	if n.selectors++; n.selectors > maxNamespaceSelectors {
		n.narrowed = true
		return nothing
	}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nothing // the API server has validated it
	}
	if n.sorted == nil {
		n.sorted = slices.Sorted(maps.Keys(n.namespaces))
	}
	var found []string
	for _, name := range n.sorted {
		if !matches.Matches(n.namespaces[name]) {
			continue
		}
		if n.names == maxSelectedNamespaces {
			n.narrowed = true
			break
		}
		n.names++
		found = append(found, tenancy.SuperNamespace(n.clusterKey, name))
	}
	if len(found) == 0 {
		return nothing
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: found},
	}}
}

// unsyncedKey returns a label key in a podSelector that is not copied down, "" if there is none.
func unsyncedKey(policy *networkingv1.NetworkPolicy, opaque []string) string {
	selectors := []*metav1.LabelSelector{&policy.Spec.PodSelector}
	for _, peer := range peersOf(&policy.Spec) {
		if peer.PodSelector != nil {
			selectors = append(selectors, peer.PodSelector)
		}
	}
	for _, selector := range selectors {
		keys := slices.Sorted(maps.Keys(selector.MatchLabels))
		for _, requirement := range selector.MatchExpressions {
			keys = append(keys, requirement.Key)
		}
		for _, key := range keys {
			if isOpaque(key, opaque) {
				return key
			}
		}
	}
	return ""
}
