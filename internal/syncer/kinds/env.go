// Package kinds holds one reconciler per synced kind. Each has pure functions that write the fields which Superpool owns onto an
// object, an empty one or a copy of what is there; a reconciler reads both sides from caches, applies its function, and
// writes when the result differs. What a tenant wrote is hostile input everywhere.
package kinds

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
)

// IndexTenant finds super objects by cluster key.
const IndexTenant = "tenant"

// Reasons of Events on tenant objects.
const (
	// ReasonNamespaceConflict says that the super namespace of that name belongs to somebody else.
	ReasonNamespaceConflict = "NamespaceConflict"
	// ReasonConflict says that the super object of that name belongs to somebody else.
	ReasonConflict = "Conflict"
	// ReasonNotPlaced says that a pod names a super cluster in which its namespace holds nothing.
	ReasonNotPlaced = "NotPlaced"
	// ReasonNodeNameNotSupported says that a tenant wrote a pod's spec.nodeName.
	ReasonNodeNameNotSupported = "NodeNameNotSupported"
	// ReasonFailedCreate says that the super cluster refused an object.
	ReasonFailedCreate = "FailedCreate"
	// ReasonFailedUpdate says that the super cluster refused a change of an object.
	ReasonFailedUpdate = "FailedUpdate"
	// ReasonOtherAddress says that a Service has another address in the super cluster than in the tenant.
	ReasonOtherAddress = "OtherAddress"
	// ReasonMissingClusterDNS says that a pod wants the cluster's DNS and the tenant has no such Service.
	ReasonMissingClusterDNS = "MissingClusterDNS"
	// ReasonFailedToken says that the tenant refused a token for a pod.
	ReasonFailedToken = "FailedToken"
	// ReasonSuperPodDeleted says that the super cluster deletes a pod that was bound there, or no longer has it.
	ReasonSuperPodDeleted = "SuperPodDeleted"
)

// Cache reads what informers hold. What it returns must not be changed.
type Cache interface {
	// Get returns an object, nil if there is none. synced is false when the cache which would hold it is not filled, or
	// does not exist: then nil says nothing.
	Get(kind, namespace, name string) (object client.Object, synced bool)
	// InNamespace returns the objects of a kind in a namespace.
	InNamespace(kind, namespace string) []client.Object
	// Index returns the objects of a kind with that value of an index.
	Index(kind, index, value string) []client.Object
	// List returns all objects of a kind.
	List(kind string) []client.Object
}

// Tenant is a tenant that is connected.
type Tenant struct {
	*tenants.Tenant
	// Client reads and writes the control plane, without a cache.
	Client client.Client
	// Cache holds what is watched of it.
	Cache Cache
	// Recorder writes Events there.
	Recorder record.EventRecorder
}

func (t *Tenant) owner(namespace string, uid types.UID) tenancy.Owner {
	return tenancy.Owner{ClusterKey: t.Key, VirtualCluster: t.VirtualCluster, VirtualClusterUID: t.UID, Namespace: namespace, UID: uid}
}

// owns says whether owner is this tenant and its namespace of that name.
func (t *Tenant) owns(owner tenancy.Owner, namespace string) bool {
	return owner == t.owner(namespace, owner.UID)
}

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
	// Line is where pods wait for room in a quota.
	Line Line

	once  sync.Once
	table *table

	mu sync.Mutex
	// warned holds the last warning about each key, so that only a new one becomes an Event.
	warned map[engine.Key]string
}

// namespacePlaced says whether what pods need may be written for a tenant namespace: it is placed here, and namespaceOwned.
func (e *Env) namespacePlaced(ctx context.Context, tenant *Tenant, namespace string) (bool, error) {
	found, err := e.Assignments.Of(ctx, tenant.Key, namespace)
	if err != nil || found.State != assign.Placed {
		return false, err
	}
	return e.namespaceOwned(tenant, namespace, found.UID), nil
}

