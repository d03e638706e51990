package kinds

import (
	"sync/atomic"

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
	// Recorder records Events in it.
	Recorder record.EventRecorder

	// nodes is its nodeSet, nil before the first.
	nodes atomic.Pointer[nodeSet]
}

// maxGrace returns the longest grace period of the tenant's pods, in seconds.
func (t *Tenant) maxGrace() int64 { return t.Policy.Get().Spec().Pods.MaxGracePeriodSeconds }
