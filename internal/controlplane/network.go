package controlplane

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Network is what the pods of control planes may reach, and who reaches them. An API server is a hostile program: it
// calls what its tenant writes into webhooks, APIServices and addresses of Nodes.
type Network struct {
	// Manager is the namespace of vc-manager, which asks etcd.
	Manager string
	// Reachable are the ranges that API servers may reach, and Closed what they may not reach in them.
	Reachable, Closed []netip.Prefix
	// MetaServers are where the API server of the meta cluster listens: of these addresses that port is closed alone, as
	// they may be nodes with vn-agents. Port 0 is one that is not known: all are closed.
	MetaServers []netip.AddrPort
}

// alwaysClosed are link-local addresses, which mean something else on each machine, and other addresses of metadata
// services: of AWS, Alibaba and Azure, by their documentation.
var alwaysClosed = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::254/128"),
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"),
}

// apiServerPolicy lets everybody reach the API servers, and them their store, DNS, and what Network says.
func (c *ControlPlane) apiServerPolicy() client.Object {
	egress := []networkingv1.NetworkPolicyEgressRule{{Ports: tcp(clientPort), To: []networkingv1.NetworkPolicyPeer{podsOf(Etcd)}}}
	egress = append(egress, dns()...)
	if blocks := c.Network.blocks(); len(blocks) > 0 { // a rule without peers is one for all
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{To: blocks})
	}
	egress = append(egress, c.Network.besides()...)
	return c.policy(APIServer, []networkingv1.NetworkPolicyIngressRule{{Ports: tcp(apiServerPort)}}, egress)
}

// closed returns the ranges of which nothing may be reached.
func (n *Network) closed() []netip.Prefix { return slices.Concat(alwaysClosed, n.Closed) }

// blocks returns what may be reached at all ports.
func (n *Network) blocks() (blocks []networkingv1.NetworkPolicyPeer) {
	closed := n.closed()
	for _, server := range n.MetaServers {
		closed = append(closed, netip.PrefixFrom(server.Addr(), server.Addr().BitLen()))
	}
	for _, reachable := range n.Reachable {
		block := &networkingv1.IPBlock{CIDR: reachable.Masked().String()}
		isClosed := false
		for _, closed := range closed {
			switch closed = closed.Masked(); {
			case !closed.Overlaps(reachable):
			case closed.Bits() <= reachable.Bits():
				isClosed = true
			case !slices.Contains(block.Except, closed.String()):
				block.Except = append(block.Except, closed.String())
			}
		}
		if !isClosed {
			blocks = append(blocks, networkingv1.NetworkPolicyPeer{IPBlock: block})
		}
	}
	return blocks
}

// besides returns the rules for what may be reached of the addresses of MetaServers: all ports but theirs.
func (n *Network) besides() (rules []networkingv1.NetworkPolicyEgressRule) {
	contains := func(ranges []netip.Prefix, address netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
	}
	ports := map[netip.Addr][]int32{}
	for _, server := range n.MetaServers {
		if contains(n.Reachable, server.Addr()) && !contains(n.closed(), server.Addr()) {
			ports[server.Addr()] = append(ports[server.Addr()], int32(server.Port()))
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(ports), netip.Addr.Compare) {
		if slices.Contains(ports[address], 0) {
			continue
		}
		const last = 65535
		rule := networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(address, address.BitLen()).String()}}},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolUDP)}},
		}
		first := int32(1)
		for _, port := range append(slices.Sorted(slices.Values(ports[address])), last+1) {
			if port > first {
				rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(first)), EndPort: ptr.To(port - 1)})
			}
			first = port + 1
		}
		rules = append(rules, rule)
	}
	return rules
}

// etcdPolicy lets the store be reached by its own members, its API servers, what makes backups, and vc-manager alone.
func (c *ControlPlane) etcdPolicy() client.Object {
	manager := networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Network.Manager}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{labelName: ManagedBy}},
	}
	return c.policy(Etcd, []networkingv1.NetworkPolicyIngressRule{
		{Ports: tcp(clientPort), From: []networkingv1.NetworkPolicyPeer{podsOf(APIServer), podsOf(EtcdBackup), manager}},
		{Ports: tcp(clientPort, peerPort), From: []networkingv1.NetworkPolicyPeer{podsOf(Etcd)}},
	}, append(dns(), networkingv1.NetworkPolicyEgressRule{Ports: tcp(clientPort, peerPort), To: []networkingv1.NetworkPolicyPeer{podsOf(Etcd)}}))
}

// managerPolicy lets the controller managers reach the API servers and DNS.
func (c *ControlPlane) managerPolicy() client.Object {
	return c.policy(ControllerManager, nil, append(dns(), networkingv1.NetworkPolicyEgressRule{
		Ports: tcp(apiServerPort), To: []networkingv1.NetworkPolicyPeer{podsOf(APIServer)},
	}))
}

// BackupPolicies let what makes backups reach the store and DNS, and what restores one nobody.
func (c *ControlPlane) BackupPolicies() []client.Object {
	return []client.Object{
		c.etcdPolicy(),
		c.policy(EtcdBackup, nil, append(dns(), networkingv1.NetworkPolicyEgressRule{Ports: tcp(clientPort), To: []networkingv1.NetworkPolicyPeer{podsOf(Etcd)}})),
		c.policy(EtcdRestore, nil, nil),
	}
}

// policy returns the NetworkPolicy of a component: what no rule allows is refused.
func (c *ControlPlane) policy(component string, ingress []networkingv1.NetworkPolicyIngressRule, egress []networkingv1.NetworkPolicyEgressRule) client.Object {
	policy := &networkingv1.NetworkPolicy{ObjectMeta: c.meta(component, component), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: Labels(component)}, Ingress: ingress, Egress: egress,
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}}
	policy.APIVersion, policy.Kind = networkingv1.SchemeGroupVersion.String(), "NetworkPolicy"
	return policy
}

// podsOf selects the pods of a component of the same control plane.
func podsOf(component string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: Labels(component)}}
}

// dns allows questions to DNS, wherever it is: on some nodes it has an address that is link-local. Policies are asked of
// the port of its pod, which is another one on some platforms: 5353 on OpenShift, 8053 on Gardener.
func dns() []networkingv1.NetworkPolicyEgressRule {
	both := func(ports ...int32) []networkingv1.NetworkPolicyPort {
		of := tcp(ports...)
		for _, port := range ports {
			of = append(of, networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(intstr.FromInt32(port))})
		}
		return of
	}
	return []networkingv1.NetworkPolicyEgressRule{
		{Ports: both(53)}, {Ports: both(5353, 8053), To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}},
	}
}

func tcp(ports ...int32) (of []networkingv1.NetworkPolicyPort) {
	for _, port := range ports {
		of = append(of, networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(port))})
	}
	return of
}
