package kind

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Side of a change.
type Side int

const (
	// TenantSide is a tenant's control plane.
	TenantSide Side = iota
	// SuperSide is the super cluster.
	SuperSide
)

// Change is an event of an informer. Its objects are in a cache and must not be changed.
type Change struct {
	// Kind is the name of the Spec that the informer belongs to.
	Kind string
	Side Side
	// Tenant is the key of the tenant on TenantSide.
	Tenant string
	// Old is nil for an added object, Current for a deleted one.
	Old, Current client.Object
}

// Object returns the current object, or the last one of a deletion.
func (c *Change) Object() client.Object {
	if c.Current != nil {
		return c.Current
	}
	return c.Old
}

// Found returns whether a list, or the creation of the object, is all that has happened.
func (c *Change) Found() bool {
	if c.Old == nil || c.Old == c.Current {
		return true
	}
	version := c.Old.GetResourceVersion()
	return version != "" && c.Current != nil && version == c.Current.GetResourceVersion()
}

// CreatedOrDeleted returns whether the event is an addition or a deletion.
func (c *Change) CreatedOrDeleted() bool { return c.Old == nil || c.Current == nil }

// CreatedOrDeletedSuperPod returns the super pod of a change that is an addition or a deletion. Nodes and tokens depend
// on its existence alone.
func CreatedOrDeletedSuperPod(change *Change) (*corev1.Pod, bool) {
	if change.Side != SuperSide || !change.CreatedOrDeleted() {
		return nil, false
	}
	pod, ok := change.Object().(*corev1.Pod)
	return pod, ok
}

// OwnerOfNew returns the owner of a super object that was added.
func OwnerOfNew(change *Change) (tenancy.Owner, bool) {
	if change.Side != SuperSide || change.Old != nil {
		return tenancy.Owner{}, false
	}
	return tenancy.GetOwner(change.Current)
}

// wasBound returns whether a change is that a pod has a node.
func wasBound(change *Change) bool {
	before, wasPod := change.Old.(*corev1.Pod)
	after, isPod := change.Current.(*corev1.Pod)
	return wasPod && isPod && before.Spec.NodeName == "" && after.Spec.NodeName != ""
}

// SameButForUse returns whether only status.used of a quota has changed.
func SameButForUse(old, current *corev1.ResourceQuota) bool {
	before := *old
	before.ResourceVersion, before.Status.Used = current.ResourceVersion, current.Status.Used
	return slice.DeepEqual(&before, current)
}
