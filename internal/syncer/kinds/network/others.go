package network

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// ReasonTooManyPodsElsewhere: a tenant has more pods in other super clusters than NetworkPolicies can name. Those that
// the message speaks of are closed to the pods of the namespace in this super cluster, and the other way round.
const ReasonTooManyPodsElsewhere = "TooManyPodsElsewhere"

const (
	// maxComparisons bounds how often a value of a policy's selectors is compared with the labels of pods elsewhere.
	maxComparisons = 200_000
	// maxNamed bounds the addresses of pods elsewhere in all rules of a policy.
	maxNamed = 5000
	// minTold4 and minTold6 are the least prefix lengths of ranges that are taken up.
	minTold4, minTold6 = 8, 16
	// bytesNamed is about what an address takes in a policy.
	bytesNamed = 32
)

// Remote are pods of a tenant in another super cluster, of one namespace and with the same labels.
type Remote struct {
	// Namespace is the tenant's, and NamespaceLabels those of its super namespace.
	Namespace string
	// NamespaceLabels and Labels are those that selectors of the tenant are translated to.
	NamespaceLabels, Labels labels.Set
	// Ranges are their addresses.
	Ranges []netip.Prefix
}

// remotes are the pods of a tenant in all other super clusters, as far as the bounds go. They are immutable; nil are
// none.
type remotes struct {
	all       []Remote
	addresses map[netip.Addr]bool
	// left are the super clusters of which not all pods are there, sorted.
	left []string
}

// others is what the other super clusters of the pool have told, as far as it was taken up. The zero value has taken up
// nothing. All methods may be called concurrently.
type others struct {
	mu sync.Mutex
	// networks are those of super clusters by id; nil before the first were taken up.
	networks map[string]memberNetwork
	// pods are the remotes of tenants by key.
	pods map[string]*remotes
}

// memberNetwork is the network of another super cluster.
type memberNetwork struct {
	ranges, nodes []netip.Prefix
	// agents are the addresses with a vn-agent, which answers at agentPort.
	agents    []netip.Prefix
	agentPort int32
	// controllers are the addresses of the pods in namespaces that TenantPolicies list, by namespace.
	controllers map[string][]netip.Prefix
}

func (n memberNetwork) equal(other memberNetwork) bool {
	return slices.Equal(n.ranges, other.ranges) && slices.Equal(n.nodes, other.nodes) && slices.Equal(n.agents, other.agents) && n.agentPort == other.agentPort && maps.EqualFunc(n.controllers, other.controllers, slices.Equal)
}

// takeUp takes up what other super clusters tell of a tenant, or of themselves if tenant is "", and enqueues what
// follows from a change. It returns how long the next change has to wait, by what this one costs.
func takeUp(e *kind.Env, tenant string) time.Duration {
	if tenant == "" {
		if othersOf(e).takeUpNetworks(e) {
			e.Resync([]engine.Key{{Kind: kind.Isolation}})
			e.Resync(takeUpKeys(e))
		}
		return addressesPeriod
	}
	connected := e.Tenant(tenant)
	if connected == nil || !othersOf(e).takeUpPods(e, tenant) {
		return addressesPeriod
	}
	var keys []engine.Key
	for _, each := range e.SuperNamespaces(tenant) {
		keys = append(keys, isolationKey(tenant, each.Name))
	}
	namespaces := len(keys)
	for _, kind := range [...]string{kind.NetworkPolicy, kind.EndpointSlice} {
		for _, object := range connected.Cache.List(kind) {
			keys = append(keys, engine.Key{Tenant: tenant, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})
		}
	}
	e.Resync(keys)
	// Each namespace has policies for both directions; other writes have the other half of the rate.
	written := float64(2 * bytesNamed * namespaces * len(othersOf(e).of(e, tenant).addresses))
	rate := connected.Policy.Get().Spec().Limits.Writes.BytesPerSecond.AsApproximateFloat64() / 2
	return max(addressesPeriod, time.Duration(written/max(rate, 1)*float64(time.Second)))
}

