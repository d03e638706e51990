package network_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	testingclock "k8s.io/utils/clock/testing"
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

var bothWays = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}

func policySelecting(name string, selector *metav1.LabelSelector, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: *selector, PolicyTypes: types},
	}
}

// TestIsolationPolicies: what is written besides the policies of a tenant.
func TestIsolationPolicies(t *testing.T) {
	t.Parallel()
	everybody := peers{selectorPeer(ofTenant(), nil), peerAt("0.0.0.0/0", "10.0.0.0/8"), peerAt("10.5.0.0/16"), peerAt("::/0", "fd00::/8")}
	allowed := map[networkingv1.PolicyType]networkingv1.NetworkPolicySpec{
		networkingv1.PolicyTypeIngress: {Ingress: ingressRules{{From: append(everybody[:4:4], peerAt("10.213.0.1/32"))}}},
		networkingv1.PolicyTypeEgress: {Egress: egressRules{
			{To: everybody}, {Ports: ports{tcp(6443)}, To: peers{peerAt("10.213.0.1/32")}}, {Ports: ports{tcp(10550)}, To: peers{peerAt("10.213.0.11/32")}},
		}},
	}
	var pairs []*networkingv1.NetworkPolicy
	for i := range 5 {
		pairs = append(pairs, policySelecting(fmt.Sprint(i), &metav1.LabelSelector{MatchLabels: map[string]string{"a": fmt.Sprint(i), "b": fmt.Sprint(i)}}))
	}
	front := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "front"}}
	notFront := matching(need(tenancy.LabelKey("app"), opNotIn, "front"))
	for _, tc := range []struct {
		name string
		own  []*networkingv1.NetworkPolicy
		// ingress and egress are what pods the policies of ours select.
		ingress, egress []*metav1.LabelSelector
		wantClosed      []string
	}{
		{name: "no policies", ingress: []*metav1.LabelSelector{{}}, egress: []*metav1.LabelSelector{{}}},
		{
			name: "some pods are closed", own: []*networkingv1.NetworkPolicy{policySelecting("a", front, bothWays...)},
			ingress: []*metav1.LabelSelector{notFront}, egress: []*metav1.LabelSelector{notFront},
		},
		{
			name: "in one direction, by default", own: []*networkingv1.NetworkPolicy{policySelecting("a", front)},
			ingress: []*metav1.LabelSelector{notFront}, egress: []*metav1.LabelSelector{{}},
		},
		{
			name: "all pods are closed", own: []*networkingv1.NetworkPolicy{policySelecting("a", front), policySelecting("b", &metav1.LabelSelector{}, "Egress")},
			ingress: []*metav1.LabelSelector{notFront},
		},
		{name: "more than the bound", own: pairs, egress: []*metav1.LabelSelector{{}}, wantClosed: []string{"Ingress"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, closed, bound := network.IsolationPolicies(tc.own, kindtest.ClusterKey, confinement())
			require.Empty(t, cmp.Diff(tc.wantClosed, closed))
			require.Empty(t, bound)
			var want []*networkingv1.NetworkPolicy
			add := func(direction networkingv1.PolicyType, lower string, selectors []*metav1.LabelSelector) {
				for i, selector := range selectors {
					spec := allowed[direction]
					spec.PodSelector, spec.PolicyTypes = *selector, []networkingv1.PolicyType{direction}
					want = append(want, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
						Name: fmt.Sprintf("superpool-isolation-%s-%d", lower, i), Labels: map[string]string{"tenancy.x-k8s.io/isolation": lower},
					}, Spec: spec})
				}
			}
			add(networkingv1.PolicyTypeIngress, "ingress", tc.ingress)
			add(networkingv1.PolicyTypeEgress, "egress", tc.egress)
			want = append(want, &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "superpool-isolation", Labels: map[string]string{"tenancy.x-k8s.io/isolation": "floor"}},
				Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: bothWays},
			})
			require.Empty(t, cmp.Diff(want, got))
		})
	}
}

