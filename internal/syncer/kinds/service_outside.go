package kinds

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
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

// key returns the key of a Service in the tally.
func (s *shared) key(service engine.Key) engine.Key {
	service.Kind = s.field
	return service
}

// amount returns what a Service has, nil for none.
func (s *shared) amount(object client.Object) *amount {
	service, ok := object.(*corev1.Service)
	if !ok {
		return nil
	}
	if count := s.count(&service.Spec); count > 0 {
		return &amount{objects: count}
	}
	return nil
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

// fitsOutside is Env.fits for what a Service takes of what is shared, true for other objects.
func (e *Env) fitsOutside(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object) bool {
	if key.Kind != KindService {
		return true
	}
	rules := tenant.Policy.Get()
	for i := range outside {
		wanted, had := ptr.Deref(outside[i].amount(superObject), amount{}), ptr.Deref(outside[i].amount(existing), amount{})
		change, most := amount{objects: wanted.objects - had.objects}, amount{objects: int64(outside[i].limit(&rules.Spec().Limits))}
		if sum, ok := e.tally.reserve(outside[i].key(key), existing == nil, change, most, e.Clock.Now()); !ok {
			e.warnOnce(tenant, key, tenantObject, ReasonTenantLimit, fmt.Sprintf(
				"Super cluster %s: %d %s exist, this Service adds %d, and at most %d are allowed (limits.%s of TenantPolicy %s)",
				e.ID, sum.objects, outside[i].name, change.objects, most.objects, outside[i].field, rules.Name()))
			return false
		}
	}
	return true
}
