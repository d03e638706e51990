package network_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/network"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// The keys of what r1 tells of the tenant, of what others tell of it, of what they tell of themselves, and of what r1
// tells of itself.
var (
	toldKey    = engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Addresses, Name: "r1"}
	takenKey   = engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Addresses}
	networkKey = engine.Key{Kind: kind.Addresses}

	networkToldKey = engine.Key{Tenant: tenancyv1alpha1.ManagerNamespace, Kind: kind.Addresses, Name: "r1"}
)

// book is the ClusterAddresses of a meta cluster, which the syncer's informer would show.
type book struct {
	meta     client.WithWatch
	kind     engine.Kind
	writes   int
	clock    *testingclock.FakePassiveClock
	resynced []engine.Key
}

// inPool lets the super cluster of p be one of a pool, in which the tenant has its namespace web in clusters.
func inPool(t *testing.T, p *kindtest.Pool, clusters ...string) *book {
	t.Helper()
	b := &book{clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	count := func() { b.writes++ }
	b.meta = fake.NewClientBuilder().WithScheme(kindtest.PlacementScheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
			count()
			return to.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			count()
			return to.Update(ctx, object, options...)
		},
		Delete: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			count()
			return to.Delete(ctx, object, options...)
		},
	}).Build()
	p.Env.Clock, p.Env.Meta, p.Env.Resync = b.clock, b.meta, func(keys []engine.Key) { b.resynced = append(b.resynced, keys...) }
	p.Env.Told = func(namespace string) (told []*tenancyv1alpha1.ClusterAddresses) {
		var list tenancyv1alpha1.ClusterAddressesList
		require.NoError(t, b.meta.List(t.Context(), &list, client.InNamespace(namespace)))
		for i := range list.Items {
			told = append(told, &list.Items[i])
		}
		return told
	}
	place(t, p, clusters...)
	b.kind = p.Kind(kind.Addresses)
	return b
}

// place lets the tenant's namespace web be placed in clusters.
func place(t *testing.T, p *kindtest.Pool, clusters ...string) {
	t.Helper()
	placement := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid")
	for _, id := range clusters {
		placement = placement.Held(id, 1, "cpu", "1")
	}
	meta := fake.NewClientBuilder().WithScheme(kindtest.PlacementScheme(t)).WithObjects(placement.Obj()).Build()
	p.Assigns(meta, meta)
}

// reconcile lets a second pass and reconciles a key.
func (b *book) reconcile(t *testing.T, key engine.Key) {
	t.Helper()
	b.clock.SetTime(b.clock.Now().Add(time.Second))
	after, err := b.kind.Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Zero(t, after)
}

// tells lets another super cluster tell its ranges, and of pods of the tenant in namespace web, as pairs of the value
// of label app and an address.
func (b *book) tells(t *testing.T, id string, ranges []string, pods ...string) {
	t.Helper()
	network := &tenancyv1alpha1.ClusterAddresses{ObjectMeta: metav1.ObjectMeta{Namespace: tenancyv1alpha1.ManagerNamespace, Name: id}}
	network.Status.Ranges = ranges
	ofTenant := &tenancyv1alpha1.ClusterAddresses{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey, Name: id}}
	in := tenancyv1alpha1.NamespaceAddresses{Name: "web", Labels: map[string]string{tenancy.LabelKey("team"): "a"}}
	for i := 0; i < len(pods); i += 2 {
		in.Pods = append(in.Pods, tenancyv1alpha1.PodAddresses{Labels: map[string]string{tenancy.LabelKey("app"): pods[i]}, Addresses: []string{pods[i+1]}})
	}
	ofTenant.Status.Namespaces = []tenancyv1alpha1.NamespaceAddresses{in}
	for _, object := range []client.Object{network, ofTenant} {
		require.NoError(t, client.IgnoreNotFound(b.meta.Delete(t.Context(), object.DeepCopyObject().(client.Object)))) //nolint:forcetypeassert // it is one
		require.NoError(t, b.meta.Create(t.Context(), object))
	}
}

// hasNodes lets another super cluster, which tells its ranges already, tell its nodes.
func (b *book) hasNodes(t *testing.T, id string, nodes ...string) {
	t.Helper()
	network := &tenancyv1alpha1.ClusterAddresses{}
	require.NoError(t, b.meta.Get(t.Context(), client.ObjectKey{Namespace: tenancyv1alpha1.ManagerNamespace, Name: id}, network))
	network.Status.Nodes = nodes
	require.NoError(t, b.meta.Update(t.Context(), network))
}

