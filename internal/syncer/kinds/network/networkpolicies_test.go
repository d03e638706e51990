package network_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/network"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func matching(expressions ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: expressions}
}

// ofTenant returns a selector of objects of the tenant with these labels of the tenant's.
func ofTenant(pairs ...string) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"tenancy.x-k8s.io/cluster": kindtest.ClusterKey}}
	for i := 0; i < len(pairs); i += 2 {
		selector.MatchLabels[tenancy.LabelKey(pairs[i])] = pairs[i+1]
	}
	return selector
}

func tcp(port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(port))}
}

func peerAt(cidr string, excepts ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: ptr.To(blockOf(cidr, excepts...))}
}

func selectorPeer(namespaces, pods *metav1.LabelSelector) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: namespaces, PodSelector: pods}
}

// confinement closes 10.0.0.0/8 but for 10.5.0.0/16, with the tenant's API server and a vn-agent in it.
func confinement() *network.Confinement {
	return &network.Confinement{
		Ranges: network.NewRanges(prefixes("10.0.0.0/8", "fd00::/8"), prefixes("10.5.0.0/16")),
		Servers: []network.Server{
			{Range: netip.MustParsePrefix("10.213.0.1/32"), Port: 6443, Calls: true}, {Range: netip.MustParsePrefix("10.213.0.11/32"), Port: 10550},
		},
	}
}

type (
	ingressRules = []networkingv1.NetworkPolicyIngressRule
	egressRules  = []networkingv1.NetworkPolicyEgressRule
	peers        = []networkingv1.NetworkPolicyPeer
	ports        = []networkingv1.NetworkPolicyPort
)

// TestSuperNetworkPolicyOfAService: where a Service leads to vn-agent, its pods may be reached too, at their own port
// and only by whom the tenant lets reach the Service.
func TestSuperNetworkPolicyOfAService(t *testing.T) {
	t.Parallel()
	agents := selectorPeer(
		&metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "vc-manager"}},
		&metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "vn-agent"}})
	tcp := func(port int32) ports {
		return ports{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(port))}}
	}
	for _, address := range []string{"10.213.0.11/32", "192.0.2.1/32"} { // a node's, and a load balancer's outside of the pool
		confined := confinement()
		confined.Servers = []network.Server{{Range: netip.MustParsePrefix(address), Port: 30550, Behind: &agents, PodPort: 10550}}
		allowing := func(to peers) egressRules {
			got := &networkingv1.NetworkPolicy{}
			require.Empty(t, network.SuperNetworkPolicy(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: egressRules{{To: to}}}}, got, kindtest.ClusterKey, confined))
			return got.Spec.Egress
		}
		require.Equal(t, egressRules{{Ports: tcp(30550), To: peers{peerAt(address)}}, {Ports: tcp(10550), To: peers{agents}}}, allowing(nil)[1:])
		require.Equal(t, egressRules{{To: peers{peerAt("198.51.100.0/24")}}}, allowing(peers{peerAt("198.51.100.0/24")}))
	}
}

// TestSuperNetworkPolicyOfNodePorts: the tenant's node ports may be reached, as far as its policies allow them, and
// nodes lead to pods what comes to theirs.
func TestSuperNetworkPolicyOfNodePorts(t *testing.T) {
	t.Parallel()
	nodes := peers{peerAt("10.213.0.11/32"), peerAt("10.213.0.21/32")}
	confined := confinement()
	confined.Servers = nil
	for _, node := range nodes {
		confined.Servers = append(confined.Servers, network.Server{Range: netip.MustParsePrefix(node.IPBlock.CIDR), Port: 31000, EndPort: 31099, Calls: true})
	}
	of := func(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
		port := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(first))}
		if last > first {
			port.EndPort = &last
		}
		return port
	}
	for _, tc := range []struct {
		name        string
		ports, want ports
		to          peers
	}{
		{name: "everything", want: ports{of("TCP", 31000, 31099), of("UDP", 31000, 31099), of("SCTP", 31000, 31099)}},
		{name: "one of them", ports: ports{tcp(31050)}, want: ports{tcp(31050)}},
		{name: "a port that overlaps", ports: ports{of("UDP", 30000, 31009)}, want: ports{of("UDP", 31000, 31009)}},
		{name: "all of a protocol", ports: ports{{Protocol: ptr.To(corev1.ProtocolSCTP)}}, want: ports{of("SCTP", 31000, 31099)}},
		{name: "others", ports: ports{tcp(10250), of("TCP", 31100, 32767), {Port: ptr.To(intstr.FromString("http"))}}},
		{name: "another address", to: peers{peerAt("10.213.0.1/32")}},
		{name: "the nodes' addresses", to: peers{peerAt("10.213.0.0/24")}, ports: ports{tcp(31001)}, want: ports{tcp(31001)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := &networkingv1.NetworkPolicy{}
			network.SuperNetworkPolicy(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: egressRules{{Ports: tc.ports, To: tc.to}}}}, got, kindtest.ClusterKey, confined)
			var want egressRules
			if tc.want != nil {
				want = egressRules{{Ports: tc.want, To: nodes}}
			}
			if tc.to == nil {
				require.NotEmpty(t, got.Spec.Egress)
				got.Spec.Egress = got.Spec.Egress[1:] // what is outside of the pool
			}
			require.Empty(t, cmp.Diff(want, got.Spec.Egress, cmpopts.EquateEmpty()))
		})
	}
	t.Run("ingress", func(t *testing.T) {
		t.Parallel()
		own := peers{selectorPeer(nil, &metav1.LabelSelector{})}
		got := &networkingv1.NetworkPolicy{}
		network.SuperNetworkPolicy(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: ingressRules{{}, {From: own}}}}, got, kindtest.ClusterKey, confined)
		require.Subset(t, got.Spec.Ingress[0].From, nodes)
		require.Len(t, got.Spec.Ingress[1].From, 1, "who lets in its own pods alone lets in no node")
	})
}

