//go:build !race

package kinds_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/internal/syncpolicy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// mostComputed is how long a reconcile of an object of at most largest bytes may compute. The race detector takes ten
// times that, and its memory: without it test-unit runs this test by itself.
const mostComputed = 50 * time.Millisecond

// shape is an object of a kind that has as much of something as an API server takes.
type shape struct {
	kind, name string
	// make returns it with at most so many entries.
	make func(most int) client.Object
}

// filled returns the object with as many as an API server takes.
func filled[T interface {
	client.Object
	Size() int
}](with func(n int) T) func(most int) client.Object {
	return func(most int) client.Object {
		const few = 1_000
		n := min(few*kindtest.Largest/with(few).Size(), most)
		for {
			object := with(n)
			if object.Size() <= kindtest.Largest {
				return object
			}
			n = n * 97 / 100
		}
	}
}

func just[T client.Object](object T) func(int) client.Object {
	return func(int) client.Object { return object.DeepCopyObject().(client.Object) }
}

// shortTexts are n short texts, and keyed n short keys with a value.
func shortTexts(n int) []string {
	return kindtest.List(n, func(i int) string { return fmt.Sprint("t", i) })
}

func keyed[T any](n int, value T) map[string]T {
	all := make(map[string]T, n)
	for i := range n {
		all[fmt.Sprint("k", i)] = value
	}
	return all
}

func expressions(n int) []metav1.LabelSelectorRequirement {
	return kindtest.List(n, func(i int) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpExists}
	})
}

func shapesOfConfigs() []shape {
	large := strings.Repeat("x", kindtest.Largest-100)
	return []shape{
		{kind.ServiceAccount, "image pull secrets", filled(func(n int) *corev1.ServiceAccount {
			return &corev1.ServiceAccount{ImagePullSecrets: kindtest.List(n, func(int) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: "s"} })}
		})},
		{kind.ServiceAccount, "secrets", filled(func(n int) *corev1.ServiceAccount {
			return &corev1.ServiceAccount{Secrets: make([]corev1.ObjectReference, n)}
		})},
		{kind.Secret, "keys", filled(func(n int) *corev1.Secret { return &corev1.Secret{Data: keyed(n, []byte(nil))} })},
		{kind.Secret, "large", just(&corev1.Secret{Data: map[string][]byte{"a": []byte(large)}})},
		{kind.ConfigMap, "keys", filled(func(n int) *corev1.ConfigMap { return &corev1.ConfigMap{Data: keyed(n, "")} })},
		{kind.ConfigMap, "binary keys", filled(func(n int) *corev1.ConfigMap { return &corev1.ConfigMap{BinaryData: keyed(n, []byte("a"))} })},
		{kind.ConfigMap, "large", just(&corev1.ConfigMap{Data: map[string]string{"a": large}})},
	}
}