// TestAddressesOfPods: what others are told of a tenant's pods, and which of too many.
func TestAddressesOfPods(t *testing.T) {
	t.Parallel()
	labels := func(namespace string) map[string]string {
		return map[string]string{tenancy.LabelKey("name"): namespace}
	}
	app := func(value string) map[string]string { return map[string]string{"app": value} }
	told := func(value string, addresses ...string) tenancyv1alpha1.PodAddresses {
		return tenancyv1alpha1.PodAddresses{Labels: map[string]string{tenancy.LabelKey("app"): value}, Addresses: addresses}
	}
	var many []*corev1.Pod
	for i := range 600 {
		many = append(many, kindtest.SuperPodAt("web", fmt.Sprint("p", i), fmt.Sprintf("10.0.%d.%d", i/200, i%200), i, app("a")))
	}
	var wordy []*corev1.Pod
	for i := range 20 {
		wordy = append(wordy, kindtest.SuperPodAt("web", fmt.Sprint("p", i), fmt.Sprint("10.0.0.", i), i, map[string]string{"text": fmt.Sprint(i, strings.Repeat("x", 5000))}))
	}
	for _, tc := range []struct {
		name string
		pods []*corev1.Pod
		want []tenancyv1alpha1.NamespaceAddresses
		// oldest, if not "", is an address that is told, and youngest one that is not.
		oldest, youngest string
		addresses        int32
	}{
		{name: "none"},
		{
			name: "pods of one kind, of another, and of another namespace", addresses: 4,
			pods: []*corev1.Pod{
				kindtest.SuperPodAt("web", "b", "10.0.0.2", 1, app("web")), kindtest.SuperPodAt("web", "a", "10.0.0.1", 2, app("web")), kindtest.SuperPodAt("db", "c", "fd00::3", 1, app("db")),
				kindtest.SuperPodAt("web", "d", "10.0.0.4", 3, app("job")),
			},
			want: []tenancyv1alpha1.NamespaceAddresses{
				{Name: "db", Labels: labels("db"), Pods: []tenancyv1alpha1.PodAddresses{told("db", "fd00::3")}},
				{Name: "web", Labels: labels("web"), Pods: []tenancyv1alpha1.PodAddresses{told("web", "10.0.0.1", "10.0.0.2"), told("job", "10.0.0.4")}},
			},
		},
		{name: "too many addresses", pods: many, oldest: "10.0.2.199", youngest: "10.0.0.0", addresses: 500},
		{name: "too many labels", pods: wordy, oldest: "10.0.0.19", youngest: "10.0.0.0", addresses: 13},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := network.AddressesOfPods(tc.pods, labels)
			if tc.addresses == 0 {
				require.Nil(t, got)
				return
			}
			require.Equal(t, tc.addresses, got.Addresses)
			if tc.want != nil {
				require.Empty(t, cmp.Diff(tc.want, got.Namespaces))
				require.Equal(t, metav1.ConditionTrue, got.Conditions[0].Status)
				return
			}
			var all []string
			for _, each := range got.Namespaces[0].Pods {
				all = append(all, each.Addresses...)
			}
			require.Contains(t, all, tc.oldest)
			require.NotContains(t, all, tc.youngest)
			require.Equal(t, metav1.ConditionFalse, got.Conditions[0].Status)
			require.Equal(t, tenancyv1alpha1.ReasonTooManyAddresses, got.Conditions[0].Reason)
		})
	}
}

// TestAddressesAreTold: a syncer tells of a tenant's pods while the tenant has pods in another super cluster, too, once
// a second at most, and puts right what others have written there.
func TestAddressesAreTold(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1")
	pod := kindtest.SuperPodAt("web", "a", "10.0.0.1", 1, map[string]string{"app": "web"})
	hosted := kindtest.SuperPodAt("web", "hosted", "10.213.0.11", 1, nil)
	hosted.Spec.HostNetwork = true
	ended := kindtest.SuperPodAt("web", "ended", "10.0.0.9", 1, nil)
	ended.Status.Phase = corev1.PodFailed
	foreign := kindtest.SuperPodAt("web", "foreign", "10.0.0.8", 1, nil)
	foreign.Namespace = "elsewhere"
	p.SuperCache[kind.Pod] = []client.Object{pod, hosted, ended, foreign, kindtest.SuperPodAt("web", "new", "", 1, nil)}
	addresses := func() []string {
		var found []string
		for _, told := range p.Env.Told(kindtest.ClusterKey) {
			if told.Name == "r1" {
				for _, in := range told.Status.Namespaces {
					for _, each := range in.Pods {
						found = append(found, each.Addresses...)
					}
				}
			}
		}
		return found
	}

	b.reconcile(t, toldKey)
	require.Empty(t, addresses(), "it is here alone")
	place(t, p, "r1", "r2")
	b.reconcile(t, toldKey)
	require.Equal(t, []string{"10.0.0.1"}, addresses())
	require.Equal(t, 1, b.writes)
	b.reconcile(t, toldKey)
	require.Equal(t, 1, b.writes, "nothing has changed")

	b.clock.SetTime(b.clock.Now().Add(time.Second))
	for i := range 3 {
		p.SuperCache[kind.Pod] = append(p.SuperCache[kind.Pod], kindtest.SuperPodAt("web", fmt.Sprint("more", i), fmt.Sprint("10.0.0.2", i), 1, nil))
		after, err := b.kind.Reconcile(t.Context(), toldKey, 0)
		require.NoError(t, err)
		require.Equal(t, i > 0, after > 0, "a change of each second is told")
	}
	require.Equal(t, []string{"10.0.0.1", "10.0.0.20"}, addresses())
	b.reconcile(t, toldKey)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.20", "10.0.0.21", "10.0.0.22"}, addresses())
	require.Equal(t, 3, b.writes)

	forged := p.Env.Told(kindtest.ClusterKey)[0].DeepCopy()
	forged.Status.Namespaces[0].Pods[0].Addresses[0] = "10.213.0.1"
	require.NoError(t, b.meta.Update(t.Context(), forged))
	require.Equal(t, toldKey, network.AddressesChanged(p.Env, kindtest.ClusterKey, "r1"))
	b.reconcile(t, toldKey)
	require.NotContains(t, addresses(), "10.213.0.1")

	// It leaves r2, where pods of it still are, and then are not.
	b.tells(t, "r2", nil, "web", "10.2.0.1")
	place(t, p, "r1")
	b.reconcile(t, toldKey)
	require.NotEmpty(t, addresses())
	require.NoError(t, b.meta.Delete(t.Context(), &tenancyv1alpha1.ClusterAddresses{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey, Name: "r2"}}))
	b.reconcile(t, toldKey)
	require.Empty(t, p.Env.Told(kindtest.ClusterKey))
}

