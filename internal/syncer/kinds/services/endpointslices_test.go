package services_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestForbiddenEndpoints: which endpoints of a tenant's EndpointSlice go down, and when the tenant is told.
func TestForbiddenEndpoints(t *testing.T) {
	t.Parallel()
	pod := func(tenant, ip string, phase corev1.PodPhase) client.Object {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-web", Name: "p-" + ip}, Status: corev1.PodStatus{Phase: phase, PodIPs: []corev1.PodIP{{IP: ip}}}}
		owner := kindtest.OwnerOf("pod-uid")
		owner.ClusterKey = tenant
		tenancy.SetOwner(object, owner)
		return object
	}
	open, err := policy.New("open", &tenancyv1alpha1.TenantPolicySpec{Network: tenancyv1alpha1.NetworkRules{Mode: tenancyv1alpha1.NetworkOpen}})
	require.NoError(t, err)
	publishing, err := policy.New("publishing", &tenancyv1alpha1.TenantPolicySpec{
		Network: tenancyv1alpha1.NetworkRules{Mode: tenancyv1alpha1.NetworkOpen, PoolCIDRs: []string{"10.99.0.0/16"}}, Limits: tenancyv1alpha1.TenantLimits{NodePorts: 1},
	})
	require.NoError(t, err)
	serving, err := policy.New("serving", &tenancyv1alpha1.TenantPolicySpec{
		Network: tenancyv1alpha1.NetworkRules{Mode: tenancyv1alpha1.NetworkOpen}, Traffic: tenancyv1alpha1.TrafficRules{IngressClasses: []string{"public"}},
	})
	require.NoError(t, err)
	classed, err := policy.New("classed", &tenancyv1alpha1.TenantPolicySpec{
		Network: tenancyv1alpha1.NetworkRules{Mode: tenancyv1alpha1.NetworkOpen}, Traffic: tenancyv1alpha1.TrafficRules{IngressClass: "public"},
	})
	require.NoError(t, err)
	balancing, err := policy.New("balancing", &tenancyv1alpha1.TenantPolicySpec{
		Network: tenancyv1alpha1.NetworkRules{Mode: tenancyv1alpha1.NetworkOpen}, Limits: tenancyv1alpha1.TenantLimits{LoadBalancers: 1},
	})
	require.NoError(t, err)
	allowing, err := policy.New("allowing", &tenancyv1alpha1.TenantPolicySpec{Network: tenancyv1alpha1.NetworkRules{
		PoolCIDRs: []string{"10.99.0.0/16"}, AllowedCIDRs: []string{"10.99.1.0/24"},
	}})
	require.NoError(t, err)
	for _, tc := range []struct {
		name    string
		address string
		ports   []int32
		ended   bool
		policy  *policy.Policy
		// refused is whether the endpoint does not go down.
		refused bool
	}{
		{name: "its own pod", address: "10.214.1.2"},
		{name: "its own pod that has ended", address: "10.214.1.3", refused: true},
		{name: "an address of its own pod that was deleted", address: "10.214.1.9", ended: true, refused: true},
		{name: "a pod of another", address: "10.214.1.4", refused: true},
		{name: "a pod with its marks in another namespace", address: "10.214.1.5", refused: true},
		{name: "a pod of another, in the form of IPv6", address: "::ffff:10.214.1.4", refused: true},
		{name: "a node", address: "10.213.0.11", refused: true},
		{name: "the super cluster's API server", address: "10.213.0.2", refused: true},
		{name: "its own API server", address: "10.213.0.1", ports: []int32{6443}},
		{name: "another port of that host", address: "10.213.0.1", ports: []int32{6443, 6444}, refused: true},
		{name: "a metadata address", address: "fd00:ec2::254", refused: true},
		{name: "outside of the pool", address: "192.0.2.1"},
		{name: "loopback", address: "127.0.0.1", refused: true},
		{name: "link-local", address: "fe80::1%eth0", refused: true},
		{name: "multicast", address: "224.0.0.1", refused: true},
		{name: "broadcast", address: "255.255.255.255", refused: true},
		{name: "none", address: "0.0.0.0", refused: true},
		{name: "no address", address: "010.0.0.1", refused: true},
		{name: "the operator's range", address: "10.99.2.1", policy: allowing, refused: true},
		{name: "allowed in the operator's range", address: "10.99.1.1", policy: allowing},
		{name: "a pod of another, open", address: "10.214.1.4", policy: open},
		{name: "a pod of another, open with node ports", address: "10.214.1.4", policy: publishing, refused: true},
		{name: "a node, open with node ports", address: "10.213.0.11", policy: publishing, refused: true},
		{name: "its own pod, open with node ports", address: "10.214.1.2", policy: publishing},
		{name: "a pod in another super cluster, open with node ports", address: "10.99.2.1", policy: publishing},
		{name: "outside of the pool, open with node ports", address: "192.0.2.1", policy: publishing},
		{name: "a pod of another, open with Ingresses", address: "10.214.1.4", policy: serving, refused: true},
		{name: "a pod of another, open with the class of Ingresses", address: "10.214.1.4", policy: classed, refused: true},
		{name: "a pod of another, open with load balancers", address: "10.214.1.4", policy: balancing, refused: true},
		{name: "its own pod, open with Ingresses", address: "10.214.1.2", policy: serving},
		{name: "a Service of another", address: "10.96.0.5", refused: true},
		{name: "its own Service", address: "10.97.0.5"},
		{name: "a Service of another, open", address: "10.96.0.5", policy: open},
		{name: "a Service of another, open with Ingresses", address: "10.96.0.5", policy: serving, refused: true},
		{name: "its own Service, open with Ingresses", address: "10.97.0.5", policy: serving},
		{name: "loopback, open", address: "127.0.0.1", policy: open, refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Tenant.Config, p.Tenant.Policy, p.Env.SuperHost = kindtest.ServerAt("10.213.0.1:6443"), &policy.Ref{}, "https://10.213.0.2:6443"
			if tc.policy != nil {
				p.Tenant.Policy.Set(tc.policy)
			}
			p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
			p.SuperCache[kind.ServiceCIDR] = []client.Object{kindtest.ServiceCIDR("10.96.0.0/15")}
			p.SuperCache[kind.Pod] = []client.Object{
				pod(kindtest.ClusterKey, "10.214.1.2", corev1.PodRunning), pod(kindtest.ClusterKey, "10.214.1.3", corev1.PodSucceeded), pod("another", "10.214.1.4", corev1.PodRunning),
				pod(kindtest.ClusterKey, "10.214.1.5", corev1.PodRunning),
			}
			p.SuperCache[kind.Pod][3].SetNamespace(metav1.NamespaceDefault)
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "slice-uid"}, AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{tc.address}}, {Addresses: []string{"198.51.100.1"}}},
			}
			for _, port := range tc.ports {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Port: ptr.To(port)})
			}
			if tc.ended {
				slice.Endpoints[0].Conditions.Ready = ptr.To(false)
			}
			p.TenantCache[kind.EndpointSlice] = []client.Object{slice}
			untouched := slice.DeepCopy()
			live := &discoveryv1.EndpointSlice{}
			for range 3 {
				_, err := p.Kind(kind.EndpointSlice).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.EndpointSlice, Namespace: "web", Name: "front"}, 0)
				require.NoError(t, err)
				require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, live))
				p.SuperCache[kind.EndpointSlice] = []client.Object{live.DeepCopy()}
			}
			want := []string{tc.address, "198.51.100.1"}
			if tc.refused {
				want = want[1:]
			}
			var got []string
			for _, endpoint := range live.Endpoints {
				got = append(got, endpoint.Addresses...)
			}
			require.Empty(t, cmp.Diff(want, got))
			require.Empty(t, cmp.Diff(untouched, slice), "it lies in a cache")
			if !tc.refused || tc.ended {
				require.Empty(t, p.Events.Events)
				return
			}
			require.NotEmpty(t, p.Events.Events)
			require.Equal(t, "Warning EndpointsForbidden Super cluster r1: addresses "+tc.address+" are the pool's, and no pod of the tenant has them here: their endpoints are left out", <-p.Events.Events)
			require.Empty(t, p.Events.Events)
		})
	}
}

