package superclusters

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// AnnotationClusterRef on a virtual Node names the Cluster that it stands for, as <namespace>/<name>.
	// Written by vc-scheduler; read by vc-scheduler.
	AnnotationClusterRef = "scheduler.tenancy.x-k8s.io/cluster-ref"
	// AnnotationTopology on a virtual Node holds the topology labels that were set for the super cluster, as JSON. An
	// operator's own labels are recognised by not being in it. Written by vc-scheduler; read by vc-scheduler.
	AnnotationTopology = "scheduler.tenancy.x-k8s.io/topology"

	labelType       = "type"
	typeVirtualNode = "virtual-kubelet"

	// heartbeatPeriod is how often an unchanged condition is written anew. The Lease beats faster.
	heartbeatPeriod = 5 * time.Minute
)

// Reasons of the Ready condition of virtual Nodes, and of Events on Clusters.
const (
	// ReasonSuperClusterReady: the super cluster answers, and vc-scheduler's informers have listed its nodes and pods.
	ReasonSuperClusterReady = "SuperClusterReady"
	// ReasonNoNodes: no node of the super cluster is Ready and schedulable. The virtual Node is Ready, with no
	// allocatable.
	ReasonNoNodes = "SuperClusterHasNoNodes"
	// ReasonSuperClusterUnreachable: the super cluster's API server does not answer vc-scheduler. The virtual Node's
	// Ready condition is Unknown. After a while the super cluster counts as lost.
	ReasonSuperClusterUnreachable = "SuperClusterUnreachable"
	// ReasonSuperClusterRefuses: the super cluster's API server answers, and refuses what vc-scheduler asks: its
	// credentials or rights are gone, or etcd does not answer. The virtual Node's Ready condition is Unknown, and what
	// runs there stays.
	ReasonSuperClusterRefuses = "SuperClusterRefuses"
	// ReasonOwnerUnknown: the super cluster's API server answers, and the meta cluster does not answer whose super
	// cluster it is. vc-scheduler asks again, with backoff, and what runs there stays.
	ReasonOwnerUnknown = "OwnerUnknown"
	// ReasonClusterNotSelected: vc-scheduler's --cluster-selector does not select a Cluster that is a super cluster
	// already. It stays one until it is drained and deleted.
	ReasonClusterNotSelected = "ClusterNotSelected"
	// ReasonSecretNotFound: the kubeconfig Secret of a Cluster, or its data key, is missing.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonInvalidKubeconfig: vc-scheduler refuses the kubeconfig in the Secret of a Cluster.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonUnreachable: the API server in the kubeconfig of a Cluster does not answer vc-scheduler, or refuses its
	// requests.
	ReasonUnreachable = "Unreachable"
	// ReasonSuperClusterInfoMissing: the super cluster has no ConfigMap supercluster-info with its id.
	ReasonSuperClusterInfoMissing = "SuperClusterInfoMissing"
	// ReasonInvalidID: the id in the super cluster's ConfigMap cannot name a Node.
	ReasonInvalidID = "InvalidID"
	// ReasonDuplicateID: another Cluster owns the super cluster id of this Cluster.
	ReasonDuplicateID = "DuplicateID"
	// ReasonDuplicateControlPlane: the super cluster of this Cluster is the meta cluster, or the control plane of a
	// tenant. vc-scheduler does not work on it.
	ReasonDuplicateControlPlane = "DuplicateControlPlane"
	// ReasonNodeConflict: the meta cluster has a Node with the name of the super cluster id that vc-scheduler did not
	// create.
	ReasonNodeConflict = "NodeConflict"
	// ReasonSuperClusterChanged: the super cluster of a Cluster has another UID than the one that had its id before. It
	// is another cluster, a clone, or one that was made anew, so vc-scheduler does not work on it.
	ReasonSuperClusterChanged = "SuperClusterChanged"
	// ReasonOvercommitted: tenants have reserved more in the super cluster, or may use more there beyond what they have
	// reserved, than its nodes can hold, headroom kept. The message has the figures.
	ReasonOvercommitted = "Overcommitted"
	// ReasonWithinCapacity: what tenants have reserved in the super cluster, and may use there, is within what its
	// nodes can hold.
	ReasonWithinCapacity = "WithinCapacity"
	// ReasonDraining: namespaces are placed in a super cluster that is drained. The message says how many, and what
	// they wait for.
	ReasonDraining = "Draining"
	// ReasonVolumesStay: all that namespaces still have in a super cluster that is drained are volumes, which do not
	// move. Their room is kept until the tenants delete the claims and snapshots, or the super cluster is drained no
	// more.
	ReasonVolumesStay = "VolumesStay"
	// ReasonDrained: no namespace is placed in a super cluster that is drained.
	ReasonDrained = "Drained"
	// ReasonFitsElsewhere: what namespaces have in a super cluster has room in the others, were it lost.
	ReasonFitsElsewhere = "FitsElsewhere"
	// ReasonNoRoomElsewhere: some of what namespaces have in a super cluster has no room in the others, were it lost:
	// these namespaces would wait. The message says how much is missing, and names some of them.
	ReasonNoRoomElsewhere = "NoRoomElsewhere"
	// ReasonNotSimulated: it is not known whether what namespaces have in a super cluster has room in the others. The
	// message says why, and it is tried again.
	ReasonNotSimulated = "NotSimulated"
	// ReasonPodsOnVirtualNode: pods of the meta cluster are bound to the Cluster's virtual Node, where no kubelet runs
	// them.
	ReasonPodsOnVirtualNode = "PodsOnVirtualNode"
	// ReasonVersionUnknown: the super cluster's API server does not say which version of Kubernetes it has. The message
	// says what it answers. No pod is kept away for what it needs.
	ReasonVersionUnknown = "VersionUnknown"
	// ReasonInvalidHeadroom: the headroom annotation of a Cluster is invalid; the last valid one stays in force.
	ReasonInvalidHeadroom = "InvalidHeadroom"
	// ReasonInvalidStorage: the storage annotation of a Cluster is invalid; the last valid one stays in force, and 0
	// where vc-scheduler has read none since it started.
	ReasonInvalidStorage = "InvalidStorage"
)