// TestNetworkIsTold: each syncer tells the ranges of its super cluster, and closes those of others, whose nodes may
// call what they publish.
func TestNetworkIsTold(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	p.Tenant.NodePorts, p.Tenant.Policy = utilnet.PortRange{Base: 30000, Size: 10}, &policy.Ref{}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.NodePorts = 1 }))
	p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	b.reconcile(t, networkToldKey)
	told := p.Env.Told(tenancyv1alpha1.ManagerNamespace)
	require.Len(t, told, 1)
	require.Empty(t, cmp.Diff(tenancyv1alpha1.ClusterAddressesStatus{
		Ranges: []string{"10.213.0.11/32", "10.214.1.0/24"}, Nodes: []string{"10.213.0.11/32"},
		Conditions: []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue, Reason: "Complete", LastTransitionTime: metav1.NewTime(b.clock.Now())}},
	}, told[0].Status))
	excepts := func() []string {
		return isolation(t, p)["superpool-isolation-egress-0"].Spec.Egress[0].To[1].IPBlock.Except
	}
	require.Equal(t, []string{"10.213.0.11/32", "10.214.1.0/24", "169.254.0.0/16"}, excepts())

	b.tells(t, "r2", []string{"10.220.0.11/32", "10.221.0.0/16"})
	b.hasNodes(t, "r2", "10.220.0.11/32")
	require.Equal(t, networkKey, network.AddressesChanged(p.Env, tenancyv1alpha1.ManagerNamespace, "r2"))
	b.reconcile(t, networkKey)
	require.Contains(t, b.resynced, engine.Key{Kind: kind.Isolation})
	b.clock.SetTime(b.clock.Now().Add(5 * time.Second))
	_, err := p.Kind(kind.Isolation).Reconcile(t.Context(), engine.Key{Kind: kind.Isolation}, 0)
	require.NoError(t, err)
	require.Contains(t, b.resynced, kindtest.IsolationKey)
	require.Equal(t, []string{"10.213.0.11/32", "10.214.1.0/24", "10.220.0.11/32", "10.221.0.0/16", "169.254.0.0/16"}, excepts())
	require.Contains(t, isolation(t, p)["superpool-isolation-ingress-0"].Spec.Ingress[0].From, peerAt("10.220.0.11/32"))

	b.resynced = nil
	b.reconcile(t, networkKey)
	require.Empty(t, b.resynced, "nothing has changed")
}

// TestAgentsAreTold: a tenant's pods reach the vn-agents of all its Nodes, as its metrics server does, and nothing else
// there. One whose address another super cluster has, too, is left out.
func TestAgentsAreTold(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	p.Env.VNAgent = kind.VNAgent{Port: 10550}
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Network.PoolCIDRs = append(spec.Network.PoolCIDRs, "10.230.0.0/24")
	}))
	p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	b.reconcile(t, networkToldKey)
	told := p.Env.Told(tenancyv1alpha1.ManagerNamespace)[0].Status
	require.Equal(t, []string{"10.213.0.11/32"}, told.Agents)
	require.Equal(t, int32(10550), told.AgentPort)

	b.tells(t, "r2", []string{"10.220.0.0/16"})
	network := &tenancyv1alpha1.ClusterAddresses{}
	require.NoError(t, b.meta.Get(t.Context(), client.ObjectKey{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "r2"}, network))
	network.Status.Ranges = append(network.Status.Ranges, "10.214.1.0/24", "169.254.0.0/16", "10.230.0.0/16")
	for i := range 200 { // of so many, what is between them is closed, too
		network.Status.Ranges = append(network.Status.Ranges, fmt.Sprintf("10.240.%d.0/25", i))
	}
	// One of its own; two that are somebody's here; metadata of nodes, and one that the operator closes; and one in
	// nobody's ranges.
	network.Status.Agents = []string{"10.220.0.12/32", "10.213.0.10/31", "10.214.1.9/32", "169.254.169.254/32", "10.230.0.1/32", "10.240.7.129/32"}
	network.Status.AgentPort = 10660
	require.NoError(t, b.meta.Update(t.Context(), network))
	b.reconcile(t, networkKey)
	b.clock.SetTime(b.clock.Now().Add(5 * time.Second))
	_, err := p.Kind(kind.Isolation).Reconcile(t.Context(), engine.Key{Kind: kind.Isolation}, 0)
	require.NoError(t, err)
	var reached []string
	for _, rule := range isolation(t, p)["superpool-isolation-egress-0"].Spec.Egress {
		for _, port := range rule.Ports {
			for _, peer := range rule.To {
				reached = append(reached, fmt.Sprintf("%s:%s", peer.IPBlock.CIDR, port.Port))
			}
		}
	}
	require.Equal(t, []string{"10.213.0.11/32:10550", "10.220.0.12/32:10660"}, reached)
}

