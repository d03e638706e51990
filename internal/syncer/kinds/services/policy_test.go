package services_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestForbiddenService lets a tenant ask for a node port, until the policy allows one.
func TestForbiddenService(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web", UID: "uid"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.97.0.5", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}},
	}
	p.TenantCache[kind.Service] = []client.Object{service}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Service, Namespace: "web", Name: "web"}
	live := &corev1.Service{}
	reconcile := func() error {
		_, err := p.Kind(kind.Service).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		return p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "web"}, live)
	}
	require.NoError(t, reconcile())
	require.Equal(t, corev1.ServiceTypeClusterIP, live.Spec.Type, "pods reach it without one")
	require.Equal(t, []string{"Warning PolicyForbids Super cluster r1: TenantPolicy default forbids: spec.type: type NodePort of 1 ports is not allowed: limits.nodePorts is 0"}, p.Told())
	p.SuperCache[kind.Service] = []client.Object{live.DeepCopy()}
	service.Spec.Ports[0].Port = 81
	require.NoError(t, reconcile())
	require.Equal(t, corev1.ServiceTypeClusterIP, live.Spec.Type)
	require.Equal(t, int32(81), live.Spec.Ports[0].Port)
	require.Empty(t, p.Told(), "it was said")
	p.SuperCache[kind.Service] = []client.Object{live.DeepCopy()}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.NodePorts = 1 }))
	require.NoError(t, reconcile())
	require.Equal(t, corev1.ServiceTypeNodePort, live.Spec.Type)
	require.Zero(t, live.Spec.Ports[0].NodePort, "the super cluster chooses it")
	p.SuperCache[kind.Service] = []client.Object{live.DeepCopy()}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.NodePorts = 0 }))
	service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "more", Port: 82})
	require.NoError(t, reconcile())
	require.Equal(t, corev1.ServiceTypeNodePort, live.Spec.Type, "what was let in stays as it is")
	require.Len(t, live.Spec.Ports, 1)
}

// TestNodePortRange lets a tenant with node ports of its own use one, and then that of another tenant.
func TestNodePortRange(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	p.Tenant.NodePorts = utilnet.PortRange{Base: 30000, Size: 100}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.NodePorts = 1 }))
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web", UID: "uid"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.97.0.5", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	p.TenantCache[kind.Service] = []client.Object{service}
	for _, tc := range []struct{ port, want int32 }{{port: 30100}, {port: 30099, want: 30099}, {port: 29999, want: 30099}, {port: 30000, want: 30000}} {
		service.Spec.Ports[0].NodePort = tc.port
		_, err := p.Kind(kind.Service).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Service, Namespace: "web", Name: "web"}, 0)
		require.NoError(t, err)
		live := &corev1.Service{}
		require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "web"}, live))
		require.Equal(t, tc.want, live.Spec.Ports[0].NodePort)
		p.SuperCache[kind.Service] = []client.Object{live}
		told := p.Told()
		require.Equal(t, tc.want != tc.port, len(told) == 1, "%v", told)
		for _, event := range told {
			require.Equal(t, fmt.Sprintf("Warning NodePortOutOfRange Super cluster r1: node port %d is not in spec.serviceNodePortRange of the VirtualCluster, 30000-30099: choose one in it, or none", tc.port), event)
		}
	}
}

// TestExternalIPsLeftOut: a Service is there without external IPs, and says so.
func TestExternalIPsLeftOut(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	service := kindtest.ServiceAt("web", "front", corev1.ClusterIPNone, corev1.ServicePort{Port: 80})
	service.UID, service.Spec.ExternalIPs = "service-uid", []string{"8.8.8.8"}
	p.TenantCache[kind.Service] = []client.Object{service}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Service, Namespace: "web", Name: "front"}
	for range 2 { // it is created, and found in sync
		_, err := p.Kind(kind.Service).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		superService := &corev1.Service{}
		require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "front"}, superService))
		require.Empty(t, superService.Spec.ExternalIPs)
		superService.UID = "super-uid"
		p.SuperCache[kind.Service] = []client.Object{superService}
	}
	require.Contains(t, p.Told(), `Warning ExternalIPsLeftOut Super cluster r1: the Service is there without spec.externalIPs, as "8.8.8.8": `+
		"use type LoadBalancer, or an Ingress, where the TenantPolicy allows one")
}