// namespaceReady says whether what a tenant has everywhere may be written for one of its namespaces, placed here or not.
func (e *Env) namespaceReady(_ context.Context, tenant *Tenant, namespace string) (bool, error) {
	tenantNamespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", namespace)
	return exists && e.namespaceOwned(tenant, namespace, tenantNamespace.UID), nil
}

// namespaceOwned says whether the super namespace and the quota of a tenant namespace exist, carry our owner with this UID, and are not
// terminating.
func (e *Env) namespaceOwned(tenant *Tenant, namespace string, uid types.UID) bool {
	name := tenancy.SuperNamespace(tenant.Key, namespace)
	superNamespace, _ := e.SuperCache.Get(KindNamespace, "", name)
	quota, _ := e.SuperCache.Get(KindQuota, name, quotaName)
	for _, object := range []client.Object{superNamespace, quota} {
		if object == nil || object.GetDeletionTimestamp() != nil {
			return false
		}
		if owner, ok := tenancy.OwnerOf(object); !ok || owner != tenant.owner(namespace, uid) {
			return false
		}
	}
	return true
}

// done counts and logs a write. A conflict is no failure: the cache was behind, and the next try sees what is there.
func (e *Env) done(ctx context.Context, kind, operation string, err error) error {
	if apierrors.IsConflict(err) {
		err = engine.Waitf("the cache, %s of %s: %v", operation, kind, err)
	}
	e.Metrics.Operation(kind, operation, err)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", operation, kind, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote", "object", kind, "operation", operation)
	return nil
}

// remove deletes exactly the object with this UID. Gone already is success. grace is in seconds; nil leaves it to the object.
func (e *Env) remove(ctx context.Context, to client.Client, kind, operation string, object client.Object, grace *int64) error {
	uid := object.GetUID()
	options := &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: grace}
	return e.done(ctx, kind, operation, client.IgnoreNotFound(to.Delete(ctx, object, options)))
}

// warn records an Event on a tenant object when the last one about key said something else.
func (e *Env) warn(tenant *Tenant, key engine.Key, object client.Object, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := string(object.GetUID()) + reason + message
	if e.warned[key] == text {
		return
	}
	if e.warned == nil {
		e.warned = map[engine.Key]string{}
	}
	e.warned[key] = text
	tenant.Recorder.Event(object, corev1.EventTypeWarning, reason, message)
}

// calm forgets what was warned about key, and that it waits: it is well, or gone.
func (e *Env) calm(key engine.Key) {
	e.Line.Leave(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.warned, key)
}

// Forget drops what is remembered of a tenant that has left: what it deletes from now on brings no key that would calm it.
func (e *Env) Forget(tenant string) {
	e.Line.leaveAll(tenant)
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.warned, func(key engine.Key, _ string) bool { return key.Tenant == tenant })
}

// refused warns the tenant when err says that the super cluster does not take an object for what it is.
func (e *Env) refused(tenant *Tenant, key engine.Key, object client.Object, reason string, err error) {
	refusal := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	if !refusal || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	// In the tenant's words: the names of super namespaces are no business of a tenant.
	text := strings.ReplaceAll(err.Error(), tenancy.SuperNamespace(tenant.Key, key.Namespace), key.Namespace)
	e.warn(tenant, key, object, reason, fmt.Sprintf("Super cluster %s: %s", e.ID, text))
}

// marked says whether object carries our label; without it no cache shows it.
func marked(object client.Object) bool {
	return object.GetLabels()[tenancyv1alpha1.LabelCluster] != ""
}

// get reads a cache as a concrete type; the zero T is returned for nothing.
func get[T client.Object](cache Cache, kind, namespace, name string) (object T, exists, synced bool) {
	found, synced := cache.Get(kind, namespace, name)
	object, exists = found.(T)
	return object, exists, synced
}

// orEmpty returns object if it exists, else an empty one.
func orEmpty[T any](object *T, exists bool) *T {
	if exists {
		return object
	}
	return new(T)
}
