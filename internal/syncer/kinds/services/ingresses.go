package services

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
)

// annotationIngressClass names the class of an Ingress in the way of before spec.ingressClassName.
const annotationIngressClass = "kubernetes.io/ingress.class"

// IngressSpec is that of Ingresses, which are copied to the home of their namespace. Their Services and Secrets are
// there by the same names.
func IngressSpec() kind.Spec {
	spec := copier.Spec(copier.Copy[*networkingv1.Ingress]{
		Name: kind.Ingress,
		New:  func() *networkingv1.Ingress { return &networkingv1.Ingress{} },
		Translate: func(_ *kind.Env, tenant *kind.Tenant, tenantIngress, superIngress *networkingv1.Ingress) (copier.Notice, error) {
			SuperIngress(tenantIngress, superIngress, tenant.Policy.Get())
			return noticeOfAnnotations(tenantIngress, kind.Ingress, tenant.Rules(), isOfControllers), nil
		},
		Home: &copier.Home[*networkingv1.Ingress]{
			Only:    func(*networkingv1.Ingress) bool { return true },
			IsMeant: isOfControllers,
			Allowed: func(rules *policy.Policy, tenantIngress *networkingv1.Ingress) bool {
				return rules.AllowsIngressClass(ptr.Deref(classOf(tenantIngress, rules), ""))
			},
			Tell: TenantIngress,
		},
	})
	spec.Aside, spec.Involved = true, schema.GroupKind{Group: networkingv1.GroupName, Kind: "Ingress"}
	spec.Tenant.Labels = func(*kind.Env) string { return "" } // there are few, so that one watch is less than one per namespace
	return spec
}

// SuperIngress sets superIngress to the desired one for tenantIngress, with the class that a policy gives to those that
// name none.
func SuperIngress(tenantIngress, superIngress *networkingv1.Ingress, rules *policy.Policy) {
	superIngress.Spec = *tenantIngress.Spec.DeepCopy()
	superIngress.Spec.IngressClassName = classOf(tenantIngress, rules)
}

// TenantIngress sets the status of tenantIngress to that of superIngress.
func TenantIngress(superIngress, tenantIngress *networkingv1.Ingress) {
	tenantIngress.Status = *superIngress.Status.DeepCopy()
}

// classOf returns the class of a tenant's Ingress in super clusters, nil for none.
func classOf(tenantIngress *networkingv1.Ingress, rules *policy.Policy) *string {
	if class := tenantIngress.Spec.IngressClassName; class != nil {
		return ptr.To(*class)
	}
	for _, class := range [...]string{tenantIngress.Annotations[annotationIngressClass], rules.Spec().Traffic.IngressClass} {
		if class != "" {
			return &class
		}
	}
	return nil
}

// ReasonAnnotationsLeftOut: annotations for an ingress controller or a load balancer are not among those that the
// TenantPolicy lets go down; the object in the super cluster, which exists, keeps those that it has. A new one is
// refused.
const ReasonAnnotationsLeftOut = "AnnotationsLeftOut"

// noticeOfAnnotations returns the Event of an existing object whose annotations do not all go down of those that are
// meant for the super cluster.
func noticeOfAnnotations(object metav1.Object, kindName string, rules *kind.Rules, isMeant func(domain, key string) bool) copier.Notice {
	left := copier.Unlisted(object, kindName, rules, isMeant)
	if len(left) == 0 {
		return copier.Notice{}
	}
	return copier.Notice{Reason: ReasonAnnotationsLeftOut, Message: "traffic.annotations of TenantPolicy " + rules.InForce().Name() + " does not list " + kind.SomeOf(left) +
		": what is there stays as it is, and a new object is refused"}
}

// isOfControllers returns whether an annotation of an Ingress may be meant for ingress controllers.
func isOfControllers(domain, key string) bool {
	return key != annotationIngressClass && domain != "kubectl.kubernetes.io" && domain != "meta.helm.sh" && domain != "cert-manager.io"
}

// isOfLoadBalancers returns whether an annotation of a Service may be meant for the load balancers of a cloud.
func isOfLoadBalancers(domain, _ string) bool {
	return domain == "service.kubernetes.io" || strings.HasSuffix(domain, ".service.kubernetes.io") || domain == "service.beta.kubernetes.io"
}

// withoutTraffic returns the annotations that do not go down by traffic.annotations alone.
func withoutTraffic(service *corev1.Service, rules *policy.Policy) map[string]string {
	kept := make(map[string]string, len(service.Annotations))
	for key, value := range service.Annotations {
		if !rules.AllowsTrafficAnnotation("services", key) {
			kept[key] = value
		}
	}
	return kept
}
