// Package network isolates the pods of tenants: it translates their NetworkPolicies, adds policies of our own, and
// tells other super clusters the addresses that may pass.
package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// APIServerSpec is that of the addresses of the super cluster's API server.
func APIServerSpec() kind.Spec {
	selector := discoveryv1.LabelServiceName + "=" + kind.APIServerService + ",!" + tenancyv1alpha1.LabelCluster
	return kind.Spec{Name: kind.APIServer, Super: &kind.Watch{Object: &discoveryv1.EndpointSlice{}, Labels: func(*kind.Env) string { return selector }}}
}

// ServiceCIDRSpec is that of the ranges of the super cluster's Services.
func ServiceCIDRSpec() kind.Spec {
	return kind.Spec{Name: kind.ServiceCIDR, ClusterScoped: true, Super: &kind.Watch{Object: &networkingv1.ServiceCIDR{}, Optional: true}}
}

const (
	// maxServers bounds the ranges of nodes whose vn-agents and node ports isolated pods may reach. Pods of a super
	// cluster with more nodes reach none.
	maxServers = 64
	// maxCallers bounds the ranges of nodes of other super clusters that may call pods, with what comes to node ports
	// and load balancers, and of their vn-agents. Of more none may.
	maxCallers = 256
	// maxPolicies bounds how many policies' Ranges are held.
	maxPolicies = 256
	// maxServices bounds the ranges of Services that are closed.
	maxServices = maxClosed / 4
	// podBlock4 and podBlock6 are the prefix lengths of the blocks around pods' addresses: what a node has by default
	// where kube-controller-manager gives them out (--node-cidr-mask-size).
	podBlock4, podBlock6 = 24, 64
	// maxPods4 and maxPods6 are the prefix lengths of the widest ranges of a node's pods that are believed, and of
	// blocks around pods. maxNode4 and maxNode6 are those of the widest blocks around nodes that others are told.
	maxPods4, maxPods6 = 16, 48
	maxNode4, maxNode6 = 24, 64
	// maxToldNodes and maxToldServers bound the ranges of nodes, and of API servers, that others are told. Those of
	// pods are as many as those of nodes.
	maxToldNodes   = 60
	maxToldServers = maxClosed - 2*maxToldNodes
	// maxBlocksOfNode bounds the blocks around pods of one node: its kubelet says what addresses they have.
	maxBlocksOfNode = 4
	// rangesPeriod is the least time between two changes of what is seen of a network.
	rangesPeriod = 5 * time.Second
)

// network is what a syncer sees of the network of its super cluster. The zero value has not looked yet. All methods may
// be called concurrently.
type network struct {
	mu sync.Mutex
	// seen is nil before the first look.
	seen *seen
	// blocksOf are blocks around the addresses of tenants' pods since the first look, by node: a node need not say what
	// ranges its pods have. pods are all of them, at most maxToldNodes.
	blocksOf map[string][]netip.Prefix
	pods     []netip.Prefix
	// podsLeft is true where blocks around pods are left out, because they are too many.
	podsLeft bool
	// next is the earliest time of the next look.
	next time.Time
	// ranges holds those of policies, with seen.
	ranges map[*policy.Policy]*Ranges
}

// seen is immutable.
type seen struct {
	// own are addresses and pod ranges of nodes, blocks around pods, and addresses of API servers.
	own []netip.Prefix
	// told are own as others are told them.
	told []netip.Prefix
	// closed are own, and what other super clusters tell of theirs.
	closed []netip.Prefix
	// services are the ranges of the super cluster's Services.
	services []netip.Prefix
	// agents are addresses with a vn-agent.
	agents []netip.Prefix
	// nodes are the addresses of nodes, none where they make more than maxServers ranges.
	nodes []netip.Prefix
	// callers are the addresses of nodes of other super clusters.
	callers []netip.Prefix
	// agentsElsewhere are the vn-agents of other super clusters.
	agentsElsewhere []Server
	// controllers are the addresses of ingress controllers of other super clusters, by their namespace.
	controllers map[string][]netip.Prefix
	// left says what is in none of these because there is too much of it, and what to do.
	left []string
}

// Sentences of seen.left.
const (
	listCallers = "list their addresses in network.poolCIDRs and traffic.callerCIDRs of TenantPolicies"
	oneAgent    = "--vn-agent-address, one address for all nodes"
	listPool    = "list those that are right in network.poolCIDRs of TenantPolicies"

	leftOfNodes = "more than 4 addresses of a node, or pod ranges of one that are wider than /16: pods of tenants may reach these; look whose Node says so, and " + listPool
	leftOfPods  = "pods in too many networks: pods of tenants may reach some of them; look which nodes' pods have these addresses, and " + listPool
	leftOfTold  = "nodes in too many networks: pods of tenants in other super clusters may reach some of them; look which Nodes say so, and " + listPool
)