// TestIsolationProperty: for random policies of a tenant and random labels, a policy of ours that allows something
// selects the super pod in a direction iff no policy of the tenant selects the pod in it, and a policy of the tenant
// selects the super pod iff it selects the pod.
func TestIsolationProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	keys, values := []string{"app", "app.kubernetes.io/name", "tenancy.x-k8s.io/cluster"}, []string{"x", "y", kindtest.ClusterKey}
	selects := func(policies []*networkingv1.NetworkPolicy, object labels.Set, direction networkingv1.PolicyType, only func(*networkingv1.NetworkPolicy) bool) bool {
		return slices.ContainsFunc(policies, func(policy *networkingv1.NetworkPolicy) bool {
			types := policy.Spec.PolicyTypes
			if len(types) == 0 {
				types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			}
			return slices.Contains(types, direction) && (only == nil || only(policy)) && selectedBy(t, []metav1.LabelSelector{policy.Spec.PodSelector}, object)
		})
	}
	allows := func(policy *networkingv1.NetworkPolicy) bool {
		return len(policy.Spec.Ingress)+len(policy.Spec.Egress) > 0
	}
	for range 300 {
		var own, super []*networkingv1.NetworkPolicy
		for i, selector := range randomSelectors(random, keys, values, random.IntN(5)) {
			policy := policySelecting(fmt.Sprint(i), &selector, [][]networkingv1.PolicyType{nil, bothWays, bothWays[:1], bothWays[1:]}[random.IntN(4)]...)
			own = append(own, policy)
			down := &networkingv1.NetworkPolicy{}
			network.SuperNetworkPolicy(policy, down, kindtest.ClusterKey, confinement())
			super = append(super, down)
		}
		ours, closed, _ := network.IsolationPolicies(own, kindtest.ClusterKey, confinement())
		for range 20 {
			object, superObject := labels.Set{}, labels.Set{"tenancy.x-k8s.io/cluster": kindtest.ClusterKey}
			for _, key := range keys {
				if random.IntN(3) > 0 {
					value := values[random.IntN(len(values))]
					object[key], superObject[tenancy.LabelKey(key)] = value, value
				}
			}
			for _, direction := range bothWays {
				selected := selects(own, object, direction, nil)
				require.Equal(t, selected, selects(super, superObject, direction, nil))
				require.True(t, selects(ours, superObject, direction, nil), "no pod is without a policy")
				want := !selected && !slices.Contains(closed, string(direction))
				require.Equal(t, want, selects(ours, superObject, direction, allows), "%v: %v", object, own)
			}
		}
	}
}

// isolation reconciles the policies of ours in namespace web until nothing changes, and returns them by name.
func isolation(t *testing.T, p *kindtest.Pool) map[string]*networkingv1.NetworkPolicy {
	t.Helper()
	found := map[string]*networkingv1.NetworkPolicy{}
	p.SuperCache[kind.Isolation] = nil
	for range 3 {
		_, err := p.Kind(kind.Isolation).Reconcile(t.Context(), kindtest.IsolationKey, 0)
		require.NoError(t, err)
		var list networkingv1.NetworkPolicyList
		require.NoError(t, p.SuperClient.List(t.Context(), &list, client.HasLabels{network.LabelIsolation}))
		clear(found)
		p.SuperCache[kind.Isolation] = nil
		for i := range list.Items {
			found[list.Items[i].Name] = &list.Items[i]
			p.SuperCache[kind.Isolation] = append(p.SuperCache[kind.Isolation], &list.Items[i])
		}
	}
	return found
}

