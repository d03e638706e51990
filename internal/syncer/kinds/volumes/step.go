package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// ClaimStep is what a reconcile of a claim does. NextClaimStep chooses it, Claims.perform executes it.
type ClaimStep int

const (
	// ClaimStepNone writes nothing: another syncer's, or an event will enqueue the key.
	ClaimStepNone ClaimStep = iota
	// ClaimStepForget clears the warning about a claim that neither side has.
	ClaimStepForget
	// ClaimStepCreate creates the super claim.
	ClaimStepCreate
	// ClaimStepChoose makes this super cluster the home of a claim that is to be restored from a snapshot here.
	ClaimStepChoose
	// ClaimStepWarnSource warns the tenant that the snapshot which a claim is to be restored from is not here.
	ClaimStepWarnSource
	// ClaimStepWarnClass warns the tenant that the super cluster has no longer the StorageClass of a claim.
	ClaimStepWarnClass
	// ClaimStepGiveUp deletes a super claim without volume whose StorageClass has been gone for too long (proof: live
	// read of that; precondition: its resourceVersion).
	ClaimStepGiveUp
	// ClaimStepTakeBack removes the home of a tenant claim that the super cluster has not made for too long, or whose
	// namespace leaves (proof: live read of the super claim).
	ClaimStepTakeBack
	// ClaimStepSync writes the tenant's changes to the super claim, makes the tenant's volume once that is bound, and
	// writes its size to the tenant claim.
	ClaimStepSync
	// ClaimStepWaitForPredecessor waits for the end of the super claim of an earlier claim of that name, and tells the
	// tenant.
	ClaimStepWaitForPredecessor
	// ClaimStepWarnConflict warns the tenant that the super cluster has a claim of that name with another owner.
	ClaimStepWarnConflict
	// ClaimStepWarnUnused warns the tenant that the super cluster has a volume for a claim that is bound to another.
	// Nothing is deleted: the super claim's volume may hold data.
	ClaimStepWarnUnused
	// ClaimStepDelete deletes the super claim of a tenant claim that is being deleted, or one without volume whose
	// tenant claim is gone, replaced, or has another home, or whose namespace leaves (proof: live reads of both).
	ClaimStepDelete
	// ClaimStepKeep tells the operator of a super claim with a volume whose tenant claim is gone or replaced, and
	// nobody has seen it being deleted.
	ClaimStepKeep
	// ClaimStepRelease takes our finalizer off a tenant claim that has nothing here (proof: live read of that).
	ClaimStepRelease
	// ClaimStepRemoveVolume deletes a volume of the tenant whose super claim is gone (proof: live read of that).
	ClaimStepRemoveVolume
)

var claimStepNames = [...]string{
	ClaimStepNone:               "none",
	ClaimStepForget:             "forget",
	ClaimStepCreate:             "create",
	ClaimStepChoose:             "choose",
	ClaimStepWarnSource:         "warn source",
	ClaimStepWarnClass:          "warn class",
	ClaimStepGiveUp:             "give up",
	ClaimStepTakeBack:           "take back",
	ClaimStepSync:               "sync",
	ClaimStepWaitForPredecessor: "wait for predecessor",
	ClaimStepWarnConflict:       "warn conflict",
	ClaimStepWarnUnused:         "warn unused",
	ClaimStepDelete:             "delete",
	ClaimStepKeep:               "keep",
	ClaimStepRelease:            "release",
	ClaimStepRemoveVolume:       "remove volume",
}

// String returns the name of the step.
func (s ClaimStep) String() string {
	if s < 0 || int(s) >= len(claimStepNames) {
		return "unknown"
	}
	return claimStepNames[s]
}

// ClaimFacts are what NextClaimStep needs besides the two claims, from caches.
type ClaimFacts struct {
	// SuperCluster is the id of this super cluster.
	SuperCluster string
	// Owner is the owner that super objects of the tenant's namespace carry. Its UID is empty.
	Owner tenancy.Owner
	// Volumes are the volumes of the tenant that this syncer has made for the claim.
	Volumes []*corev1.PersistentVolume
	// Known is whether the cache of the tenant's claims shows this namespace. If not, there may be a tenant claim.
	Known bool
	// Whole is whether all that any tenant has belongs to this super cluster: nobody chooses a home, so it is that of
	// claims that have none.
	Whole bool
	// Restores is whether the claim is to be restored from a snapshot.
	Restores bool
	// Missing says why that snapshot is not here, "" if it is.
	Missing string
	// Ready is whether super claims may be created in the namespace.
	Ready bool

	// The rest is false or empty for a claim for which nobody chose this super cluster.

	// Leaves is whether all that its namespace has here leaves, or has left.
	Leaves bool
	// NoClass is the StorageClass of the claim if the super cluster has none of that name, "" if it has.
	NoClass string
	// GivenUp is whether this super cluster has not made the claim for too long. TakenBack is whether the cache shows
	// the tenant claim as it was before its home was taken back.
	GivenUp, TakenBack bool
}

