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

// AllClasses stands for every name in a list of classes, and not for the default class of a super cluster, which is "".
const AllClasses = "*"

// classes are the names of classes that a policy lists.
type classes map[string]struct{}

// has returns whether a class is listed, by its name or by AllClasses.
func (c classes) has(name string) bool {
	_, listed := c[name]
	return listed || name != "" && c.all()
}

func (c classes) all() bool {
	_, all := c[AllClasses]
	return all
}

func offers(spec *tenancyv1alpha1.TenantPolicySpec) map[string]classes {
	return map[string]classes{
		StorageClasses: setOf(spec.Pods.StorageClasses), RuntimeClasses: setOf(spec.Pods.RuntimeClasses),
		PriorityClasses: namesOf(spec.Offers.PriorityClasses), IngressClasses: setOf(append(slices.Clone(spec.Traffic.IngressClasses), spec.Traffic.IngressClass)),
		DeviceClasses: namesOf(spec.Offers.DeviceClasses), VolumeSnapshotClasses: setOf(spec.Offers.VolumeSnapshotClasses),
	}
}

// namesOf is setOf for a list in which AllClasses means nothing: the API server refuses it. PriorityClasses of the
// operator's own, and system-*, are not for tenants, and no policy means all of them.
func namesOf(names []string) classes {
	set := classes(setOf(names))
	delete(set, AllClasses)
	return set
}

// Offers returns the names of the objects of a resource that super clusters may offer to the tenant, sorted, and
// whether they may offer all that they have.
func (p *Policy) Offers(resource string) (names []string, all bool) {
	listed := p.offers[resource]
	names = slices.Sorted(maps.Keys(listed))
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || name == AllClasses }), listed.all()
}

// MayOffer returns whether super clusters may offer the object of a resource with that name to the tenant.
func (p *Policy) MayOffer(resource, name string) bool { return name != "" && p.lists(resource, name) }

// lists returns whether the tenant may name an object of a resource; "" is for the default class of a super cluster.
func (p *Policy) lists(resource, name string) bool { return p.offers[resource].has(name) }
