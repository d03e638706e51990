package services

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
)

// outside are what Services take that all tenants of a super cluster share: the tally counts it for all namespaces of a
// tenant together, which quotas do not.
var outside = [...]shared{
	{name: "node ports", field: "nodePorts", count: nodePorts, limit: func(limits *tenancyv1alpha1.TenantLimits) int32 { return limits.NodePorts }},
	{name: "load balancers", field: "loadBalancers", count: loadBalancers, limit: func(limits *tenancyv1alpha1.TenantLimits) int32 { return limits.LoadBalancers }},
}

// shared is one of them.
type shared struct {
	name, field string
	count       func(spec *corev1.ServiceSpec) int64
	limit       func(limits *tenancyv1alpha1.TenantLimits) int32
}

// share returns what is counted of it.
func (s *shared) share() kind.Share {
	return kind.Share{Name: s.field, Count: func(object client.Object) int64 {
		service, ok := object.(*corev1.Service)
		if !ok {
			return 0
		}
		return s.count(&service.Spec)
	}}
}

// ServiceSpec is that of a copied kind whose objects take what is shared.
func ServiceSpec() kind.Spec {
	spec := copier.Spec(services())
	spec.Fits, spec.Involved = fitsOutside, schema.GroupKind{Kind: "Service"}
	for i := range outside {
		spec.Shares = append(spec.Shares, outside[i].share())
	}
	return spec
}

// nodePorts returns the number of node ports that a Service has or gets.
func nodePorts(spec *corev1.ServiceSpec) int64 {
	all := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(spec.AllocateLoadBalancerNodePorts, true)
	count := int64(0)
	for i := range spec.Ports {
		if all || spec.Ports[i].NodePort != 0 {
			count++
		}
	}
	return count
}

func loadBalancers(spec *corev1.ServiceSpec) int64 {
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		return 1
	}
	return 0
}

// outOfRange returns a node port of a Service that is not in a range, 0 if there is none, or no range.
func outOfRange(object client.Object, nodePorts utilnet.PortRange) int32 {
	service, ok := object.(*corev1.Service)
	if !ok || nodePorts.Size == 0 {
		return 0
	}
	for i := range service.Spec.Ports {
		if port := service.Spec.Ports[i].NodePort; port != 0 && !nodePorts.Contains(int(port)) {
			return port
		}
	}
	return 0
}

// fitsOutside is Spec.Fits for what a Service takes of what is shared.
func fitsOutside(e *kind.Env, tenant *kind.Tenant, key engine.Key, tenantObject, superObject, existing client.Object) bool {
	if port := outOfRange(superObject, tenant.NodePorts); port != 0 {
		e.WarnOnce(tenant, key, tenantObject, kind.ReasonNodePortOutOfRange, fmt.Sprintf(
			"Super cluster %s: node port %d is not in spec.serviceNodePortRange of the VirtualCluster, %d-%d: choose one in it, or none",
			e.ID, port, tenant.NodePorts.Base, tenant.NodePorts.Base+tenant.NodePorts.Size-1))
		return false
	}
	rules := tenant.Policy.Get()
	for i := range outside {
		share := outside[i].share()
		wanted, had := ptr.Deref(share.Amount(superObject), kind.Amount{}), ptr.Deref(share.Amount(existing), kind.Amount{})
		if wanted.Objects == 0 && had.Objects == 0 {
			continue // what is in the place of one that waits does not end that
		}
		change, most := kind.Amount{Objects: wanted.Objects - had.Objects}, kind.Amount{Objects: int64(outside[i].limit(&rules.Spec().Limits))}
		if sum, ok := e.Tally.Reserve(share.Key(key), existing == nil, change, most, e.Clock.Now()); !ok {
			e.WarnOnce(tenant, key, tenantObject, kind.ReasonTenantLimit, fmt.Sprintf(
				"Super cluster %s: %d %s exist, this Service adds %d, and at most %d are allowed (limits.%s of TenantPolicy %s)",
				e.ID, sum.Objects, outside[i].name, change.Objects, most.Objects, outside[i].field, rules.Name()))
			return false
		}
	}
	return true
}