// takeUpKeys returns the keys of the tenants with pods elsewhere: which of them count depends on all networks.
func takeUpKeys(e *kind.Env) []engine.Key {
	var keys []engine.Key
	for _, tenant := range e.Tenants() {
		if e.Told != nil && len(e.Told(tenant.Key)) > 0 {
			keys = append(keys, engine.Key{Tenant: tenant.Key, Kind: kind.Addresses})
		}
	}
	return keys
}

// takeUpNetworks returns whether the networks of other super clusters have changed.
func (o *others) takeUpNetworks(e *kind.Env) bool {
	current := networksTold(e)
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := !maps.EqualFunc(o.networks, current, memberNetwork.equal)
	o.networks = current
	return changed
}

// networksTold returns what other super clusters tell of themselves.
func networksTold(e *kind.Env) map[string]memberNetwork {
	networks := map[string]memberNetwork{}
	if e.Told == nil {
		return networks
	}
	for _, told := range e.Told(tenancyv1alpha1.ManagerNamespace) {
		if told.Name == e.ID {
			continue
		}
		network := memberNetwork{
			ranges: disjoint(slices.DeleteFunc(parsePrefixes(told.Status.Ranges), isTooWide)), nodes: disjoint(parsePrefixes(told.Status.Nodes)),
			agents: disjoint(parsePrefixes(told.Status.Agents)), agentPort: told.Status.AgentPort, controllers: map[string][]netip.Prefix{},
		}
		for i := range told.Status.Namespaces {
			in := &told.Status.Namespaces[i]
			for j := range in.Pods {
				network.controllers[in.Name] = append(network.controllers[in.Name], parseAddresses(in.Pods[j].Addresses)...)
			}
		}
		networks[told.Name] = network
	}
	return networks
}

// isTooWide returns whether a range is no network of a super cluster: one that is wrong there is not to close
// everything everywhere.
func isTooWide(of netip.Prefix) bool {
	return isWider(of, minTold4, minTold6)
}

// known returns the networks of other super clusters, which must not be changed.
func (o *others) known(e *kind.Env) map[string]memberNetwork {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.networks == nil {
		o.networks = networksTold(e)
	}
	return o.networks
}

// takeUpPods returns whether the remotes of a tenant have changed.
func (o *others) takeUpPods(e *kind.Env, tenant string) bool {
	current := remotesTold(e, tenant)
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.pods[tenant]
	if before != nil && before.equal(current) {
		return false
	}
	o.set(tenant, current)
	return true
}

// of returns the remotes of a tenant.
func (o *others) of(e *kind.Env, tenant string) *remotes {
	o.mu.Lock()
	known, exists := o.pods[tenant]
	o.mu.Unlock()
	if exists || e.Told == nil {
		return known
	}
	current := remotesTold(e, tenant)
	o.mu.Lock()
	defer o.mu.Unlock()
	if newer, exists := o.pods[tenant]; exists {
		return newer // what was read here may be older
	}
	if e.Tenant(tenant) != nil {
		o.set(tenant, current)
	}
	return current
}

// set holds the remotes of a tenant. The caller holds mu.
func (o *others) set(tenant string, current *remotes) {
	if o.pods == nil {
		o.pods = map[string]*remotes{}
	}
	o.pods[tenant] = current
}

// Forget forgets the remotes of a tenant.
func (o *others) Forget(tenant string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pods, tenant)
}

