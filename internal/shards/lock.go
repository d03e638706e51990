package shards

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// lock returns the lock of a Lease, by name.
func (s *Shards) lock(name string) resourcelock.Interface {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Client:     reclaimed{s.Leases, s},
		Labels:     s.Labels,
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.identity},
	}
}

// reclaimed is a client of Leases that shows one which has expired as one that was released: an elector begins to watch
// a Lease when it first reads it, and would wait for the whole duration again. Its write names the version that has
// expired, so that it fails if the holder was only slow.
type reclaimed struct {
	coordinationclient.LeaseInterface
	shards *Shards
}

// Leases implements coordinationclient.LeasesGetter.
func (r reclaimed) Leases(string) coordinationclient.LeaseInterface { return r }

// Get implements coordinationclient.LeaseInterface.
func (r reclaimed) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := r.LeaseInterface.Get(ctx, name, options)
	if err != nil {
		return nil, err //nolint:wrapcheck // the elector tells NotFound
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != r.shards.identity && r.shards.expired(name, lease.ResourceVersion) {
		lease = lease.DeepCopy()
		lease.Spec.HolderIdentity = nil
	}
	return lease, nil
}
