// Package kinds holds one reconciler per synced kind. Each has pure functions that write the fields which Superpool
// owns onto an object, an empty one or a copy of what is there; a reconciler reads both sides from caches, applies its
// function, and writes when the result differs. What a tenant wrote is hostile input everywhere.
package kinds

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
)

// Env is what all kinds work with. It is shared by all workers; its fields must not be changed once it is in use.
type Env struct {
	// ID is the super cluster id.
	ID string
	// Super reads and writes the super cluster, without a cache.
	Super client.Client
	// SuperCache holds the super cluster's Nodes, and of other kinds what carries our label.
	SuperCache Cache
	// Assignments says which namespaces of the tenants belong into this super cluster.
	Assignments assign.Assignments
	// Tenant returns a connected tenant, nil if there is none of that key. Tenants returns all of them, sorted by key.
	Tenant  func(key string) *Tenant
	Tenants func() []*Tenant
	// Enqueue lets keys be reconciled soon. It never blocks for long.
	Enqueue func(keys []engine.Key)
	// PodSecurityLevel is enforced in super namespaces; "" leaves it to the super cluster.
	PodSecurityLevel string
	// VNAgent is where tenants find the kubelet API.
	VNAgent VNAgent
	// NodeLinger is how long a tenant keeps a Node that none of its pods is on; 0 means 60 seconds.
	NodeLinger time.Duration
	// Clock measures time.
	Clock clock.PassiveClock
	// Metrics counts writes.
	Metrics *engine.Metrics
	// QuotaWaiters holds the pods that wait for room in a quota.
	QuotaWaiters QuotaWaiters

	once  sync.Once
	table *table

	warnings warnings
}
