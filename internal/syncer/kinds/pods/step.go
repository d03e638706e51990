package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
)

// Step is what a reconcile of a pod does. NextStep chooses it, Pods.perform executes it.
type Step int

const (
	// StepNone writes nothing: the pod is in sync, another syncer's, or an event will enqueue its key.
	StepNone Step = iota
	// StepForget clears the warning about a pod that neither side has, and removes it from the quota waiters.
	StepForget
	// StepCreate creates the super pod.
	StepCreate
	// StepWaitForServiceAccount waits for the pod's ServiceAccount in the super namespace: admission rejects a pod
	// without it.
	StepWaitForServiceAccount
	// StepWaitForClaim waits until the claims of the pod are in the super namespace.
	StepWaitForClaim
	// StepWaitForConfig waits until ConfigMaps and Secrets that the pod refers to, and NetworkPolicies of its
	// namespace, are in the super namespace.
	StepWaitForConfig
	// StepWaitForSuperCluster waits until the super cluster takes new pods, or the tenant's pod names another.
	StepWaitForSuperCluster
	// StepWaitForPredecessor waits until the super pod of an earlier pod of that name has ended.
	StepWaitForPredecessor
	// StepGiveUp deletes a super pod that has no node, and that the super cluster finds none for or its namespace
	// leaves (precondition: its resourceVersion).
	StepGiveUp
	// StepTakeBack removes the choice of this super cluster from a tenant pod that it did not take, or that its
	// namespace leaves (proof: live read of the super pod).
	StepTakeBack
	// StepWarnNotPlaced warns the tenant that the pod names a super cluster in which its namespace has no placement
	// (proof: live read).
	StepWarnNotPlaced
	// StepWarnNodeName warns the tenant that spec.nodeName was set without a Binding.
	StepWarnNodeName
	// StepWarnConflict warns the tenant that the super cluster has a pod of that name with another owner.
	StepWarnConflict
	// StepDown writes the tenant's changes to the super pod.
	StepDown
	// StepDownAndUp writes the tenant's changes to the super pod, and its status to the tenant pod.
	StepDownAndUp
	// StepDownAndBind writes the tenant's changes to the super pod, and binds the tenant pod to its node.
	StepDownAndBind
	// StepUpAndEvict writes the status to the tenant pod, or if that is in sync deletes the tenant pod with the grace
	// period of the super pod.
	StepUpAndEvict
	// StepDeleteSuper deletes the super pod, with the rest of the tenant pod's grace period.
	StepDeleteSuper
	// StepDeleteSuperAndUp is StepDeleteSuper, and writes the status to the tenant pod.
	StepDeleteSuperAndUp
	// StepDeleteElsewhere deletes the super pod of a tenant pod that is bound in another super cluster, or pinned to
	// another node.
	StepDeleteElsewhere
	// StepDeleteOrphan deletes the super pod of a tenant pod that is gone or replaced (proof: that its deletion was seen
	// to begin, or live read of the tenant pod).
	StepDeleteOrphan
	// StepRemoveTenant removes a tenant pod that the tenant deletes and that has no super pod (proof: that this was seen
	// to end, or live read of it).
	StepRemoveTenant
	// StepRemoveLost removes a tenant pod whose super pod was deleted (proof: live read of the super pod).
	StepRemoveLost
	// StepRemoveMoved removes a tenant pod that is bound to another node than its super pod.
	StepRemoveMoved
)

var stepNames = [...]string{
	StepNone:                  "none",
	StepForget:                "forget",
	StepCreate:                "create",
	StepWaitForServiceAccount: "wait for service account",
	StepWaitForClaim:          "wait for claim",
	StepWaitForConfig:         "wait for config",
	StepWaitForSuperCluster:   "wait for super cluster",
	StepWaitForPredecessor:    "wait for predecessor",
	StepGiveUp:                "give up",
	StepTakeBack:              "take back",
	StepWarnNotPlaced:         "warn not placed",
	StepWarnNodeName:          "warn node name",
	StepWarnConflict:          "warn conflict",
	StepDown:                  "down",
	StepDownAndUp:             "down and up",
	StepDownAndBind:           "down and bind",
	StepUpAndEvict:            "up and evict",
	StepDeleteSuper:           "delete super",
	StepDeleteSuperAndUp:      "delete super and up",
	StepDeleteElsewhere:       "delete elsewhere",
	StepDeleteOrphan:          "delete orphan",
	StepRemoveTenant:          "remove tenant",
	StepRemoveLost:            "remove lost",
	StepRemoveMoved:           "remove moved",
}

