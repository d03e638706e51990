// Package nftpolicy turns the NetworkPolicies of a cluster into an nftables ruleset for one node. It is for tests: the
// bed of real nodes has no CNI plugin that enforces policies.
//
// Connections that are established stay, and named ports of egress rules match nothing.
package nftpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// State is what a ruleset follows from.
type State struct {
	// Node is the node that the ruleset is for.
	Node       string
	Pods       []*corev1.Pod
	Namespaces []*corev1.Namespace
	Policies   []*networkingv1.NetworkPolicy
}

// Table is the name of the table, of family inet.
const Table = "nftpolicy"

// Ruleset returns the input of nft -f that replaces the table by one that enforces the policies for the pods of the
// node. It is the same for the same state in any order.
//
//	forward  packets from and to pods of the node: other pods, on the node too, other nodes, and everybody else
//	input    packets from pods of the node to the node itself
//
// What the node itself sends to its pods passes: NetworkPolicies let kubelets probe.
func Ruleset(state *State) string {
	b := &builder{State: state, sets: map[string][]string{}}
	pods := slices.Clone(state.Pods)
	slices.SortFunc(pods, func(x, y *corev1.Pod) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	var chains, forward, input strings.Builder
	for _, pod := range pods {
		if pod.Spec.NodeName != state.Node {
			continue
		}
		for _, address := range addressesOf(pod) {
			for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress} {
				policies := b.selecting(pod, direction)
				if len(policies) == 0 {
					continue
				}
				end, other := "saddr", "daddr"
				if direction == networkingv1.PolicyTypeIngress {
					end, other = "daddr", "saddr"
				}
				name := fmt.Sprintf("%s-%s", strings.ToLower(string(direction)), strings.NewReplacer(".", "-", ":", "-").Replace(address.String()))
				fmt.Fprintf(&chains, "\tchain %s { # %s/%s\n\t\t%s %s %s return\n", name, pod.Namespace, pod.Name, family(address), other, address)
				for _, line := range b.rules(pod, policies, direction, other, address) {
					fmt.Fprintf(&chains, "\t\t%s return\n", line)
				}
				chains.WriteString("\t\tdrop\n\t}\n")
				jump := fmt.Sprintf("\t\t%s %s %s jump %s\n", family(address), end, address, name)
				forward.WriteString(jump)
				if direction == networkingv1.PolicyTypeEgress {
					input.WriteString(jump)
				}
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n", Table)
	for _, name := range b.order {
		fmt.Fprintf(&out, "\tset %s {\n\t\ttype %s\n", name, b.types[name])
		if elements := b.sets[name]; len(elements) > 0 {
			fmt.Fprintf(&out, "\t\telements = { %s }\n", strings.Join(elements, ", "))
		}
		out.WriteString("\t}\n")
	}
	out.WriteString(chains.String())
	for _, hook := range []struct{ name, rules string }{{"forward", forward.String()}, {"input", input.String()}} {
		fmt.Fprintf(&out, "\tchain %[1]s {\n\t\ttype filter hook %[1]s priority filter; policy accept;\n\t\tct state established,related accept\n%[2]s\t}\n", hook.name, hook.rules)
	}
	out.WriteString("}\n")
	return out.String()
}

// builder collects the sets of selectors.
type builder struct {
	*State
	sets  map[string][]string
	types map[string]string
	order []string
	names map[string]string
}

// selecting returns the policies that apply to a pod in a direction, sorted by name.
func (b *builder) selecting(pod *corev1.Pod, direction networkingv1.PolicyType) []*networkingv1.NetworkPolicy {
	var found []*networkingv1.NetworkPolicy
	for _, policy := range b.Policies {
		if policy.Namespace == pod.Namespace && slices.Contains(policy.Spec.PolicyTypes, direction) && matches(&policy.Spec.PodSelector, pod.Labels) {
			found = append(found, policy)
		}
	}
	slices.SortFunc(found, func(x, y *networkingv1.NetworkPolicy) int { return cmp.Compare(x.Name, y.Name) })
	return found
}

// rules returns a match for each way in which policies allow packets of a pod. other is the field of the other end.
func (b *builder) rules(pod *corev1.Pod, policies []*networkingv1.NetworkPolicy, direction networkingv1.PolicyType, other string, address netip.Addr) []string {
	var lines []string
	add := func(policy *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, target *corev1.Pod) {
		for _, from := range b.peers(policy.Namespace, peers, other, address) {
			for _, port := range portsOf(ports, target) {
				if line := strings.TrimSpace(from + " " + port); !slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
	}
	for _, policy := range policies {
		if direction == networkingv1.PolicyTypeIngress {
			for _, rule := range policy.Spec.Ingress {
				add(policy, rule.From, rule.Ports, pod)
			}
			continue
		}
		for _, rule := range policy.Spec.Egress {
			add(policy, rule.To, rule.Ports, nil)
		}
	}
	return lines
}

// peers returns matches of the other end, of the address family of address.
func (b *builder) peers(namespace string, peers []networkingv1.NetworkPolicyPeer, other string, address netip.Addr) []string {
	if len(peers) == 0 {
		return []string{"meta nfproto " + protocol(address)}
	}
	var lines []string
	for _, peer := range peers {
		if peer.IPBlock == nil {
			lines = append(lines, fmt.Sprintf("%s %s @%s", family(address), other, b.set(namespace, &peer, address)))
			continue
		}
		prefix, err := netip.ParsePrefix(peer.IPBlock.CIDR)
		if err != nil || prefix.Addr().Is4() != address.Is4() {
			continue
		}
		line := fmt.Sprintf("%s %s %s", family(address), other, prefix.Masked())
		if prefix.Bits() == 0 {
			line = "meta nfproto " + protocol(address)
		}
		if len(peer.IPBlock.Except) > 0 {
			line += fmt.Sprintf(" %s %s != { %s }", family(address), other, strings.Join(peer.IPBlock.Except, ", "))
		}
		lines = append(lines, line)
	}
	return lines
}

// set returns the name of the set of the pods that a peer selects: there is one for each pair of selectors and family.
func (b *builder) set(namespace string, peer *networkingv1.NetworkPolicyPeer, address netip.Addr) string {
	scope := "namespace " + namespace
	if peer.NamespaceSelector != nil {
		scope = "namespaces " + metav1.FormatLabelSelector(peer.NamespaceSelector)
	}
	key := fmt.Sprintf("%s pods %s %s", scope, metav1.FormatLabelSelector(peer.PodSelector), family(address))
	if peer.PodSelector == nil {
		key = fmt.Sprintf("%s %s", scope, family(address))
	}
	if name, exists := b.names[key]; exists {
		return name
	}
	if b.names == nil {
		b.names, b.types = map[string]string{}, map[string]string{}
	}
	name := fmt.Sprintf("pods-%d", len(b.order))
	b.names[key], b.order = name, append(b.order, name)
	b.types[name] = "ipv4_addr"
	if address.Is6() {
		b.types[name] = "ipv6_addr"
	}
	var elements []string
	for _, pod := range b.Pods {
		if !b.inScope(pod, namespace, peer.NamespaceSelector) || peer.PodSelector != nil && !matches(peer.PodSelector, pod.Labels) {
			continue
		}
		for _, of := range addressesOf(pod) {
			if of.Is4() == address.Is4() {
				elements = append(elements, of.String())
			}
		}
	}
	slices.Sort(elements)
	b.sets[name] = slices.Compact(elements)
	return name
}

// inScope returns whether a pod is in a namespace that a selector matches, without one in namespace.
func (b *builder) inScope(pod *corev1.Pod, namespace string, selector *metav1.LabelSelector) bool {
	if selector == nil {
		return pod.Namespace == namespace
	}
	return slices.ContainsFunc(b.Namespaces, func(each *corev1.Namespace) bool { return each.Name == pod.Namespace && matches(selector, each.Labels) })
}

// portsOf returns matches of ports, one that matches everything for none. Names are those of target's ports.
func portsOf(ports []networkingv1.NetworkPolicyPort, target *corev1.Pod) []string {
	if len(ports) == 0 {
		return []string{""}
	}
	var lines []string
	for _, port := range ports {
		name := ptr.Deref(port.Protocol, corev1.ProtocolTCP)
		lower := strings.ToLower(string(name))
		switch {
		case port.Port == nil:
			lines = append(lines, "meta l4proto "+lower)
		case port.Port.Type == intstr.Int && port.EndPort != nil:
			lines = append(lines, fmt.Sprintf("%s dport %d-%d", lower, port.Port.IntVal, *port.EndPort))
		case port.Port.Type == intstr.Int:
			lines = append(lines, fmt.Sprintf("%s dport %d", lower, port.Port.IntVal))
		case target != nil:
			for _, container := range target.Spec.Containers {
				for _, of := range container.Ports {
					if of.Name == port.Port.StrVal && cmp.Or(of.Protocol, corev1.ProtocolTCP) == name {
						lines = append(lines, fmt.Sprintf("%s dport %d", lower, of.ContainerPort))
					}
				}
			}
		}
	}
	return lines
}

func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && compiled.Matches(set)
}

// addressesOf returns the addresses of a pod that has its own: not those of one in the node's network, nor of one that
// has ended.
func addressesOf(pod *corev1.Pod) []netip.Addr {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var addresses []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func family(address netip.Addr) string {
	if address.Is4() {
		return "ip"
	}
	return "ip6"
}

func protocol(address netip.Addr) string {
	if address.Is4() {
		return "ipv4"
	}
	return "ipv6"
}