func (s *seen) equal(other *seen) bool {
	return slices.Equal(s.own, other.own) && slices.Equal(s.told, other.told) && slices.Equal(s.closed, other.closed) && slices.Equal(s.services, other.services) &&
		slices.Equal(s.agents, other.agents) && slices.Equal(s.nodes, other.nodes) && slices.Equal(s.callers, other.callers) && slices.Equal(s.agentsElsewhere, other.agentsElsewhere) &&
		maps.EqualFunc(s.controllers, other.controllers, slices.Equal) && slices.Equal(s.left, other.left)
}

// look reads the network from the caches anew, at most once per rangesPeriod. It returns whether it has changed, and
// after what time to call again if it is too early.
func (n *network) look(e *kind.Env) (changed bool, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := e.Clock.Now()
	if now.Before(n.next) {
		return false, n.next.Sub(now)
	}
	n.next = now.Add(rangesPeriod)
	before := n.seen
	current := n.see(e)
	if before != nil && before.equal(current) {
		return false, 0
	}
	n.seen, n.ranges = current, nil
	return before != nil, 0
}

// learn adds the blocks of a super pod's addresses. It returns whether any of them is new, which the next look takes
// up.
func (n *network) learn(pod *corev1.Pod) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen != nil && n.learnLocked(pod) // the first look reads all pods
}

func (n *network) learnLocked(pod *corev1.Pod) bool {
	if pod.Spec.HostNetwork {
		return false
	}
	if n.blocksOf == nil {
		n.blocksOf = map[string][]netip.Prefix{}
	}
	isNew := false
	for _, ip := range kind.IPsOf(pod) {
		single, ok := kind.ParseAddress(ip)
		if !ok || isSpecial(single.Addr()) || covered(n.pods, single) || n.seen != nil && covered(n.seen.own, single) {
			continue
		}
		bits := podBlock4
		if single.Addr().Is6() {
			bits = podBlock6
		}
		block, known := netip.PrefixFrom(single.Addr(), bits).Masked(), n.blocksOf[pod.Spec.NodeName]
		left := 0
		switch {
		case slices.Contains(known, block):
			continue
		case len(known) == maxBlocksOfNode: // those that came first stay
			left = 1
		default:
			n.blocksOf[pod.Spec.NodeName] = append(known, block)
			n.pods, left = aggregateUpTo(slices.Concat(slices.Collect(maps.Values(n.blocksOf))...), maxToldNodes, maxPods4, maxPods6)
			isNew = true
		}
		if left > 0 && !n.podsLeft {
			isNew, n.podsLeft = true, true
		}
	}
	return isNew
}

// of returns what a policy closes, with what is seen, and what is seen.
func (n *network) of(e *kind.Env, p *policy.Policy) (*Ranges, *seen) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = n.see(e)
	}
	ranges, exists := n.ranges[p]
	if !exists {
		rules := &p.Spec().Network
		ranges = NewRanges(slices.Concat(n.seen.closed, parsePrefixes(rules.PoolCIDRs)), parsePrefixes(rules.AllowedCIDRs))
		if n.ranges == nil || len(n.ranges) >= maxPolicies {
			n.ranges = map[*policy.Policy]*Ranges{}
		}
		n.ranges[p] = ranges
	}
	return ranges, n.seen
}

