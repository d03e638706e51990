package network

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonNetworkPolicyNarrowed: addresses that a NetworkPolicy allows are the pool's, which pods of the tenant may not
// reach; the syncer writes the policy without them to the super cluster.
const ReasonNetworkPolicyNarrowed = "NetworkPolicyNarrowed"

// PolicySpec is that of NetworkPolicies of tenants.
func PolicySpec() kind.Spec {
	spec := copier.Spec(networkPolicies())
	spec.Involved = schema.GroupKind{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}
	return spec
}

func networkPolicies() copier.Copy[*networkingv1.NetworkPolicy] {
	return copier.Copy[*networkingv1.NetworkPolicy]{
		Always:      true, // a pod that a policy closes is not to be open somewhere
		Name:        kind.NetworkPolicy,
		New:         func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		SuperLabels: "!" + LabelIsolation,
		Foreign:     func(superPolicy client.Object) bool { return superPolicy.GetLabels()[LabelIsolation] != "" },
		Translate:   translateNetworkPolicy,
		Fallback: func(_ *kind.Rules, policy *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, bool) {
			closed := withoutRules(policy)
			closed.ObjectMeta = policy.ObjectMeta
			return closed, len(policy.Spec.Ingress)+len(policy.Spec.Egress) > 0
		},
		Outdated: true,
		Instead:  insteadOf,
	}
}

// insteadOf returns the policy that allows nothing to the pods which one with too many elements selects, or to all of
// the namespace if its selector has too many, and what the tenant is told.
func insteadOf(tenantPolicy *networkingv1.NetworkPolicy) (closed *networkingv1.NetworkPolicy, words string) {
	closed, words = withoutRules(tenantPolicy), "nothing is allowed to the pods that the policy selects"
	if policy.ExcessOfEntries(closed) != "" {
		closed.Spec.PodSelector, words = metav1.LabelSelector{}, "nothing is allowed to any pod of the namespace"
	}
	closed.Namespace, closed.Name, closed.UID, closed.ResourceVersion = tenantPolicy.Namespace, tenantPolicy.Name, tenantPolicy.UID, tenantPolicy.ResourceVersion
	return closed, words
}

func translateNetworkPolicy(env *kind.Env, tenant *kind.Tenant, tenantPolicy, superPolicy *networkingv1.NetworkPolicy) (copier.Notice, error) {
	confinement := confinement(env, tenant)
	if bound := exceededByRules(&tenantPolicy.Spec); bound != "" && confinement != nil {
		closePolicy(tenantPolicy, superPolicy, tenant.Key, confinement)
		return copier.Notice{Reason: tenancy.ReasonPolicyForbids, Message: bound + ": nothing is allowed to the pods that the policy selects"}, nil
	}
	confinement, isHere := confinement.here(&tenantPolicy.Spec)
	lost := SuperNetworkPolicy(tenantPolicy, superPolicy, tenant.Key, confinement)
	if confinement != nil && len(confinement.Remotes) > 0 && superPolicy.Spec.Size() > maxPolicyBytes {
		isHere, lost = true, SuperNetworkPolicy(tenantPolicy, superPolicy, tenant.Key, confinement.withoutRemotes())
	}
	if size := superPolicy.Spec.Size(); size > maxPolicyBytes {
		closePolicy(tenantPolicy, superPolicy, tenant.Key, confinement)
		return copier.Notice{Reason: kind.ReasonTenantLimit, Message: fmt.Sprintf(
			"the policy takes %d bytes there, and at most %d go down: nothing is allowed to the pods that it selects", size, maxPolicyBytes)}, nil
	}
	if isHere {
		return copier.Notice{Reason: ReasonNetworkPolicyNarrowed, Message: fmt.Sprintf(
			"with its rules the policy would take too much to name the tenant's pods in other super clusters: it allows nothing there (at most %d addresses in all rules)", maxNamed)}, nil
	}
	if len(lost) == 0 {
		return copier.Notice{}, nil
	}
	return copier.Notice{Reason: ReasonNetworkPolicyNarrowed, Message: fmt.Sprintf("ipBlocks %s are addresses of the pool, which pods may not reach: they are left out", kind.SomeOf(lost))}, nil
}