// TestWhatIsLeftOutIsSaid: of too many nodes, vn-agents and ingress controllers none are let in, and the super cluster
// that closes them says so, with what to do, until they are fewer.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	t.Parallel()
	singles := func(second, number int) (addresses []string) {
		for i := range number {
			addresses = append(addresses, fmt.Sprintf("10.%d.0.%d", second, 2*i+1))
		}
		return addresses
	}
	prefixes := func(addresses []string) (all []string) {
		for _, address := range addresses {
			all = append(all, address+"/32")
		}
		return all
	}
	for _, tc := range []struct {
		name string
		// own are the nodes here, and tell what each of five others tells, of 60 addresses that are its own.
		own  int
		tell func(status *tenancyv1alpha1.ClusterAddressesStatus, addresses []string)
		want string
	}{
		{name: "as many as may be", own: 64, tell: func(*tenancyv1alpha1.ClusterAddressesStatus, []string) {}},
		{
			name: "vn-agents elsewhere", own: 1,
			tell: func(status *tenancyv1alpha1.ClusterAddressesStatus, addresses []string) {
				status.Agents, status.AgentPort = prefixes(addresses), 10550
			},
			want: "more than 256 vn-agents in other super clusters: pods of tenants here reach none of them; give their syncers --vn-agent-address, one address for all nodes",
		},
		{
			name: "nodes elsewhere", own: 1,
			tell: func(status *tenancyv1alpha1.ClusterAddressesStatus, addresses []string) {
				status.Nodes = prefixes(addresses)
			},
			want: "more than 256 nodes in other super clusters: what comes to their node ports and load balancers does not reach pods of tenants here; " +
				"list their addresses in network.poolCIDRs and traffic.callerCIDRs of TenantPolicies",
		},
		{
			name: "controllers elsewhere", own: 1,
			tell: func(status *tenancyv1alpha1.ClusterAddressesStatus, addresses []string) {
				status.Namespaces = []tenancyv1alpha1.NamespaceAddresses{{Name: "ingress", Pods: []tenancyv1alpha1.PodAddresses{{Addresses: addresses}}}}
			},
			want: "more than 256 pods of ingress controllers in namespace ingress of other super clusters: none of them calls pods of tenants here; " +
				"list their addresses in network.poolCIDRs and traffic.callerCIDRs of TenantPolicies",
		},
		{
			name: "nodes here", own: 65, tell: func(*tenancyv1alpha1.ClusterAddressesStatus, []string) {},
			want: "more than 64 nodes: pods of tenants reach none of their vn-agents, and what comes to their node ports and load balancers does not reach these pods; " +
				"give the syncer --vn-agent-address, one address for all nodes, and list their addresses in network.poolCIDRs and traffic.callerCIDRs of TenantPolicies",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			b := inPool(t, p, "r1", "r2")
			p.Env.VNAgent = kind.VNAgent{Port: 10550}
			for i, address := range singles(213, tc.own) {
				p.SuperCache[kind.Node] = append(p.SuperCache[kind.Node], kindtest.NodeAt(address, fmt.Sprintf("10.214.%d.0/24", i)))
			}
			look := func() {
				b.reconcile(t, networkKey)
				b.clock.SetTime(b.clock.Now().Add(5 * time.Second))
				_, err := p.Kind(kind.Isolation).Reconcile(t.Context(), engine.Key{Kind: kind.Isolation}, 0)
				require.NoError(t, err)
				b.reconcile(t, networkToldKey)
			}
			said := func() *metav1.Condition {
				var own tenancyv1alpha1.ClusterAddresses
				require.NoError(t, b.meta.Get(t.Context(), client.ObjectKey{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "r1"}, &own))
				return meta.FindStatusCondition(own.Status.Conditions, tenancyv1alpha1.ConditionAddressesComplete)
			}
			look()
			for i := range 5 {
				b.tells(t, fmt.Sprintf("r%d", i+2), []string{fmt.Sprintf("10.%d.0.0/16", 220+i)})
				other := &tenancyv1alpha1.ClusterAddresses{}
				require.NoError(t, b.meta.Get(t.Context(), client.ObjectKey{Namespace: tenancyv1alpha1.ManagerNamespace, Name: fmt.Sprintf("r%d", i+2)}, other))
				tc.tell(&other.Status, singles(220+i, 60))
				require.NoError(t, b.meta.Update(t.Context(), other))
			}
			b.resynced = nil
			look()
			condition := said()
			require.NotNil(t, condition)
			if tc.want == "" {
				require.Equal(t, metav1.ConditionTrue, condition.Status, condition.Message)
				return
			}
			require.Equal(t, metav1.ConditionFalse, condition.Status)
			require.Equal(t, tenancyv1alpha1.ReasonAddressesLeftOut, condition.Reason)
			require.Empty(t, cmp.Diff(tc.want, condition.Message))

			b.tells(t, "r6", []string{"10.224.0.0/16"})
			p.SuperCache[kind.Node] = p.SuperCache[kind.Node][:1]
			b.resynced = nil
			look()
			require.Contains(t, b.resynced, networkToldKey, "what is said follows from what is seen")
			require.Equal(t, metav1.ConditionTrue, said().Status)
		})
	}
}

// TestTakenNode: what one node says, whose credentials somebody has taken, closes next to nothing, here and elsewhere,
// and what of it is left out is said.
func TestTakenNode(t *testing.T) {
	t.Parallel()
	taken := kindtest.NodeAt("10.213.0.12", "10.214.2.0/24")
	for i := 2; i < 224; i += 2 {
		for _, half := range []int{0, 128} {
			taken.Status.Addresses = append(taken.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("%d.%d.0.1", i, half)})
		}
	}
	wide := kindtest.NodeAt("10.213.0.12", "0.0.0.0/1")
	hops := []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	for i := range 100 { // as many nodes as say a network each
		hops = append(hops, kindtest.NodeAt(fmt.Sprintf("%d.1.0.1", 11+i), fmt.Sprintf("10.214.%d.0/24", 2+i)))
	}
	for _, tc := range []struct {
		name  string
		nodes []client.Object
		pods  int
		want  string
	}{
		{name: "addresses of a node", nodes: []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24"), taken}, want: "more than 4 addresses of a node"},
		{name: "pod ranges of a node", nodes: []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24"), wide}, want: "pod ranges of one that are wider than /16"},
		{name: "pods of a node", nodes: []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}, pods: 200, want: "pods in too many networks"},
		{name: "many networks", nodes: hops, want: "nodes in too many networks"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			b := inPool(t, p, "r1", "r2")
			p.SuperCache[kind.Node] = tc.nodes
			for i := range tc.pods {
				p.SuperCache[kind.Pod] = append(p.SuperCache[kind.Pod], kindtest.SuperPodAt("web", fmt.Sprint(i), fmt.Sprintf("%d.%d.0.1", 11+i%100, 128*(i/100)), 1, nil))
			}
			honest := kindtest.SuperPodAt("web", "of-another-node", "10.99.1.5", 1, nil)
			honest.Spec.NodeName = "n99"
			p.SuperCache[kind.Pod] = append(p.SuperCache[kind.Pod], honest)
			b.reconcile(t, networkToldKey)
			told := p.Env.Told(tenancyv1alpha1.ManagerNamespace)[0].Status
			require.LessOrEqual(t, len(told.Ranges), 128)
			closed := 0
			for _, text := range append(told.Ranges, isolation(t, p)["superpool-isolation-egress-0"].Spec.Egress[0].To[1].IPBlock.Except...) {
				closed += 1 << (32 - netip.MustParsePrefix(text).Bits())
			}
			require.Less(t, closed, 1<<24, "a 256th of all addresses")
			require.True(t, slices.ContainsFunc(told.Ranges, func(text string) bool {
				return netip.MustParsePrefix(text).Contains(netip.MustParseAddr("10.213.0.11"))
			}) || tc.name == "many networks")
			require.True(t, slices.ContainsFunc(told.Ranges, func(text string) bool {
				return netip.MustParsePrefix(text).Contains(netip.MustParseAddr("10.99.1.5"))
			}), "pods of other nodes")
			condition := meta.FindStatusCondition(told.Conditions, tenancyv1alpha1.ConditionAddressesComplete)
			require.Equal(t, metav1.ConditionFalse, condition.Status)
			require.Contains(t, condition.Message, tc.want)
		})
	}
}