// see reads the network from the caches of the super cluster. n is locked.
func (n *network) see(e *kind.Env) *seen {
	if n.seen == nil {
		for _, object := range e.SuperCache.List(kind.Pod) {
			if pod, ok := object.(*corev1.Pod); ok {
				n.learnLocked(pod)
			}
		}
	}
	ranges := nodeRanges{pods: slices.Clone(n.pods)}
	for _, object := range e.SuperCache.List(kind.Node) {
		if node, ok := object.(*corev1.Node); ok {
			ranges.addNode(node)
		}
	}
	servers := apiServers(e)
	closed := slices.Concat(ranges.nodes, ranges.pods, servers)
	found := &seen{own: disjoint(closed), services: Aggregate(serviceRanges(e), maxServices)}
	told, left := aggregateUpTo(ranges.nodes, maxToldNodes, maxNode4, maxNode6)
	toldPods, leftPods := aggregateUpTo(ranges.pods, maxToldNodes, maxPods4, maxPods6)
	found.told = disjoint(slices.Concat(told, toldPods, Aggregate(servers, maxToldServers)))
	for _, each := range [...]struct {
		is   bool
		says string
	}{{ranges.disbelieved, leftOfNodes}, {n.podsLeft || leftPods > 0, leftOfPods}, {left > 0, leftOfTold}} {
		if each.is {
			found.left = append(found.left, each.says)
		}
	}
	nodes := slices.DeleteFunc(disjoint(ranges.nodes), func(node netip.Prefix) bool { return isSpecial(node.Addr()) })
	found.addNodes(nodes, e.VNAgent)
	closed = slices.Concat(closed, found.addOthers(e.ID, othersOf(e).known(e)))
	found.closed = Aggregate(closed, maxClosed)
	switch single, ok := kind.ParseAddress(e.VNAgent.Address); {
	case e.VNAgent.Port == 0:
	case ok:
		found.agents = []netip.Prefix{single}
	case e.VNAgent.Address == "":
		found.agents = found.nodes
	}
	return found
}

// nodeRanges are addresses and pod ranges that nodes say.
type nodeRanges struct {
	nodes, pods []netip.Prefix
	// disbelieved is true where a node says more than is believed.
	disbelieved bool
}

// apiServers returns the addresses of the super cluster's API servers.
func apiServers(e *kind.Env) (servers []netip.Prefix) {
	for _, object := range e.SuperCache.List(kind.APIServer) {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok && slice.Namespace == metav1.NamespaceDefault {
			servers = append(servers, addressesIn(slice)...)
		}
	}
	if host, _, ok := kind.HostOf(e.SuperHost); ok {
		servers = append(servers, host)
	}
	return servers
}

// addNodes adds the addresses of nodes, unless they are too many.
func (s *seen) addNodes(nodes []netip.Prefix, agent kind.VNAgent) {
	switch {
	case len(nodes) <= maxServers:
		s.nodes = nodes
	case agent.Port == 0 || agent.Address != "":
		s.left = append(s.left, fmt.Sprintf("more than %d nodes: what comes to their node ports and load balancers does not reach pods of tenants; %s", maxServers, listCallers))
	default:
		s.left = append(s.left, fmt.Sprintf(
			"more than %d nodes: pods of tenants reach none of their vn-agents, and what comes to their node ports and load balancers does not reach these pods; give the syncer %s, and %s",
			maxServers, oneAgent, listCallers))
	}
}

// addOthers adds those of other super clusters that call pods, and returns the ranges of all of them. An address that
// is another one's, too, is somebody else's here.
func (s *seen) addOthers(id string, networks map[string]memberNetwork) (ranges []netip.Prefix) {
	holders := holdersOf(id, s.own, networks)
	s.controllers = map[string][]netip.Prefix{}
	for _, other := range slices.Sorted(maps.Keys(networks)) {
		network := networks[other]
		isTwice := func(address netip.Prefix) bool { return holders.otherThan(other, address) }
		ranges = append(ranges, network.ranges...)
		s.callers = append(s.callers, slices.DeleteFunc(slices.Clone(network.nodes), isTwice)...)
		if network.agentPort > 0 {
			for _, agent := range network.agents {
				if isTwice(agent) || !covered(network.ranges, agent) {
					continue // it is not that super cluster's own
				}
				s.agentsElsewhere = append(s.agentsElsewhere, Server{Range: agent, Port: network.agentPort})
			}
		}
		for namespace, addresses := range network.controllers {
			s.controllers[namespace] = append(s.controllers[namespace], slices.DeleteFunc(slices.Clone(addresses), isTwice)...)
		}
	}
	if s.callers = disjoint(s.callers); len(s.callers) > maxCallers {
		s.callers = nil
		s.left = append(s.left, fmt.Sprintf(
			"more than %d nodes in other super clusters: what comes to their node ports and load balancers does not reach pods of tenants here; %s", maxCallers, listCallers))
	}
	if len(s.agentsElsewhere) > maxCallers {
		s.agentsElsewhere = nil
		s.left = append(s.left, fmt.Sprintf("more than %d vn-agents in other super clusters: pods of tenants here reach none of them; give their syncers %s", maxCallers, oneAgent))
	}
	for _, namespace := range slices.Sorted(maps.Keys(s.controllers)) {
		if s.controllers[namespace] = disjoint(s.controllers[namespace]); len(s.controllers[namespace]) > maxCallers {
			delete(s.controllers, namespace)
			s.left = append(s.left, fmt.Sprintf(
				"more than %d pods of ingress controllers in namespace %s of other super clusters: none of them calls pods of tenants here; %s", maxCallers, namespace, listCallers))
		}
	}
	return ranges
}