// remotesTold returns the pods of a tenant that other super clusters tell of. An address that is in the ranges of two
// super clusters is left out: super clusters that are not routed to each other often have the same ranges, and here it
// leads to somebody else.
func remotesTold(e *kind.Env, tenant string) *remotes {
	found := &remotes{addresses: map[netip.Addr]bool{}}
	var holders *holders
	for _, told := range e.Told(tenant) {
		if told.Name == e.ID {
			continue
		}
		if holders == nil {
			holders = holdersOf(e.ID, networkOf(e).own(e), othersOf(e).known(e))
		}
		if meta.IsStatusConditionFalse(told.Status.Conditions, tenancyv1alpha1.ConditionAddressesComplete) {
			found.left = append(found.left, told.Name)
		}
		if !found.add(tenant, told, func(address netip.Prefix) bool { return holders.otherThan(told.Name, address) }) {
			found.left = append(found.left, told.Name)
		}
	}
	slices.Sort(found.left)
	found.left = slices.Compact(found.left)
	return found
}

// holders are the super clusters of the pool by their ranges.
type holders struct {
	// ids is the super cluster with a range, "" for several.
	ids map[netip.Prefix]string
	// bits are the lengths of the ranges, and sorted are all of them by their first addresses.
	bits   map[int]bool
	sorted []netip.Prefix
}

// holdersOf returns the holders of own, which are the ranges of super cluster id, and of networks.
func holdersOf(id string, own []netip.Prefix, networks map[string]memberNetwork) *holders {
	h := &holders{ids: map[netip.Prefix]string{}, bits: map[int]bool{}}
	add := func(id string, ranges []netip.Prefix) {
		for _, each := range ranges {
			holder := id
			if other, exists := h.ids[each]; exists && other != id {
				holder = ""
			}
			h.ids[each], h.bits[each.Bits()] = holder, true
		}
	}
	add(id, own)
	for other, network := range networks {
		add(other, network.ranges)
	}
	h.sorted = slices.SortedFunc(maps.Keys(h.ids), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return h
}

// otherThan returns whether another super cluster has one of the addresses of a range.
func (h *holders) otherThan(superCluster string, of netip.Prefix) bool {
	for bits := range h.bits {
		if outer, err := of.Addr().Prefix(bits); err == nil && bits <= of.Bits() {
			if id, exists := h.ids[outer]; exists && id != superCluster {
				return true
			}
		}
	}
	first, _ := slices.BinarySearchFunc(h.sorted, of.Masked().Addr(), func(each netip.Prefix, address netip.Addr) int { return each.Addr().Compare(address) })
	for _, inner := range h.sorted[first:] {
		if !of.Contains(inner.Addr()) {
			break
		}
		if h.ids[inner] != superCluster {
			return true
		}
	}
	return false
}

// add adds what one super cluster tells of a tenant's pods, without addresses for which isTwice is true. It returns
// whether that was all that counts: of more than maxTold the others are left out.
func (r *remotes) add(tenant string, told *tenancyv1alpha1.ClusterAddresses, isTwice func(netip.Prefix) bool) bool {
	for i := range told.Status.Namespaces {
		in := &told.Status.Namespaces[i]
		for j := range in.Pods {
			remote := Remote{Namespace: in.Name, NamespaceLabels: ofTenant(in.Labels, tenant), Labels: ofTenant(in.Pods[j].Labels, tenant)}
			for _, text := range in.Pods[j].Addresses {
				address, ok := kind.ParseAddress(text)
				if !ok || isSpecial(address.Addr()) || r.addresses[address.Addr()] || isTwice(address) {
					continue
				}
				if len(r.addresses) >= maxTold {
					return false
				}
				r.addresses[address.Addr()] = true
				remote.Ranges = append(remote.Ranges, address)
			}
			if len(remote.Ranges) > 0 {
				r.all = append(r.all, remote)
			}
		}
	}
	return true
}

// ofTenant returns labels with the one that kind.Confine adds to selectors.
func ofTenant(told map[string]string, tenant string) labels.Set {
	set := labels.Set{tenancyv1alpha1.LabelCluster: tenant}
	for key, value := range told {
		if key != tenancyv1alpha1.LabelCluster {
			set[key] = value
		}
	}
	return set
}

func (r *remotes) equal(other *remotes) bool {
	return slices.Equal(r.left, other.left) && slices.EqualFunc(r.all, other.all, func(a, b Remote) bool {
		return a.Namespace == b.Namespace && slices.Equal(a.Ranges, b.Ranges) && labels.Equals(a.Labels, b.Labels) && labels.Equals(a.NamespaceLabels, b.NamespaceLabels)
	})
}

// remotesIn returns the addresses of the pods elsewhere that the peers of a rule allow, of a policy in a namespace of
// the tenant whose selectors are translated. No peers stand for everybody.
func (c *Confinement) remotesIn(peers []networkingv1.NetworkPolicyPeer, namespace string) []netip.Prefix {
	if len(c.Remotes) == 0 {
		return nil
	}
	if len(peers) == 0 {
		peers = []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}
	}
	var found []netip.Prefix
	for i := range peers {
		allows := remotesOf(&peers[i], namespace)
		for j := range c.Remotes {
			found = append(found, allows(&c.Remotes[j])...)
		}
	}
	return disjoint(found)
}

