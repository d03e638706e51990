// Package services syncs Services, EndpointSlices and Ingresses.
package services

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
)

// services are copied for all namespaces of a tenant with a placement here: pods may connect to a Service whose
// endpoints are in other super clusters.
func services() copier.Copy[*corev1.Service] {
	return copier.Copy[*corev1.Service]{
		Name:  kind.Service,
		New:   func() *corev1.Service { return &corev1.Service{} },
		Scope: kind.ScopeTenant,
		// The tenant's DNS answers for these. An ingress controller here would connect to any name.
		Skip: func(tenantService *corev1.Service) bool {
			return tenantService.Spec.Type == corev1.ServiceTypeExternalName
		},
		Recreate: recreateService,
		Fallback: func(rules *kind.Rules, service *corev1.Service) (*corev1.Service, bool) {
			return inner(rules, service), isPublished(service)
		},
		Explain: explainService,
		Translate: func(env *kind.Env, tenant *kind.Tenant, tenantService, superService *corev1.Service) (copier.Notice, error) {
			// A change of the super namespace enqueues its Services (namespaces.standings).
			superNamespace, exists, _ := kind.Get[*corev1.Namespace](env.SuperCache, kind.Namespace, "", superService.Namespace)
			if exists && kind.ServicesOnly(superNamespace) {
				tenantService = unpublished(tenantService)
			}
			SuperService(tenantService, superService, tenant.ServiceCIDRs, tenant.NodePorts)
			return noticeOfService(tenant, tenantService), nil
		},
		Home: &copier.Home[*corev1.Service]{
			Only:      isLoadBalancer,
			IsMeant:   isOfLoadBalancers,
			Elsewhere: inner,
			Allowed:   (*policy.Policy).AllowsLoadBalancer,
			Tell:      TenantService,
		},
	}
}

func isLoadBalancer(service *corev1.Service) bool {
	return service.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// TenantService sets the addresses of the load balancer of tenantService to those of superService.
func TenantService(superService, tenantService *corev1.Service) {
	tenantService.Status.LoadBalancer = *superService.Status.LoadBalancer.DeepCopy()
}

// isPublished returns whether a Service has node ports or a load balancer.
func isPublished(service *corev1.Service) bool {
	return service.Spec.Type == corev1.ServiceTypeNodePort || isLoadBalancer(service)
}

// inner returns what pods reach of a Service with node ports or a load balancer: one of type ClusterIP, without the
// annotations for those who publish it.
func inner(rules *kind.Rules, tenantService *corev1.Service) *corev1.Service {
	service := unpublished(tenantService)
	if service != tenantService {
		service.Annotations = withoutTraffic(tenantService, rules.InForce())
	}
	return service
}

// unpublished returns a Service of type ClusterIP in the place of one with node ports or a load balancer: node ports
// exist in super clusters where the namespace is placed only, and a load balancer in its home.
func unpublished(service *corev1.Service) *corev1.Service {
	if !isPublished(service) {
		return service
	}
	service = service.DeepCopy()
	spec := &service.Spec
	spec.Type = corev1.ServiceTypeClusterIP
	spec.ExternalTrafficPolicy = ""
	spec.LoadBalancerIP, spec.LoadBalancerSourceRanges, spec.LoadBalancerClass, spec.AllocateLoadBalancerNodePorts = "", nil, nil, nil
	return service
}

// SuperService sets superService to the desired super Service of tenantService: with the tenant's cluster IPs if they
// are within ranges, with its node ports if it has a range of them, nodePorts, and without a selector, because the
// tenant's EndpointSlices list the pods in all super clusters. The super cluster allocates other cluster IPs, node
// ports without a range, and health check node ports outside of it: a new Service has none, an existing one keeps its
// own. External IPs are removed: they would divert the traffic of others.
func SuperService(tenantService, superService *corev1.Service, ranges []netip.Prefix, nodePorts utilnet.PortRange) {
	allocated := superService.Spec
	spec := tenantService.Spec.DeepCopy()
	spec.Selector = nil
	spec.ExternalIPs = nil
	spec.HealthCheckNodePort = 0
	published := isPublished(tenantService)
	nodePortOf := nodePortsOf(allocated.Ports)
	if !published {
		spec.ExternalTrafficPolicy = "" // that of external IPs; an API server refuses it without them
	}
	for i := range spec.Ports {
		switch {
		case !published:
			spec.Ports[i].NodePort = 0
		case nodePorts.Size == 0:
			spec.Ports[i].NodePort = nodePortOf[numberOf(&spec.Ports[i])]
		}
	}
	if isLoadBalancer(superService) && isLoadBalancer(tenantService) && spec.LoadBalancerClass == nil {
		spec.LoadBalancerClass = allocated.LoadBalancerClass // a webhook there has given it one, which is immutable
	}
	setAddresses(spec, &allocated, kind.ClusterIPs(tenantService, ranges))
	if spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.HealthCheckNodePort = allocated.HealthCheckNodePort // immutable
		if port := tenantService.Spec.HealthCheckNodePort; spec.HealthCheckNodePort == 0 && nodePorts.Contains(int(port)) {
			spec.HealthCheckNodePort = port
		}
	}
	superService.Spec = *spec
}