func namesOf(policies map[string]*networkingv1.NetworkPolicy) []string {
	var names []string
	for name := range policies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestIsolation lets a tenant write policies, others change ours, and the operator open the tenant's network.
func TestIsolation(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.Tenant.Config, p.Tenant.Policy = kindtest.ServerAt("https://10.213.0.1:6443"), &policy.Ref{}
	p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	p.SuperCache[kind.APIServer] = []client.Object{
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.213.0.1"}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "other"}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}},
	}
	p.Env.SuperHost, p.Env.VNAgent = "https://10.213.0.2", kind.VNAgent{Port: 10550}

	all := []string{"superpool-isolation", "superpool-isolation-egress-0", "superpool-isolation-ingress-0"}
	found := isolation(t, p)
	require.Equal(t, all, namesOf(found))
	outside := peers{selectorPeer(ofTenant(), nil), peerAt("0.0.0.0/0", "10.213.0.1/32", "10.213.0.2/32", "10.213.0.11/32", "10.214.1.0/24", "169.254.0.0/16"), peerAt("::/0", "fd00:ec2::254/128")}
	require.Empty(t, cmp.Diff(egressRules{
		{To: outside}, {Ports: ports{tcp(6443)}, To: peers{peerAt("10.213.0.1/32")}}, {Ports: ports{tcp(10550)}, To: peers{peerAt("10.213.0.11/32")}},
	}, found[all[1]].Spec.Egress))
	require.Empty(t, cmp.Diff(ingressRules{{From: append(outside[:3:3], peerAt("10.213.0.1/32"))}}, found[all[2]].Spec.Ingress))
	for _, each := range found {
		owner, owned := tenancy.GetOwner(each)
		require.True(t, owned)
		require.Equal(t, kindtest.OwnerOf("ns-uid"), owner)
	}

	// Others change and add what is ours.
	floor := found[all[0]].DeepCopy()
	floor.Spec.Ingress = ingressRules{{}}
	require.NoError(t, p.SuperClient.Update(t.Context(), floor))
	require.NoError(t, p.SuperClient.Delete(t.Context(), found[all[1]]))
	forged := found[all[2]].DeepCopy()
	forged.Name, forged.ResourceVersion = "superpool-isolation-ingress-9", ""
	require.NoError(t, p.SuperClient.Create(t.Context(), forged))
	isolation(t, p)
	found = isolation(t, p)
	require.Equal(t, all, namesOf(found))
	require.Empty(t, found[all[0]].Spec.Ingress)

	// The tenant has policies: the last one closes all pods.
	closes := policySelecting("closes", &metav1.LabelSelector{}, bothWays...)
	p.TenantCache[kind.NetworkPolicy] = []client.Object{policySelecting("one", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}})}
	require.Equal(t, all, namesOf(isolation(t, p)))
	p.TenantCache[kind.NetworkPolicy] = append(p.TenantCache[kind.NetworkPolicy], closes)
	require.Equal(t, all[:1], namesOf(isolation(t, p)))
	p.TenantCache[kind.NetworkPolicy] = nil
	require.Equal(t, all, namesOf(isolation(t, p)))

	// The operator opens the network, and closes it.
	open, err := policy.New("open", &tenancyv1alpha1.TenantPolicySpec{Network: tenancyv1alpha1.NetworkRules{Mode: tenancyv1alpha1.NetworkOpen}})
	require.NoError(t, err)
	p.Tenant.Policy.Set(open)
	require.Empty(t, isolation(t, p))
	p.Tenant.Policy.Set(policy.Default())
	require.Equal(t, all, namesOf(isolation(t, p)))
}

// TestIsolationOrder: the floor is written last and deleted first, and a tenant's policy of that name is no hole.
func TestIsolationOrder(t *testing.T) {
	t.Parallel()
	var writes []string
	p := kindtest.NewPool(t, interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
			writes = append(writes, "create "+object.GetName())
			return to.Create(ctx, object, options...)
		},
		Delete: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			writes = append(writes, "delete "+object.GetName())
			return to.Delete(ctx, object, options...)
		},
	})
	p.Placed(t)
	p.Tenant.Policy = &policy.Ref{}
	squatter := policySelecting("superpool-isolation", matching(need("nobody", opExists)))
	squatter.Namespace = kindtest.ClusterKey + "-web"
	squatter.UID = "super-uid"
	tenancy.SetOwner(squatter, kindtest.OwnerOf("policy-uid"))
	require.NoError(t, p.SuperClient.Create(t.Context(), squatter))
	writes = nil
	found := isolation(t, p)
	require.Equal(t, []string{"create superpool-isolation-ingress-0", "create superpool-isolation-egress-0", "create superpool-isolation"}, writes)
	require.Empty(t, cmp.Diff(metav1.LabelSelector{}, found["superpool-isolation"].Spec.PodSelector))

	// The tenant is told; ours stays.
	tenants := policySelecting("superpool-isolation", matching(need("nobody", opExists)))
	tenants.UID = "policy-uid"
	p.TenantCache[kind.NetworkPolicy] = []client.Object{tenants}
	_, err := p.Kind(kind.NetworkPolicy).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.NetworkPolicy, Namespace: "web", Name: "superpool-isolation"}, 0)
	require.NoError(t, err)
	require.NotEmpty(t, p.Events.Events)
	require.Equal(t, "Warning Conflict Super cluster r1 has a networkpolicy of that name with another owner", <-p.Events.Events)
	p.TenantCache[kind.NetworkPolicy] = nil

	writes = nil
	open, err := policy.New("open", &tenancyv1alpha1.TenantPolicySpec{Network: tenancyv1alpha1.NetworkRules{Mode: tenancyv1alpha1.NetworkOpen}})
	require.NoError(t, err)
	p.Tenant.Policy.Set(open)
	require.Empty(t, isolation(t, p))
	require.Equal(t, []string{"delete superpool-isolation", "delete superpool-isolation-egress-0", "delete superpool-isolation-ingress-0"}, writes)
}