// String returns the name of the step.
func (s Step) String() string {
	if s < 0 || int(s) >= len(stepNames) {
		return "unknown"
	}
	return stepNames[s]
}

// NamespaceReadiness is whether pods of a tenant namespace may be created in this super cluster.
type NamespaceReadiness int

const (
	// NamespaceUnknown means that the tenant's cache has no such namespace. Its addition enqueues its pods
	// (namespaces.Namespaces.Reconcile).
	NamespaceUnknown NamespaceReadiness = iota
	// NamespaceNotPlaced means that the cache has no placement of this namespace here.
	NamespaceNotPlaced
	// NamespaceNotReady means that it is placed here, but its super namespace, the quota or the NetworkPolicies of ours
	// do not exist yet. Their addition enqueues its pods (namespaces.Namespaces.Reconcile, quotaWakes, isolationSpec).
	NamespaceNotReady
	// NamespaceReady means that pods may be created.
	NamespaceReady
)

// Facts are what NextStep needs besides the two pods, from caches.
type Facts struct {
	// SuperCluster is the id of this super cluster.
	SuperCluster string
	// Owner is the owner that super objects of the tenant's namespace carry. Its UID is empty.
	Owner tenancy.Owner
	// Waited is how long the reconcile of the pod has been failing or waiting.
	Waited time.Duration

	// MaxGrace is the longest grace period of the tenant's pods, in seconds.
	MaxGrace int64

	// The rest is read for a pod that awaitsSuperPod only.

	// Leaves is whether all that its namespace has here leaves. Nobody but this super cluster knows whether a pod that
	// is not bound yet runs here already, so nobody else takes such a choice back while the super cluster answers.
	Leaves bool
	// GivenUp is whether this super cluster has not taken the pod for too long. TakenBack is whether the cache shows
	// the tenant pod as it was before its choice was taken back.
	GivenUp, TakenBack bool

	// What follows is read for one without super pod only.

	// Namespace is whether pods of its namespace may be created.
	Namespace NamespaceReadiness
	// Closed is why the super cluster takes no new pods, or not this one, "" if it does.
	Closed string
	// MissingClaim says which claim of the pod is not in the super namespace, and why; "" for none.
	MissingClaim string
	// ServiceAccount is whether the super namespace has the pod's ServiceAccount.
	ServiceAccount bool
	// MissingConfig names a ConfigMap or Secret that the pod refers to and that is not in the super namespace yet, or
	// NetworkPolicies of its namespace; "" for none.
	MissingConfig string
}

// configTime is how long a pod waits for its ConfigMaps, Secrets and NetworkPolicies. After that it is created without
// them.
const configTime = 12 * time.Second