// TestControllersAreTold: the pods of ingress controllers may call pods in other super clusters, where the TenantPolicy
// lists their namespace.
func TestControllersAreTold(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Traffic.ControllerNamespaces = []string{"ingress"} }))
	for name, address := range map[string]string{"a": "10.214.1.8", "b": "10.214.1.9", "starts": ""} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ingress", Name: name}}
		if address != "" {
			pod.Status.PodIPs = []corev1.PodIP{{IP: address}}
		}
		require.NoError(t, p.SuperClient.Create(t.Context(), pod))
	}
	b.clock.SetTime(b.clock.Now().Add(time.Second))
	after, err := b.kind.Reconcile(t.Context(), networkToldKey, 0)
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, after)
	want := []tenancyv1alpha1.NamespaceAddresses{{Name: "ingress", Pods: []tenancyv1alpha1.PodAddresses{{Addresses: []string{"10.214.1.8", "10.214.1.9"}}}}}
	require.Empty(t, cmp.Diff(want, p.Env.Told(tenancyv1alpha1.ManagerNamespace)[0].Status.Namespaces))

	for i := range 63 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ingress", Name: fmt.Sprint(i)}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.214.2.%d", i)}}}}
		require.NoError(t, p.SuperClient.Create(t.Context(), pod))
	}
	b.clock.SetTime(b.clock.Now().Add(time.Minute))
	_, err = b.kind.Reconcile(t.Context(), networkToldKey, 0)
	require.NoError(t, err)
	many := p.Env.Told(tenancyv1alpha1.ManagerNamespace)[0].Status
	require.EqualValues(t, 64, many.Addresses)
	require.Equal(t, "more than 64 pods of ingress controllers in namespace ingress: the others do not call pods in other super clusters", many.Conditions[0].Message)

	b.tells(t, "r2", []string{"10.221.0.0/16"})
	b.tells(t, "r3", []string{"10.222.0.0/16"})
	network := &tenancyv1alpha1.ClusterAddresses{}
	require.NoError(t, b.meta.Get(t.Context(), client.ObjectKey{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "r2"}, network))
	network.Status.Namespaces = []tenancyv1alpha1.NamespaceAddresses{
		{Name: "ingress", Pods: []tenancyv1alpha1.PodAddresses{{Addresses: []string{"10.221.0.8", "10.214.1.99", "10.222.0.9"}}}},
		{Name: "other", Pods: []tenancyv1alpha1.PodAddresses{{Addresses: []string{"10.221.0.9"}}}},
	}
	require.NoError(t, b.meta.Update(t.Context(), network))
	p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	b.reconcile(t, networkKey)
	b.clock.SetTime(b.clock.Now().Add(5 * time.Second))
	_, err = p.Kind(kind.Isolation).Reconcile(t.Context(), engine.Key{Kind: kind.Isolation}, 0)
	require.NoError(t, err)
	found := isolation(t, p)
	from := found["superpool-isolation-ingress-0"].Spec.Ingress[0].From
	require.Contains(t, from, peerAt("10.221.0.8/32"))
	require.NotContains(t, from, peerAt("10.221.0.9/32"), "the policy does not list its namespace")
	require.NotContains(t, from, peerAt("10.214.1.99/32"), "it is somebody else's here")
	require.NotContains(t, from, peerAt("10.222.0.9/32"), "it is of a third super cluster")
	for _, rule := range found["superpool-isolation-egress-0"].Spec.Egress {
		require.NotContains(t, rule.To, peerAt("10.221.0.8/32"), "it calls, and is not called")
	}
}

// TestAddressesAreTakenUp: which addresses that others tell of a tenant's pods count, and what follows.
func TestAddressesAreTakenUp(t *testing.T) {
	t.Parallel()
	many := func(count int) []string {
		var pods []string
		for i := range count {
			pods = append(pods, "web", fmt.Sprintf("10.221.%d.%d", i/200, i%200))
		}
		return pods
	}
	for _, tc := range []struct {
		name string
		pods []string
		// third are the ranges of super cluster r3.
		third []string
		want  []string
		// wantCount, if not 0, is how many there are; wantWarning whether the tenant is told.
		wantCount   int
		wantWarning bool
	}{
		{name: "pods elsewhere", pods: []string{"web", "10.221.0.1", "web", "fd21::1"}, want: []string{"10.221.0.1/32", "fd21::1/128"}},
		{name: "the address of a node here", pods: []string{"web", "10.213.0.11", "web", "10.221.0.1"}, want: []string{"10.221.0.1/32"}},
		{name: "an address of the pods here", pods: []string{"web", "10.214.1.7", "web", "10.221.0.1"}, want: []string{"10.221.0.1/32"}},
		{name: "an address of a third super cluster", pods: []string{"web", "10.221.0.1", "web", "10.221.9.1"}, third: []string{"10.221.9.0/24"}, want: []string{"10.221.0.1/32"}},
		{name: "no addresses", pods: []string{"web", "169.254.169.254", "web", "127.0.0.1", "web", "nonsense", "web", "0.0.0.0"}},
		{name: "as many as may be", pods: many(500), wantCount: 500},
		{name: "too many", pods: many(501), wantCount: 500, wantWarning: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			b := inPool(t, p, "r1", "r2")
			p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
			p.TenantCache[kind.NetworkPolicy] = []client.Object{policySelecting("one", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}})}
			b.tells(t, "r2", []string{"10.220.0.11/32", "10.221.0.0/16", "fd21::/64"}, tc.pods...)
			if tc.third != nil {
				b.tells(t, "r3", tc.third)
			}
			b.reconcile(t, takenKey)
			require.Contains(t, b.resynced, kindtest.IsolationKey)
			require.Contains(t, b.resynced, engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.NetworkPolicy, Namespace: "web", Name: "one"})
			found := isolation(t, p)
			for _, from := range []peers{found["superpool-isolation-ingress-0"].Spec.Ingress[0].From, found["superpool-isolation-egress-0"].Spec.Egress[0].To} {
				var got []string
				for _, peer := range from {
					if peer.IPBlock != nil && len(peer.IPBlock.Except) == 0 && peer.IPBlock.CIDR != "::/0" {
						got = append(got, peer.IPBlock.CIDR)
					}
				}
				if tc.wantCount == 0 {
					require.Equal(t, tc.want, got)
					continue
				}
				addresses := 0
				for _, text := range got {
					addresses += 1 << (32 - netip.MustParsePrefix(text).Bits())
				}
				require.Equal(t, tc.wantCount, addresses)
			}
			warned := len(p.Events.Events) > 0
			require.Equal(t, tc.wantWarning, warned)
			if warned {
				require.Contains(t, <-p.Events.Events, "Warning TooManyPodsElsewhere Super cluster r1: pods of this namespace and some of those in r2 do not reach each other")
			}
			b.resynced = nil
			b.clock.SetTime(b.clock.Now().Add(time.Minute))
			b.reconcile(t, takenKey)
			require.Empty(t, b.resynced, "nothing has changed")
		})
	}
}