// TestIsolationBound tells the tenant of its youngest policy that its selectors are too many, once, and closes.
func TestIsolationBound(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	for i := range 5 {
		each := policySelecting(fmt.Sprint(i), &metav1.LabelSelector{MatchLabels: map[string]string{"a": fmt.Sprint(i), "b": fmt.Sprint(i)}}, bothWays...)
		each.CreationTimestamp = metav1.Unix(int64(1000-i), 0)
		p.TenantCache[kind.NetworkPolicy] = append(p.TenantCache[kind.NetworkPolicy], each)
	}
	require.Equal(t, []string{"superpool-isolation"}, namesOf(isolation(t, p)))
	require.NotEmpty(t, p.Events.Events)
	require.Equal(t, "Warning TooManyNetworkPolicies Super cluster r1: it takes more than 16 NetworkPolicies to select the pods that none of the 5 of namespace web selects: "+
		"nothing is allowed to those pods (Ingress, Egress). One with an empty podSelector, or selectors of fewer labels, need none", <-p.Events.Events)
	require.Empty(t, p.Events.Events)

	p.TenantCache[kind.NetworkPolicy][4].(*networkingv1.NetworkPolicy).Spec.PodSelector = *matching(need("a", opIn, make([]string, 101)...))
	require.Equal(t, []string{"superpool-isolation"}, namesOf(isolation(t, p)))
	require.Equal(t, "Warning TooManyNetworkPolicies Super cluster r1: the podSelector of NetworkPolicy 4 has a requirement of more than 100 values: "+
		"nothing is allowed to the pods of namespace web that no NetworkPolicy selects (Ingress, Egress)", <-p.Events.Events)
}

// TestIsolationBytes: what allows something to pods that no policy selects has a bound, in each direction, however many
// addresses the pool has. A namespace without policies is below it.
func TestIsolationBytes(t *testing.T) {
	t.Parallel()
	var closed []string
	for i := range 128 {
		closed = append(closed, fmt.Sprintf("10.%d.%d.0/25", i, i), fmt.Sprintf("fd00:1111:2222:3333:4444:5555:%x:0/115", i))
	}
	wide := &network.Confinement{Ranges: network.NewRanges(prefixes(closed...), nil)}
	ours, none, bound := network.IsolationPolicies(nil, kindtest.ClusterKey, wide)
	require.Empty(t, none)
	require.Empty(t, bound)
	require.Len(t, ours, 3)
	require.Greater(t, ours[0].Size(), 6<<10)

	// Eight policies select the pods that none of these does.
	var own []*networkingv1.NetworkPolicy
	for i := range 3 {
		own = append(own, policySelecting(fmt.Sprint(i), &metav1.LabelSelector{MatchLabels: map[string]string{fmt.Sprint("a", i): "", fmt.Sprint("b", i): ""}}, bothWays...))
	}
	ours, none, bound = network.IsolationPolicies(own, kindtest.ClusterKey, confinement())
	require.Empty(t, none)
	require.Empty(t, bound)
	require.Len(t, ours, 17)
	ours, none, bound = network.IsolationPolicies(own, kindtest.ClusterKey, wide)
	require.Equal(t, []string{"Ingress", "Egress"}, none)
	require.Regexp(t, `^the policies that select the pods which no NetworkPolicy selects take \d+ bytes, and at most 32768 may$`, bound)
	require.Len(t, ours, 1, "the floor is there")
}