func shapesOfServices() []shape {
	service := func(change func(spec *corev1.ServiceSpec, n int)) func(int) client.Object {
		return filled(func(n int) *corev1.Service {
			made := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.7", Ports: []corev1.ServicePort{{Port: 80}}}}
			change(&made.Spec, n)
			return made
		})
	}
	ports := func(n int) []corev1.ServicePort {
		return kindtest.List(n, func(i int) corev1.ServicePort {
			return corev1.ServicePort{Port: int32(1 + i%65_535), Protocol: [...]corev1.Protocol{"TCP", "UDP", "SCTP"}[i%3]}
		})
	}
	slice := func(with func(n int) discoveryv1.EndpointSlice) func(int) client.Object {
		return filled(func(n int) *discoveryv1.EndpointSlice {
			made := with(n)
			if made.AddressType == "" {
				made.AddressType = discoveryv1.AddressTypeIPv4
			}
			return &made
		})
	}
	addresses := func(n int) []string {
		return kindtest.List(n, func(i int) string { return fmt.Sprintf("10.%d.%d.1", i/250%250, i%250) })
	}
	return []shape{
		{kind.Service, "ports", service(func(spec *corev1.ServiceSpec, n int) { spec.Ports = ports(n) })},
		{kind.Service, "ports of a load balancer", service(func(spec *corev1.ServiceSpec, n int) {
			spec.Type, spec.AllocateLoadBalancerNodePorts, spec.Ports = corev1.ServiceTypeLoadBalancer, ptr.To(false), ports(n)
		})},
		{kind.Service, "source ranges", service(func(spec *corev1.ServiceSpec, n int) { spec.LoadBalancerSourceRanges = shortTexts(n) })},
		{kind.Service, "external IPs", service(func(spec *corev1.ServiceSpec, n int) { spec.ExternalIPs = shortTexts(n) })},
		{kind.Service, "cluster IPs", service(func(spec *corev1.ServiceSpec, n int) { spec.ClusterIPs = addresses(n) })},
		{kind.Service, "selector", service(func(spec *corev1.ServiceSpec, n int) { spec.Selector = keyed(n, "") })},
		{kind.EndpointSlice, "endpoints", slice(func(n int) discoveryv1.EndpointSlice {
			return discoveryv1.EndpointSlice{Endpoints: kindtest.List(n, func(int) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: addresses(1)} })}
		})},
		{kind.EndpointSlice, "addresses", slice(func(n int) discoveryv1.EndpointSlice {
			return discoveryv1.EndpointSlice{Endpoints: kindtest.List(n/100, func(int) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: addresses(100)} })}
		})},
		{kind.EndpointSlice, "ports", slice(func(n int) discoveryv1.EndpointSlice {
			return discoveryv1.EndpointSlice{
				Ports:     kindtest.List(n, func(i int) discoveryv1.EndpointPort { return discoveryv1.EndpointPort{Port: ptr.To(int32(i % 65_536))} }),
				Endpoints: []discoveryv1.Endpoint{{Addresses: addresses(1)}},
			}
		})},
		{kind.EndpointSlice, "names", slice(func(n int) discoveryv1.EndpointSlice {
			return discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeFQDN, Endpoints: []discoveryv1.Endpoint{{Addresses: shortTexts(n)}}}
		})},
	}
}

func shapesOfTraffic() []shape {
	ingress := func(change func(spec *networkingv1.IngressSpec, n int)) func(int) client.Object {
		return filled(func(n int) *networkingv1.Ingress {
			made := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("nginx")}}
			change(&made.Spec, n)
			return made
		})
	}
	paths := func(n int) networkingv1.IngressRuleValue {
		return networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: kindtest.List(n, func(int) networkingv1.HTTPIngressPath {
			return networkingv1.HTTPIngressPath{Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "a", Port: networkingv1.ServiceBackendPort{Number: 80}},
			}}
		})}}
	}
	rules := func(n, pathsEach int) []networkingv1.IngressRule {
		return kindtest.List(n, func(i int) networkingv1.IngressRule {
			rule := networkingv1.IngressRule{Host: fmt.Sprint("h", i, ".a")}
			if pathsEach > 0 {
				rule.IngressRuleValue = paths(pathsEach)
			}
			return rule
		})
	}
	budget := func(selector func(n int) metav1.LabelSelector) func(int) client.Object {
		return filled(func(n int) *policyv1.PodDisruptionBudget {
			return &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: ptr.To(selector(n))}}
		})
	}
	closing := func(spec func(n int) networkingv1.NetworkPolicySpec) func(int) client.Object {
		return filled(func(n int) *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{Spec: spec(n)} })
	}
	shapes := []shape{
		{kind.Ingress, "rules", ingress(func(spec *networkingv1.IngressSpec, n int) { spec.Rules = rules(n, 0) })},
		{kind.Ingress, "rules with a path", ingress(func(spec *networkingv1.IngressSpec, n int) { spec.Rules = rules(n, 1) })},
		{kind.Ingress, "paths", ingress(func(spec *networkingv1.IngressSpec, n int) { spec.Rules = rules(1, n) })},
		{kind.Ingress, "hosts", ingress(func(spec *networkingv1.IngressSpec, n int) {
			spec.TLS = []networkingv1.IngressTLS{{Hosts: shortTexts(n)}}
		})},
		{kind.Ingress, "secrets", ingress(func(spec *networkingv1.IngressSpec, n int) { spec.TLS = make([]networkingv1.IngressTLS, n) })},
		{kind.NetworkPolicy, "rules", closing(func(n int) networkingv1.NetworkPolicySpec {
			return networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, n)}
		})},
		{kind.NetworkPolicy, "peers", closing(func(n int) networkingv1.NetworkPolicySpec {
			return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: kindtest.List(n, func(int) networkingv1.NetworkPolicyPeer {
				return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}}
			})}}}
		})},
		{kind.NetworkPolicy, "ports", closing(func(n int) networkingv1.NetworkPolicySpec {
			return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: make([]networkingv1.NetworkPolicyPort, n)}}}
		})},
		{kind.NetworkPolicy, "exceptions", closing(func(n int) networkingv1.NetworkPolicySpec {
			return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{
				To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: shortTexts(n)}}},
			}}}
		})},
	}
	for name, selector := range map[string]func(n int) metav1.LabelSelector{
		"labels to match": func(n int) metav1.LabelSelector { return metav1.LabelSelector{MatchLabels: keyed(n, "")} },
		"expressions":     func(n int) metav1.LabelSelector { return metav1.LabelSelector{MatchExpressions: expressions(n)} },
		"values": func(n int) metav1.LabelSelector {
			return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: metav1.LabelSelectorOpIn, Values: shortTexts(n)}}}
		},
	} {
		shapes = append(shapes, shape{kind.Budget, name, budget(selector)}, shape{kind.NetworkPolicy, name, filled(func(n int) *networkingv1.NetworkPolicy {
			return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: selector(n)}}
		})})
	}
	return shapes
}

