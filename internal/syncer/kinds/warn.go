package kinds

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// Reasons of Events on tenant objects.
const (
	// ReasonNamespaceConflict says that the super namespace of that name belongs to somebody else.
	ReasonNamespaceConflict = "NamespaceConflict"
	// ReasonConflict says that the super object of that name belongs to somebody else.
	ReasonConflict = "Conflict"
	// ReasonSuperClusterNotPlaced says that a pod names a super cluster in which its namespace holds nothing.
	ReasonSuperClusterNotPlaced = "SuperClusterNotPlaced"
	// ReasonNodeNameNotSupported says that a tenant wrote a pod's spec.nodeName.
	ReasonNodeNameNotSupported = "NodeNameNotSupported"
	// ReasonFailedCreate says that the super cluster refused an object.
	ReasonFailedCreate = "FailedCreate"
	// ReasonFailedUpdate says that the super cluster refused a change of an object.
	ReasonFailedUpdate = "FailedUpdate"
	// ReasonClusterIPDiffers says that a Service has another address in the super cluster than in the tenant.
	ReasonClusterIPDiffers = "ClusterIPDiffers"
	// ReasonMissingClusterDNS says that a pod wants the cluster's DNS and the tenant has no such Service.
	ReasonMissingClusterDNS = "MissingClusterDNS"
	// ReasonFailedToken says that the tenant refused a token for a pod.
	ReasonFailedToken = "FailedToken"
	// ReasonSuperPodDeleted says that the super cluster deletes a pod that was bound there, or no longer has it.
	ReasonSuperPodDeleted = "SuperPodDeleted"
)

// warnOnce records an Event on a tenant object when the last one about key said something else.
func (e *Env) warnOnce(tenant *Tenant, key engine.Key, object client.Object, reason, message string) {
	text := string(object.GetUID()) + reason + message
	if !e.warnings.isNew(key, text) {
		return
	}
	tenant.Recorder.Event(object, corev1.EventTypeWarning, reason, message)
}

// warned says whether the last warning about key was about this object, for that reason.
func (e *Env) warned(key engine.Key, object client.Object, reason string) bool {
	return e.warnings.begins(key, string(object.GetUID())+reason)
}

// clearWarning clears the last warning about key, so that the next one is recorded again, and takes it from the quota
// waiters. Call it when key is in sync or gone.
func (e *Env) clearWarning(key engine.Key) {
	e.QuotaWaiters.Remove(key)
	e.warnings.clear(key)
}

// Forget drops what is remembered of a tenant that has left: what it deletes from now on enqueues no key that would
// clear it.
func (e *Env) Forget(tenant string) {
	e.QuotaWaiters.removeAll(tenant)
	e.warnings.forget(tenant)
}

// warnRefused warns the tenant when err says that the super cluster does not take an object for what it is.
func (e *Env) warnRefused(tenant *Tenant, key engine.Key, object client.Object, reason string, err error) {
	if !engine.IsRefusal(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	// In the tenant's words: the names of super namespaces are no business of a tenant.
	text := strings.ReplaceAll(err.Error(), tenancy.SuperNamespace(tenant.Key, key.Namespace), key.Namespace)
	e.warnOnce(tenant, key, object, reason, fmt.Sprintf("Super cluster %s: %s", e.ID, text))
}

// warnings holds the last warning about each key, so that only a new one becomes an Event. The zero value holds none.
// All methods may be called concurrently.
type warnings struct {
	mu   sync.Mutex
	last map[engine.Key]string
}

// isNew says whether text differs from the last warning about key, which it becomes.
func (w *warnings) isNew(key engine.Key, text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[key] == text {
		return false
	}
	if w.last == nil {
		w.last = map[engine.Key]string{}
	}
	w.last[key] = text
	return true
}

// begins says whether the last warning about key begins with prefix.
func (w *warnings) begins(key engine.Key, prefix string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.HasPrefix(w.last[key], prefix)
}

func (w *warnings) clear(key engine.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, key)
}

// forget drops the warnings of a tenant.
func (w *warnings) forget(tenant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.last, func(key engine.Key, _ string) bool { return key.Tenant == tenant })
}