// TestRangesThatOthersToldFirst: the addresses of pods here are this super cluster's although another one has told the
// same range before, as networks do that are not routed to each other.
func TestRangesThatOthersToldFirst(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	b.tells(t, "r2", []string{"10.221.5.0/24"}, "web", "10.221.5.9")
	addresses := func() []string {
		b.reconcile(t, takenKey)
		var found []string
		for _, peer := range isolation(t, p)["superpool-isolation-egress-0"].Spec.Egress[0].To {
			if peer.IPBlock != nil && strings.HasPrefix(peer.IPBlock.CIDR, "10.221.") {
				found = append(found, peer.IPBlock.CIDR)
			}
		}
		return found
	}
	require.Equal(t, []string{"10.221.5.9/32"}, addresses())
	pod := kindtest.SuperPodAt("web", "here", "10.221.5.7", 1, nil)
	p.SuperCache[kind.Pod] = []client.Object{pod}
	require.Contains(t, p.Env.Changed(kind.Change{Kind: kind.Pod, Side: kind.SuperSide, Current: pod}), engine.Key{Kind: kind.Isolation})
	b.clock.SetTime(b.clock.Now().Add(5 * time.Second))
	_, err := p.Kind(kind.Isolation).Reconcile(t.Context(), engine.Key{Kind: kind.Isolation}, 0)
	require.NoError(t, err)
	require.Contains(t, b.resynced, takenKey)
	require.Empty(t, addresses(), "here it is somebody else's")
}

// TestRangesThatAreNone: a range that holds too much is no network of a super cluster.
func TestRangesThatAreNone(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	b.tells(t, "r2", []string{"0.0.0.0/0", "10.221.0.0/16", "::/0", "nonsense"})
	b.reconcile(t, networkKey)
	require.Equal(t, []string{"10.221.0.0/16", "169.254.0.0/16"}, isolation(t, p)["superpool-isolation-egress-0"].Spec.Egress[0].To[1].IPBlock.Except)
}

// TestCallersElsewhereCloseNothing: where nodes of other super clusters make the policies too large, they are left out,
// and what is here is reached still.
func TestCallersElsewhereCloseNothing(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.LoadBalancers = 1 }))
	var nodes []string
	for i := range 240 {
		nodes = append(nodes, fmt.Sprintf("10.220.%d.%d/32", i/64, 2*(i%64)))
	}
	b.tells(t, "r2", []string{"10.220.0.0/16"})
	b.hasNodes(t, "r2", nodes...)
	p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	for i := range 3 {
		p.TenantCache[kind.NetworkPolicy] = append(p.TenantCache[kind.NetworkPolicy],
			policySelecting(fmt.Sprint(i), &metav1.LabelSelector{MatchLabels: map[string]string{"shop": fmt.Sprint(i), "part": fmt.Sprint(i)}}, bothWays...))
	}
	from := isolation(t, p)["superpool-isolation-ingress-0"].Spec.Ingress[0].From
	require.Contains(t, from, peerAt("10.213.0.11/32"))
	require.NotContains(t, from, peerAt("10.220.0.0/32"))
	require.Contains(t, <-p.Events.Events, "TooManyPodsElsewhere")
}

// TestNodesElsewhere: the nodes of another super cluster call what is published, but for those whose address is, or may
// be, that of somebody here.
func TestNodesElsewhere(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, node string
		want       bool
	}{
		{"elsewhere", "10.220.0.2/32", true},
		{"two of them", "10.220.0.2/31", true},
		{"one of two is the same", "10.213.0.10/31", false},
		{"within a range of pods", "10.214.1.8/31", false},
		{"around all", "10.208.0.0/12", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			b := inPool(t, p, "r1", "r2")
			p.Tenant.Policy = &policy.Ref{}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.LoadBalancers = 1 }))
			b.tells(t, "r2", []string{"10.220.0.0/16"})
			b.hasNodes(t, "r2", tc.node)
			p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
			from := isolation(t, p)["superpool-isolation-ingress-0"].Spec.Ingress[0].From
			require.Equal(t, tc.want, slices.ContainsFunc(from, func(peer networkingv1.NetworkPolicyPeer) bool {
				return peer.IPBlock != nil && peer.IPBlock.CIDR == tc.node
			}))
		})
	}
}