func shapesOfClaims() []shape {
	claim := func(change func(spec *corev1.PersistentVolumeClaimSpec, n int)) func(int) client.Object {
		return filled(func(n int) *corev1.PersistentVolumeClaim {
			made := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}}
			change(&made.Spec, n)
			return made
		})
	}
	return []shape{
		{kind.Claim, "requests", claim(func(spec *corev1.PersistentVolumeClaimSpec, n int) {
			spec.Resources.Requests = corev1.ResourceList{}
			for name, one := range keyed(n, resource.MustParse("1")) {
				spec.Resources.Requests[corev1.ResourceName(name)] = one
			}
		})},
		{kind.Claim, "access modes", claim(func(spec *corev1.PersistentVolumeClaimSpec, n int) {
			spec.AccessModes = make([]corev1.PersistentVolumeAccessMode, n)
		})},
		{kind.Claim, "selector", claim(func(spec *corev1.PersistentVolumeClaimSpec, n int) {
			spec.Selector = &metav1.LabelSelector{MatchExpressions: expressions(n)}
		})},
	}
}

// shapesOfJSON are objects of kinds of which no definition need say what they have, and 1.5 MB of JSON of each shape.
func shapesOfJSON() []shape {
	deep := func(levels int) (value any) {
		for range levels {
			value = map[string]any{"a": value}
		}
		return value
	}
	var shapes []shape
	for name, content := range map[string]func(most int) any{
		"lists": func(most int) any {
			return kindtest.List(min(kindtest.Largest/3, most/2), func(int) any { return []any{} })
		},
		"objects": func(most int) any {
			return kindtest.List(min(kindtest.Largest/3, most/2), func(int) any { return map[string]any{} })
		},
		"numbers": func(most int) any {
			return kindtest.List(min(kindtest.Largest/2, most), func(int) any { return int64(1) })
		},
		"texts": func(most int) any {
			return kindtest.List(min(kindtest.Largest/10, most), func(i int) any { return fmt.Sprint("t", i) })
		},
		"members": func(most int) any { return keyed[any](min(kindtest.Largest/12, most/2), int64(1)) },
		"deep":    func(most int) any { return deep(min(9_000, most/3)) }, // decoders end at 10,000
		"large":   func(int) any { return strings.Repeat("x", kindtest.Largest) },
	} {
		snapshot := func(most int) client.Object {
			return &unstructured.Unstructured{Object: kindtest.Object{
				"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "more": content(most),
				"spec": kindtest.Object{"source": kindtest.Object{"persistentVolumeClaimName": "c"}},
			}}
		}
		shapes = append(shapes, shape{kind.Snapshot, name, snapshot}, shape{kindtest.Widgets, name, func(most int) client.Object {
			return kindtest.Widget("", "", "", "spec", kindtest.Object{"more": content(most)})
		}})
	}
	return shapes
}

