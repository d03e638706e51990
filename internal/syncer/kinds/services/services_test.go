package services_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/services"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestSuperService(t *testing.T) {
	t.Parallel()
	port := func(number, nodePort int32) corev1.ServicePort {
		return corev1.ServicePort{Port: number, Protocol: corev1.ProtocolTCP, NodePort: nodePort}
	}
	local := func(healthCheck int32) corev1.ServiceSpec {
		return corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: healthCheck,
		}
	}
	for _, tc := range []struct {
		name                string
		ranges              []string
		nodePorts           utilnet.PortRange
		tenant, there, want corev1.ServiceSpec
	}{
		{
			name:   "one in the tenant's ranges has the same addresses everywhere",
			ranges: []string{"10.97.0.0/16", "fd00:97::/112"},
			tenant: corev1.ServiceSpec{
				ClusterIP: "fd00:97::1", ClusterIPs: []string{"fd00:97::1", "10.97.0.1"}, IPFamilies: []corev1.IPFamily{"IPv6", "IPv4"},
				IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack), Selector: map[string]string{"app": "web"},
			},
			want: corev1.ServiceSpec{
				ClusterIP: "fd00:97::1", ClusterIPs: []string{"fd00:97::1", "10.97.0.1"}, IPFamilies: []corev1.IPFamily{"IPv6", "IPv4"},
				IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			},
		},
		{
			name:   "an address outside of the ranges is not asked for",
			ranges: []string{"10.97.0.0/16"},
			tenant: corev1.ServiceSpec{ClusterIP: "10.97.0.1", ClusterIPs: []string{"10.97.0.1", "fd00:97::1"}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack)},
			want: corev1.ServiceSpec{
				ClusterIP: "10.97.0.1", ClusterIPs: []string{"10.97.0.1"}, IPFamilies: []corev1.IPFamily{"IPv4"}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			},
		},
		{
			name:   "another tenant's address is not asked for",
			ranges: []string{"10.97.0.0/16"},
			tenant: corev1.ServiceSpec{ClusterIP: "10.98.0.1", ClusterIPs: []string{"10.98.0.1", "10.97.0.1"}},
			want:   corev1.ServiceSpec{},
		},
		{
			name:   "no address at all",
			ranges: []string{"10.97.0.0/16"},
			tenant: corev1.ServiceSpec{ClusterIP: "10.97.0.300"},
			want:   corev1.ServiceSpec{},
		},
		{
			name: "a new one gets its addresses from the super cluster",
			tenant: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.1.0.1", ClusterIPs: []string{"10.1.0.1"}, IPFamilies: []corev1.IPFamily{"IPv4"},
				Ports: []corev1.ServicePort{port(80, 30001)}, HealthCheckNodePort: 30002, ExternalIPs: []string{"8.8.8.8"}, Selector: map[string]string{"app": "web"},
			},
			want: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{port(80, 0)}},
		},
		{
			name:   "without its external IPs nothing is left of how they are routed",
			tenant: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ExternalIPs: []string{"8.8.8.8"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster},
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
		},
		{
			name:   "a headless one stays headless",
			tenant: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}},
			want:   corev1.ServiceSpec{ClusterIP: "None"},
		},
		{
			name: "an existing one keeps what it was given",
			tenant: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: "10.1.0.1", Ports: []corev1.ServicePort{port(80, 30001), port(81, 30002)},
			},
			there: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: "10.2.0.1", ClusterIPs: []string{"10.2.0.1"}, Ports: []corev1.ServicePort{port(80, 31000)},
			},
			want: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: "10.2.0.1", ClusterIPs: []string{"10.2.0.1"}, Ports: []corev1.ServicePort{port(80, 31000), port(81, 0)},
			},
		},
		{
			name: "one of a tenant with node ports has the tenant's", nodePorts: utilnet.PortRange{Base: 30000, Size: 10},
			tenant: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{port(80, 30001), port(81, 30002), port(82, 0)}},
			there:  corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{port(80, 31000), port(82, 31002)}},
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{port(80, 30001), port(81, 30002), port(82, 0)}},
		},
		{
			name: "its health check node port is the tenant's", nodePorts: utilnet.PortRange{Base: 30000, Size: 10},
			tenant: local(30002), want: local(30002),
		},
		{
			name: "one that it has already stays", nodePorts: utilnet.PortRange{Base: 30000, Size: 10},
			tenant: local(30002), there: local(31002), want: local(31002),
		},
		{
			name: "one outside of the range is not asked for", nodePorts: utilnet.PortRange{Base: 30000, Size: 10},
			tenant: local(30010), want: local(0),
		},
		{
			name: "without node ports in the tenant it has none", nodePorts: utilnet.PortRange{Base: 30000, Size: 10},
			tenant: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{port(80, 0)}},
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{port(80, 0)}},
		},
		{
			name:   "a load balancer that got a class in the super cluster",
			tenant: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{port(80, 0)}},
			there:  corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("service.k8s.aws/nlb"), Ports: []corev1.ServicePort{port(80, 0)}},
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("service.k8s.aws/nlb"), Ports: []corev1.ServicePort{port(80, 0)}},
		},
		{
			name:   "a load balancer no more",
			tenant: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{port(80, 0)}},
			there:  corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("service.k8s.aws/nlb"), Ports: []corev1.ServicePort{port(80, 0)}},
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{port(80, 0)}},
		},
		{
			name:   "one that becomes internal gives node ports back",
			tenant: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.1.0.1", Ports: []corev1.ServicePort{port(80, 0)}},
			there:  corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.2.0.1", Ports: []corev1.ServicePort{port(80, 31000)}},
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.2.0.1", Ports: []corev1.ServicePort{port(80, 0)}},
		},
		{
			name:   "one that becomes a name gives its address back",
			tenant: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
			there:  corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.2.0.1"},
			want:   corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := &corev1.Service{Spec: tc.there}
			var ranges []netip.Prefix
			for _, text := range tc.ranges {
				ranges = append(ranges, netip.MustParsePrefix(text))
			}
			from := &corev1.Service{Spec: tc.tenant}
			untouched := from.DeepCopy()
			services.SuperService(from, got, ranges, tc.nodePorts)
			require.Empty(t, cmp.Diff(untouched, from), "the tenant's Service lies in a cache")
			require.Empty(t, cmp.Diff(tc.want, got.Spec))
		})
	}
}