// own returns the ranges of the super cluster itself, which must not be changed.
func (n *network) own(e *kind.Env) []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = n.see(e)
	}
	return n.seen.own
}

// told returns what other super clusters are told of the network, and what of it and of theirs is left out.
func (n *network) told(e *kind.Env) (told *tenancyv1alpha1.ClusterAddressesStatus, left []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = n.see(e)
	}
	told = &tenancyv1alpha1.ClusterAddressesStatus{Ranges: textsOf(n.seen.told), Nodes: textsOf(n.seen.nodes), Agents: textsOf(n.seen.agents)}
	if len(told.Agents) > 0 {
		told.AgentPort = e.VNAgent.Port
	}
	return told, n.seen.left
}

func textsOf(ranges []netip.Prefix) []string {
	var texts []string
	for _, each := range ranges {
		texts = append(texts, each.String())
	}
	return texts
}

// serviceRanges returns the ranges of the super cluster's Services, as far as they are known.
func serviceRanges(e *kind.Env) []netip.Prefix {
	var services []netip.Prefix
	for _, object := range e.SuperCache.List(kind.ServiceCIDR) {
		if ranges, ok := object.(*networkingv1.ServiceCIDR); ok {
			services = append(services, parsePrefixes(ranges.Spec.CIDRs)...)
		}
	}
	return services
}

// addNode adds the addresses and the pod ranges of a node, as far as they are believed: who has the node's credentials
// writes them.
func (r *nodeRanges) addNode(node *corev1.Node) {
	addresses, more := kind.NodeAddresses(node)
	for _, address := range addresses {
		if single, ok := kind.ParseAddress(address.Address); ok {
			r.nodes = append(r.nodes, single)
		}
	}
	pods := parsePrefixes(podRanges(node))
	believed := slices.DeleteFunc(slices.Clone(pods), func(each netip.Prefix) bool { return isWider(each, maxPods4, maxPods6) })
	r.pods = append(r.pods, believed...)
	r.disbelieved = r.disbelieved || more || len(believed) < len(pods)
}

// podRanges returns the ranges of a node's pods.
func podRanges(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

// addressesIn returns the addresses of an EndpointSlice.
func addressesIn(slice *discoveryv1.EndpointSlice) []netip.Prefix {
	var addresses []netip.Prefix
	for i := range slice.Endpoints {
		for _, address := range slice.Endpoints[i].Addresses {
			if single, ok := kind.ParseAddress(address); ok {
				addresses = append(addresses, single)
			}
		}
	}
	return addresses
}

// confinement returns whom the policies of a tenant can allow, nil if its network is open.
func confinement(e *kind.Env, tenant *kind.Tenant) *Confinement {
	inForce := tenant.Policy.Get()
	if inForce.Spec().Network.Mode == tenancyv1alpha1.NetworkOpen {
		return nil
	}
	ranges, seen := networkOf(e).of(e, inForce)
	confinement := &Confinement{Ranges: ranges}
	if elsewhere := othersOf(e).of(e, tenant.Key); elsewhere != nil {
		confinement.Remotes = elsewhere.all
	}
	if server, exists := apiServer(tenant); exists {
		confinement.Servers = append(confinement.Servers, server)
	}
	for _, agent := range seen.agents {
		server := Server{Range: agent, Port: e.VNAgent.Port}
		if e.VNAgent.Address != "" {
			server.Behind, server.PodPort = vnAgentPods(), vnAgentPodPort
		}
		confinement.Servers = append(confinement.Servers, server)
	}
	limits := &inForce.Spec().Limits
	confinement.Servers = append(confinement.Servers, publishing(seen.nodes, tenant.NodePorts, limits)...)
	for _, callers := range parsePrefixes(inForce.Spec().Traffic.CallerCIDRs) {
		confinement.Servers = append(confinement.Servers, Server{Range: callers, Calls: true})
	}
	if namespaces := inForce.Spec().Traffic.ControllerNamespaces; len(namespaces) > 0 {
		confinement.Callers = []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces}},
		}}}
	}
	confinement.local.servers, confinement.local.callers = len(confinement.Servers), len(confinement.Callers)
	outside := NewRanges(parsePrefixes(inForce.Spec().Network.PoolCIDRs), nil)
	for _, agent := range seen.agentsElsewhere {
		if !outside.Touch(agent.Range) { // what the operator closes another super cluster does not open
			confinement.Servers = append(confinement.Servers, agent)
		}
	}
	confinement.Servers = append(confinement.Servers, publishing(seen.callers, tenant.NodePorts, limits)...)
	for _, namespace := range inForce.Spec().Traffic.ControllerNamespaces {
		confinement.Callers = append(confinement.Callers, peersIn(seen.controllers[namespace])...)
	}
	return confinement
}