// setAddresses sets the cluster IPs of spec to the tenant's own, or to those that the super cluster has allocated, or
// to none for it to allocate.
func setAddresses(spec, allocated *corev1.ServiceSpec, own []string) {
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
	case allocated.ClusterIP != "":
		spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = allocated.ClusterIP, allocated.ClusterIPs, allocated.IPFamilies, allocated.IPFamilyPolicy
	case headless:
		spec.ClusterIP = corev1.ClusterIPNone
	default:
		spec.ClusterIP = ""
	}
}

// portNumber is what only one port of a Service has.
type portNumber struct {
	port     int32
	protocol corev1.Protocol
}

func numberOf(port *corev1.ServicePort) portNumber { return portNumber{port.Port, port.Protocol} }

// nodePortsOf returns the node ports that the super cluster has allocated to ports.
func nodePortsOf(allocated []corev1.ServicePort) map[portNumber]int32 {
	nodePorts := map[portNumber]int32{}
	for i := range allocated {
		if nodePort := allocated[i].NodePort; nodePort != 0 {
			nodePorts[numberOf(&allocated[i])] = nodePort
		}
	}
	return nodePorts
}

// recreateService returns whether a super Service must be created again: its cluster IP is immutable, and
// EndpointSlices that the super cluster has created for a selector would stay.
func recreateService(tenant *kind.Tenant, tenantService, superService *corev1.Service) bool {
	own, allocated := kind.ClusterIPs(tenantService, tenant.ServiceCIDRs), superService.Spec.ClusterIP
	return len(own) > 0 && allocated != "" && allocated != own[0] || superService.Spec.Selector != nil ||
		(allocated == corev1.ClusterIPNone) != (tenantService.Spec.ClusterIP == corev1.ClusterIPNone) && allocated != "" && tenantService.Spec.Type != corev1.ServiceTypeExternalName
}

// noticeOfService returns the Event of a Service that has another cluster IP in the super cluster, or lacks annotations
// for its load balancer there.
func noticeOfService(tenant *kind.Tenant, tenantService *corev1.Service) copier.Notice {
	if !kind.HasClusterIP(tenantService) || len(kind.ClusterIPs(tenantService, tenant.ServiceCIDRs)) > 0 {
		if isLoadBalancer(tenantService) {
			return noticeOfAnnotations(tenantService, kind.Service, tenant.Rules(), isOfLoadBalancers)
		}
		return noticeOfExternalIPs(tenantService)
	}
	return copier.Notice{Reason: kind.ReasonClusterIPDiffers, Message: fmt.Sprintf(
		"%s is not in spec.serviceCIDRs of the VirtualCluster: pods reach this Service at another cluster IP, and not by its DNS name", tenantService.Spec.ClusterIP)}
}

func noticeOfExternalIPs(tenantService *corev1.Service) copier.Notice {
	if len(tenantService.Spec.ExternalIPs) == 0 {
		return copier.Notice{}
	}
	return copier.Notice{Reason: kind.ReasonExternalIPsLeftOut, Message: fmt.Sprintf(
		"the Service is there without spec.externalIPs, as %.64q: use type LoadBalancer, or an Ingress, where the TenantPolicy allows one", tenantService.Spec.ExternalIPs[0])}
}

// explainService returns what to do if the super cluster refuses a Service for its cluster IP or a node port, "" for
// other errors.
func explainService(tenantService *corev1.Service, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if strings.HasPrefix(cause.Field, "spec.ports[") && strings.HasSuffix(cause.Field, "].nodePort") {
			return "a node port is not available: the super cluster's --service-node-port-range must contain those of the tenant, and no other Service may have them: " + cause.Message
		}
		if strings.HasPrefix(cause.Field, "spec.clusterIP") {
			return fmt.Sprintf("cluster IP %s is not available: the super cluster's --service-cluster-ip-range must contain it, and no other Service may have it",
				tenantService.Spec.ClusterIP)
		}
	}
	return ""
}
