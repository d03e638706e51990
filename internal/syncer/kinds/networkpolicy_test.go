package kinds_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenancy"
)

func matching(expressions ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: expressions}
}

// ofTenant returns a selector of objects of the tenant that match more.
func ofTenant(expressions ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	selector := matching(expressions...)
	selector.MatchLabels = map[string]string{"tenancy.x-k8s.io/cluster": clusterKey}
	return selector
}

func namesOf(names ...string) metav1.LabelSelectorRequirement {
	requirement := metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn}
	for _, name := range names {
		requirement.Values = append(requirement.Values, clusterKey+"-"+name)
	}
	return requirement
}

// TestSuperNetworkPolicyPeers: whom a peer of a tenant's policy becomes.
func TestSuperNetworkPolicyPeers(t *testing.T) {
	t.Parallel()
	namespaces := map[string]labels.Set{
		"web": {"kubernetes.io/metadata.name": "web", "team": "a"}, "api": {"kubernetes.io/metadata.name": "api", "team": "a", "tenant.only/x": "1"},
		"db": {"kubernetes.io/metadata.name": "db", "team": "b"},
	}
	nothing := ofTenant(metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpDoesNotExist})
	app := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"front"}}
	block := &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}
	for _, tc := range []struct {
		name       string
		peer, want networkingv1.NetworkPolicyPeer
	}{
		{
			name: "pods of the namespace", peer: networkingv1.NetworkPolicyPeer{PodSelector: matching(app)},
			want: networkingv1.NetworkPolicyPeer{PodSelector: ofTenant(app)},
		},
		{
			name: "all pods of the namespace", peer: networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}},
			want: networkingv1.NetworkPolicyPeer{PodSelector: ofTenant()},
		},
		{
			name: "all namespaces are all of the tenant", peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}},
			want: networkingv1.NetworkPolicyPeer{NamespaceSelector: ofTenant()},
		},
		{
			name: "namespaces by a label", peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
			want: networkingv1.NetworkPolicyPeer{NamespaceSelector: ofTenant(namesOf("api", "web"))},
		},
		{
			name: "a namespace by name", want: networkingv1.NetworkPolicyPeer{NamespaceSelector: ofTenant(namesOf("db"))},
			peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "db"}}},
		},
		{
			name: "namespaces without a label", want: networkingv1.NetworkPolicyPeer{NamespaceSelector: ofTenant(namesOf("db", "web"))},
			peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: matching(metav1.LabelSelectorRequirement{
				Key: "tenant.only/x", Operator: metav1.LabelSelectorOpDoesNotExist,
			})},
		},
		{
			name: "pods of namespaces", want: networkingv1.NetworkPolicyPeer{PodSelector: ofTenant(app), NamespaceSelector: ofTenant(namesOf("db"))},
			peer: networkingv1.NetworkPolicyPeer{PodSelector: matching(app), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}},
		},
		{
			name: "no namespace", want: networkingv1.NetworkPolicyPeer{NamespaceSelector: nothing},
			peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "c"}}},
		},
		{
			name: "namespaces of another tenant", want: networkingv1.NetworkPolicyPeer{NamespaceSelector: nothing},
			peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenancy.x-k8s.io/cluster": "other"}}},
		},
		{
			name: "pods of another tenant", want: networkingv1.NetworkPolicyPeer{PodSelector: ofTenant()},
			peer: networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenancy.x-k8s.io/cluster": "other"}}},
		},
		{
			name: "a selector that no API server lets through", want: networkingv1.NetworkPolicyPeer{NamespaceSelector: nothing},
			peer: networkingv1.NetworkPolicyPeer{NamespaceSelector: matching(metav1.LabelSelectorRequirement{Key: "team", Operator: "Resembles"})},
		},
		{name: "addresses", peer: networkingv1.NetworkPolicyPeer{IPBlock: block}, want: networkingv1.NetworkPolicyPeer{IPBlock: block}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ports := []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromString("http")), EndPort: ptr.To[int32](90)}}
			policy := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
				PodSelector: *matching(app), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: ports, From: []networkingv1.NetworkPolicyPeer{tc.peer}}, {}},
				Egress:  []networkingv1.NetworkPolicyEgressRule{{Ports: ports, To: []networkingv1.NetworkPolicyPeer{tc.peer}}},
			}}
			untouched, got := policy.DeepCopy(), &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{}}}}
			require.False(t, kinds.SuperNetworkPolicy(policy, got, clusterKey, namespaces))
			require.Empty(t, cmp.Diff(untouched, policy), "the policy lies in a cache")
			want := networkingv1.NetworkPolicySpec{
				PodSelector: *ofTenant(app), PolicyTypes: policy.Spec.PolicyTypes,
				Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: ports, From: []networkingv1.NetworkPolicyPeer{tc.want}}, {}},
				Egress:  []networkingv1.NetworkPolicyEgressRule{{Ports: ports, To: []networkingv1.NetworkPolicyPeer{tc.want}}},
			}
			require.Empty(t, cmp.Diff(want, got.Spec))
		})
	}
}

