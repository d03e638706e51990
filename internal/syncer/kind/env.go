// Package kind is what a synced kind is: its declaration (Spec), what all kinds share (Env, Tenant), and what each
// write of theirs passes: limits, rates, proofs of deletions, ownership, and the words that tenants read. It knows no
// kind but by name. Objects of tenants are hostile input everywhere.
package kind

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
)

// Env holds the clients, caches and options of all kinds. All workers share it; its exported fields must not change
// once it is in use.
type Env struct {
	// ID is the super cluster id, SuperUID the UID of its namespace kube-system.
	ID       string
	SuperUID types.UID
	// Super reads and writes the super cluster, without a cache. In a syncer it is that of LimitWrites.
	Super client.Client
	// SuperCache holds the super cluster's Nodes and Events of pods, and of other kinds the objects with our ownership
	// label.
	SuperCache Cache
	// Answered returns when the super cluster last answered; a nil function stands for now.
	Answered func() time.Time
	// Assignments answers which namespaces of the tenants belong into this super cluster.
	Assignments assign.Assignments
	// Tenant returns the connected tenant with that key, nil if there is none. Tenants returns all of them, sorted by
	// key.
	Tenant  func(key string) *Tenant
	Tenants func() []*Tenant
	// Resync adds keys to their queues, of objects that may have to change. It sends no request.
	Resync func(keys []engine.Key)
	// SuperHost is the server of the super cluster's client configuration. Pods of isolated tenants may not reach it.
	SuperHost string
	// Missing returns whether the meta cluster has no VirtualCluster of that name and UID. A nil function stands for
	// one that returns false.
	Missing func(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error)
	// VirtualNode returns the Node of this super cluster in the meta cluster, nil if there is none; a nil function
	// stands for no Node.
	VirtualNode func() *corev1.Node
	// Member reads the virtual Node of any super cluster of the pool from the meta cluster, nil if that lacks it. A nil
	// function stands for nothing known of others.
	Member func(ctx context.Context, superCluster string) (*corev1.Node, error)
	// Told returns the ClusterAddresses in a namespace of the meta cluster, as an informer shows them, sorted by name,
	// which must not be changed. Meta writes those of this super cluster. Both are nil without a pool.
	Told func(namespace string) []*tenancyv1alpha1.ClusterAddresses
	Meta client.Writer
	// MetaRecorder records Events in the meta cluster; nil records none.
	MetaRecorder record.EventRecorder
	// PodSecurityLevel is the least Pod Security Standard that is enforced in super namespaces, whatever policies say;
	// "" sets no label.
	PodSecurityLevel string
	// VNAgent is the kubelet endpoint that the tenants' Nodes name.
	VNAgent VNAgent
	// NodeLinger is how long a tenant keeps a Node that none of its pods is bound to; 0 means 60 seconds.
	NodeLinger time.Duration
	// LeaseRenewal is how often the Lease of a tenant's Node is renewed; 0 means 20 seconds.
	LeaseRenewal time.Duration
	// PodPatience is how long this super cluster may take to find a node for a pod, or to make a claim, before the
	// choice is taken back: at least choice.MinPodPatience; 0 means for ever.
	PodPatience time.Duration
	// Clock measures time.
	Clock clock.PassiveClock
	// Metrics counts writes.
	Metrics *engine.Metrics
	// QuotaWaiters holds the keys of pods that a quota of the super cluster rejected.
	QuotaWaiters QuotaWaiters

	// Declared are the kinds that are always synced (kinds.Specs); SyncPolicies add others (Extend).
	Declared []Spec

	once  sync.Once
	table atomic.Pointer[table]
	// isExtended is whether Extend was called, with what there is.
	isExtended atomic.Bool

	mu      sync.Mutex
	forgets []func(tenant string)
	states  sync.Map

	Warnings  warnings
	refused   engine.Memo[types.UID]
	kept      kept
	Tally     tally
	liveReads TenantRates
}

// Belongs returns whether a tenant's pod belongs into this super cluster (assign.Assignments.PodSelector).
func (e *Env) Belongs(tenantPod *corev1.Pod) bool {
	selector, err := labels.Parse(e.Assignments.PodSelector())
	return err == nil && selector.Matches(labels.Set(tenantPod.Labels))
}

// LastAnswer returns when the super cluster last answered, no later than now, as precisely as Leases say it.
func (e *Env) LastAnswer() time.Time {
	last := e.Clock.Now()
	if e.Answered != nil {
		if answered := e.Answered(); answered.Before(last) {
			last = answered
		}
	}
	return last.Truncate(time.Microsecond)
}

// OnForget lets forget be called with each tenant that Forget forgets.
func (e *Env) OnForget(forget func(tenant string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgets = append(e.forgets, forget)
}

// State returns the value of a type that kinds keep with an Env: its zero value before the first call. If it has a
// method Forget that is called with each tenant that the Env forgets. It may be called concurrently.
func State[T any](e *Env) *T {
	if known, exists := e.states.Load(reflect.TypeFor[T]()); exists {
		return known.(*T) //nolint:forcetypeassert // its key is its type
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	made := new(T)
	known, exists := e.states.LoadOrStore(reflect.TypeFor[T](), made)
	if forgets, ok := any(made).(interface{ Forget(tenant string) }); ok && !exists {
		e.forgets = append(e.forgets, forgets.Forget)
	}
	return known.(*T) //nolint:forcetypeassert // its key is its type
}

// VNAgent is the kubelet endpoint in the status of the tenants' Nodes.
type VNAgent struct {
	// Port of the kubelet API; 0 for none.
	Port int32
	// Address of one vn-agent for all nodes; "" means that one runs on each node, at its addresses.
	Address string
}
