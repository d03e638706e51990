package kind

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/memo"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// QuietTime is how long a key waits for a precondition that is usually met at once before the tenant gets an Event: a
// service account, a cluster IP, a quota whose usage lags behind deletions.
const QuietTime = 1500 * time.Millisecond

// Reasons of Events on tenant objects.
const (
	// ReasonNamespaceConflict: the super namespace that a tenant namespace needs has another owner; the syncer syncs
	// nothing of the tenant namespace.
	ReasonNamespaceConflict = "NamespaceConflict"
	// ReasonSuperNamespaceTerminating: the super cluster has been deleting the super namespace of a tenant namespace
	// for longer than a minute; the syncer syncs nothing of the tenant namespace until it is gone.
	ReasonSuperNamespaceTerminating = "SuperNamespaceTerminating"
	// ReasonConflict: the super object or Node that a tenant object needs has another owner, or the volume to which a
	// super claim is bound; the syncer leaves it as it is.
	ReasonConflict = "Conflict"
	// ReasonWaitsForPredecessor: the super object of an earlier object of that name is still being deleted, as a pod
	// whose containers take long to stop; the syncer creates the super object once it is gone.
	ReasonWaitsForPredecessor = "WaitsForPredecessor"
	// ReasonFailedCreate: the API server of the super cluster refused the super object that the syncer creates for a
	// tenant object, or what that needs is not there: the service account or a claim of a pod, or a Node that it may
	// run on; the StorageClass of a claim, or the snapshot that it is restored from; the claim of a snapshot. On a
	// namespace: the super namespace, its quota, or what isolates its pods.
	ReasonFailedCreate = "FailedCreate"
	// ReasonFailedUpdate: the API server of the super cluster refused the syncer's update of a super object with a
	// change of the tenant object.
	ReasonFailedUpdate = "FailedUpdate"
	// ReasonClusterIPDiffers: the cluster IP of a Service is not in spec.serviceCIDRs of the VirtualCluster, so the
	// super cluster allocated another one.
	ReasonClusterIPDiffers = "ClusterIPDiffers"
	// ReasonNodePortOutOfRange: a node port of a Service is not in spec.serviceNodePortRange of the VirtualCluster. The
	// syncer creates the super Service without node ports, or leaves it as it is.
	ReasonNodePortOutOfRange = "NodePortOutOfRange"
	// ReasonMissingClusterDNS: a pod has DNS policy ClusterFirst and the tenant has no Service kube-system/kube-dns
	// with a cluster IP; the syncer created the super pod with the DNS of its node.
	ReasonMissingClusterDNS = "MissingClusterDNS"
	// ReasonFailedToken: the tenant's API server refused the syncer's TokenRequest for a pod, or had an internal error,
	// its tokens are too long or too many or end too soon, or the super cluster refused the Secret with the tokens.
	ReasonFailedToken = "FailedToken"
	// ReasonFailedTrustBundle: a ClusterTrustBundle that a pod projects is missing in the tenant's control plane, or cannot
	// be read there, or the bundles of the pod or of the tenant are too many or too large. The pod keeps those that it has.
	ReasonFailedTrustBundle = "FailedTrustBundle"
	// ReasonFailedPodCertificate: a certificate that a pod projects (podCertificate) is not there, or is not renewed: the
	// tenant's control plane serves no PodCertificateRequests or refuses them, the signer denies the request or lets it
	// wait, or what it issued is not of the request or too large. A pod without it does not start; one that runs keeps
	// what it has.
	ReasonFailedPodCertificate = "FailedPodCertificate"
	// ReasonTenantLimit: the tenant's objects of this kind in the super cluster, or their size, reach a limit of the
	// TenantPolicy, or one object holds more than may go down. The syncer does not create the super object, or leaves
	// it as it is, until there is room, or the object is smaller.
	ReasonTenantLimit = "TenantLimit"
	// ReasonSuperClusterClosed: a pod without super pod names a super cluster whose virtual Node is cordoned, has a taint
	// that the pod does not tolerate, or a version of Kubernetes that lacks a field of the pod. The syncer creates the
	// super pod once the Node is open.
	ReasonSuperClusterClosed = "SuperClusterClosed"
	// ReasonSuperClusterFailed: the super cluster that was chosen for a pod has refused it, or found no node for it,
	// for longer than --pod-patience; or the one that was chosen for a claim has refused it, or has not its
	// StorageClass. The syncer has removed super object and choice, and the pod scheduler chooses again. It is the
	// reason of a pod's condition PodScheduled, too.
	ReasonSuperClusterFailed = "SuperClusterFailed"
	// ReasonVolumeLost: the super claim of a bound claim is gone; the syncer deletes the claim's volume in the tenant,
	// and the claim becomes Lost. Or the super cluster has lost the volume of the super claim.
	ReasonVolumeLost = "VolumeLost"
	// ReasonClaimKept: a super claim with a volume has no claim in its tenant, and nobody has seen the tenant delete
	// that. It stays until the operator deletes it in the super cluster. The Event is on the virtual Node, one for all
	// of a tenant, with their number.
	ReasonClaimKept = "ClaimKept"
	// ReasonVirtualClusterMissing: the super cluster holds namespaces of a VirtualCluster that the meta cluster lacks,
	// and that nobody has seen being deleted. They stay, and what is in them runs, until the operator deletes them. The
	// Event is on the virtual Node, and without a pool on the super namespace.
	ReasonVirtualClusterMissing = "VirtualClusterMissing"
	// ReasonClaimsKept: the super namespace that a tenant namespace needs holds claims of an earlier namespace of its
	// name, whose deletion nobody has seen; the syncer syncs nothing of the tenant namespace until they are gone.
	ReasonClaimsKept = "ClaimsKept"
	// ReasonVolumeUnused: a claim is bound to another volume than the one that the super cluster has made for it. The
	// super claim and its volume stay, and count, until the claim is deleted.
	ReasonVolumeUnused = "VolumeUnused"
	// ReasonTolerationsLeftOut: a pod has tolerations that the TenantPolicy does not let it have (pods.tolerations), or
	// more than 64, or was given another one when it had had 128 in the super cluster, where none is taken back. It is
	// there without them.
	ReasonTolerationsLeftOut = "TolerationsLeftOut"
	// ReasonFieldLeftOut: a pod is in a scheduling group or names responders to evictions (schedulingGroup,
	// evictionResponders). It is there without them: they are objects of the tenant.
	ReasonFieldLeftOut = "FieldLeftOut"
	// ReasonFieldsDropped: the super cluster has made a pod without some of its fields: its Kubernetes is older than they
	// are, a feature gate is off, or its admission has taken them off. The message names up to eight.
	ReasonFieldsDropped = "FieldsDropped"
	// ReasonReadinessSlowed: a pod of over 16 KiB is there with a longer periodSeconds of its readiness probes, up to
	// 60: each time it becomes ready or not, its node writes all of it.
	ReasonReadinessSlowed = "ReadinessSlowed"
	// ReasonExternalIPsLeftOut: a Service has external IPs. It is there without them: they would divert the traffic of
	// others. A load balancer or an Ingress gives it an address.
	ReasonExternalIPsLeftOut = "ExternalIPsLeftOut"
	// ReasonSuperPodDeleted: the super pod of a bound pod is being deleted, as by a drain, or is gone; the syncer
	// deletes the pod in the tenant.
	ReasonSuperPodDeleted = "SuperPodDeleted"
)

