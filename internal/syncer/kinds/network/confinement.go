package network

import (
	"math"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kind"
)

// Confinement is whom a tenant's policies can allow besides its own pods: what is outside of the pool, and servers. It
// is immutable, and safe for concurrent use.
type Confinement struct {
	// Ranges are the pool's addresses.
	Ranges *Ranges
	// Servers may be reached although they are at addresses of the pool.
	Servers []Server
	// Callers are pods of the pool that connect to those which let in everybody: ingress controllers.
	Callers []networkingv1.NetworkPolicyPeer
	// Remotes are the tenant's pods in other super clusters.
	Remotes []Remote
	// local is how many of Servers and Callers are of this super cluster, or of none: those come first.
	local struct{ servers, callers int }
}

// Server is what pods may reach at one TCP port, or at a range of ports.
type Server struct {
	Range netip.Prefix
	// Port is 0 where pods reach none.
	Port int32
	// EndPort is the last port of a range that begins with Port, of any protocol: the tenant's node ports. 0: there is
	// Port alone, of TCP.
	EndPort int32
	// Calls is whether it connects to pods, as API servers do to webhooks, and nodes with what comes to node ports and
	// load balancers.
	Calls bool
	// Behind are the pods that answer, at PodPort, where the address is that of a Service: kube-proxy leads connections
	// to a pod before policies are looked at. nil: none do.
	Behind  *networkingv1.NetworkPolicyPeer
	PodPort int32
}

// confine removes the pool's addresses from the rules of a policy in a namespace of the tenant, and adds those of its
// pods in other super clusters. Selectors are translated already. It returns the CIDRs of ipBlocks of which nothing is
// left. A rule of which no peer is left is removed: without peers it would allow everybody.
func (c *Confinement) confine(spec *networkingv1.NetworkPolicySpec, clusterKey, namespace string) (lost []string) {
	ingress := spec.Ingress
	spec.Ingress = nil
	for _, rule := range ingress {
		callers := c.reached(rule.From, func(server *Server) bool { return server.Calls })
		pods := c.Callers
		if !isEverybody(rule.From) {
			pods = nil
		}
		remote := c.remotesIn(rule.From, namespace)
		var gone []string
		rule.From, gone = c.peers(rule.From, clusterKey, callers)
		lost = append(lost, gone...)
		if rule.From = slices.Concat(rule.From, peersIn(remote), blocksOf(callers), pods); len(rule.From) > 0 {
			spec.Ingress = append(spec.Ingress, rule)
		}
	}
	egress := spec.Egress
	spec.Egress = nil
	for _, rule := range egress {
		servers := c.reached(rule.To, func(server *Server) bool { return len(server.allowed(rule.Ports)) > 0 })
		remote := c.remotesIn(rule.To, namespace)
		var gone []string
		rule.To, gone = c.peers(rule.To, clusterKey, servers)
		if rule.To = append(rule.To, peersIn(remote)...); len(rule.To) > 0 {
			spec.Egress = append(spec.Egress, rule)
		}
		lost = append(lost, gone...)
		spec.Egress = append(spec.Egress, rulesOf(servers, rule.Ports)...)
	}
	return lost
}

// peers returns peers without the pool's addresses, and the CIDRs of those of which nothing is left, no server either.
// No peers stand for everybody.
func (c *Confinement) peers(peers []networkingv1.NetworkPolicyPeer, clusterKey string, servers []Server) (confined []networkingv1.NetworkPolicyPeer, lost []string) {
	if len(peers) == 0 {
		own := &metav1.LabelSelector{}
		kind.Confine(own, clusterKey)
		return append([]networkingv1.NetworkPolicyPeer{{NamespaceSelector: own}}, peersAt(c.Ranges.Outside())...), nil
	}
	for _, peer := range peers {
		if peer.IPBlock == nil {
			confined = append(confined, peer)
			continue
		}
		blocks := c.Ranges.Without(*peer.IPBlock)
		has := func(server Server) bool { return contains(peer.IPBlock, server.Range) }
		if len(blocks) == 0 && !slices.ContainsFunc(servers, has) {
			lost = append(lost, peer.IPBlock.CIDR)
		}
		confined = append(confined, peersAt(blocks)...)
	}
	return confined, lost
}