// closePolicy sets superPolicy to one that allows nothing to the pods which the tenant's selects, or to all of the
// namespace if its selector is too large.
func closePolicy(tenantPolicy, superPolicy *networkingv1.NetworkPolicy, clusterKey string, confinement *Confinement) {
	closed := withoutRules(tenantPolicy)
	SuperNetworkPolicy(closed, superPolicy, clusterKey, confinement)
	if superPolicy.Spec.Size() > maxPolicyBytes {
		closed.Spec.PodSelector = metav1.LabelSelector{}
		SuperNetworkPolicy(closed, superPolicy, clusterKey, confinement)
	}
}

const (
	// maxRules bounds the rules of a policy that is confined, maxPeers the peers and ports of all its rules, and
	// maxExcepts the exceptions of all their ipBlocks. Each block and each rule may become one with maxClosed
	// exceptions.
	maxRules, maxPeers, maxExcepts = 200, 500, 500
	// maxPolicyBytes bounds the spec of a policy after translation: it is written again with each change of the pool's
	// addresses.
	maxPolicyBytes = 256 << 10
)

// exceededByRules returns which bound the rules of a policy exceed, "" for none.
func exceededByRules(spec *networkingv1.NetworkPolicySpec) string {
	if len(spec.Ingress)+len(spec.Egress) > maxRules {
		return fmt.Sprintf("the policy has more than %d rules", maxRules)
	}
	peers, excepts := 0, 0
	count := func(of []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		peers += len(of) + len(ports)
		for i := range of {
			if of[i].IPBlock != nil {
				excepts += len(of[i].IPBlock.Except)
			}
		}
	}
	for i := range spec.Ingress {
		count(spec.Ingress[i].From, spec.Ingress[i].Ports)
	}
	for i := range spec.Egress {
		count(spec.Egress[i].To, spec.Egress[i].Ports)
	}
	switch {
	case peers > maxPeers:
		return fmt.Sprintf("the policy has more than %d peers and ports", maxPeers)
	case excepts > maxExcepts:
		return fmt.Sprintf("the policy has more than %d exceptions of ipBlocks", maxExcepts)
	}
	return ""
}

// withoutRules returns the policy that selects the same pods in the same directions, and allows nothing. One that is
// not written would leave an earlier one in force, whose rules know nothing of new addresses of the pool.
func withoutRules(policy *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: policy.Spec.PodSelector, PolicyTypes: directionsOf(&policy.Spec)}}
}

// SuperNetworkPolicy sets superPolicy to the desired one for tenantPolicy. It returns the CIDRs of ipBlocks of which
// nothing is left.
//
//	tenant                         super cluster
//	podSelector                    the same labels, of pods of the tenant
//	namespaceSelector              the same labels, of super namespaces of the tenant
//	ipBlock                        the same without the pool's addresses; nothing of it, if all are the pool's
//	no peers: everybody            all pods of the tenant, and all addresses but the pool's
//	pods in other super clusters   their addresses, where a peer selects them or contains these, or there are no peers
//	ports, policyTypes             the same
//
// The API server of the tenant and vn-agents may be at addresses of the pool. They stay reachable wherever the tenant's
// policy allows their address, at their port. Without a confinement ipBlocks and rules without peers stay as they are.
func SuperNetworkPolicy(tenantPolicy, superPolicy *networkingv1.NetworkPolicy, clusterKey string, confinement *Confinement) (lost []string) {
	spec := tenantPolicy.Spec.DeepCopy()
	kind.TranslateSelector(&spec.PodSelector, clusterKey)
	for _, peer := range peersOf(spec) {
		kind.TranslateSelector(peer.PodSelector, clusterKey)
		kind.TranslateSelector(peer.NamespaceSelector, clusterKey)
	}
	if confinement != nil {
		lost = confinement.confine(spec, clusterKey, tenantPolicy.Namespace)
	}
	superPolicy.Spec = *spec
	return lost
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