// remotesOf returns a function that returns the addresses which a peer of a policy in a namespace of the tenant stands
// for, of one Remote.
func remotesOf(peer *networkingv1.NetworkPolicyPeer, namespace string) func(*Remote) []netip.Prefix {
	if peer.IPBlock != nil {
		return func(remote *Remote) []netip.Prefix {
			return slices.DeleteFunc(slices.Clone(remote.Ranges), func(address netip.Prefix) bool { return !contains(peer.IPBlock, address) })
		}
	}
	inNamespace, pods := parseSelector(peer.NamespaceSelector), parseSelector(peer.PodSelector)
	return func(remote *Remote) []netip.Prefix {
		if peer.NamespaceSelector == nil && remote.Namespace != namespace || !inNamespace.Matches(remote.NamespaceLabels) || !pods.Matches(remote.Labels) {
			return nil
		}
		return remote.Ranges
	}
}

// parseSelector returns a selector that matches everything for nil, and nothing for one that is invalid.
func parseSelector(selector *metav1.LabelSelector) labels.Selector {
	if selector == nil {
		return labels.Everything()
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing()
	}
	return parsed
}

// here returns a Confinement without pods in other super clusters if the rules of a policy would take too much with
// them, and whether it is another one.
func (c *Confinement) here(spec *networkingv1.NetworkPolicySpec) (*Confinement, bool) {
	if c == nil || len(c.Remotes) == 0 {
		return c, false
	}
	addresses, values := 0, 0
	for i := range c.Remotes {
		addresses += len(c.Remotes[i].Ranges)
	}
	for _, peer := range peersOf(spec) {
		for _, selector := range [...]*metav1.LabelSelector{peer.PodSelector, peer.NamespaceSelector} {
			if selector != nil {
				values += 1 + valuesOf(selector) + len(selector.MatchExpressions)
			}
		}
		if peer.IPBlock != nil {
			values += 1 + len(peer.IPBlock.Except)
		}
	}
	if addresses*(len(spec.Ingress)+len(spec.Egress)) <= maxNamed && values*addresses <= maxComparisons {
		return c, false
	}
	return c.withoutRemotes(), true
}

// withoutRemotes returns a Confinement without pods in other super clusters.
func (c *Confinement) withoutRemotes() *Confinement {
	without := *c
	without.Remotes = nil
	return &without
}

// withoutOthers returns a Confinement without anything of other super clusters: neither pods nor those who call.
func (c *Confinement) withoutOthers() *Confinement {
	without := c.withoutRemotes()
	without.Servers, without.Callers = c.Servers[:c.local.servers], c.Callers[:c.local.callers]
	return without
}

// others returns how much of other super clusters there is.
func (c *Confinement) others() int {
	return len(c.Remotes) + len(c.Servers) - c.local.servers + len(c.Callers) - c.local.callers
}

// othersOf returns what the other super clusters have told.
func othersOf(env *kind.Env) *others { return kind.State[others](env) }