// TestSuperNetworkPolicyOfTraffic: nodes lead to pods what comes to load balancers, and ingress controllers what comes
// to Ingresses. Pods reach neither.
func TestSuperNetworkPolicyOfTraffic(t *testing.T) {
	t.Parallel()
	controllers := selectorPeer(matching(metav1.LabelSelectorRequirement{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{"ingress"}}), nil)
	node := peerAt("10.213.0.11/32")
	confined := confinement()
	confined.Servers = []network.Server{{Range: netip.MustParsePrefix("10.213.0.11/32"), Calls: true}}
	confined.Callers = peers{controllers}
	for _, tc := range []struct {
		name string
		from peers
		want peers
	}{
		{name: "everybody", want: peers{node, controllers}},
		{name: "all addresses", from: peers{peerAt("0.0.0.0/0")}, want: peers{node, controllers}},
		{name: "all addresses but some", from: peers{peerAt("0.0.0.0/0", "10.1.0.0/16")}, want: peers{node}},
		{name: "the nodes", from: peers{peerAt("10.213.0.0/24")}, want: peers{node}},
		{name: "own pods", from: peers{selectorPeer(nil, &metav1.LabelSelector{})}},
		{name: "others outside", from: peers{peerAt("192.0.2.0/24")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := &networkingv1.NetworkPolicy{}
			rule := networkingv1.NetworkPolicyIngressRule{From: tc.from}
			network.SuperNetworkPolicy(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: ingressRules{rule}, Egress: egressRules{{}}}}, got, kindtest.ClusterKey, confined)
			require.Len(t, got.Spec.Egress, 1, "it may be called by them, and not call them")
			var found peers
			for _, peer := range got.Spec.Ingress[0].From {
				if cmp.Equal(peer, node) || cmp.Equal(peer, controllers) {
					found = append(found, peer)
				}
			}
			require.Empty(t, cmp.Diff(tc.want, found))
		})
	}
}