// desiredNode is the desired state of a virtual Node.
type desiredNode struct {
	id string
	// uid identifies the super cluster, see readUID.
	uid      types.UID
	cluster  types.NamespacedName
	capacity usage.Capacity // with what is declared
	declared usage.Declared
	version  skew.Version
	// unversioned is why version is not known, nil if it is.
	unversioned error
	ready       metav1.ConditionStatus
	reason      string
	message     string
}

// newNode returns a desired virtual Node, without status.
func newNode(d *desiredNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.id, Labels: map[string]string{schedulerv1alpha1.LabelVirtualNode: d.id}}}
	applyMeta(node, d)
	return node
}

// isVirtual returns whether a Node is one that this package writes.
func isVirtual(node *corev1.Node) bool {
	return node.Labels[schedulerv1alpha1.LabelVirtualNode] != ""
}

// applyMeta writes what the pool owns of a virtual Node's metadata and spec. Labels, taints and spec.unschedulable that
// operators or other controllers set stay.
func applyMeta(node *corev1.Node, d *desiredNode) {
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Labels[schedulerv1alpha1.LabelVirtualNode] = d.id
	node.Labels[labelType] = typeVirtualNode
	node.Labels[corev1.LabelHostname] = d.id
	node.Annotations[AnnotationClusterRef] = d.cluster.String()
	if d.uid != "" {
		node.Annotations[schedulerv1alpha1.AnnotationSuperClusterUID] = string(d.uid)
	}
	if d.capacity.AllNodes > 0 {
		node.Annotations[schedulerv1alpha1.AnnotationNodeGroups] = d.capacity.Groups
		delete(node.Annotations, schedulerv1alpha1.DeprecatedAnnotationNodeShapes)
		node.Annotations[schedulerv1alpha1.AnnotationFreeShapes] = freenodes.Encode(d.capacity.Free)
		applyTopology(node, map[string]string{
			corev1.LabelTopologyRegion: d.capacity.Region,
			corev1.LabelTopologyZone:   d.capacity.Zone,
		})
	}
	applyTaint(node, corev1.Taint{Key: schedulerv1alpha1.TaintProvider, Value: schedulerv1alpha1.TaintProviderValue}, true)
	applyTaint(node, corev1.Taint{Key: schedulerv1alpha1.TaintVersionSkew}, d.versionOn(node).Outside() != tenancy.Reason{})
}

