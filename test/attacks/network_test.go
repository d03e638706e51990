//go:build attacks

package attacks_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// isolationFloor is the NetworkPolicy of ours that selects all pods and allows nothing.
const isolationFloor = "superpool-isolation"

// TestNetwork: what would open a way to others, or take their addresses.
//
//nolint:gocyclo // one attack after the other, with its twin
func TestNetwork(t *testing.T) {
	p := connect(t)
	namespace := p.attacker.arena(t, "network")
	super := p.super(t, "r1")
	superNamespace := p.attacker.superNamespace(namespace)
	service := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	}
	attack(t, "node-ports", beside, func(t *testing.T) {
		for name, tc := range map[string]struct {
			kind corev1.ServiceType
			text string
		}{
			"node-port":     {corev1.ServiceTypeNodePort, "nodeports"},
			"load-balancer": {corev1.ServiceTypeLoadBalancer, "loadbalancers"},
		} {
			object := service(name, corev1.ServiceSpec{Type: tc.kind})
			p.attacker.create(t, object)
			p.attacker.told(t, object, []string{policyForbids, tenantLimit, "FailedCreate"}, tc.text)
			inner := appears(t, super, superNamespace, name, &corev1.Service{}, nil)
			require.Equal(t, corev1.ServiceTypeClusterIP, inner.Spec.Type, name)
			require.Zero(t, inner.Spec.Ports[0].NodePort, name)
		}
		diverts := service("external-ips", corev1.ServiceSpec{ExternalIPs: []string{"198.51.100.1"}})
		p.attacker.create(t, diverts)
		require.Empty(t, appears(t, super, superNamespace, diverts.Name, &corev1.Service{}, nil).Spec.ExternalIPs)
	}, func(t *testing.T) {
		object := service("cluster-ip", corev1.ServiceSpec{})
		p.attacker.create(t, object)
		require.Equal(t, int32(80), appears(t, super, superNamespace, object.Name, &corev1.Service{}, nil).Spec.Ports[0].Port)
	})
	attack(t, "later-node-port", beside, func(t *testing.T) {
		object := service("later", corev1.ServiceSpec{})
		p.attacker.create(t, object)
		appears(t, super, superNamespace, object.Name, &corev1.Service{}, nil)
		change(t, p.attacker.cluster, object, func(service *corev1.Service) { service.Spec.Type = corev1.ServiceTypeNodePort })
		p.attacker.told(t, object, []string{policyForbids, tenantLimit, "FailedUpdate"}, "nodeports")
		require.Equal(t, corev1.ServiceTypeClusterIP, appears(t, super, superNamespace, object.Name, &corev1.Service{}, nil).Spec.Type)
	}, func(t *testing.T) {
		object := service("later-port", corev1.ServiceSpec{})
		p.attacker.create(t, object)
		appears(t, super, superNamespace, object.Name, &corev1.Service{}, nil)
		change(t, p.attacker.cluster, object, func(service *corev1.Service) { service.Spec.Ports[0].Port = 81 })
		appears(t, super, superNamespace, object.Name, &corev1.Service{}, func(copied *corev1.Service) bool { return copied.Spec.Ports[0].Port == 81 })
	})
	slice := func(name string, family discoveryv1.AddressType, addresses ...string) *discoveryv1.EndpointSlice {
		object := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: family, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
		}
		for _, address := range addresses {
			object.Endpoints = append(object.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
		}
		return object
	}
	endpoints := func(t *testing.T, object *discoveryv1.EndpointSlice) []string {
		t.Helper()
		p.attacker.create(t, object)
		var addresses []string
		for _, endpoint := range appears(t, super, superNamespace, object.Name, &discoveryv1.EndpointSlice{}, nil).Endpoints {
			addresses = append(addresses, endpoint.Addresses...)
		}
		return addresses
	}
	attack(t, "endpoints", beside, func(t *testing.T) {
		others := p.neighbour.place(t, "endpoints", `{"cpu":"100m","memory":"100Mi"}`, hard("requests.cpu", "200m", "requests.memory", "200Mi", "pods", "2"))
		otherPod, _ := p.neighbour.runs(t, choose(newPod(t, others, "p", ""), "r1"))
		var servers discoveryv1.EndpointSliceList
		require.NoError(t, super.List(t.Context(), &servers, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}))
		for name, tc := range map[string]struct {
			family  discoveryv1.AddressType
			address string
		}{
			"metadata":   {discoveryv1.AddressTypeIPv6, "fd00:ec2::254"},
			"api-server": {discoveryv1.AddressTypeIPv4, servers.Items[0].Endpoints[0].Addresses[0]},
			"other-pod":  {discoveryv1.AddressTypeIPv4, otherPod.Status.PodIP},
			"pool":       {discoveryv1.AddressTypeIPv4, "10.200.0.1"},
		} {
			object := slice(name, tc.family, tc.address)
			require.Empty(t, endpoints(t, object), name)
			p.attacker.told(t, object, []string{"EndpointsForbidden"}, tc.address)
		}
	}, func(t *testing.T) {
		superPod, _ := p.attacker.runs(t, choose(newPod(t, namespace, "endpoint", ""), super.name))
		require.ElementsMatch(t, []string{superPod.Status.PodIP, "198.51.100.7"}, endpoints(t, slice("own", discoveryv1.AddressTypeIPv4, superPod.Status.PodIP, "198.51.100.7")))
	})
	attack(t, "service-ranges", beside, func(t *testing.T) {
		// Where poolCIDRs do not name it.
		const address = "203.0.113.5"
		super.create(t, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"203.0.113.0/24"}}})
		object := slice("service-of-others", discoveryv1.AddressTypeIPv4, address)
		p.attacker.create(t, object)
		p.attacker.told(t, object, []string{"EndpointsForbidden"}, address)
		appears(t, super, superNamespace, object.Name, &discoveryv1.EndpointSlice{}, func(copied *discoveryv1.EndpointSlice) bool { return len(copied.Endpoints) == 0 })
	}, func(t *testing.T) {
		require.Equal(t, []string{"198.51.100.9"}, endpoints(t, slice("outside-the-pool", discoveryv1.AddressTypeIPv4, "198.51.100.9")))
	})
	egress := func(name, cidr string) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"none": "selected"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}}}},
		}}
	}
	blocks := func(spec *networkingv1.NetworkPolicySpec) []string {
		var found []string
		for _, rule := range spec.Egress {
			for _, peer := range rule.To {
				if peer.IPBlock != nil {
					found = append(found, peer.IPBlock.CIDR)
				}
			}
		}
		return found
	}
	attack(t, "ip-blocks", beside, func(t *testing.T) {
		policy := egress("pool", "10.1.0.0/16")
		p.attacker.create(t, policy)
		p.attacker.told(t, policy, []string{"NetworkPolicyNarrowed"}, "10.1.0.0/16")
		require.Empty(t, blocks(&appears(t, super, superNamespace, policy.Name, &networkingv1.NetworkPolicy{}, nil).Spec))
		all := egress("everything", "0.0.0.0/0")
		p.attacker.create(t, all)
		found := 0
		for _, rule := range appears(t, super, superNamespace, all.Name, &networkingv1.NetworkPolicy{}, nil).Spec.Egress {
			for _, peer := range rule.To {
				if peer.IPBlock != nil && peer.IPBlock.CIDR == "0.0.0.0/0" {
					found++
					require.Contains(t, peer.IPBlock.Except, "10.0.0.0/8")
				}
			}
		}
		require.Positive(t, found)
	}, func(t *testing.T) {
		policy := egress("outside", "198.51.100.0/24")
		p.attacker.create(t, policy)
		require.Equal(t, []string{"198.51.100.0/24"}, blocks(&appears(t, super, superNamespace, policy.Name, &networkingv1.NetworkPolicy{}, nil).Spec))
	})
	attack(t, "isolation-late", beside, func(t *testing.T) {
		pods, err := super.Watch(t.Context(), &corev1.PodList{})
		require.NoError(t, err)
		defer pods.Stop()
		early := p.attacker.reserve(t, "early", `{"cpu":"50m","memory":"100Mi"}`, hard("requests.cpu", "100m", "requests.memory", "200Mi", "pods", "4"))
		for _, name := range []string{"a", "b", "c"} {
			p.attacker.create(t, choose(newPod(t, early, name, ""), super.name))
		}
		created := createdIn(t, pods, p.attacker.superNamespace(early))
		// The policies as they were when the pod came into being.
		var then networkingv1.NetworkPolicyList
		require.NoError(t, super.List(t.Context(), &then, client.InNamespace(created.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{
			ResourceVersion: created.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		}}))
		isFloor(t, then.Items)
	}, func(t *testing.T) {
		var now networkingv1.NetworkPolicyList
		require.NoError(t, super.List(t.Context(), &now, client.InNamespace(superNamespace)))
		isFloor(t, now.Items)
		own := 0
		for i := range now.Items {
			for _, rule := range now.Items[i].Spec.Ingress {
				for _, peer := range rule.From {
					if peer.NamespaceSelector != nil && peer.NamespaceSelector.MatchLabels["tenancy.x-k8s.io/cluster"] == p.attacker.key {
						own++
					}
				}
			}
		}
		require.Positive(t, own, "the tenant's pods reach each other")
	})
	attack(t, "isolation-name", beside, func(t *testing.T) {
		forged := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: isolationFloor}, Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{}}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
		}}
		p.attacker.create(t, forged)
		p.attacker.told(t, forged, nil)
		var now networkingv1.NetworkPolicyList
		require.NoError(t, super.List(t.Context(), &now, client.InNamespace(superNamespace)))
		isFloor(t, now.Items)
		require.NoError(t, p.attacker.Delete(t.Context(), forged))
	}, func(t *testing.T) {
		policy := egress("other-name", "198.51.100.0/24")
		p.attacker.create(t, policy)
		appears(t, super, superNamespace, policy.Name, &networkingv1.NetworkPolicy{}, nil)
	})
}

// isFloor fails if the floor of the isolation is not among policies, or allows anything.
func isFloor(t *testing.T, policies []networkingv1.NetworkPolicy) {
	t.Helper()
	for i := range policies {
		if policies[i].Name == isolationFloor {
			require.Equal(t, networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			}, policies[i].Spec)
			return
		}
	}
	require.Fail(t, "there is no floor", "%v", policies)
}

// createdIn returns the first pod in a namespace as it was created.
func createdIn(t *testing.T, pods watch.Interface, namespace string) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		select {
		case event, open := <-pods.ResultChan():
			require.True(t, open, "the watch has ended")
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added && pod.Namespace == namespace {
				return pod
			}
		case <-ctx.Done():
			require.Fail(t, "no pod was created", namespace)
		}
	}
}
