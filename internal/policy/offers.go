package policy

import (
	"maps"
	"slices"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// Cluster-scoped resources that super clusters offer to tenants.
const (
	StorageClasses        = "storageclasses"
	RuntimeClasses        = "runtimeclasses"
	PriorityClasses       = "priorityclasses"
	IngressClasses        = "ingressclasses"
	DeviceClasses         = "deviceclasses"
	VolumeSnapshotClasses = "volumesnapshotclasses"
)

func offers(spec *tenancyv1alpha1.TenantPolicySpec) map[string]map[string]struct{} {
	byResource := map[string]map[string]struct{}{
		StorageClasses: setOf(spec.Pods.StorageClasses), RuntimeClasses: setOf(spec.Pods.RuntimeClasses),
		PriorityClasses: setOf(spec.Offers.PriorityClasses), IngressClasses: setOf(append(slices.Clone(spec.Traffic.IngressClasses), spec.Traffic.IngressClass)),
		DeviceClasses: setOf(spec.Offers.DeviceClasses), VolumeSnapshotClasses: setOf(spec.Offers.VolumeSnapshotClasses),
	}
	for _, names := range byResource {
		delete(names, "") // the default class of a super cluster, by no name
	}
	return byResource
}

// Offers returns the names of the objects of a resource that super clusters may offer to the tenant, sorted.
func (p *Policy) Offers(resource string) []string {
	return slices.Sorted(maps.Keys(p.offers[resource]))
}

// MayOffer returns whether super clusters may offer the object of a resource with that name to the tenant.
func (p *Policy) MayOffer(resource, name string) bool {
	_, listed := p.offers[resource][name]
	return listed
}
