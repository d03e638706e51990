package kinds

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var services = copied[*corev1.Service]{
	kind:  KindService,
	empty: func() *corev1.Service { return &corev1.Service{} },
	// The service of the tenant's own API server.
	skip: func(tenantService *corev1.Service) bool {
		return tenantService.Namespace == metav1.NamespaceDefault && tenantService.Name == "kubernetes"
	},
	translate: SuperService,
}

// SuperService writes onto superService what it should be for tenantService. Addresses and node ports are the super cluster's to give:
// a new service has none, an existing one keeps its own. External IPs are not taken: they would draw the traffic of others.
func SuperService(tenantService, superService *corev1.Service) {
	given := superService.Spec
	spec := tenantService.Spec.DeepCopy()
	spec.ExternalIPs = nil
	spec.HealthCheckNodePort = 0
	nodePorts := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	for i := range spec.Ports {
		spec.Ports[i].NodePort = 0
		if nodePorts {
			spec.Ports[i].NodePort = nodePortOf(given.Ports, &spec.Ports[i])
		}
	}
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = "", nil, nil, nil
	case given.ClusterIP != "":
		spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = given.ClusterIP, given.ClusterIPs, given.IPFamilies, given.IPFamilyPolicy
	default:
		if spec.ClusterIP != corev1.ClusterIPNone {
			spec.ClusterIP = ""
		}
		spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = nil, nil, nil
	}
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.HealthCheckNodePort = given.HealthCheckNodePort
	}
	superService.Spec = *spec
}

// nodePortOf returns the node port that was given to a port, 0 if none.
func nodePortOf(given []corev1.ServicePort, port *corev1.ServicePort) int32 {
	for i := range given {
		if given[i].Port == port.Port && given[i].Protocol == port.Protocol {
			return given[i].NodePort
		}
	}
	return 0
}
