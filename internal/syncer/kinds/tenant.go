package kinds

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenants"
)

// Tenant is a connected tenant: its identity, and access to its control plane.
type Tenant struct {
	*tenants.Tenant
	// Client reads and writes the control plane, without a cache.
	Client client.Client
	// Cache holds the objects of its informers.
	Cache Cache
	// Since is when the syncer began to fill Cache. While others may have worked on the tenant since, see Take.
	Since time.Time
	// Recorder records Events in it.
	Recorder record.EventRecorder

	// taken is when this process last began to work on the tenant after another one, nil for never.
	taken atomic.Pointer[time.Time]
	// nodes is its nodeSet, nil before the first.
	nodes atomic.Pointer[nodeSet]
	// holds is whether it holds anything in this super cluster, nil before that was first asked (Offers).
	holds atomic.Pointer[bool]
}

// Take notes that another process may have worked on the tenant until now.
func (t *Tenant) Take(now time.Time) { t.taken.Store(&now) }

// alone returns since when no other process has worked on the tenant, zero if that is not known.
func (t *Tenant) alone() time.Time {
	if taken := t.taken.Load(); taken != nil {
		return *taken
	}
	return t.Since
}

// maxGrace returns the longest grace period of the tenant's pods, in seconds.
func (t *Tenant) maxGrace() int64 { return t.Policy.Get().Spec().Pods.MaxGracePeriodSeconds }