// TestTakingUpIsBounded: the more a change lets a syncer write, the longer the next one waits.
func TestTakingUpIsBounded(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	p.Tenant.Policy = &policy.Ref{}
	for i := range 99 {
		owner := kindtest.OwnerOf(types.UID(fmt.Sprint("ns-", i)))
		owner.Namespace = fmt.Sprint("web", i)
		p.SuperCache[kind.Namespace] = append(p.SuperCache[kind.Namespace], builders.Owned(builders.Namespace(kindtest.ClusterKey+"-"+owner.Namespace), owner))
	}
	var pods []string
	for i := range 400 {
		pods = append(pods, "web", fmt.Sprintf("10.221.%d.%d", i/200, i%200))
	}
	b.tells(t, "r2", []string{"10.221.0.0/16"}, pods...)
	b.reconcile(t, takenKey)
	b.tells(t, "r2", []string{"10.221.0.0/16"}, pods[2:]...)
	after, err := b.kind.Reconcile(t.Context(), takenKey, 0)
	require.NoError(t, err)
	// 100 namespaces × 400 addresses × 32 bytes × 2 directions at 256 KiB/s.
	require.InDelta(t, 9.77, after.Seconds(), 0.1)
}

// TestTellingIsBounded: the more a tenant lets a syncer write into the meta cluster, the longer the next change waits.
func TestTellingIsBounded(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	for i := range 10 {
		p.SuperCache[kind.Pod] = append(p.SuperCache[kind.Pod],
			kindtest.SuperPodAt("web", fmt.Sprint("p", i), fmt.Sprint("10.0.0.", i), 1, map[string]string{"text": fmt.Sprint(i, strings.Repeat("x", 4000))}))
	}
	b.reconcile(t, toldKey)
	after, err := b.kind.Reconcile(t.Context(), toldKey, 0)
	require.NoError(t, err)
	require.InDelta(t, 4.95, after.Seconds(), 0.2) // 40 kB of labels at 8 KiB/s
}

// TestRemotesOfPolicies: which pods in other super clusters a rule of a tenant's policy lets in.
func TestRemotesOfPolicies(t *testing.T) {
	t.Parallel()
	set := func(pairs ...string) labels.Set {
		found := labels.Set{"tenancy.x-k8s.io/cluster": kindtest.ClusterKey}
		for i := 0; i < len(pairs); i += 2 {
			found[tenancy.LabelKey(pairs[i])] = pairs[i+1]
		}
		return found
	}
	confined := confinement()
	confined.Remotes = []network.Remote{
		{Namespace: "web", NamespaceLabels: set("team", "a"), Labels: set("app", "front"), Ranges: prefixes("10.9.0.1/32")},
		{Namespace: "web", NamespaceLabels: set("team", "a"), Labels: set("app", "back"), Ranges: prefixes("10.9.0.4/32")},
		{Namespace: "db", NamespaceLabels: set("team", "b"), Labels: set("app", "front"), Ranges: prefixes("10.9.0.8/32", "10.9.0.16/32")},
	}
	front, teamB := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "front"}}, matching(need("team", opIn, "b", "c"))
	for _, tc := range []struct {
		name  string
		peers peers
		want  []string
	}{
		{name: "everybody", want: []string{"10.9.0.1/32", "10.9.0.4/32", "10.9.0.8/32", "10.9.0.16/32"}},
		{name: "pods of the same namespace", peers: peers{selectorPeer(nil, front)}, want: []string{"10.9.0.1/32"}},
		{name: "all pods of the same namespace", peers: peers{selectorPeer(nil, &metav1.LabelSelector{})}, want: []string{"10.9.0.1/32", "10.9.0.4/32"}},
		{name: "pods of all namespaces", peers: peers{selectorPeer(&metav1.LabelSelector{}, front)}, want: []string{"10.9.0.1/32", "10.9.0.8/32", "10.9.0.16/32"}},
		{name: "a namespace", peers: peers{selectorPeer(teamB, nil)}, want: []string{"10.9.0.8/32", "10.9.0.16/32"}},
		{name: "pods of a namespace that has none such", peers: peers{selectorPeer(teamB, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "back"}})}},
		{name: "labels that pods lack", peers: peers{selectorPeer(&metav1.LabelSelector{}, matching(need("app", opNotIn, "front")))}, want: []string{"10.9.0.4/32"}},
		{name: "an invalid selector", peers: peers{selectorPeer(nil, matching(need("app", opIn)))}},
		{name: "a block of addresses", peers: peers{peerAt("10.9.0.0/28", "10.9.0.4/32")}, want: []string{"10.9.0.1/32", "10.9.0.8/32"}},
		{name: "addresses elsewhere", peers: peers{peerAt("192.0.2.0/24")}, want: nil},
		{name: "two peers", peers: peers{selectorPeer(nil, front), peerAt("10.9.0.0/30")}, want: []string{"10.9.0.1/32"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tenants := policySelecting("p", &metav1.LabelSelector{}, bothWays...)
			tenants.Spec.Ingress = ingressRules{{From: tc.peers, Ports: ports{tcp(80)}}}
			tenants.Spec.Egress = egressRules{{To: tc.peers, Ports: ports{tcp(80)}}}
			got := &networkingv1.NetworkPolicy{}
			network.SuperNetworkPolicy(tenants, got, kindtest.ClusterKey, confined)
			remote := func(of peers) (found []string) {
				for _, peer := range of {
					if peer.IPBlock != nil && strings.HasPrefix(peer.IPBlock.CIDR, "10.9.") {
						found = append(found, peer.IPBlock.CIDR)
					}
				}
				return found
			}
			var from, to []string
			for _, rule := range got.Spec.Ingress {
				require.Empty(t, cmp.Diff(ports{tcp(80)}, rule.Ports))
				from = append(from, remote(rule.From)...)
			}
			for _, rule := range got.Spec.Egress {
				require.Empty(t, cmp.Diff(ports{tcp(80)}, rule.Ports))
				to = append(to, remote(rule.To)...)
			}
			require.Equal(t, tc.want, from)
			require.Equal(t, tc.want, to)
		})
	}
}