// applyTaint sets a taint NoSchedule of the pool's, or removes it. Those of the same key and effect are the pool's.
func applyTaint(node *corev1.Node, taint corev1.Taint, wanted bool) {
	taint.Effect = corev1.TaintEffectNoSchedule
	same := func(other corev1.Taint) bool { return other.MatchTaint(&taint) }
	if at := slices.IndexFunc(node.Spec.Taints, same); at >= 0 == wanted && (!wanted || node.Spec.Taints[at].Value == taint.Value) {
		return
	}
	node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), same)
	if wanted {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
}

// applyTopology sets the labels that the super cluster's nodes agree on, and removes those set before. A label with
// another value than was set before is the operator's.
func applyTopology(node *corev1.Node, wanted map[string]string) {
	set := map[string]string{}
	if err := json.Unmarshal([]byte(node.Annotations[AnnotationTopology]), &set); err != nil {
		set = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		current, exists := node.Labels[key]
		if exists && current != set[key] {
			delete(set, key)
			continue
		}
		delete(node.Labels, key)
		delete(set, key)
		if wanted[key] != "" {
			node.Labels[key] = wanted[key]
			set[key] = wanted[key]
		}
	}
	if len(set) == 0 {
		delete(node.Annotations, AnnotationTopology)
		return
	}
	text, err := json.Marshal(set)
	if err != nil {
		panic(err) // a map of strings can always be encoded
	}
	node.Annotations[AnnotationTopology] = string(text)
}

// applyStatus writes capacity and the conditions. It returns whether anything changed that must be written.
func applyStatus(node *corev1.Node, d *desiredNode, now time.Time) bool {
	changed := false
	if d.capacity.AllNodes > 0 || d.ready == metav1.ConditionTrue {
		room := d.declared.Headroom.Apply(d.capacity.Offered).Minus(d.capacity.Beyond)
		if d.declared.Storage != nil {
			room[corev1.ResourceStorage] += 0 // none is left: without the row it would take any amount
		}
		list := room.List()
		if !apiequality.Semantic.DeepEqual(node.Status.Allocatable, list) || !apiequality.Semantic.DeepEqual(node.Status.Capacity, list) {
			node.Status.Allocatable, node.Status.Capacity = list, list.DeepCopy()
			changed = true
		}
	}
	changed = applyReady(node, d.ready, d.reason, d.message, now) || changed
	changed = applyVersion(node, d, now) || changed
	if d.ready != metav1.ConditionTrue {
		return changed // what the super cluster said last may be out of date
	}
	return applyOvercommitted(node, d, now) || changed
}

// applyOvercommitted writes the condition Overcommitted, when it changed.
func applyOvercommitted(node *corev1.Node, d *desiredNode, now time.Time) bool {
	return setCondition(node, overcommitted(d), now)
}

// versionOn returns the version of the super cluster: the one that its Node says where this process does not know it.
func (d *desiredNode) versionOn(node *corev1.Node) skew.Version {
	if d.version != (skew.Version{}) {
		return d.version
	}
	return skew.Of(node)
}

// applyVersion writes the version of the super cluster, where kubectl prints that of a node, and the condition
// VersionSkew, when they changed.
func applyVersion(node *corev1.Node, d *desiredNode, now time.Time) bool {
	version := d.versionOn(node)
	changed := node.Status.NodeInfo.KubeletVersion != version.Text
	node.Status.NodeInfo.KubeletVersion = version.Text
	condition := corev1.NodeCondition{Type: schedulerv1alpha1.NodeVersionSkew}
	switch outside := version.Outside(); {
	case version == skew.Version{} && d.unversioned != nil:
		condition.Status, condition.Reason = corev1.ConditionUnknown, ReasonVersionUnknown
		condition.Message = tenancy.Cut("The version of the API server is not known: "+d.unversioned.Error(), tenancy.MaxConditionMessage)
	case outside != tenancy.Reason{}:
		condition.Status, condition.Reason = corev1.ConditionTrue, outside.Reason
		condition.Message = outside.Message + ". Nothing new is sent there, and what runs there goes on"
	default:
		return removeCondition(node, condition.Type) || changed
	}
	return setCondition(node, condition, now) || changed
}

// removeCondition returns whether there was one of that type.
func removeCondition(node *corev1.Node, kind corev1.NodeConditionType) bool {
	had := len(node.Status.Conditions)
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	return len(node.Status.Conditions) < had
}