// TestIsolationOfHugeSelectors gives a namespace selectors that no quota of the super cluster bounds: they are refused
// by their size, before anything is made of them, and by what is made of them.
func TestIsolationOfHugeSelectors(t *testing.T) {
	t.Parallel()
	numbered := func(prefix string, count int) []string {
		values := make([]string, count)
		for i := range values {
			values[i] = fmt.Sprintf("%s%07d", prefix, i)
		}
		return values
	}
	// distinct has a requirement of one value of one key each, which no pod matches.
	distinct := func(prefix string, count int) *metav1.LabelSelector {
		selector := matching()
		for _, value := range numbered(prefix, count) {
			selector.MatchExpressions = append(selector.MatchExpressions, need("k", opIn, value))
		}
		return selector
	}
	of := func(selectors ...*metav1.LabelSelector) []*networkingv1.NetworkPolicy {
		var own []*networkingv1.NetworkPolicy
		for i, selector := range selectors {
			own = append(own, policySelecting(fmt.Sprint("p", i), selector, bothWays...))
		}
		return own
	}
	repeated := func(count int, selector func(i int) *metav1.LabelSelector) []*metav1.LabelSelector {
		var selectors []*metav1.LabelSelector
		for i := range count {
			selectors = append(selectors, selector(i))
		}
		return selectors
	}
	long := strings.Repeat("v", 55)
	hundred := func(i int) *metav1.LabelSelector {
		return matching(need("k", opIn, numbered(fmt.Sprintf("%s%03d", long[3:], i), 100)...))
	}
	for _, tc := range []struct {
		name  string
		own   []*networkingv1.NetworkPolicy
		bound string
	}{
		{
			name:  "values of one requirement, merged with many others",
			own:   of(matching(need("k", opIn, numbered("v", 150_000)...)), distinct("x", 63), distinct("y", 63)),
			bound: "the podSelector of NetworkPolicy p0 has a requirement of more than 100 values",
		},
		{
			name:  "values in, and not in",
			own:   of(matching(need("k", opNotIn, numbered("v", 200_000)...)), matching(need("k", opNotIn, numbered("w", 200_000)...))),
			bound: "the podSelector of NetworkPolicy p0 has a requirement of more than 100 values",
		},
		{name: "values of all", own: of(repeated(101, hundred)...), bound: "the podSelectors of the NetworkPolicies have more than 10000 values"},
		{name: "requirements", own: of(distinct("x", 65)), bound: "the podSelector of NetworkPolicy p0 has more than 64 requirements"},
		{
			name:  "policies",
			own:   of(repeated(501, func(i int) *metav1.LabelSelector { return matching(need("k", opIn, fmt.Sprint(i))) })...),
			bound: "there are more than 500 NetworkPolicies",
		},
		// These are within those bounds.
		{name: "as many values as may be, merged with many others", own: of(append(repeated(97, hundred), distinct("x", 64), distinct("y", 64), distinct("z", 64))...)},
		{
			name: "many keys in common, and many combinations",
			own: of(append(repeated(450, func(i int) *metav1.LabelSelector { return matching(need(fmt.Sprint("a", i), opExists)) }),
				repeated(50, func(i int) *metav1.LabelSelector {
					return matching(need("b", opIn, "1"), need(fmt.Sprint("c", i), opExists), need(fmt.Sprint("d", i), opExists))
				})...)...),
		},
		{name: "a value that is no label's", own: of(matching(need("k", opIn, strings.Repeat("v", 64))))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			ours, closed, bound := network.IsolationPolicies(tc.own, kindtest.ClusterKey, confinement())
			require.Less(t, time.Since(start), time.Minute)
			require.Equal(t, tc.bound, bound)
			require.Equal(t, []string{"Ingress", "Egress"}, closed)
			require.Len(t, ours, 1, "the floor is there")
		})
	}
}