// FuzzSuperService lets a tenant write anything: an address that is asked for is always in its ranges, and nothing is
// selected.
func FuzzSuperService(f *testing.F) {
	f.Add(`{"spec":{"clusterIP":"10.97.0.1"}}`, `{}`)
	f.Add(`{"spec":{"clusterIP":"10.98.0.1","clusterIPs":["10.97.0.1"],"type":"LoadBalancer","ports":[{"nodePort":1}]}}`, `{"spec":{"ports":[{}]}}`)
	f.Add(`{"spec":{"clusterIP":"None","type":"ExternalName"}}`, `{"spec":{"clusterIP":"10.96.0.9"}}`)
	ranges := []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	f.Fuzz(func(t *testing.T, tenantText, superText string) {
		tenantService, superService := &corev1.Service{}, &corev1.Service{}
		if json.Unmarshal([]byte(tenantText), tenantService) != nil || json.Unmarshal([]byte(superText), superService) != nil {
			return
		}
		given := superService.DeepCopy()
		services.SuperService(tenantService, superService, ranges, utilnet.PortRange{})
		require.Empty(t, superService.Spec.Selector)
		require.Empty(t, superService.Spec.ExternalIPs)
		if ip := superService.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone && ip != given.Spec.ClusterIP {
			require.True(t, ranges[0].Contains(netip.MustParseAddr(ip)), ip)
		}
		again := superService.DeepCopy()
		services.SuperService(tenantService, again, ranges, utilnet.PortRange{})
		require.Empty(t, cmp.Diff(superService, again), "a second translation differs")
	})
}

func TestSuperEndpointSlice(t *testing.T) {
	t.Parallel()
	conditions := discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	hints := func(node string) *discoveryv1.EndpointHints {
		return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}, ForNodes: []discoveryv1.ForNode{{Name: node}}}
	}
	from := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", corev1.IsHeadlessService: "",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
		Endpoints: []discoveryv1.Endpoint{
			{
				Addresses: []string{"10.1.0.1"}, Conditions: conditions, Hostname: ptr.To("web-0"), NodeName: ptr.To("r1.node.with.dots"), Zone: ptr.To("z"),
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "other"}, Hints: hints("r1.node.with.dots"),
				DeprecatedTopology: map[string]string{"a": "b"},
			},
			{Addresses: []string{"10.1.0.2"}, NodeName: ptr.To("r2.node"), Hints: hints("r2.node")},
			{Addresses: []string{"10.1.0.3"}, NodeName: ptr.To("node")},
			{Addresses: []string{"10.1.0.4"}},
		},
	}
	untouched := from.DeepCopy()
	got := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kept": "1"}}, Endpoints: []discoveryv1.Endpoint{{}}}
	services.SuperEndpointSlice(from, got, "r1")
	require.Empty(t, cmp.Diff(untouched, from), "the tenant's slice lies in a cache")
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "syncer.tenancy.x-k8s.io", corev1.IsHeadlessService: "", "kept": "1",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
		Endpoints: []discoveryv1.Endpoint{
			{
				Addresses: []string{"10.1.0.1"}, Conditions: conditions, Hostname: ptr.To("web-0"), NodeName: ptr.To("node.with.dots"), Zone: ptr.To("z"),
				Hints: hints("node.with.dots"),
			},
			{Addresses: []string{"10.1.0.2"}, Hints: hints("r2.node")},
			{Addresses: []string{"10.1.0.3"}},
			{Addresses: []string{"10.1.0.4"}},
		},
	}
	require.Empty(t, cmp.Diff(want, got))
}

