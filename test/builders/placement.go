package builders

import (
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// PlacementBuilder builds a NamespacePlacement.
type PlacementBuilder struct {
	object schedulerv1alpha1.NamespacePlacement
}

// Placement begins the NamespacePlacement of a tenant's namespace, in the root namespace of that cluster key. It asks
// for nothing yet.
func Placement(clusterKey, namespace string) *PlacementBuilder {
	return &PlacementBuilder{schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: meta(clusterKey, namespace), Spec: schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: UID(namespace)},
	}}
}

// UID replaces the object's own UID.
func (b *PlacementBuilder) UID(uid types.UID) *PlacementBuilder {
	b.object.UID = uid
	return b
}

// NamespaceUID replaces the UID of the tenant's namespace.
func (b *PlacementBuilder) NamespaceUID(uid types.UID) *PlacementBuilder {
	b.object.Spec.NamespaceUID = uid
	return b
}

// Generation sets the generation of the spec.
func (b *PlacementBuilder) Generation(generation int64) *PlacementBuilder {
	b.object.Generation = generation
	return b
}

// Quota sets what the namespace may use, as pairs.
func (b *PlacementBuilder) Quota(pairs ...string) *PlacementBuilder {
	b.object.Spec.Quota = Resources(pairs...)
	return b
}

// Slice sets the slice size, as pairs.
func (b *PlacementBuilder) Slice(pairs ...string) *PlacementBuilder {
	b.object.Spec.Slice = Resources(pairs...)
	return b
}

// Held adds the slices that a super cluster holds, and what they reserve there, as pairs.
func (b *PlacementBuilder) Held(id string, slices int32, reserved ...string) *PlacementBuilder {
	return b.Placements(HeldSlices(id, slices, reserved...))
}

// Placements adds entries of status.placements.
func (b *PlacementBuilder) Placements(placements ...schedulerv1alpha1.ClusterPlacement) *PlacementBuilder {
	b.object.Status.Placements = append(b.object.Status.Placements, placements...)
	return b
}

// Home sets the home.
func (b *PlacementBuilder) Home(id string) *PlacementBuilder {
	b.object.Status.Home = id
	return b
}

// Obj returns the NamespacePlacement.
func (b *PlacementBuilder) Obj() *schedulerv1alpha1.NamespacePlacement { return b.object.DeepCopy() }

// HeldSlices returns one entry of status.placements.
func HeldSlices(id string, slices int32, reserved ...string) schedulerv1alpha1.ClusterPlacement {
	return schedulerv1alpha1.ClusterPlacement{Cluster: id, Slices: slices, Reserved: Resources(reserved...)}
}