// NextClaimStep returns what is to be done about a claim, and if it is about a volume of the tenant, that volume.
// tenantClaim and superClaim are nil where there is none; nothing is changed.
//
//	tenant claim               super claim                   volume of the tenant   step
//	any                        none of its UID and volume    exists                 remove volume (proof: live read)
//	-                          -                             -                      forget
//	bound, home elsewhere      none of its UID               -                      release (proof: live read), where
//	or being deleted                                                                it has our finalizer
//	restored, without home     -                             -                      choose, if its snapshot is here
//	restored, home here        -                             -                      warn source, if it is not
//	unbound, home here         -                             -                      create, if ready, or warn class
//	and given up, or leaves    -                             -                      take back (proof: live read); none
//	                                                                                once the patch is sent
//	and given up               unbound, class gone           any                    give up (proof: live read)
//	else                       -                             -                      none
//	any                        another owner's               -                      warn conflict
//	unbound, home here         other UID, being deleted      any                    wait for predecessor
//	being deleted, not used    exists                        any                    delete (proof: live reads)
//	-, or other UID            bound                         any                    keep
//	-, or other UID            unbound                       any                    delete (proof: live reads)
//	bound to another volume    bound                         any                    warn unused
//	home elsewhere, or leaves  unbound                       any                    delete (proof: live reads)
//	else                       exists                        any                    sync
//	any                        being deleted                 any                    none
//
// The home of a claim is what its annotation says, until it is bound: then it is the super cluster of its volume. A
// claim without an annotation stays where it is. What is bound here may hold data, so it stays until the tenant deletes
// its claim, whatever that says of homes; an unbound claim gets that volume. That the claim is missing does not say
// that the tenant has deleted it: its control plane may have been restored from an older backup. So our finalizer holds
// it until the super claim is gone. A deleted claim that others hold, as pods do, is still used.
func NextClaimStep(tenantClaim, superClaim *corev1.PersistentVolumeClaim, facts *ClaimFacts) (ClaimStep, *corev1.PersistentVolume) {
	owner, owned := ownerOfClaim(superClaim)
	uid := owner.UID
	owner.UID = ""
	ours := owned && owner == facts.Owner
	if stray := strayVolume(superClaim, ours, uid, facts); stray != nil {
		return ClaimStepRemoveVolume, stray
	}
	isHere := ours && tenantClaim != nil && tenantClaim.UID == uid
	switch {
	case !facts.Known:
		return ClaimStepNone, nil
	case !isHere && isReleased(tenantClaim, facts):
		return ClaimStepRelease, nil
	case superClaim == nil:
		return stepWithoutSuperClaim(tenantClaim, facts), nil
	case !ours && tenantClaim != nil:
		return ClaimStepWarnConflict, nil
	case !ours:
		return ClaimStepNone, nil
	case superClaim.DeletionTimestamp != nil:
		return stepWithEndingClaim(tenantClaim, isHere, facts), nil
	}
	step := stepWithSuperClaim(tenantClaim, superClaim, uid, facts.SuperCluster)
	if step == ClaimStepSync && !hasVolume(superClaim) {
		step = stepWithoutVolume(facts)
	}
	return step, nil
}

// stepWithEndingClaim is NextClaimStep for a super claim that is being deleted. isHere is whether it was made for the
// tenant's claim.
func stepWithEndingClaim(tenantClaim *corev1.PersistentVolumeClaim, isHere bool, facts *ClaimFacts) ClaimStep {
	if !isHere && tenantClaim != nil && isAwaited(tenantClaim, facts) {
		return ClaimStepWaitForPredecessor
	}
	return ClaimStepNone
}