// NextStep returns what is to be done about a pod. tenantPod and superPod are nil where there is none; neither is
// changed.
//
//	tenant pod                 super pod                     step
//	-                          -                             forget
//	pending                    -                             create, or wait for what it needs, or warn not placed
//	pending, given up, leaves  -                             take back (proof: live read); none once the patch is sent
//	pending with a gate        -                             none
//	pending, ignores sync      -                             none
//	pinned to a node here      -                             as pending
//	nodeName without Binding   -                             warn node name
//	bound here                 -                             remove lost (proof: live read); a finished one stays,
//	                                                       unless the pod collector below has failed it
//	bound elsewhere            -                             none
//	being deleted              -                             remove tenant (proof: seen, or live read); none for finalizers
//	any                        another owner's               warn conflict
//	-                          exists                        delete orphan (proof: seen, or live read)
//	other UID                  exists                        delete orphan (proof: seen, or live read)
//	other UID                  being deleted                 wait for predecessor
//	bound elsewhere            exists                        delete elsewhere
//	being deleted              on another node, or on none   delete super, with the rest of the grace period
//	being deleted              exists                        delete super and up
//	pending                    on no node                    down and up: PodScheduled with the reason
//	pending, given up, leaves  on no node                    give up
//	pending                    on a node                     down and bind
//	pinned to a node here      on no node                    down and up: PodScheduled with the reason
//	bound here                 on no node                    down: it was created again
//	bound here                 on another node               remove moved: a pod cannot move
//	pinned to a node here      on another node               delete elsewhere; then it is created on that node
//	bound here                 on that node                  down and up
//	bound here                 on that node, being deleted   up and evict; a finished one stays
//
// No step deletes a super pod that does not carry the owner of this tenant and namespace. A step without a live read
// rests on fields that are immutable once set: UID, nodeName and deletionTimestamp.
func NextStep(tenantPod, superPod *corev1.Pod, facts *Facts) Step {
	if superPod == nil {
		return stepWithoutSuperPod(tenantPod, facts)
	}
	owner, owned := tenancy.GetOwner(superPod)
	uid := owner.UID
	owner.UID = ""
	switch {
	case owned && owner == facts.Owner:
	case tenantPod != nil:
		return StepWarnConflict
	default:
		return StepNone
	}
	switch {
	case tenantPod != nil && tenantPod.UID == uid:
		return stepOfPair(tenantPod, superPod, facts)
	case superPod.DeletionTimestamp == nil || ptr.Deref(superPod.DeletionGracePeriodSeconds, 0) > facts.MaxGrace:
		return StepDeleteOrphan
	case tenantPod != nil && awaitsSuperPod(tenantPod, facts.SuperCluster):
		return StepWaitForPredecessor
	default:
		return StepNone
	}
}

// stepOfPair is NextStep for a super pod that was made for this tenant pod.
func stepOfPair(tenantPod, superPod *corev1.Pod, facts *Facts) Step {
	bound, superNode := tenantPod.Spec.NodeName != "", superPod.Spec.NodeName
	sameNode := superNode != "" && tenantPod.Spec.NodeName == tenancy.NodeName(facts.SuperCluster, superNode)
	switch {
	case bound && !boundIn(tenantPod, facts.SuperCluster):
		return StepDeleteElsewhere
	case tenantPod.DeletionTimestamp != nil && bound && !sameNode:
		return StepDeleteSuper
	case tenantPod.DeletionTimestamp != nil:
		return StepDeleteSuperAndUp
	case !bound:
		return stepTowardsBinding(superPod, facts)
	default:
		return stepOfBound(tenantPod, superPod, sameNode)
	}
}

// stepOfBound is NextStep for a pair whose tenant pod is bound, or pinned to a node here.
func stepOfBound(tenantPod, superPod *corev1.Pod, sameNode bool) Step {
	unscheduled := superPod.Spec.NodeName == ""
	switch {
	case unscheduled && !podspec.IsBound(tenantPod):
		return StepDownAndUp
	case unscheduled:
		return StepDown
	case !sameNode && !podspec.IsBound(tenantPod):
		return StepDeleteElsewhere
	case !sameNode:
		return StepRemoveMoved
	case superPod.DeletionTimestamp != nil && !podutil.IsPodTerminal(superPod):
		return StepUpAndEvict
	default:
		return StepDownAndUp
	}
}

// stepTowardsBinding is NextStep for a pair whose tenant pod is not bound.
func stepTowardsBinding(superPod *corev1.Pod, facts *Facts) Step {
	switch {
	case superPod.Spec.NodeName != "":
		return StepDownAndBind
	case (facts.GivenUp || facts.Leaves) && superPod.DeletionTimestamp == nil:
		return StepGiveUp
	default:
		return StepDownAndUp
	}
}