// Topic is something of an object about which its tenant is warned, whatever the last warning about something else of
// it said.
type Topic struct {
	engine.Key
	// Of is what of the object, "" for its copy, as of WarnOnce and Settle.
	Of string
}

// WarnOnce records an Event of type Warning on a tenant object, unless the last one recorded for key is equal. Where
// the recorder has no room for it, the next reconcile of key records it: the patrol's, if none is sooner.
func (e *Env) WarnOnce(tenant *Tenant, key engine.Key, object client.Object, reason, message string) {
	e.WarnAbout(tenant, Topic{Key: key}, object, reason, message)
}

// WarnAbout is WarnOnce for a Topic, which is to be cleared by its own (Warnings.Clear).
func (e *Env) WarnAbout(tenant *Tenant, topic Topic, object client.Object, reason, message string) {
	message = tenancy.Cut(message, tenancy.MaxEventNote)
	if !e.Warnings.isNew(topic, aboutOf(object, reason), message) {
		return
	}
	if !tenant.Recorder.Event(object, corev1.EventTypeWarning, reason, message) {
		e.Warnings.unsaid(topic)
	}
}

// SetRefused notes whether the super cluster has refused to make what an object needs there, or has another's of that
// name.
func (e *Env) SetRefused(key engine.Key, object client.Object, refused bool) {
	e.refused.Update(key, func(types.UID, bool) (types.UID, bool) { return object.GetUID(), refused })
}

// IsRefused returns whether the super cluster has refused to make what an object needs there (SetRefused).
func (e *Env) IsRefused(key engine.Key, object client.Object) bool {
	refused, known := e.refused.Get(key)
	return known && refused == object.GetUID()
}

// warned returns whether the last warning about key was about this object, with one of some reasons, also where the
// recorder had no room for it.
func (e *Env) warned(key engine.Key, object client.Object, reasons ...string) bool {
	return slices.ContainsFunc(reasons, func(reason string) bool {
		is, _ := e.Warnings.isAbout(key, aboutOf(object, reason))
		return is
	})
}

// Said returns whether the last warning about key was about this object, with that reason, and the recorder had room
// for it.
func (e *Env) Said(key engine.Key, object client.Object, reason string) bool {
	is, said := e.Warnings.isAbout(key, aboutOf(object, reason))
	return is && said
}

func aboutOf(object client.Object, reason string) string { return string(object.GetUID()) + reason }