// shapesOfLabels are objects with many labels.
func shapesOfLabels() []shape {
	var shapes []shape
	for name, of := range map[string]client.Object{
		kind.Namespace:      &corev1.Namespace{},
		kind.ServiceAccount: &corev1.ServiceAccount{},
		kind.Secret:         &corev1.Secret{},
		kind.ConfigMap:      &corev1.ConfigMap{},
		kind.Service:        kindtest.ServiceAt("web", "it", "10.97.0.7", corev1.ServicePort{Port: 80}),
		kind.EndpointSlice:  &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4},
		kind.NetworkPolicy:  &networkingv1.NetworkPolicy{},
		kind.Ingress:        kindtest.IngressTo("front", "www.example.com"),
		kind.Budget:         kindtest.TenantBudget(3, 2, 1),
		kind.Claim:          kindtest.TenantClaim("uid"),
		kind.Snapshot: &unstructured.Unstructured{Object: kindtest.Object{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "spec": kindtest.Object{"source": kindtest.Object{"persistentVolumeClaimName": "c"}},
		}},
		kindtest.Widgets: kindtest.Widget("", "", ""),
	} {
		shapes = append(shapes, shape{name, "labels", func(most int) client.Object {
			labelled := of.DeepCopyObject().(client.Object)
			if _, isJSON := labelled.(*unstructured.Unstructured); isJSON {
				most /= 2
			}
			labelled.SetLabels(keyed(min(kindtest.Largest/16, most), ""))
			return labelled
		}})
	}
	return shapes
}

// shapesOfNodes are Nodes of a tenant, to which it adds what it likes. recorded says that as much is of the super node.
func shapesOfNodes() []shape {
	node := func(change func(node *corev1.Node, n int)) func(int) client.Object {
		return filled(func(n int) *corev1.Node {
			made := &corev1.Node{}
			nodes.TenantNode(builders.Node("n1").Obj(), made, "r1", kind.VNAgent{}, nodes.NodeShare{})
			change(made, n)
			return made
		})
	}
	taints := func(n int) []corev1.Taint {
		return kindtest.List(n, func(i int) corev1.Taint {
			return corev1.Taint{Key: fmt.Sprint("t", i), Effect: corev1.TaintEffectPreferNoSchedule}
		})
	}
	recorded := func(made *corev1.Node, field string) {
		names := kindtest.List(4_000, func(int) string { return `""` })
		made.Annotations["tenancy.x-k8s.io/from-super-node"] = `{"` + field + `":[` + strings.Join(names, ",") + "]}"
	}
	return []shape{
		{kind.Node, "taints", node(func(made *corev1.Node, n int) {
			made.Spec.Taints = taints(n)
			recorded(made, "taints")
		})},
		{kind.Node, "taints without effect", node(func(made *corev1.Node, n int) {
			made.Spec.Taints = make([]corev1.Taint, n)
			recorded(made, "labels")
		})},
		{kind.Node, "labels", node(func(made *corev1.Node, n int) { maps.Copy(made.Labels, keyed(n, "")) })},
		{kind.Node, "images", node(func(made *corev1.Node, n int) { made.Status.Images = make([]corev1.ContainerImage, n) })},
		{kind.Node, "addresses", node(func(made *corev1.Node, n int) { made.Status.Addresses = make([]corev1.NodeAddress, n) })},
		{kind.Node, "capacity", node(func(made *corev1.Node, n int) {
			made.Status.Capacity = corev1.ResourceList{}
			for name, one := range keyed(n, resource.MustParse("1")) {
				made.Status.Capacity[corev1.ResourceName(name)] = one
			}
		})},
	}
}

