package placement

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/slice"
)

// SnapshotsInQuota is how the quota of a super namespace counts VolumeSnapshots.
const SnapshotsInQuota corev1.ResourceName = "count/volumesnapshots." + claimhome.SnapshotGroup

// Use is what one super cluster says about one tenant namespace. The zero value says that nothing of it is there.
type Use struct {
	// Requests is what the namespace's pods request there, each one of pods, and its claims. Pods that have ended are
	// not counted. Storage is in it whether or not the namespace's quota names any.
	Requests slice.Amounts
	// Hard is what the quota of the super namespace lets pods request, or has charged them for, and claims if any
	// storage is reserved for them. nil: there is no quota.
	Hard slice.Amounts
	// NamespaceUID is the UID of the tenant's namespace for which that quota was written, "" without a quota.
	NamespaceUID types.UID
	// Decision is the Decision that the quota answers, as it was last seen: a quota that is gone has answered too. ""
	// for none.
	Decision string
	// QuotaGone is when the quota was seen to be gone, zero if none was seen before.
	QuotaGone time.Time
	// Claims is how many PersistentVolumeClaims of the namespace are there, bound or not. Their volumes do not move.
	Claims int64
	// Snapshots is how many VolumeSnapshots of the namespace its quota there has counted. They do not move either.
	Snapshots int64
	// Gone is whether the super cluster has left the pool: nothing can be used there.
	Gone bool
}

// SettleTime is how long a decision must stand, and a quota be gone, before its absence answers: what vc-scheduler's
// watches of the super cluster do not show yet, a quota or a pod, they show by then. It bounds how far watches are
// behind, not the syncer: whatever a syncer has yet to write fails without the quota upon which it was made.
const SettleTime = 10 * time.Second

// Answers returns whether the super cluster answers a decision that vc-scheduler has made at since: no quota that was
// decided upon before it can come into force there any more. Syncers read a NamespacePlacement after the quota that
// they write over, so each write upon a quota that answers a decision, or upon a later one, knows that decision; all
// others fail. again is after how long the answer is another although nothing else changes, 0 for never.
func (u *Use) Answers(decision string, since, now time.Time) (answers bool, again time.Duration) {
	switch {
	case u.Gone, decision != "" && u.Decision == decision:
		return true, 0
	case u.Hard != nil:
		return false, 0
	case u.QuotaGone.After(since):
		since = u.QuotaGone
	}
	again = max(0, since.Add(SettleTime).Sub(now))
	return again == 0, again
}

// MayUse returns what the namespace's pods and claims use, or may use at any moment without anyone's doing: per
// resource the larger of what they request and what their quota lets them request.
func (u *Use) MayUse() slice.Amounts { return larger(u.Requests, u.Hard) }

// IsNothing reports whether the super cluster has neither pods of the namespace nor a quota that lets any in. One that
// lets none in may not Answer yet. Claims may be there: what they use is off what the super cluster can hold (Ledger),
// whatever is reserved.
func (u *Use) IsNothing() bool { return u.Hard.OfPods().IsZero() && u.Requests.OfPods().IsZero() }

// UsedOf returns what of Requests a namespace uses of what is reserved for it: without storage, where its quota names
// none.
func (u *Use) UsedOf(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	if NamesStorage(np) {
		return u.Requests
	}
	return u.Requests.OfPods()
}

// Waits reports whether pods that volumes are for may be about to come back to the super cluster: the namespace has
// more claims there than pods.
func (u *Use) Waits() bool { return u.Claims > u.Requests[corev1.ResourcePods] }

// larger returns the larger amount of each resource.
func larger(a, b slice.Amounts) slice.Amounts { return a.Plus(b.Minus(a)) }