// TestIsolationWakes: what a change enqueues, and that pods wait for the floor.
func TestIsolationWakes(t *testing.T) {
	t.Parallel()
	look := engine.Key{Kind: kind.Isolation}
	front := policySelecting("a", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "front"}}, bothWays...)
	rules := front.DeepCopy()
	rules.Spec.Egress = egressRules{{}}
	types := front.DeepCopy()
	types.Spec.PolicyTypes = bothWays[:1]
	node, beating := kindtest.NodeAt("10.213.0.11", "10.214.1.0/24"), kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")
	beating.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	floor := kindtest.IsolationFloor()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: floor.Namespace, Name: "superpool", Labels: floor.Labels, Annotations: floor.Annotations}}
	for _, tc := range []struct {
		name string
		kind.Change
		want []engine.Key
	}{
		{name: "a policy is new", Change: kind.Change{Kind: kind.NetworkPolicy, Current: front}, want: []engine.Key{kindtest.IsolationKey}},
		{name: "a policy is gone", Change: kind.Change{Kind: kind.NetworkPolicy, Old: front}, want: []engine.Key{kindtest.IsolationKey}},
		{name: "other rules", Change: kind.Change{Kind: kind.NetworkPolicy, Old: front, Current: rules}},
		{name: "other directions", Change: kind.Change{Kind: kind.NetworkPolicy, Old: front, Current: types}, want: []engine.Key{kindtest.IsolationKey}},
		{name: "a node is new", Change: kind.Change{Kind: kind.Node, Side: kind.SuperSide, Current: node}, want: []engine.Key{look}},
		{name: "a node is heard of", Change: kind.Change{Kind: kind.Node, Side: kind.SuperSide, Old: node, Current: beating}},
		{
			name: "a node moves", Change: kind.Change{Kind: kind.Node, Side: kind.SuperSide, Old: node, Current: kindtest.NodeAt("10.213.0.12", "10.214.1.0/24")},
			want: []engine.Key{look},
		},
		{
			name: "the floor is there", Change: kind.Change{Kind: kind.Isolation, Side: kind.SuperSide, Current: floor},
			want: []engine.Key{kindtest.IsolationKey, {Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}},
		},
		{
			name: "the quota is there", Change: kind.Change{Kind: kind.Quota, Side: kind.SuperSide, Current: quota},
			want: []engine.Key{
				{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"},
				{Tenant: kindtest.ClusterKey, Kind: kind.Token, Namespace: "web", Name: "p/"},
				{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"},
				{Tenant: kindtest.ClusterKey, Kind: kind.Node},
				kindtest.IsolationKey,
				{Tenant: kindtest.ClusterKey, Kind: kind.Offer},
			},
		},
		{name: "the floor changes", Change: kind.Change{Kind: kind.Isolation, Side: kind.SuperSide, Old: floor, Current: floor}, want: []engine.Key{kindtest.IsolationKey}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.TenantCache[kind.Pod] = []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"}}}
			if tc.Side == kind.TenantSide {
				tc.Tenant = kindtest.ClusterKey
			}
			var got []engine.Key
			for _, key := range p.Env.Changed(tc.Change) {
				if key.Kind != kind.NetworkPolicy {
					got = append(got, key)
				}
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

// TestIsolationOfNamespaces: each namespace of a tenant is looked at once its namespaces are known, those without
// policies too.
func TestIsolationOfNamespaces(t *testing.T) {
	t.Parallel()
	for _, spec := range kindtest.NewPool(t, interceptor.Funcs{}).Env.Declared {
		if spec.Name == kind.Isolation {
			require.Equal(t, kind.Namespace, spec.From)
			key, ours := spec.TenantKey(kindtest.ClusterKey, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
			require.True(t, ours)
			require.Equal(t, kindtest.IsolationKey, key)
		}
	}
}

// TestNetworkOfNodes lets nodes come: policies are enqueued once for many, and not for what changes nothing.
func TestNetworkOfNodes(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	p.Env.Clock = clock
	var got []engine.Key
	p.Env.Resync = func(keys []engine.Key) { got = append(got, keys...) }
	look := func() time.Duration {
		got = nil
		after, err := p.Kind(kind.Isolation).Reconcile(t.Context(), engine.Key{Kind: kind.Isolation}, 0)
		require.NoError(t, err)
		return after
	}
	excepts := func() []string {
		return isolation(t, p)["superpool-isolation-egress-0"].Spec.Egress[0].To[1].IPBlock.Except
	}
	p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	require.Equal(t, []string{"10.213.0.11/32", "10.214.1.0/24", "169.254.0.0/16"}, excepts())
	require.Zero(t, look())
	require.Empty(t, got, "it is as seen before")
	for range 3 {
		p.SuperCache[kind.Node] = append(p.SuperCache[kind.Node], kindtest.NodeAt("10.213.0.12", "10.214.2.0/24"))
		require.Equal(t, 5*time.Second, look())
		require.Empty(t, got)
	}
	clock.SetTime(clock.Now().Add(5 * time.Second))
	require.Zero(t, look())
	require.Equal(t, []engine.Key{kindtest.IsolationKey}, got)
	require.Equal(t, []string{"10.213.0.11/32", "10.213.0.12/32", "10.214.1.0/24", "10.214.2.0/24", "169.254.0.0/16"}, excepts())
}

// TestNetworkOfPods: where nodes do not say what ranges their pods have, pods' addresses do.
func TestNetworkOfPods(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	p.Env.Clock, p.Env.Resync = clock, func([]engine.Key) {}
	look := engine.Key{Kind: kind.Isolation}
	excepts := func(block int) []string {
		clock.SetTime(clock.Now().Add(5 * time.Second))
		_, err := p.Kind(kind.Isolation).Reconcile(t.Context(), look, 0)
		require.NoError(t, err)
		return isolation(t, p)["superpool-isolation-egress-0"].Spec.Egress[0].To[block].IPBlock.Except
	}
	podAt := func(ips ...string) *corev1.Pod {
		pod := &corev1.Pod{}
		for _, ip := range ips {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		return pod
	}
	looks := func(pod *corev1.Pod) bool {
		return slices.Contains(p.Env.Changed(kind.Change{Kind: kind.Pod, Side: kind.SuperSide, Old: podAt(), Current: pod}), look)
	}
	p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
	p.SuperCache[kind.Pod] = []client.Object{podAt("10.214.2.7")}
	require.Equal(t, []string{"10.213.0.11/32", "10.214.1.0/24", "10.214.2.0/24", "169.254.0.0/16"}, excepts(1), "pods that are there")

	onNode := podAt("10.213.0.99")
	onNode.Spec.HostNetwork = true
	for _, known := range []*corev1.Pod{podAt(), podAt("10.214.1.9"), podAt("10.214.2.9"), podAt("nonsense", "127.0.0.1"), onNode} {
		require.False(t, looks(known), "%v", known.Status.PodIPs)
	}
	require.True(t, looks(podAt("10.214.9.1", "fd00:1::7")))
	require.False(t, looks(podAt("10.214.9.2")))
	require.Equal(t, []string{"10.213.0.11/32", "10.214.1.0/24", "10.214.2.0/24", "10.214.9.0/24", "169.254.0.0/16"}, excepts(1))
	require.Equal(t, []string{"fd00:1::/64", "fd00:ec2::254/128"}, excepts(2))
	p.SuperCache[kind.Pod] = nil
	require.Contains(t, excepts(1), "10.214.2.0/24", "another pod may get the address")

	for i := range 256 {
		looks(podAt(fmt.Sprintf("10.%d.0.1", i)))
	}
	require.LessOrEqual(t, len(excepts(1)), 66, "they are few, whatever pods there are")
}

// TestPodsWaitForIsolation: no super pod is created before the floor is there.
func TestPodsWaitForIsolation(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "default"}}}
	p.TenantCache[kind.Pod] = []client.Object{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p", UID: "pod-uid"}, Spec: corev1.PodSpec{ServiceAccountName: "default", DNSPolicy: corev1.DNSDefault},
	}}
	name := client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "p"}
	create := func() {
		for _, waited := range []time.Duration{0, time.Hour} {
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, waited)
			require.NoError(t, err)
		}
	}
	p.SuperCache[kind.Isolation] = nil
	create()
	require.True(t, apierrors.IsNotFound(p.SuperClient.Get(t.Context(), name, &corev1.Pod{})))
	isolation(t, p)
	create()
	require.NoError(t, p.SuperClient.Get(t.Context(), name, &corev1.Pod{}))
}

// TestNamesHost: which servers of super clusters are not closed, as nobody resolves their names.
func TestNamesHost(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]bool{
		"https://10.213.0.2:6443": false, "10.213.0.2": false, "https://[fd00::2]:6443": false, "https://api.example.com:6443": true, "api.example.com": true,
	} {
		require.Equal(t, want, kind.NamesHost(server), server)
	}
}