// stepWithoutSuperPod is NextStep where the cache has no super pod.
func stepWithoutSuperPod(tenantPod *corev1.Pod, facts *Facts) Step {
	if tenantPod == nil {
		return StepForget
	}
	nodeName := tenantPod.Spec.NodeName
	elsewhere := nodeName != "" && !boundIn(tenantPod, facts.SuperCluster)
	if tenantPod.DeletionTimestamp != nil {
		if elsewhere || awaitsFinalizers(tenantPod) {
			return StepNone
		}
		return StepRemoveTenant
	}
	switch {
	case elsewhere && tenancy.HasBinding(tenantPod), hasEnded(tenantPod, elsewhere):
		return StepNone
	case nodeName != "" && podspec.IsBound(tenantPod):
		return StepRemoveLost
	case elsewhere:
		return StepWarnNodeName
	case !awaitsSuperPod(tenantPod, facts.SuperCluster):
		return StepNone
	default:
		return stepTowardsCreation(facts)
	}
}

// stepTowardsCreation is NextStep for a pod that awaitsSuperPod.
func stepTowardsCreation(facts *Facts) Step {
	switch {
	case facts.TakenBack:
		return StepNone
	case facts.GivenUp, facts.Leaves:
		return StepTakeBack
	case facts.Namespace == NamespaceNotPlaced:
		return StepWarnNotPlaced
	case facts.Namespace != NamespaceReady:
		return StepNone
	case facts.Closed != "":
		return StepWaitForSuperCluster
	case facts.MissingClaim != "":
		return StepWaitForClaim
	case !facts.ServiceAccount:
		return StepWaitForServiceAccount
	case facts.MissingConfig != "" && facts.Waited < configTime:
		return StepWaitForConfig
	default:
		return StepCreate
	}
}

// awaitsSuperPod returns whether a super pod is to be created for a tenant pod that has none. One that is pinned to a
// node here is among them, and one that the tenant wants in no super cluster is not.
func awaitsSuperPod(tenantPod *corev1.Pod, superCluster string) bool {
	free := tenantPod.Spec.NodeName == "" || boundIn(tenantPod, superCluster) && !podspec.IsBound(tenantPod)
	return tenantPod.DeletionTimestamp == nil && free && !kind.IgnoresSync(tenantPod) && len(tenantPod.Spec.SchedulingGates) == 0 && !podutil.IsPodTerminal(tenantPod)
}

// boundIn returns whether the nodeName of a pod is a node of this super cluster. A nodeName is immutable once set.
func boundIn(tenantPod *corev1.Pod, superCluster string) bool {
	of, _ := tenancy.NodeSuperCluster(tenantPod.Spec.NodeName)
	return of == superCluster
}

// reasonCollected is the reason of condition DisruptionTarget on a pod that Kubernetes' pod collector fails, because
// its node is gone or out of service, right before it deletes it.
const reasonCollected = "DeletionByPodGC"

// isCollected returns whether the pod collector of the super cluster has failed a pod: it has not finished by itself.
func isCollected(tenantPod *corev1.Pod) bool {
	_, disrupted := podutil.GetPodCondition(&tenantPod.Status, corev1.DisruptionTarget)
	return disrupted != nil && disrupted.Status == corev1.ConditionTrue && disrupted.Reason == reasonCollected
}

// hasEnded returns whether a pod without super pod has ended by itself, or in another super cluster.
func hasEnded(tenantPod *corev1.Pod, elsewhere bool) bool {
	return podutil.IsPodTerminal(tenantPod) && (elsewhere || !isCollected(tenantPod))
}

// awaitsFinalizers returns whether a pod that is being deleted waits for its finalizers alone. Without any, an API
// server has written the grace period of a deletion and was interrupted before it deleted the pod.
func awaitsFinalizers(tenantPod *corev1.Pod) bool {
	return ptr.Deref(tenantPod.DeletionGracePeriodSeconds, 1) == 0 && len(tenantPod.Finalizers) > 0 && !awaitsEnd(tenantPod)
}

// awaitsEnd returns whether a controller keeps a pod that ran, by a finalizer, until it is finished, as Jobs do.
func awaitsEnd(tenantPod *corev1.Pod) bool {
	return tenantPod.Spec.NodeName != "" && len(tenantPod.Finalizers) > 0 && !podutil.IsPodTerminal(tenantPod)
}