// TestSuperNetworkPolicy: whom the rules of a tenant's policy allow in a super cluster.
func TestSuperNetworkPolicy(t *testing.T) {
	t.Parallel()
	everybody := peers{
		selectorPeer(ofTenant(), nil), peerAt("0.0.0.0/0", "10.0.0.0/8"), peerAt("10.5.0.0/16"), peerAt("::/0", "fd00::/8"),
	}
	apiServer, agent := peerAt("10.213.0.1/32"), peerAt("10.213.0.11/32")
	app := map[string]string{"app": "front", "tenancy.x-k8s.io/cluster": "other"}
	named := networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromString("https"))}
	for _, tc := range []struct {
		name        string
		ingress     ingressRules
		egress      egressRules
		open        bool
		wantIngress ingressRules
		wantEgress  egressRules
		wantLost    []string
	}{
		{name: "nobody"},
		{
			name:    "pods and namespaces, by labels that nobody else can have",
			ingress: ingressRules{{From: peers{selectorPeer(nil, &metav1.LabelSelector{MatchLabels: app}), selectorPeer(&metav1.LabelSelector{}, nil)}}},
			egress: egressRules{{To: peers{
				selectorPeer(&metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "db"}}, &metav1.LabelSelector{}),
			}}},
			wantIngress: ingressRules{{From: peers{selectorPeer(nil, ofTenant("app", "front", "tenancy.x-k8s.io/cluster", "other")), selectorPeer(ofTenant(), nil)}}},
			wantEgress:  egressRules{{To: peers{selectorPeer(ofTenant("kubernetes.io/metadata.name", "db"), ofTenant())}}},
		},
		{
			name: "everybody", ingress: ingressRules{{Ports: ports{tcp(80)}}}, egress: egressRules{{}},
			wantIngress: ingressRules{{Ports: ports{tcp(80)}, From: append(everybody[:4:4], apiServer)}},
			wantEgress: egressRules{
				{To: everybody}, {Ports: ports{tcp(6443)}, To: peers{apiServer}}, {Ports: ports{tcp(10550)}, To: peers{agent}},
			},
		},
		{
			name: "everybody, at ports of no server", egress: egressRules{{Ports: ports{tcp(443), named, {Protocol: ptr.To(corev1.ProtocolUDP)}}}},
			wantEgress: egressRules{{Ports: ports{tcp(443), named, {Protocol: ptr.To(corev1.ProtocolUDP)}}, To: everybody}},
		},
		{
			name: "everybody, at a range of ports", egress: egressRules{{Ports: ports{{Port: ptr.To(intstr.FromInt32(6000)), EndPort: ptr.To[int32](7000)}}}},
			wantEgress: egressRules{
				{Ports: ports{{Port: ptr.To(intstr.FromInt32(6000)), EndPort: ptr.To[int32](7000)}}, To: everybody}, {Ports: ports{tcp(6443)}, To: peers{apiServer}},
			},
		},
		{
			name: "everybody, open", ingress: ingressRules{{}}, egress: egressRules{{To: peers{peerAt("10.0.0.0/7")}}}, open: true,
			wantIngress: ingressRules{{}}, wantEgress: egressRules{{To: peers{peerAt("10.0.0.0/7")}}},
		},
		{
			name:    "blocks",
			ingress: ingressRules{{From: peers{peerAt("10.1.0.0/16"), peerAt("8.0.0.0/6", "9.0.0.0/8")}}, {From: peers{peerAt("10.1.0.0/16")}}},
			egress:  egressRules{{To: peers{peerAt("192.0.2.0/24"), peerAt("10.1.0.0/16")}}, {To: peers{peerAt("10.2.0.0/16")}}},
			wantIngress: ingressRules{
				{From: peers{peerAt("8.0.0.0/6", "9.0.0.0/8", "10.0.0.0/8"), peerAt("10.5.0.0/16"), apiServer}},
			},
			wantEgress: egressRules{{To: peers{peerAt("192.0.2.0/24")}}}, wantLost: []string{"10.1.0.0/16", "10.1.0.0/16", "10.1.0.0/16", "10.2.0.0/16"},
		},
		{
			name:       "the API server by its address",
			ingress:    ingressRules{{From: peers{peerAt("10.213.0.0/24")}}},
			egress:     egressRules{{Ports: ports{tcp(6443)}, To: peers{peerAt("10.213.0.1/32")}}, {To: peers{peerAt("10.213.0.0/24", "10.213.0.0/28")}}},
			wantLost:   []string{"10.213.0.0/24"},
			wantEgress: egressRules{{Ports: ports{tcp(6443)}, To: peers{apiServer}}}, wantIngress: ingressRules{{From: peers{apiServer}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			policy := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "front"}}, PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"},
				Ingress: tc.ingress, Egress: tc.egress,
			}}
			untouched, got := policy.DeepCopy(), &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: egressRules{{}}}}
			confinement := confinement()
			if tc.open {
				confinement = nil
			}
			require.Empty(t, cmp.Diff(tc.wantLost, network.SuperNetworkPolicy(policy, got, kindtest.ClusterKey, confinement)))
			require.Empty(t, cmp.Diff(untouched, policy), "the policy lies in a cache")
			want := networkingv1.NetworkPolicySpec{
				PodSelector: *ofTenant("app", "front"), PolicyTypes: policy.Spec.PolicyTypes, Ingress: tc.wantIngress, Egress: tc.wantEgress,
			}
			require.Empty(t, cmp.Diff(want, got.Spec))
		})
	}
}