// TestSuperNetworkPolicyBounds lets a tenant select more than an object holds: what is left out is not allowed.
func TestSuperNetworkPolicyBounds(t *testing.T) {
	t.Parallel()
	namespaces := map[string]labels.Set{}
	for i := range 2000 {
		namespaces[fmt.Sprintf("n%04d", i)] = labels.Set{"i": fmt.Sprint(i % 2)}
	}
	one := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"i": "1"}}}
	none := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"i": "2"}}}
	for _, tc := range []struct {
		name         string
		peers        []networkingv1.NetworkPolicyPeer
		want         []int
		wantNarrowed bool
	}{
		{name: "as many as fit", peers: []networkingv1.NetworkPolicyPeer{one}, want: []int{1000}},
		{name: "more together", peers: []networkingv1.NetworkPolicyPeer{one, one, none}, want: []int{1000, 24, 0}, wantNarrowed: true},
		{name: "too many selectors", peers: repeated(none, 65), want: make([]int, 65), wantNarrowed: true},
		{name: "selectors of all namespaces are free", peers: repeated(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}, 65), want: make([]int, 65)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			policy := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: tc.peers}}}}
			got := &networkingv1.NetworkPolicy{}
			require.Equal(t, tc.wantNarrowed, kinds.SuperNetworkPolicy(policy, got, clusterKey, namespaces))
			require.Len(t, got.Spec.Ingress[0].From, len(tc.peers), "a rule without peers allows everybody")
			for i, peer := range got.Spec.Ingress[0].From {
				require.Equal(t, clusterKey, peer.NamespaceSelector.MatchLabels["tenancy.x-k8s.io/cluster"])
				names := 0
				for _, requirement := range peer.NamespaceSelector.MatchExpressions {
					names += len(requirement.Values)
				}
				require.Equal(t, tc.want[i], names)
			}
		})
	}
}

func repeated(peer networkingv1.NetworkPolicyPeer, count int) []networkingv1.NetworkPolicyPeer {
	var peers []networkingv1.NetworkPolicyPeer
	for range count {
		peers = append(peers, *peer.DeepCopy())
	}
	return peers
}

// TestNetworkPolicyNotice tells a tenant what its policy cannot do in super clusters, once.
func TestNetworkPolicyNotice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		selector metav1.LabelSelector
		want     string
	}{
		{name: "labels that go down", selector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "front"}}},
		{
			name: "a label that does not", selector: metav1.LabelSelector{MatchLabels: map[string]string{"x.k8s.io/y": "z"}},
			want: "Warning NetworkPolicyNarrowed Super cluster r1: a podSelector names label x.k8s.io/y, which pods do not have in super clusters",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{})
			p.placed(t)
			policy := &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "policy-uid"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: tc.selector},
			}
			p.tenantCache[kinds.KindNetworkPolicy] = []client.Object{policy}
			key := engine.Key{Tenant: clusterKey, Kind: kinds.KindNetworkPolicy, Namespace: "web", Name: "front"}
			for range 3 {
				_, err := p.kind(kinds.KindNetworkPolicy).Reconcile(t.Context(), key, 0)
				require.NoError(t, err)
				live := &networkingv1.NetworkPolicy{}
				require.NoError(t, p.superClient.Get(t.Context(), client.ObjectKey{Namespace: clusterKey + "-web", Name: "front"}, live))
				p.superCache[kinds.KindNetworkPolicy] = []client.Object{live}
			}
			if tc.want == "" {
				require.Empty(t, p.events.Events)
				return
			}
			require.Equal(t, tc.want, <-p.events.Events)
			require.Empty(t, p.events.Events)
		})
	}
}

// unfilled is a cache that is not filled with objects of a kind.
type unfilled struct {
	cache
	of string
}

func (u unfilled) Get(kind, namespace, name string) (client.Object, bool) {
	if kind == u.of {
		return nil, false
	}
	return u.cache.Get(kind, namespace, name)
}