// TestEndpointsByName: no name goes down, in whatever mode, ready or not: ingress controllers resolve them, as those of
// Services of type ExternalName, which do not go down either.
func TestEndpointsByName(t *testing.T) {
	t.Parallel()
	for _, mode := range []tenancyv1alpha1.NetworkMode{tenancyv1alpha1.NetworkIsolated, tenancyv1alpha1.NetworkOpen} {
		p := kindtest.NewPool(t, interceptor.Funcs{})
		rules, err := policy.New("small", &tenancyv1alpha1.TenantPolicySpec{Network: tenancyv1alpha1.NetworkRules{Mode: mode}})
		require.NoError(t, err)
		p.Tenant.Policy = &policy.Ref{}
		p.Tenant.Policy.Set(rules)
		p.TenantCache[kind.EndpointSlice] = []client.Object{&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "slice-uid"}, AddressType: discoveryv1.AddressTypeFQDN,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"metadata.internal"}}, {Addresses: []string{"b.internal"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}},
		}}
		_, err = p.Kind(kind.EndpointSlice).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.EndpointSlice, Namespace: "web", Name: "front"}, 0)
		require.NoError(t, err)
		live := &discoveryv1.EndpointSlice{}
		require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, live))
		require.Empty(t, live.Endpoints)
		p.SuperCache[kind.EndpointSlice] = []client.Object{live}
		_, err = p.Kind(kind.EndpointSlice).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.EndpointSlice, Namespace: "web", Name: "front"}, 0)
		require.NoError(t, err)
		require.NotEmpty(t, p.Events.Events)
		require.Equal(t, "Warning EndpointsForbidden Super cluster r1: names metadata.internal, b.internal may lead anywhere: the endpoints of an EndpointSlice of addressType FQDN are left out",
			<-p.Events.Events)
	}
}