// TestRemotesOfLargePolicies: a policy that would take too much with the pods in other super clusters has none of them,
// and neither have those of ours.
func TestRemotesOfLargePolicies(t *testing.T) {
	t.Parallel()
	var pods []string
	for i := range 400 {
		pods = append(pods, "web", fmt.Sprintf("10.221.%d.%d", i/200, 2*(i%100)))
	}
	rules := func(count int) (found ingressRules) {
		for range count {
			found = append(found, networkingv1.NetworkPolicyIngressRule{})
		}
		return found
	}
	values := func(count int) *metav1.LabelSelector {
		var found []string
		for i := range count {
			found = append(found, fmt.Sprint("v", i))
		}
		return matching(need("app", opIn, found...))
	}
	for _, tc := range []struct {
		name       string
		policy     networkingv1.NetworkPolicySpec
		wantClosed bool
	}{
		{name: "one rule", policy: networkingv1.NetworkPolicySpec{Ingress: rules(1)}},
		{name: "many rules", policy: networkingv1.NetworkPolicySpec{Ingress: rules(60)}, wantClosed: true},
		{name: "a selector of many values", policy: networkingv1.NetworkPolicySpec{Ingress: ingressRules{{From: peers{selectorPeer(&metav1.LabelSelector{}, values(2000))}}}}, wantClosed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			b := inPool(t, p, "r1", "r2")
			b.tells(t, "r2", []string{"10.221.0.0/16"}, pods...)
			tenants := policySelecting("p", &metav1.LabelSelector{})
			tenants.UID, tenants.Spec.Ingress = "policy-uid", tc.policy.Ingress
			p.TenantCache[kind.NetworkPolicy] = []client.Object{tenants}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.NetworkPolicy, Namespace: "web", Name: "p"}
			_, err := p.Kind(kind.NetworkPolicy).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			got := &networkingv1.NetworkPolicy{}
			require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "p"}, got))
			p.SuperCache[kind.NetworkPolicy] = []client.Object{got}
			_, err = p.Kind(kind.NetworkPolicy).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			isClosed := !slices.ContainsFunc(got.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
				return slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
					return peer.IPBlock != nil && strings.HasPrefix(peer.IPBlock.CIDR, "10.221.")
				})
			})
			require.Equal(t, tc.wantClosed, isClosed)
			require.Equal(t, tc.wantClosed, len(p.Events.Events) > 0)
			if tc.wantClosed {
				require.Contains(t, <-p.Events.Events, "Warning NetworkPolicyNarrowed Super cluster r1: with its rules the policy would take too much")
			}
		})
	}

	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	b := inPool(t, p, "r1", "r2")
	b.tells(t, "r2", []string{"10.221.0.0/16"}, pods...)
	for i := range 3 {
		p.TenantCache[kind.NetworkPolicy] = append(p.TenantCache[kind.NetworkPolicy],
			policySelecting(fmt.Sprint(i), &metav1.LabelSelector{MatchLabels: map[string]string{"shop": fmt.Sprint(i), "part": fmt.Sprint(i)}}, bothWays...))
	}
	found := isolation(t, p)
	require.Greater(t, len(found), 1, "what is reached here is reached still")
	require.Contains(t, <-p.Events.Events, "Warning TooManyPodsElsewhere Super cluster r1: pods of this namespace and all of those in other super clusters do not reach each other")
}

// TestEndpointsElsewhere: an EndpointSlice may name the tenant's pods in other super clusters.
func TestEndpointsElsewhere(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	b := inPool(t, p, "r1", "r2")
	b.tells(t, "r2", []string{"10.221.0.0/16"}, "web", "10.221.0.1")
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "slice-uid"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.221.0.1"}}, {Addresses: []string{"10.221.0.2"}}},
	}
	p.TenantCache[kind.EndpointSlice] = []client.Object{slice}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.EndpointSlice, Namespace: "web", Name: "front"}
	_, err := p.Kind(kind.EndpointSlice).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	got := &discoveryv1.EndpointSlice{}
	require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, got))
	require.Empty(t, cmp.Diff([]discoveryv1.Endpoint{{Addresses: []string{"10.221.0.1"}}}, got.Endpoints, cmpopts.EquateEmpty()))

	// The tenant is told of the one, unless it may be that of a pod elsewhere that was not told of yet.
	for node, want := range map[string]int{"r1.n1": 1, "r2.n1": 0} {
		slice.Endpoints[1].NodeName, slice.ResourceVersion = &node, node
		p.SuperCache[kind.EndpointSlice] = []client.Object{got}
		p.Env.Forget(kindtest.ClusterKey)
		_, err := p.Kind(kind.EndpointSlice).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		require.Len(t, p.Events.Events, want, node)
		for range want {
			require.Contains(t, <-p.Events.Events, "EndpointsForbidden")
		}
	}
}

// TestAddressesWake: which changes of super pods are told.
func TestAddressesWake(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	at := func(address, app string) *corev1.Pod {
		return kindtest.SuperPodAt("web", "a", address, 1, map[string]string{"app": app})
	}
	changed := func(old, current client.Object) bool {
		return slices.Contains(p.Env.Changed(kind.Change{Kind: kind.Pod, Side: kind.SuperSide, Old: old, Current: current}), toldKey)
	}
	require.False(t, changed(nil, at("", "a")), "without a pool")
	inPool(t, p, "r1", "r2")
	ready := at("10.0.0.1", "a")
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, tc := range []struct {
		name         string
		old, current client.Object
		want         bool
	}{
		{"it has an address", at("", "a"), at("10.0.0.1", "a"), true},
		{"it is ready", at("10.0.0.1", "a"), ready, false},
		{"it has other labels", at("10.0.0.1", "a"), at("10.0.0.1", "b"), true},
		{"it is gone", ready, nil, true},
	} {
		require.Equal(t, tc.want, changed(tc.old, tc.current), tc.name)
	}
}