// TestNetworkPolicyBeforeNamespaces lets a policy be cached before the namespaces that it may select: nothing is
// written that allows less for a moment.
func TestNetworkPolicyBeforeNamespaces(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{})
	p.placed(t)
	p.tenantCache[kinds.KindNetworkPolicy] = []client.Object{&networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "policy-uid"},
	}}
	key := engine.Key{Tenant: clusterKey, Kind: kinds.KindNetworkPolicy, Namespace: "web", Name: "front"}
	p.tenant.Cache = unfilled{p.tenantCache, kinds.KindNamespace}
	_, err := p.kind(kinds.KindNetworkPolicy).Reconcile(t.Context(), key, 0)
	wait := &engine.WaitError{}
	require.ErrorAs(t, err, &wait)
	name := client.ObjectKey{Namespace: clusterKey + "-web", Name: "front"}
	require.True(t, apierrors.IsNotFound(p.superClient.Get(t.Context(), name, &networkingv1.NetworkPolicy{})))

	p.tenant.Cache = p.tenantCache
	_, err = p.kind(kinds.KindNetworkPolicy).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.NoError(t, p.superClient.Get(t.Context(), name, &networkingv1.NetworkPolicy{}))
}

// TestTooManyNetworkPolicies lets a namespace have more policies than may select namespaces by labels: the youngest
// ones stay as they were, or allow nothing of what they select so.
func TestTooManyNetworkPolicies(t *testing.T) {
	t.Parallel()
	of := func(name string, age int, selector *metav1.LabelSelector) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: "policy-uid", CreationTimestamp: metav1.Unix(int64(1000-age), 0)},
			Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
				{NamespaceSelector: selector},
			}}}},
		}
	}
	selecting := matching(metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist})
	crowd := func(count, age int, selector *metav1.LabelSelector) []client.Object {
		var objects []client.Object
		for i := range count {
			objects = append(objects, of(fmt.Sprintf("other-%03d", i), age, selector))
		}
		return objects
	}
	before := ofTenant(namesOf("before"))
	looked, nothing := ofTenant(namesOf("web")), ofTenant(metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpDoesNotExist})
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
		others   []client.Object
		// down is what the super policy allows before; nil for none.
		down, want *metav1.LabelSelector
		wantEvent  bool
	}{
		{name: "as many as may", selector: selecting, others: crowd(99, 1, selecting), want: looked},
		{name: "as many as may, an update", selector: selecting, others: crowd(99, 1, selecting), down: before, want: looked},
		{name: "younger ones", selector: selecting, others: crowd(200, -1, selecting), want: looked},
		{name: "others of that age, later names", selector: selecting, others: crowd(200, 0, selecting), want: looked},
		{name: "older ones that select no labels", selector: selecting, others: crowd(200, 1, &metav1.LabelSelector{}), want: looked},
		{name: "older ones, and it selects no labels", selector: &metav1.LabelSelector{}, others: crowd(200, 1, selecting), want: ofTenant()},
		{name: "too many, new", selector: selecting, others: crowd(100, 1, selecting), want: nothing, wantEvent: true},
		{name: "too many, an update", selector: selecting, others: crowd(100, 1, selecting), down: before, want: before, wantEvent: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{})
			p.placed(t)
			policy := of("front", 0, tc.selector)
			p.tenantCache[kinds.KindNetworkPolicy] = append(tc.others, policy)
			name := client.ObjectKey{Namespace: clusterKey + "-web", Name: "front"}
			if tc.down != nil {
				superPolicy := of("front", 0, tc.down)
				superPolicy.Namespace = name.Namespace
				tenancy.SetOwner(superPolicy, ownerOf("policy-uid"))
				require.NoError(t, p.superClient.Create(t.Context(), superPolicy))
				p.superCache[kinds.KindNetworkPolicy] = []client.Object{superPolicy}
			}
			live := &networkingv1.NetworkPolicy{}
			for range 3 {
				_, err := p.kind(kinds.KindNetworkPolicy).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kinds.KindNetworkPolicy, Namespace: "web", Name: "front"}, 0)
				require.NoError(t, err)
				require.NoError(t, p.superClient.Get(t.Context(), name, live))
				p.superCache[kinds.KindNetworkPolicy] = []client.Object{live.DeepCopy()}
			}
			require.Empty(t, cmp.Diff(tc.want, live.Spec.Ingress[0].From[0].NamespaceSelector))
			if !tc.wantEvent {
				require.Empty(t, p.events.Events)
				return
			}
			require.Equal(t, "Warning TooManyNetworkPolicies Super cluster r1: at most 100 NetworkPolicies of a namespace may select namespaces by labels, and 100 older ones "+
				"of namespace web do: this one stays as it was here, or selects no namespace by labels", <-p.events.Events)
			require.Empty(t, p.events.Events)
		})
	}
}