// Settle clears the last warning about key, so that the next one is recorded even if it is equal, and removes key
// from those that wait for room, or were refused. Call it when key is in sync or gone.
func (e *Env) Settle(key engine.Key) {
	e.QuotaWaiters.Remove(key)
	e.Tally.stopWaiting(key)
	for _, share := range e.kinds().spec(key.Kind).Shares {
		e.Tally.stopWaiting(share.Key(key))
	}
	e.refused.Delete(key)
	e.Warnings.Clear(Topic{Key: key})
}

// Forget drops all that is remembered of a tenant that is no longer connected: its informers have stopped, so no key
// would clear it. So it does of one on which another process has worked since it was noted.
func (e *Env) Forget(tenant string) {
	for _, memory := range [...]interface{ Forget(tenant string) }{&e.QuotaWaiters, &e.Tally, &e.Warnings, &e.refused, &e.kept} {
		memory.Forget(tenant)
	}
	e.mu.Lock()
	forgets := slices.Clone(e.forgets)
	e.mu.Unlock()
	for _, forget := range forgets {
		forget(tenant)
	}
}

// WarnRefused warns the tenant, and returns true, if err is a refusal of the super cluster's API server
// (engine.IsRefusal). It ignores other errors, nil, and refusals because the super namespace is terminating.
func (e *Env) WarnRefused(tenant *Tenant, key engine.Key, object client.Object, reason string, err error) bool {
	return e.WarnRefusedAbout(tenant, Topic{Key: key}, object, reason, err)
}

// WarnRefusedAbout is WarnRefused for a Topic.
func (e *Env) WarnRefusedAbout(tenant *Tenant, topic Topic, object client.Object, reason string, err error) bool {
	if !engine.IsRefusal(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false
	}
	e.WarnAbout(tenant, topic, object, reason, fmt.Sprintf("Super cluster %s: %s", e.ID, e.InTenantsWords(tenant, topic.Key, err)))
	return true
}

// InTenantsWords returns a refusal with the tenant's name of the namespace: that of the super namespace means nothing
// in the tenant.
func (e *Env) InTenantsWords(tenant *Tenant, key engine.Key, err error) string {
	namespace := cmp.Or(key.Namespace, key.Name) // the name is that of a namespace
	return strings.ReplaceAll(err.Error(), tenancy.SuperNamespace(tenant.Key, namespace), namespace)
}

// warnings holds the last warning about each Topic, so that only another one becomes an Event. The zero value holds
// none. All methods may be called concurrently.
type warnings struct{ last memo.Map[Topic, warning] }

// warning are hashes of what a warning is about, and of its text: a tenant may have one of a kilobyte about each of its
// objects.
type warning struct{ about, text uint64 }

// seed makes it impossible to choose texts with equal hashes.
var seed = maphash.MakeSeed()

// isNew stores text as the last warning about a topic, and returns whether it, or what it is about, differs from the
// one before.
func (w *warnings) isNew(topic Topic, about, text string) (isNew bool) {
	current := warning{about: maphash.String(seed, about), text: maphash.String(seed, text)}
	w.last.Update(topic, func(last warning, known bool) (warning, bool) {
		isNew = !known || last != current
		return current, true
	})
	return isNew
}

// isAbout returns whether the last warning about the copy of a key is about that, and whether it was said.
func (w *warnings) isAbout(key engine.Key, about string) (is, said bool) {
	last, known := w.last.Get(Topic{Key: key})
	return known && last.about == maphash.String(seed, about), last.text != 0
}

// unsaid notes that nobody has read the last warning about a topic: the next one is new, whatever it says.
func (w *warnings) unsaid(topic Topic) {
	w.last.Update(topic, func(last warning, known bool) (warning, bool) {
		return warning{about: last.about}, known // no text has hash 0, but by chance
	})
}

// Clear forgets the last warning about a topic.
func (w *warnings) Clear(topic Topic) { w.last.Delete(topic) }

// Forget drops the warnings of a tenant.
func (w *warnings) Forget(tenant string) {
	w.last.DeleteFunc(func(topic Topic, _ warning) bool { return topic.Tenant == tenant })
}

// maxLost bounds how many of a list an Event names.
const maxLost = 5

// SomeOf returns a list for an Event, the first maxLost of it.
func SomeOf(lost []string) string {
	if more := len(lost) - maxLost; more > 0 {
		lost = append(lost[:maxLost:maxLost], fmt.Sprintf("%d more", more))
	}
	return strings.Join(lost, ", ")
}

// AwaitEnd waits for the end of a super object that is being deleted, which enqueues the key, and tells the tenant.
func (e *Env) AwaitEnd(tenant *Tenant, key engine.Key, tenantObject client.Object, waited time.Duration) error {
	if waited < QuietTime {
		return engine.Waitf("the end of a super %s", TitleOf(key.Kind))
	}
	e.WarnOnce(tenant, key, tenantObject, ReasonWaitsForPredecessor, fmt.Sprintf(
		"Super cluster %s is still deleting an earlier %s of that name: this one goes there once that is gone. One of another name need not wait", e.ID, TitleOf(key.Kind)))
	return nil
}