// stepWithoutVolume is NextClaimStep for a super claim that stays here if it may.
func stepWithoutVolume(facts *ClaimFacts) ClaimStep {
	switch {
	case facts.Leaves:
		return ClaimStepDelete
	case facts.GivenUp:
		return ClaimStepGiveUp
	}
	return ClaimStepSync
}

// strayVolume returns a volume of the tenant that is not that of the super claim, nil if there is none. ours is whether
// the super claim was made for a claim of the tenant, which had that UID.
func strayVolume(superClaim *corev1.PersistentVolumeClaim, ours bool, uid types.UID, facts *ClaimFacts) *corev1.PersistentVolume {
	for _, volume := range facts.Volumes {
		isOf := ours && claimedBy(volume, uid) && volume.Name == tenantVolumeName(facts.SuperCluster, superClaim)
		if !isOf && volume.DeletionTimestamp == nil {
			return volume
		}
	}
	return nil
}

// hasVolume returns whether a super claim may hold data.
func hasVolume(superClaim *corev1.PersistentVolumeClaim) bool {
	return superClaim.Spec.VolumeName != "" || superClaim.Status.Phase == corev1.ClaimBound
}

func ownerOfClaim(superClaim *corev1.PersistentVolumeClaim) (tenancy.Owner, bool) {
	if superClaim == nil {
		return tenancy.Owner{}, false
	}
	return tenancy.GetOwner(superClaim)
}

// stepWithoutSuperClaim is NextClaimStep where the cache has no super claim.
func stepWithoutSuperClaim(tenantClaim *corev1.PersistentVolumeClaim, facts *ClaimFacts) ClaimStep {
	switch {
	case tenantClaim == nil:
		return ClaimStepForget
	case tenantClaim.DeletionTimestamp != nil, tenantClaim.Spec.VolumeName != "":
		return ClaimStepNone
	case claimhome.Of(tenantClaim) == "" && facts.Restores && facts.Missing == "":
		return ClaimStepChoose // wherever the namespace is placed: the pod scheduler says what follows from it
	case !isAwaited(tenantClaim, facts):
		return ClaimStepNone
	}
	return stepTowardsClaim(facts)
}

// stepTowardsClaim is NextClaimStep for a claim that is awaited.
func stepTowardsClaim(facts *ClaimFacts) ClaimStep {
	switch {
	case facts.TakenBack:
		return ClaimStepNone
	case facts.GivenUp, facts.Leaves:
		return ClaimStepTakeBack
	case !facts.Ready:
		return ClaimStepNone
	case facts.Missing != "":
		return ClaimStepWarnSource
	case facts.NoClass != "":
		return ClaimStepWarnClass
	}
	return ClaimStepCreate
}

// isAwaited returns whether a claim is to have a super claim here.
func isAwaited(tenantClaim *corev1.PersistentVolumeClaim, facts *ClaimFacts) bool {
	home := claimhome.Of(tenantClaim)
	return tenantClaim.DeletionTimestamp == nil && tenantClaim.Spec.VolumeName == "" && (home == facts.SuperCluster || home == "" && facts.Whole)
}

// isReleased returns whether a claim, which may be nil, has our finalizer for nothing, as long as the super cluster has
// nothing for it.
func isReleased(tenantClaim *corev1.PersistentVolumeClaim, facts *ClaimFacts) bool {
	return tenantClaim != nil && !isAwaited(tenantClaim, facts) && slices.Contains(tenantClaim.Finalizers, tenancyv1alpha1.FinalizerPrefixClaim+facts.SuperCluster)
}

// stepWithSuperClaim is NextClaimStep for a super claim that was made for the tenant claim with that UID.
func stepWithSuperClaim(tenantClaim, superClaim *corev1.PersistentVolumeClaim, uid types.UID, superCluster string) ClaimStep {
	hasVolume := hasVolume(superClaim)
	switch kind.FateOf(tenantClaim, tenantClaim != nil && tenantClaim.UID == uid, hasVolume) {
	case kind.FateKept:
		return ClaimStepKeep
	case kind.FateGoes:
		return ClaimStepDelete
	case kind.FateStays:
	}
	bound := tenantClaim.Spec.VolumeName
	if hasVolume {
		if bound == "" || bound == tenantVolumeName(superCluster, superClaim) {
			return ClaimStepSync
		}
		return ClaimStepWarnUnused
	}
	switch home := claimhome.Of(tenantClaim); {
	case home == superCluster, home == "" && bound == "":
		return ClaimStepSync
	}
	return ClaimStepDelete
}