// TestHugeNetworkPolicy: a policy with more rules than the bounds allows nothing, an earlier one of its name neither,
// and its tenant is told.
func TestHugeNetworkPolicy(t *testing.T) {
	t.Parallel()
	everywhere := func(count int, excepts ...string) peers {
		var all peers
		for range count {
			all = append(all, peerAt("0.0.0.0/0", excepts...))
		}
		return all
	}
	all := metav1.LabelSelector{}
	for _, tc := range []struct {
		name string
		spec networkingv1.NetworkPolicySpec
		want string
	}{
		{
			name: "peers", spec: networkingv1.NetworkPolicySpec{Ingress: ingressRules{{From: everywhere(250)}}, Egress: egressRules{{To: everywhere(251)}}},
			want: "PolicyForbids Super cluster r1: the policy has more than 500 peers and ports",
		},
		{
			name: "elements", spec: networkingv1.NetworkPolicySpec{Ingress: ingressRules{{From: everywhere(250)}}, Egress: egressRules{{To: everywhere(40_000)}}},
			want: "TenantLimit Super cluster r1: its lists and maps have 40252 entries together: at most 5000 go down",
		},
		{
			name: "ports", spec: networkingv1.NetworkPolicySpec{Egress: egressRules{{To: everywhere(1), Ports: make(ports, 500)}}},
			want: "PolicyForbids Super cluster r1: the policy has more than 500 peers and ports",
		},
		{
			name: "exceptions", spec: networkingv1.NetworkPolicySpec{Ingress: ingressRules{{From: everywhere(1, make([]string, 501)...)}}},
			want: "PolicyForbids Super cluster r1: the policy has more than 500 exceptions of ipBlocks",
		},
		{name: "rules", spec: networkingv1.NetworkPolicySpec{Ingress: make(ingressRules, 100), Egress: make(egressRules, 101)}, want: "PolicyForbids Super cluster r1: the policy has more than 200 rules"},
		{name: "as many as may be", spec: networkingv1.NetworkPolicySpec{Ingress: make(ingressRules, 199), Egress: egressRules{{To: everywhere(500)}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
			policy := &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "policy-uid"},
				Spec:       networkingv1.NetworkPolicySpec{PodSelector: all, Egress: egressRules{{}}},
			}
			p.TenantCache[kind.NetworkPolicy] = []client.Object{policy}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.NetworkPolicy, Namespace: "web", Name: "front"}
			reconcile := func() *networkingv1.NetworkPolicy {
				live := &networkingv1.NetworkPolicy{}
				for range 3 {
					_, err := p.Kind(kind.NetworkPolicy).Reconcile(t.Context(), key, 0)
					require.NoError(t, err)
					require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, live))
					p.SuperCache[kind.NetworkPolicy] = []client.Object{live}
				}
				return live
			}
			require.NotEmpty(t, reconcile().Spec.Egress)
			require.Empty(t, p.Events.Events)
			policy.Spec = tc.spec
			live := reconcile()
			if tc.want == "" {
				require.Len(t, live.Spec.Ingress, 199)
				require.Empty(t, p.Events.Events)
				return
			}
			want := networkingv1.NetworkPolicySpec{PodSelector: *ofTenant(), PolicyTypes: bothWays}
			if len(tc.spec.Egress) == 0 {
				want.PolicyTypes = bothWays[:1]
			}
			require.Empty(t, cmp.Diff(want, live.Spec))
			require.Equal(t, "Warning "+tc.want+": nothing is allowed to the pods that the policy selects", <-p.Events.Events)
			require.Empty(t, p.Events.Events)

			policy.Spec = networkingv1.NetworkPolicySpec{PodSelector: all, Egress: egressRules{{}}}
			require.NotEmpty(t, reconcile().Spec.Egress, "it is down again")
		})
	}
}

