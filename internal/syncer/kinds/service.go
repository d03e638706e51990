package kinds

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// KindService is the kind of Services.
const KindService = "service"

// services are copied for all namespaces of a tenant that holds anything here: a pod may call a Service whose pods run
// elsewhere.
func services() Copy[*corev1.Service] {
	return Copy[*corev1.Service]{
		Name:     KindService,
		New:      func() *corev1.Service { return &corev1.Service{} },
		Scope:    ScopeTenant,
		Recreate: recreateService,
		Explain:  explainService,
		Translate: func(env *Env, tenant *Tenant, tenantService, superService *corev1.Service) (Notice, error) {
			// An update of the super namespace enqueues its Services (namespaceSpec).
			superNamespace, exists, _ := get[*corev1.Namespace](env.SuperCache, KindNamespace, "", superService.Namespace)
			if exists && ServicesOnly(superNamespace) {
				tenantService = unpublished(tenantService)
			}
			SuperService(tenantService, superService, tenant.ServiceCIDRs)
			return noticeOfService(tenant, tenantService), nil
		},
	}
}

// unpublished returns a Service that is called from inside only: node ports and load balancers are for super clusters
// where the namespace is placed.
func unpublished(service *corev1.Service) *corev1.Service {
	if service.Spec.Type != corev1.ServiceTypeNodePort && service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return service
	}
	service = service.DeepCopy()
	spec := &service.Spec
	spec.Type = corev1.ServiceTypeClusterIP
	spec.ExternalTrafficPolicy = ""
	spec.LoadBalancerIP, spec.LoadBalancerSourceRanges, spec.LoadBalancerClass, spec.AllocateLoadBalancerNodePorts = "", nil, nil, nil
	return service
}

// hasClusterIP says whether a Service has a cluster IP, or may have one once it exists.
func hasClusterIP(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && service.Spec.ClusterIP != corev1.ClusterIPNone && service.Spec.ClusterIP != ""
}

// ClusterIPs returns the cluster IPs that a tenant's Service keeps in super clusters: those in ranges, none if the
// first is in none of them.
func ClusterIPs(tenantService *corev1.Service, ranges []netip.Prefix) []string {
	if !hasClusterIP(tenantService) {
		return nil
	}
	all := tenantService.Spec.ClusterIPs
	if len(all) == 0 {
		all = []string{tenantService.Spec.ClusterIP}
	}
	var kept []string
	for i, text := range all {
		address, err := netip.ParseAddr(text)
		inside := false
		for _, prefix := range ranges {
			inside = inside || err == nil && prefix.Contains(address)
		}
		if inside {
			kept = append(kept, text)
		} else if i == 0 {
			return nil
		}
	}
	return kept
}

// SuperService writes onto superService what it should be for tenantService: with the tenant's cluster IPs when they
// lie in ranges, and without a selector, because the tenant's EndpointSlices tell of the pods in all super clusters.
// Other addresses and node ports are the super cluster's to give: a new service has none, an existing one keeps its
// own. External IPs are not taken: they would draw the traffic of others.
func SuperService(tenantService, superService *corev1.Service, ranges []netip.Prefix) {
	given := superService.Spec
	spec := tenantService.Spec.DeepCopy()
	spec.Selector = nil
	spec.ExternalIPs = nil
	spec.HealthCheckNodePort = 0
	nodePorts := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	for i := range spec.Ports {
		spec.Ports[i].NodePort = 0
		if nodePorts {
			spec.Ports[i].NodePort = nodePortOf(given.Ports, &spec.Ports[i])
		}
	}
	setAddresses(spec, &given, ClusterIPs(tenantService, ranges))
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.HealthCheckNodePort = given.HealthCheckNodePort
	}
	superService.Spec = *spec
}

// setAddresses gives spec the tenant's own addresses, or what was given, or leaves it to the super cluster.
func setAddresses(spec, given *corev1.ServiceSpec, own []string) {
	headless := spec.ClusterIP == corev1.ClusterIPNone
	spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = nil, nil, nil
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		spec.ClusterIP = ""
	case len(own) > 0:
		spec.ClusterIP, spec.ClusterIPs = own[0], own
		spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
		if len(own) > 1 {
			spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
		}
		for _, address := range own {
			family := corev1.IPv4Protocol
			if strings.Contains(address, ":") {
				family = corev1.IPv6Protocol
			}
			spec.IPFamilies = append(spec.IPFamilies, family)
		}
	case given.ClusterIP != "":
		spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = given.ClusterIP, given.ClusterIPs, given.IPFamilies, given.IPFamilyPolicy
	case headless:
		spec.ClusterIP = corev1.ClusterIPNone
	default:
		spec.ClusterIP = ""
	}
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

// recreateService says whether a super Service must be made again: its addresses cannot change, and EndpointSlices that
// the super cluster made for a selector would stay.
func recreateService(tenant *Tenant, tenantService, superService *corev1.Service) bool {
	own, given := ClusterIPs(tenantService, tenant.ServiceCIDRs), superService.Spec.ClusterIP
	return len(own) > 0 && given != "" && given != own[0] || superService.Spec.Selector != nil ||
		(given == corev1.ClusterIPNone) != (tenantService.Spec.ClusterIP == corev1.ClusterIPNone) && given != "" && tenantService.Spec.Type != corev1.ServiceTypeExternalName
}

// noticeOfService tells the tenant of a Service that has another address in the super cluster.
func noticeOfService(tenant *Tenant, tenantService *corev1.Service) Notice {
	if !hasClusterIP(tenantService) || len(ClusterIPs(tenantService, tenant.ServiceCIDRs)) > 0 {
		return Notice{}
	}
	return Notice{ReasonClusterIPDiffers, fmt.Sprintf(
		"%s is not in spec.serviceCIDRs of the VirtualCluster: pods reach this Service at another address, and not by its DNS name", tenantService.Spec.ClusterIP)}
}

// explainService says what to do about a super Service that is refused for its address.
func explainService(tenantService *corev1.Service, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if strings.HasPrefix(cause.Field, "spec.clusterIP") {
			return fmt.Sprintf("address %s cannot be had: the super cluster's --service-cluster-ip-range must contain it, and no other Service may have it",
				tenantService.Spec.ClusterIP)
		}
	}
	return ""
}