// TestEndpointsOfPodsThatGo: a slice that names an address is looked at again once the tenant's pod has lost it.
func TestEndpointsOfPodsThatGo(t *testing.T) {
	t.Parallel()
	pod := func(phase corev1.PodPhase, ip string) client.Object {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "p"}, Status: corev1.PodStatus{Phase: phase, PodIP: ip}}
		tenancy.SetOwner(object, kindtest.OwnerOf("pod-uid"))
		return object
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.214.1.2"}}},
	}
	tenancy.SetOwner(slice, kindtest.OwnerOf("slice-uid"))
	for _, tc := range []struct {
		name     string
		old, new client.Object
		want     bool
	}{
		{name: "it runs", old: pod(corev1.PodRunning, "10.214.1.2"), new: pod(corev1.PodRunning, "10.214.1.2")},
		{name: "it is new", new: pod(corev1.PodRunning, "10.214.1.2")},
		{name: "it is gone", old: pod(corev1.PodRunning, "10.214.1.2"), want: true},
		{name: "it has ended", old: pod(corev1.PodRunning, "10.214.1.2"), new: pod(corev1.PodFailed, "10.214.1.2"), want: true},
		{name: "one with another address is gone", old: pod(corev1.PodRunning, "10.214.1.7")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.SuperCache[kind.EndpointSlice] = []client.Object{slice}
			var got []engine.Key
			for _, key := range p.Env.Changed(kind.Change{Kind: kind.Pod, Side: kind.SuperSide, Old: tc.old, Current: tc.new}) {
				if key.Kind == kind.EndpointSlice {
					got = append(got, key)
				}
			}
			var want []engine.Key
			if tc.want {
				want = []engine.Key{{Tenant: kindtest.ClusterKey, Kind: kind.EndpointSlice, Namespace: "web", Name: "front"}}
			}
			require.Empty(t, cmp.Diff(want, got))
		})
	}
}

// TestEndpointsOfATooLargeSlice: an EndpointSlice that is not let in any more keeps what is there, but for addresses
// that are no longer the tenant's: the pod that gets one next is somebody else's.
func TestEndpointsOfATooLargeSlice(t *testing.T) {
	t.Parallel()
	for name, grow := range map[string]func(t *testing.T, p *kindtest.Pool, slice *discoveryv1.EndpointSlice){
		"it holds too much": func(_ *testing.T, _ *kindtest.Pool, slice *discoveryv1.EndpointSlice) {
			slice.Labels = map[string]string{}
			for i := range 6000 {
				slice.Labels[fmt.Sprintf("key-%d", i)] = "value"
			}
		},
		"there is no room": func(t *testing.T, p *kindtest.Pool, slice *discoveryv1.EndpointSlice) {
			t.Helper()
			p.Tenant.Policy = &policy.Ref{}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "endpointslices", Count: 10, Bytes: resource.MustParse("1Ki")}}
			}))
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"192.0.2.9"}, Hostname: ptr.To(strings.Repeat("x", 2000))})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.SuperCache[kind.Node] = []client.Object{kindtest.NodeAt("10.213.0.11", "10.214.1.0/24")}
			p.SuperCache[kind.Pod] = []client.Object{kindtest.SuperPodAt("web", "a", "10.214.1.7", 1, nil), kindtest.SuperPodAt("web", "b", "10.214.1.8", 1, nil)}
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "slice-uid"}, AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.214.1.7"}}, {Addresses: []string{"10.214.1.8"}}},
			}
			p.TenantCache[kind.EndpointSlice] = []client.Object{slice}
			addresses := func() (found []string) {
				t.Helper()
				_, err := p.Kind(kind.EndpointSlice).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.EndpointSlice, Namespace: "web", Name: "front"}, 0)
				require.NoError(t, err)
				live := &discoveryv1.EndpointSlice{}
				require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, live))
				p.SuperCache[kind.EndpointSlice] = []client.Object{live}
				for _, endpoint := range live.Endpoints {
					found = append(found, endpoint.Addresses...)
				}
				return found
			}
			require.Equal(t, []string{"10.214.1.7", "10.214.1.8"}, addresses())
			grow(t, p, slice)
			require.Equal(t, []string{"10.214.1.7", "10.214.1.8"}, addresses())
			p.SuperCache[kind.Pod] = p.SuperCache[kind.Pod][1:]
			require.Equal(t, []string{"10.214.1.8"}, addresses())
		})
	}
}
