// Package kinds holds one reconciler per synced kind. Each has pure functions that set the fields which Superpool owns
// in an object, an empty one or a copy of the cached one; a reconciler reads both sides from caches, applies its
// function, and writes if the result differs. Objects of tenants are hostile input everywhere.
package kinds

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
)

// Env holds the clients, caches and options of all kinds. All workers share it; its exported fields must not change
// once it is in use.
type Env struct {
	// ID is the super cluster id.
	ID string
	// Super reads and writes the super cluster, without a cache.
	Super client.Client
	// SuperCache holds the super cluster's Nodes and Events of pods, and of other kinds the objects with our ownership
	// label.
	SuperCache Cache
	// Assignments answers which namespaces of the tenants belong into this super cluster.
	Assignments assign.Assignments
	// Tenant returns the connected tenant with that key, nil if there is none. Tenants returns all of them, sorted by
	// key.
	Tenant  func(key string) *Tenant
	Tenants func() []*Tenant
	// Enqueue adds keys to their queues. It sends no request.
	Enqueue func(keys []engine.Key)
	// PodSecurityLevel is the Pod Security Standard enforced in super namespaces; "" sets no label.
	PodSecurityLevel string
	// VNAgent is the kubelet endpoint that the tenants' Nodes name.
	VNAgent VNAgent
	// NodeLinger is how long a tenant keeps a Node that none of its pods is bound to; 0 means 60 seconds.
	NodeLinger time.Duration
	// Clock measures time.
	Clock clock.PassiveClock
	// Metrics counts writes.
	Metrics *engine.Metrics
	// QuotaWaiters holds the keys of pods that a quota of the super cluster rejected.
	QuotaWaiters QuotaWaiters

	once  sync.Once
	table *table

	warnings warnings
}