// checkNode is check for a Node of a tenant, which has a pod on it.
func (s *shape) checkNode(t *testing.T, most int) {
	m, it := newMeasured(t), s.make(most)
	superNode := builders.Node("n1").Obj()
	m.TenantCache[kind.Node], m.SuperCache[kind.Node], m.SuperCache[kind.Pod] = []client.Object{it}, []client.Object{superNode}, []client.Object{&corev1.Pod{}}
	key, node := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}, m.Kind(kind.Node)
	reconcile := func() {
		_, err := node.Reconcile(t.Context(), key, time.Minute)
		assert.NoError(t, err)
	}
	cheap(t, "new", reconcile)
	lease := &coordinationv1.Lease{}
	require.NoError(t, m.Tenant.Client.Get(t.Context(), client.ObjectKey{Namespace: "kube-node-lease", Name: it.GetName()}, lease))
	told := m.Told()
	t.Logf("%d written, told %.200q", m.written, told)
	m.written = 0
	superNode.Labels = map[string]string{corev1.LabelTopologyZone: "another"}
	cheap(t, "changed", reconcile)
	require.Equal(t, len(told) == 0, m.written > 0, "it is written, or told of")
}

// elsewhere are the kinds that are not made of one object of a tenant, or that other tests measure.
var elsewhere = map[string]string{
	kind.Pod:         "TestPodsOfAnyShape",
	kind.Token:       "made of a pod: TestPodsOfAnyShape",
	kind.Offer:       "made of the super cluster's objects, or of limits.bytes of a SyncPolicy",
	kind.Event:       "made of the super cluster's Events, which have a kilobyte",
	kind.Isolation:   "made of addresses of the pool",
	kind.Addresses:   "made of addresses of the pool",
	kind.APIServer:   "made of addresses of the pool",
	kind.ServiceCIDR: "made of addresses of the pool",
}

// measured is a pool that counts what is written, and stores nothing.
type measured struct {
	*kindtest.Pool
	written int
	// super is what was last written to the super cluster.
	super client.Object
}

func newMeasured(t *testing.T) *measured {
	t.Helper()
	m := &measured{}
	m.Pool = kindtest.Governed(t, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, made client.Object, _ ...client.CreateOption) error {
			m.super, m.written = made, m.written+1
			return nil
		},
		Update: func(_ context.Context, _ client.WithWatch, made client.Object, _ ...client.UpdateOption) error {
			m.super, m.written = made, m.written+1
			return nil
		},
	})
	patched := func(made client.Object, patch client.Patch) error {
		m.written++
		_, err := patch.Data(made)
		return err
	}
	m.Tenant.Client = kindtest.Answering(interceptor.NewClient(kindtest.NewClientBuilder().Build(), interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, made client.Object, patch client.Patch, _ ...client.PatchOption) error {
			return patched(made, patch)
		},
		Update: func(ctx context.Context, to client.WithWatch, made client.Object, options ...client.UpdateOption) error {
			if _, isNode := made.(*corev1.Node); !isNode {
				return to.Update(ctx, made, options...)
			}
			m.written++
			return nil
		},
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			m.written++
			return nil
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, made client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			return patched(made, patch)
		},
	}), kindtest.TenantUID)
	m.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		all := []string{"", "*"}
		spec.Limits.LoadBalancers, spec.Limits.PersistentVolumeClaims, spec.Limits.Storage = 5, 50, resource.MustParse("500Gi")
		spec.Pods.StorageClasses, spec.Offers.VolumeSnapshotClasses = all, all
		spec.Traffic.LoadBalancerClasses, spec.Traffic.IngressClasses, spec.Traffic.IngressHosts = all[1:], all[1:], all[1:]
	}))
	placed := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1, "cpu", "10", "memory", "10Gi", "pods", "100").Home("r1").Obj()
	meta := builders.Client(kindtest.PlacementScheme(t)).WithObjects(placed).Build()
	m.Assigns(meta, meta)
	rules, refusal := syncpolicy.Compile(&tenancyv1alpha1.SyncPolicy{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: tenancyv1alpha1.SyncPolicySpec{
		Group: "example.com", Version: "v1", Kind: "Widget", Direction: tenancyv1alpha1.SyncDown, Scope: tenancyv1alpha1.SyncPlaced,
		Fields: tenancyv1alpha1.SyncFields{Up: []string{"status"}}, Limits: tenancyv1alpha1.SyncLimits{Objects: 10, Bytes: resource.MustParse("2Mi")},
	}}, nil)
	require.Nil(t, refusal)
	kinds.SetCustom(m.Env, []dynamic.Custom{{Rules: rules, Resource: "widgets"}})
	// A claim of which a snapshot may be taken.
	claim := kindtest.TenantClaim("claim-uid", kindtest.Home("r1"), kindtest.BoundTo("r1.v"))
	claim.Name = "c"
	there := kindtest.SuperClaim("claim-uid", kindtest.BoundTo("v"))
	there.Name = "c"
	m.TenantCache[kind.Claim], m.SuperCache[kind.Claim] = []client.Object{claim}, []client.Object{there}
	return m
}