// applyDrained writes the condition Drained, when it changed, and removes it where the super cluster is not drained.
// drainOf tells how far it is left, false while that is not known.
func applyDrained(node *corev1.Node, drainOf func(id string) (drain, bool), now time.Time) bool {
	if !NodeStateOf(node).Drained {
		return removeCondition(node, schedulerv1alpha1.NodeDrained)
	}
	left, known := drainOf(node.Name)
	if !known {
		return false
	}
	condition := corev1.NodeCondition{
		Type: schedulerv1alpha1.NodeDrained, Status: corev1.ConditionTrue, Reason: ReasonDrained, Message: "No namespace is placed here",
	}
	if left != (drain{}) {
		condition.Status, condition.Reason = corev1.ConditionFalse, ReasonDraining
		if left.room+left.pods == 0 {
			condition.Reason = ReasonVolumesStay
		}
		condition.Message = fmt.Sprintf("Namespaces that are still placed here: %d; waiting for room elsewhere: %d, for pods to end: %d",
			left.room+left.pods+left.volumes, left.room, left.pods)
		if left.volumes > 0 {
			condition.Message += fmt.Sprintf("; kept for their volumes, which do not move: %d", left.volumes)
		}
	}
	return setCondition(node, condition, now)
}

// maxOvercommitted is how many resources the message of condition Overcommitted names.
const maxOvercommitted = 8

// overcommitted returns the condition Overcommitted, without times.
func overcommitted(d *desiredNode) corev1.NodeCondition {
	excess, room := d.declared.Overcommit(&d.capacity)
	condition := corev1.NodeCondition{
		Type: schedulerv1alpha1.NodeOvercommitted, Status: corev1.ConditionFalse, Reason: ReasonWithinCapacity,
		Message: "What tenants have reserved and may use is within what the super cluster can hold",
	}
	if excess.IsZero() {
		return condition
	}
	condition.Status, condition.Reason = corev1.ConditionTrue, ReasonOvercommitted
	names := excess.Names()
	only := func(amounts slice.Amounts) slice.Amounts {
		named := slice.Amounts{}
		for _, name := range names[:min(len(names), maxOvercommitted)] {
			named[name] = amounts[name]
		}
		return named
	}
	condition.Message = fmt.Sprintf("Tenants have reserved, or may use, %s, and the super cluster can hold %s", only(d.capacity.Committed), only(room))
	if others := len(names) - maxOvercommitted; others > 0 {
		condition.Message += fmt.Sprintf(" (and %d other resources)", others)
	}
	return condition
}

// findCondition returns the condition of that type in node, nil for none.
func findCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// applyReady writes the Ready condition, when it changed or its heartbeat is due.
func applyReady(node *corev1.Node, ready metav1.ConditionStatus, reason, message string, now time.Time) bool {
	condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionStatus(ready), Reason: reason, Message: message}
	old := findCondition(node, corev1.NodeReady)
	if old == nil {
		return setCondition(node, condition, now)
	}
	beat := old.LastHeartbeatTime
	changed := setCondition(node, condition, now)
	switch {
	case ready != metav1.ConditionTrue:
		old.LastHeartbeatTime = beat // it is silent
	case !changed && now.Sub(beat.Time) >= heartbeatPeriod:
		old.LastHeartbeatTime, changed = metav1.NewTime(now), true
	}
	return changed
}

// setCondition sets a condition of node, without times, and returns whether it changed. What is not True for another
// reason than before is so since now: how long a super cluster is silent decides whether it is lost.
func setCondition(node *corev1.Node, condition corev1.NodeCondition, now time.Time) bool {
	condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	old := findCondition(node, condition.Type)
	if old == nil {
		node.Status.Conditions = append(node.Status.Conditions, condition)
		return true
	}
	sameReason := old.Reason == condition.Reason
	if old.Status == condition.Status && sameReason && old.Message == condition.Message {
		return false
	}
	if old.Status == condition.Status && (sameReason || condition.Status == corev1.ConditionTrue) {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	*old = condition
	return true
}

func readyMessage(capacity *usage.Capacity) (reason, message string) {
	if capacity.Nodes == 0 {
		return ReasonNoNodes, fmt.Sprintf("None of %d nodes is Ready and schedulable", capacity.AllNodes)
	}
	return ReasonSuperClusterReady, "The super cluster answers"
}