// TestSharedLimits lets a tenant have Services of several namespaces that are reached from outside, before the cache of
// the super cluster shows any.
func TestSharedLimits(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.NodePorts, spec.Limits.LoadBalancers = 4, 1
	}))
	reconciler := p.Kind(kind.Service)
	builder := builders.Client(kindtest.PlacementScheme(t))
	p.TenantCache[kind.Namespace], p.SuperCache[kind.Namespace], p.SuperCache[kind.Quota] = nil, nil, nil
	add := func(namespace string, service corev1.ServiceType) {
		uid := types.UID("uid-" + namespace)
		made := kindtest.ServiceAt(namespace, "front", "", corev1.ServicePort{Port: 80}, corev1.ServicePort{Port: 443})
		made.UID, made.Spec.Type = "service-"+uid, service
		owner := kindtest.OwnerOf(uid)
		owner.Namespace = namespace
		for kind, object := range map[string]client.Object{kind.Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, UID: uid}}, kind.Service: made} {
			p.TenantCache[kind] = append(p.TenantCache[kind], object)
		}
		p.SuperCache[kind.Namespace] = append(p.SuperCache[kind.Namespace], builders.Owned(builders.Namespace(kindtest.ClusterKey+"-"+namespace), owner))
		p.SuperCache[kind.Quota] = append(p.SuperCache[kind.Quota], builders.Owned(builders.Quota(kindtest.ClusterKey+"-"+namespace, "superpool"), owner))
		builder.WithObjects(builders.Placement(kindtest.ClusterKey, namespace).NamespaceUID(uid).Held("r1", 1).Home("r1").Obj())
	}
	add("a", corev1.ServiceTypeLoadBalancer)
	add("b", corev1.ServiceTypeNodePort)
	add("c", corev1.ServiceTypeNodePort)
	add("d", corev1.ServiceTypeLoadBalancer)
	add("e", corev1.ServiceTypeClusterIP)
	meta := builder.Build()
	p.Assigns(meta, meta)
	reconcile := func(namespace string) {
		t.Helper()
		_, err := reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Service, Namespace: namespace, Name: "front"}, 0)
		require.NoError(t, err)
	}
	there := func() (published []string, objects []corev1.Service) {
		t.Helper()
		list := &corev1.ServiceList{}
		require.NoError(t, p.SuperClient.List(t.Context(), list))
		for i := range list.Items {
			if service := &list.Items[i]; service.Spec.Type != corev1.ServiceTypeClusterIP {
				published = append(published, strings.TrimPrefix(service.Namespace, kindtest.ClusterKey+"-"))
			}
		}
		require.Len(t, list.Items, 5, "pods reach all of them")
		return published, list.Items
	}
	for _, namespace := range []string{"a", "b", "c", "d", "e"} {
		reconcile(namespace)
	}
	namespaces, objects := there()
	require.Equal(t, []string{"a", "b"}, namespaces)
	require.Contains(t, <-p.Events.Events, "TenantLimit Super cluster r1: 4 node ports exist, this Service adds 2, and at most 4 are allowed (limits.nodePorts of TenantPolicy small)")
	require.Contains(t, <-p.Events.Events, "TenantLimit Super cluster r1: ")

	for i := range objects {
		p.SuperCache[kind.Service] = append(p.SuperCache[kind.Service], &objects[i])
		p.Env.Changed(kind.Change{Kind: kind.Service, Side: kind.SuperSide, Current: &objects[i]})
	}
	for _, namespace := range []string{"c", "d"} {
		reconcile(namespace)
	}
	namespaces, _ = there()
	require.Equal(t, []string{"a", "b"}, namespaces, "the cache shows them now")

	woken := p.Env.Changed(kind.Change{Kind: kind.Service, Side: kind.SuperSide, Old: &objects[0]})
	require.Greater(t, len(woken), 1)
	for _, key := range woken {
		require.Equal(t, kind.Service, key.Kind)
	}
	reconcile("d")
	namespaces, _ = there()
	require.Equal(t, []string{"a", "b", "d"}, namespaces)
}

// TestAddressThatIsTaken lets an API server refuse a Service for its address, as it does when the Service itself has it
// already.
func TestAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "front", field.ErrorList{
		field.Invalid(field.NewPath("spec", "clusterIPs"), []string{"10.97.0.7"}, "provided IP is already allocated"),
	})
	tenantService := kindtest.ServiceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	tenantService.UID = "service-uid"
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Service, Namespace: "web", Name: "front"}
	for _, tc := range []struct {
		name string
		// mine: whether the Service is there.
		mine      bool
		wantEvent string
	}{
		{name: "by itself", mine: true},
		{
			name: "by another",
			wantEvent: "Warning FailedCreate Super cluster r1: cluster IP 10.97.0.7 is not available: the super cluster's --service-cluster-ip-range must contain it, " +
				"and no other Service may have it",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if tc.mine {
					object.SetUID("super-uid")
					if err := to.Create(ctx, object, options...); err != nil {
						return err
					}
				}
				return taken
			}})
			p.TenantCache[kind.Service] = []client.Object{tenantService}
			_, err := p.Kind(kind.Service).Reconcile(t.Context(), key, 0)
			require.Equal(t, tc.mine, err == nil, "%v", err)
			if tc.wantEvent == "" {
				require.Empty(t, p.Events.Events)
				return
			}
			require.Equal(t, tc.wantEvent, <-p.Events.Events)
		})
	}
}