// cheap checks what do allocates, and the least that it computes in some runs: other processes only add to it.
func cheap(t *testing.T, what string, do func()) {
	t.Helper()
	allocated, computed := kindtest.Cost(t, do)
	for run := 0; run < 2 || run < 10 && computed > mostComputed; run++ {
		bytes, cpu := kindtest.Cost(t, do)
		allocated, computed = min(allocated, bytes), min(computed, cpu)
	}
	t.Logf("%s: %.1f MiB, %v", what, float64(allocated)/(1<<20), computed)
	assert.LessOrEqual(t, allocated, uint64(kindtest.MostMemory), "%s: bytes allocated", what)
	assert.LessOrEqual(t, computed, mostComputed, "%s: CPU time", what)
}

// TestObjectsOfAnyKind: an object that an API server takes costs at most 16 MiB and 50 ms of CPU in a reconcile of its
// kind, new, in sync and changed, whatever it has much of. One that has too much is told of, and one that goes down
// does so whole. 50 ms are three times what the largest takes without the race detector.
func TestObjectsOfAnyKind(t *testing.T) { //nolint:paralleltest // It measures what is allocated.
	shapes := slices.Concat(shapesOfConfigs(), shapesOfServices(), shapesOfTraffic(), shapesOfClaims(), shapesOfJSON(), shapesOfLabels(), shapesOfNodes())
	measured := map[string]bool{}
	for i := range shapes {
		family, _, _ := strings.Cut(shapes[i].kind, ":")
		measured[family] = true
	}
	for _, spec := range kinds.Specs() {
		require.True(t, spec.New == nil || measured[spec.Name] != (elsewhere[spec.Name] != ""),
			"kind %s has either a shape that is measured here, or a reason in elsewhere", spec.Name)
	}
	for i := range shapes {
		s := &shapes[i]
		family, _, _ := strings.Cut(s.kind, ":")
		for _, most := range []int{kindtest.Largest, 4_900} {
			t.Run(fmt.Sprint(s.kind, " ", s.name, " ", most), func(t *testing.T) { s.check(t, family, most) }) //nolint:paralleltest // As above.
		}
	}
}

func (s *shape) check(t *testing.T, family string, most int) {
	if s.kind == kind.Node {
		s.checkNode(t, most)
		return
	}
	m, it := newMeasured(t), s.make(most)
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: s.kind, Namespace: "web", Name: "it"}
	it.SetNamespace("web")
	it.SetName("it")
	it.SetUID("uid")
	it.SetResourceVersion("1")
	if s.kind == kind.Claim || s.kind == kind.Snapshot {
		it.SetAnnotations(map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"})
	}
	if s.kind == kind.Namespace {
		key.Namespace, key.Name = "", "web"
		it.SetNamespace("")
		it.SetName("web")
		it.SetUID("ns-uid")
		m.TenantCache[s.kind], m.SuperCache[s.kind] = nil, nil
	}
	m.TenantCache[s.kind] = append(m.TenantCache[s.kind], it)
	kind := m.Kind(family)
	reconcile := func() {
		_, err := kind.Reconcile(t.Context(), key, time.Minute)
		assert.NoError(t, err)
	}
	cheap(t, "new", reconcile)
	told := m.Told()
	t.Logf("%d written, told %.200q", m.written, told)
	if m.super == nil {
		require.NotEmpty(t, told)
		return
	}
	if m.super.GetUID() == "" {
		m.super.SetUID("super-uid")
	}
	m.SuperCache[s.kind] = append(m.SuperCache[s.kind], m.super)
	m.written = 0
	cheap(t, "in sync", reconcile)
	m.written = 0
	it.SetLabels(map[string]string{"another": "label"})
	cheap(t, "changed", reconcile)
	if len(told) == 0 { // what goes down in its place has not changed
		require.Positive(t, m.written)
	}
}