// publishing returns nodes as servers where a tenant's Services may have node ports or load balancers: nodes give
// what comes to these to a pod, in their own name, also to one in another super cluster. Only the tenant's own Services
// have the ports of its range.
func publishing(nodes []netip.Prefix, ports utilnet.PortRange, limits *tenancyv1alpha1.TenantLimits) []Server {
	server := Server{Calls: true}
	if ports.Size > 0 && limits.NodePorts > 0 {
		server.Port, server.EndPort = int32(ports.Base), int32(ports.Base+ports.Size-1) //nolint:gosec // ports
	} else if limits.LoadBalancers == 0 {
		return nil
	}
	servers := make([]Server, 0, len(nodes))
	for _, node := range nodes {
		server.Range = node
		servers = append(servers, server)
	}
	return servers
}

// vnAgentPodPort is the port of vn-agent's pods where one Service leads to them (manifests/vn-agent/apiserver).
const vnAgentPodPort = 10550

// vnAgentPods selects these pods. The name of a namespace is a label that nobody but its API server writes.
func vnAgentPods() *networkingv1.NetworkPolicyPeer {
	return &networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "vc-manager"}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "vn-agent"}},
	}
}

// apiServer returns the tenant's API server, false if its kubeconfig has a name instead of an address.
func apiServer(t *kind.Tenant) (Server, bool) {
	address, port, ok := t.APIServer()
	return Server{Range: address, Port: port, Calls: true}, ok
}

// ForbiddenAddress returns whether a tenant's EndpointSlices may not name an address: it is special, or the pool's, and
// neither the tenant's API server nor one of its pods has it.
func ForbiddenAddress(e *kind.Env, tenant *kind.Tenant) func(netip.Addr) bool {
	closed, elsewhere := closedEndpoints(e, tenant), othersOf(e).of(e, tenant.Key)
	server, _ := apiServer(tenant)
	return func(address netip.Addr) bool {
		address = address.Unmap().WithZone("")
		switch {
		case isSpecial(address):
			return true
		case !closed(address), server.Range.IsValid() && server.Range.Contains(address), elsewhere != nil && elsewhere.addresses[address]:
			return false
		}
		return len(e.SuperCache.Index(kind.Pod, kind.IndexAddress, kind.AtAddress(tenant.Key, address.String()))) == 0
	}
}

// closedEndpoints returns whether the endpoints of a tenant may be at an address only if it is its own. To one whose
// network is open nothing is closed, unless there is a way in to its Services: nodes hand on what comes to a node port
// or a load balancer in their own name, and ingress controllers what comes to an Ingress, so it would reach isolated
// pods that let these in. Those are in this super cluster.
func closedEndpoints(e *kind.Env, tenant *kind.Tenant) func(netip.Addr) bool {
	inForce := tenant.Policy.Get()
	isOpen, limits := inForce.Spec().Network.Mode == tenancyv1alpha1.NetworkOpen, &inForce.Spec().Limits
	if isOpen && limits.NodePorts == 0 && limits.LoadBalancers == 0 && !inForce.AllowsIngresses() {
		return func(netip.Addr) bool { return false }
	}
	ranges, seen := networkOf(e).of(e, inForce)
	open := append(parsePrefixes(inForce.Spec().Network.AllowedCIDRs), tenant.ServiceCIDRs...)
	return func(address netip.Addr) bool {
		// A controller that connects to the address of another tenant's Service goes on to its pods.
		isOthers := contain(seen.services, address) && !contain(open, address)
		return isOthers || !isOpen && ranges.Contain(address) || isOpen && contain(seen.own, address)
	}
}

// contain returns whether one of prefixes has an address.
func contain(prefixes []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}

// isSpecial returns whether no pod, and no server outside of the pool, has an address.
func isSpecial(address netip.Addr) bool {
	return !address.IsValid() || address.IsUnspecified() || address.IsLoopback() || address.IsMulticast() || address.IsLinkLocalUnicast() ||
		address == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// networkOf returns what is seen of the network.
func networkOf(env *kind.Env) *network { return kind.State[network](env) }