// BenchmarkIsolationPolicies is a look at the policies of a namespace, as each change of one of them takes.
func BenchmarkIsolationPolicies(b *testing.B) {
	for _, count := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("policies=%d", count), func(b *testing.B) {
			var own []*networkingv1.NetworkPolicy
			for i := range count {
				own = append(own, policySelecting(fmt.Sprint(i), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop", "part": fmt.Sprint(i)}}, bothWays...))
			}
			confinement := confinement()
			b.ReportAllocs()
			for b.Loop() {
				if _, closed, _ := network.IsolationPolicies(own, kindtest.ClusterKey, confinement); len(closed) > 0 {
					b.Fatal(closed)
				}
			}
		})
	}
}

// TestIsolationOfTraffic: who calls pods in the name of those outside, where the policy allows load balancers, node
// ports and Ingresses.
func TestIsolationOfTraffic(t *testing.T) {
	t.Parallel()
	node := peerAt("10.213.0.11/32")
	others, others6 := peerAt("10.99.1.0/24"), peerAt("fd99:0:1::/48")
	controllers := selectorPeer(matching(need("kubernetes.io/metadata.name", opIn, "ingress", "other")), nil)
	for _, tc := range []struct {
		name   string
		ports  utilnet.PortRange
		change func(*tenancyv1alpha1.TenantPolicySpec)
		want   peers
	}{
		{name: "nothing"},
		{name: "load balancers", change: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.LoadBalancers = 1 }, want: peers{node}},
		{name: "node ports of a range", ports: utilnet.PortRange{Base: 30000, Size: 100}, change: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.NodePorts = 1 }, want: peers{node}},
		{name: "node ports of any", change: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.NodePorts = 1 }},
		{
			name: "nodes of other super clusters", want: peers{others},
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Network.PoolCIDRs, spec.Traffic.CallerCIDRs = []string{"10.99.0.0/16"}, []string{"10.99.1.0/24"}
			},
		},
		{
			name: "nodes of other super clusters in two ranges of the pool, some of which are reached", want: peers{others},
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Network.PoolCIDRs, spec.Traffic.CallerCIDRs = []string{"10.99.1.0/25", "10.99.1.128/25"}, []string{"10.99.1.0/24"}
				spec.Network.AllowedCIDRs = []string{"10.99.1.0/28"}
			},
		},
		{
			name: "nodes of other super clusters, which are all reached: they are not of the pool",
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Network.PoolCIDRs, spec.Traffic.CallerCIDRs = []string{"10.99.0.0/16"}, []string{"10.99.1.0/24"}
				spec.Network.AllowedCIDRs = []string{"10.99.0.0/23"}
			},
		},
		{
			name: "nodes of other super clusters with IPv6", want: peers{others6},
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Network.PoolCIDRs, spec.Traffic.CallerCIDRs = []string{"fd99::/32"}, []string{"fd99:0:1::/48"}
			},
		},
		{
			name: "ingress controllers", want: peers{controllers},
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Traffic.ControllerNamespaces = []string{"ingress", "other"}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.Tenant.NodePorts, p.Tenant.Policy = tc.ports, &policy.Ref{}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, tc.change))
			p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
			var got peers
			for _, each := range isolation(t, p) {
				for _, rule := range each.Spec.Ingress {
					for _, peer := range rule.From {
						if cmp.Equal(peer, node) || cmp.Equal(peer, others) || cmp.Equal(peer, others6) || cmp.Equal(peer, controllers) {
							got = append(got, peer)
						}
					}
				}
				for _, rule := range each.Spec.Egress {
					require.False(t, slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
						return cmp.Equal(peer, others) || cmp.Equal(peer, others6)
					}), "they are called")
				}
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}
