package kindtest

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
)

// TenantBudget returns a tenant's budget as its own controller sees it.
func TenantBudget(healthy, desired, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Generation: 3},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MaxUnavailable: ptr.To(intstr.FromString("50%")),
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
		Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 3, CurrentHealthy: healthy, DesiredHealthy: desired, DisruptionsAllowed: allowed},
	}
}

// Widgets is the kind of Widgets, which a SyncPolicy names.
const Widgets = "custom:Widget.v1.example.com"

// Widget returns a Widget; content is pairs of a top-level member and its value.
func Widget(namespace, name string, uid types.UID, content ...any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetUID(uid)
	for i := 0; i < len(content); i += 2 {
		object.Object[content[i].(string)] = content[i+1]
	}
	return object
}

// Object is an object in JSON, or a member of one.
type Object = map[string]any

// Serving returns a policy that allows load balancers and Ingresses, with a class for those that name none.
func Serving(t testing.TB, class string) *policy.Policy {
	t.Helper()
	return PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.LoadBalancers = 4
		spec.Limits.NodePorts = 100
		spec.Traffic = tenancyv1alpha1.TrafficRules{
			IngressClasses: []string{"public"}, IngressClass: class, IngressHosts: []string{"*.example.com"}, Annotations: []string{"nginx.ingress.kubernetes.io/*"},
		}
	})
}

// IngressTo returns the tenant's Ingress web/front of these hosts to a Service.
func IngressTo(service string, hosts ...string) *networkingv1.Ingress {
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "ingress-uid"}}
	for _, host := range hosts {
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service}},
			}}},
		}})
	}
	return ingress
}

// WithoutLabel takes the label off an object by which caches of super clusters show it.
func WithoutLabel[T client.Object](object T) T {
	labels := object.GetLabels()
	delete(labels, tenancyv1alpha1.LabelCluster)
	object.SetLabels(labels)
	return object
}

// EmptyIsNil takes an empty list for none.
var EmptyIsNil = cmpopts.EquateEmpty()

// ServiceAt returns a Service with a cluster IP.
func ServiceAt(namespace, name, address string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: address, ClusterIPs: []string{address}, Ports: ports},
	}
}