// TestNetworkPolicyNotice tells a tenant what its policy cannot allow in super clusters, once.
func TestNetworkPolicyNotice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		peers peers
		want  string
	}{
		{name: "addresses outside of the pool", peers: peers{peerAt("0.0.0.0/0")}},
		{
			name: "a node", peers: peers{peerAt("10.213.0.11/32")},
			want: "Warning NetworkPolicyNarrowed Super cluster r1: ipBlocks 10.213.0.11/32 are addresses of the pool, which pods may not reach: they are left out",
		},
		{
			name:  "pods of all",
			peers: peers{peerAt("10.214.1.0/28"), peerAt("10.214.1.1/32"), peerAt("10.214.1.2/32"), peerAt("10.214.1.3/32"), peerAt("10.214.1.4/32"), peerAt("10.214.1.5/32"), peerAt("10.214.1.6/32")},
			want: "Warning NetworkPolicyNarrowed Super cluster r1: ipBlocks 10.214.1.0/28, 10.214.1.1/32, 10.214.1.2/32, 10.214.1.3/32, 10.214.1.4/32, 2 more are addresses of the pool, " +
				"which pods may not reach: they are left out",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
			policy := &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "policy-uid"},
				Spec:       networkingv1.NetworkPolicySpec{Egress: egressRules{{To: tc.peers}}},
			}
			p.TenantCache[kind.NetworkPolicy] = []client.Object{policy}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.NetworkPolicy, Namespace: "web", Name: "front"}
			for range 3 {
				_, err := p.Kind(kind.NetworkPolicy).Reconcile(t.Context(), key, 0)
				require.NoError(t, err)
				live := &networkingv1.NetworkPolicy{}
				require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, live))
				p.SuperCache[kind.NetworkPolicy] = []client.Object{live}
			}
			if tc.want == "" {
				require.Empty(t, p.Events.Events)
				return
			}
			require.NotEmpty(t, p.Events.Events)
			require.Equal(t, tc.want, <-p.Events.Events)
			require.Empty(t, p.Events.Events)
		})
	}
}

// TestLargeNetworkPolicy: a policy that becomes too large below, or does not fit beside others, is there without its
// rules: an earlier one knows nothing of new addresses of the pool.
func TestLargeNetworkPolicy(t *testing.T) {
	t.Parallel()
	// A selector of n values of 60 bytes, in a rule.
	rules := func(n int) egressRules {
		var values []string
		for i := range n {
			values = append(values, fmt.Sprintf("%060d", i))
		}
		return egressRules{{To: peers{selectorPeer(nil, matching(need("k", opIn, values...)))}}}
	}
	for _, tc := range []struct {
		name     string
		rules    egressRules
		selector metav1.LabelSelector
		change   func(*tenancyv1alpha1.TenantPolicySpec)
		want     string
	}{
		{name: "as large as may be", rules: rules(4000)},
		{name: "too large", rules: rules(4400), want: `^Warning TenantLimit Super cluster r1: the policy takes \d+ bytes there, and at most 262144 go down: nothing is allowed to the pods that it selects$`},
		{
			name: "a selector that is too large", rules: rules(1), selector: *rules(4400)[0].To[0].PodSelector,
			want: `^Warning TenantLimit Super cluster r1: the policy takes \d+ bytes there, and at most 262144 go down: nothing is allowed to the pods that it selects$`,
		},
		{
			name: "too large beside others", rules: rules(1000), change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "networkpolicies", Count: 10, Bytes: resource.MustParse("32Ki")}}
			},
			want: `^Warning TenantLimit Super cluster r1: networkpolicies of \d+ bytes exist, this one adds \d+, and at most 32768 are allowed \(limits.objects of TenantPolicy small\)$`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.Tenant.Policy = &policy.Ref{}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, tc.change))
			tenantPolicy := &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "policy-uid"},
				Spec:       networkingv1.NetworkPolicySpec{Egress: egressRules{{}}, PolicyTypes: bothWays},
			}
			p.TenantCache[kind.NetworkPolicy] = []client.Object{tenantPolicy}
			reconcile := func() *networkingv1.NetworkPolicy {
				t.Helper()
				live := &networkingv1.NetworkPolicy{}
				for range 3 {
					_, err := p.Kind(kind.NetworkPolicy).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.NetworkPolicy, Namespace: "web", Name: "front"}, 0)
					require.NoError(t, err)
					require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, live))
					p.SuperCache[kind.NetworkPolicy] = []client.Object{live}
				}
				return live
			}
			require.NotEmpty(t, reconcile().Spec.Egress)
			require.Empty(t, p.Told())
			tenantPolicy.Spec.Egress, tenantPolicy.Spec.PodSelector = tc.rules, tc.selector
			live := reconcile()
			require.Less(t, live.Size(), 300<<10)
			events := p.Told()
			if tc.want == "" {
				require.NotEmpty(t, live.Spec.Egress)
				require.Empty(t, events)
				return
			}
			require.Empty(t, live.Spec.Egress)
			require.Equal(t, bothWays, live.Spec.PolicyTypes)
			require.NotEmpty(t, events)
			require.LessOrEqual(t, len(events), 2, "what it adds to differs once")
			require.Regexp(t, tc.want, events[0])
			tenantPolicy.Spec.Egress, tenantPolicy.Spec.PodSelector = egressRules{{}}, metav1.LabelSelector{}
			require.NotEmpty(t, reconcile().Spec.Egress, "it is down again")
		})
	}
}