// reached returns the servers at addresses of the pool that peers allow, and that are wanted.
func (c *Confinement) reached(peers []networkingv1.NetworkPolicyPeer, wanted func(*Server) bool) []Server {
	var servers []Server
	for _, server := range c.Servers {
		allowed := len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
			return peer.IPBlock != nil && contains(peer.IPBlock, server.Range)
		})
		if allowed && wanted(&server) && (server.Behind != nil || c.Ranges.Touch(server.Range)) {
			servers = append(servers, server)
		}
	}
	return servers
}

// isEverybody returns whether peers stand for everybody: there are none, or one is all addresses.
func isEverybody(peers []networkingv1.NetworkPolicyPeer) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock == nil || len(peer.IPBlock.Except) > 0 {
			return false
		}
		prefix, ok := parsePrefix(peer.IPBlock.CIDR)
		return ok && prefix.Bits() == 0
	})
}

// contains returns whether a block has all addresses of a range.
func contains(block *networkingv1.IPBlock, of netip.Prefix) bool {
	prefix, ok := parsePrefix(block.CIDR)
	return ok && covered([]netip.Prefix{prefix}, of) && !slices.ContainsFunc(parsePrefixes(block.Except), of.Overlaps)
}

// allowed returns the server's ports that are among ports, none of which stand for all.
func (s *Server) allowed(ports []networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort {
	if s.Port == 0 {
		return nil
	}
	var allowed []networkingv1.NetworkPolicyPort
	protocols := []corev1.Protocol{corev1.ProtocolTCP}
	if s.EndPort > 0 {
		protocols = append(protocols, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	for _, protocol := range protocols {
		add := func(first, last int32) {
			first, last = max(first, s.Port), min(last, max(s.Port, s.EndPort))
			port := networkingv1.NetworkPolicyPort{Protocol: ptr.To(protocol), Port: ptr.To(intstr.FromInt32(first))}
			if last > first {
				port.EndPort = ptr.To(last)
			}
			if first <= last && !slices.ContainsFunc(allowed, func(other networkingv1.NetworkPolicyPort) bool { return equality.Semantic.DeepEqual(other, port) }) {
				allowed = append(allowed, port)
			}
		}
		if len(ports) == 0 {
			add(0, math.MaxUint16)
		}
		for i := range ports {
			switch of := &ports[i]; {
			case ptr.Deref(of.Protocol, corev1.ProtocolTCP) != protocol:
			case of.Port == nil:
				add(0, math.MaxUint16)
			case of.Port.Type == intstr.Int: // names are those of a pod's ports
				add(of.Port.IntVal, ptr.Deref(of.EndPort, of.Port.IntVal))
			}
		}
	}
	return allowed
}

// rulesOf returns rules that allow servers at those of their ports that are among ports.
func rulesOf(servers []Server, ports []networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyEgressRule {
	same := func(a, b *Server) bool { return a.Port == b.Port && a.EndPort == b.EndPort }
	var rules []networkingv1.NetworkPolicyEgressRule
	for i, server := range servers {
		if slices.ContainsFunc(servers[:i], func(earlier Server) bool { return same(&earlier, &server) }) {
			continue
		}
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{
			Ports: server.allowed(ports),
			To:    blocksOf(slices.DeleteFunc(slices.Clone(servers), func(other Server) bool { return !same(&other, &server) })),
		})
	}
	for _, server := range servers {
		if server.Behind != nil {
			rules = append(rules, networkingv1.NetworkPolicyEgressRule{
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(server.PodPort))}},
				To:    []networkingv1.NetworkPolicyPeer{*server.Behind},
			})
		}
	}
	return rules
}

// blocksOf returns servers as peers.
func blocksOf(servers []Server) []networkingv1.NetworkPolicyPeer {
	ranges := make([]netip.Prefix, 0, len(servers))
	for _, server := range servers {
		ranges = append(ranges, server.Range)
	}
	return peersIn(ranges)
}

// peersIn returns ranges as peers.
func peersIn(ranges []netip.Prefix) []networkingv1.NetworkPolicyPeer {
	blocks := make([]networkingv1.IPBlock, 0, len(ranges))
	for _, each := range ranges {
		blocks = append(blocks, networkingv1.IPBlock{CIDR: each.String()})
	}
	return peersAt(blocks)
}

func peersAt(blocks []networkingv1.IPBlock) []networkingv1.NetworkPolicyPeer {
	peers := make([]networkingv1.NetworkPolicyPeer, 0, len(blocks))
	for i := range blocks {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &blocks[i]})
	}
	return peers
}
