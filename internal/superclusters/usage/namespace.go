package usage

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// namespaceEntry is what the ledger knows of one tenant namespace.
type namespaceEntry struct {
	// requests is the sum over its pods, and of storage that over its PersistentVolumeClaims.
	requests slice.Amounts
	// claims is the number of its PersistentVolumeClaims, and snapshots that of VolumeSnapshots which its quota has
	// counted.
	claims, snapshots int64
	// quota is the UID of the ResourceQuota that hard is of, "" for none, and namespaceUID that of the tenant's
	// namespace for which it was written.
	quota, namespaceUID types.UID
	hard                slice.Amounts
	// decision is what the quota answers, or has answered where there is none any more, and gone is since when.
	decision string
	gone     time.Time
	// reserved is what its NamespacePlacement reserves here.
	reserved slice.Amounts
}

func (n *namespaceEntry) use() placement.Use {
	return placement.Use{
		Requests: n.requests, Hard: n.hard, NamespaceUID: n.namespaceUID, Decision: n.decision, QuotaGone: n.gone, Claims: n.claims, Snapshots: n.snapshots,
	}
}

// isEmpty returns whether the entry says nothing. What a quota has answered counts while something is reserved.
func (n *namespaceEntry) isEmpty() bool {
	return len(n.requests) == 0 && n.claims == 0 && n.quota == "" && len(n.reserved) == 0
}

// hasOnlyVolumes returns whether of the namespace nothing but claims and snapshots is there.
func (n *namespaceEntry) hasOnlyVolumes() bool {
	return n.claims+n.snapshots > 0 && n.requests.OfPods().IsZero()
}

// Use returns what a tenant namespace uses, by the key of its NamespacePlacement. It belongs to the caller.
func (l *Ledger) Use(namespace types.NamespacedName) placement.Use {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, exists := l.namespaces[namespace]
	if !exists {
		return placement.Use{}
	}
	use := entry.use()
	use.Requests, use.Hard = maps.Clone(use.Requests), maps.Clone(use.Hard)
	return use
}

// SetReserved records what a NamespacePlacement reserves, empty for nothing. It returns whether the cluster's Capacity
// may have changed.
func (l *Ledger) SetReserved(namespace types.NamespacedName, reserved slice.Amounts) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed, _ := l.changeLocked(namespace, func(n *namespaceEntry) { n.reserved = reserved }) // frees nothing
	return changed
}

// SetQuota records the quota of a super namespace, new or changed. It returns whether the cluster's Capacity may have
// changed. One that the pool did not write is ignored.
func (l *Ledger) SetQuota(quota *corev1.ResourceQuota) bool {
	owner, ours := tenancy.GetOwner(quota)
	if !ours {
		return false
	}
	l.mu.Lock()
	changed, freed := l.changeLocked(placementKey(&owner), func(n *namespaceEntry) {
		n.quota, n.namespaceUID, n.hard, n.decision = quota.UID, owner.UID, hardOf(quota), decisionOf(quota)
		counted := quota.Status.Used[placement.SnapshotsInQuota]
		n.snapshots = max(0, counted.Value())
		n.gone = time.Time{}
	})
	l.mu.Unlock()
	l.tell(freed)
	return changed
}

// DeleteQuota forgets the quota of a super namespace.
func (l *Ledger) DeleteQuota(quota *corev1.ResourceQuota) bool {
	owner, ours := tenancy.GetOwner(quota)
	if !ours {
		return false
	}
	l.mu.Lock()
	changed, freed := l.changeLocked(placementKey(&owner), func(n *namespaceEntry) {
		if n.quota == quota.UID {
			n.quota, n.namespaceUID, n.hard, n.decision, n.snapshots = "", "", nil, decisionOf(quota), 0
			n.gone = l.Clock.Now()
			if !amountsOf(quota.Status.Used).Fits(n.requests) {
				n.decision = "" // the watch of pods or claims has yet to show one
			}
		}
	})
	l.mu.Unlock()
	l.tell(freed)
	return changed
}

// claimRecord is what the ledger counts of a PersistentVolumeClaim. The zero value is none.
type claimRecord struct {
	// namespace is the key of the NamespacePlacement of the tenant's namespace whose claim it is.
	namespace types.NamespacedName
	// storage is what it takes, at most maxOfClaim.
	storage int64
}

// maxOfClaim is the most storage that one claim counts, 2^50: a thousand tebibytes, and little enough that 8,000 such
// claims add up without overflow.
const maxOfClaim = int64(1) << 50

// addTo counts the claim in the entry of its namespace, sign times.
func (r claimRecord) addTo(n *namespaceEntry, sign int64) {
	n.claims += sign
	if r.storage != 0 {
		addTo(n.requests, slice.Amounts{corev1.ResourceStorage: r.storage}, sign)
	}
}

// SetClaim records a PersistentVolumeClaim of a super namespace, new or changed. It returns whether the virtual Node
// may have to say something else. One that the pool did not make is ignored.
func (l *Ledger) SetClaim(claim *corev1.PersistentVolumeClaim) bool {
	owner, ours := tenancy.GetOwner(claim)
	if !ours {
		return l.DeleteClaim(claim.UID)
	}
	return l.moveClaim(claim.UID, claimRecord{namespace: placementKey(&owner), storage: min(slice.Size(claim), maxOfClaim)})
}

// DeleteClaim forgets a PersistentVolumeClaim.
func (l *Ledger) DeleteClaim(uid types.UID) bool { return l.moveClaim(uid, claimRecord{}) }

// moveClaim counts a claim as it is now, the zero record for none, in place of what it counted before.
func (l *Ledger) moveClaim(uid types.UID, to claimRecord) (changed bool) {
	l.mu.Lock()
	from := l.claims[uid]
	if from == to {
		l.mu.Unlock()
		return false
	}
	none := types.NamespacedName{}
	var freed []types.NamespacedName
	count := func(namespace types.NamespacedName, change func(*namespaceEntry)) {
		if namespace != none {
			moved, fell := l.changeLocked(namespace, change)
			changed, freed = changed || moved, append(freed, fell...)
		}
	}
	if from.namespace == to.namespace {
		count(to.namespace, func(n *namespaceEntry) { from.addTo(n, -1); to.addTo(n, 1) })
	} else {
		count(from.namespace, func(n *namespaceEntry) { from.addTo(n, -1) })
		count(to.namespace, func(n *namespaceEntry) { to.addTo(n, 1) })
	}
	if l.claims[uid] = to; to.namespace == none {
		delete(l.claims, uid)
	}
	l.mu.Unlock()
	l.tell(freed)
	return changed
}

// HasOnlyVolumes returns whether of a tenant namespace nothing but claims and snapshots is there.
func (l *Ledger) HasOnlyVolumes(namespace types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry, exists := l.namespaces[namespace]
	return exists && entry.hasOnlyVolumes()
}

// Runs returns whether pods of a tenant's namespaces are there, or its quotas let any in, by its cluster key.
func (l *Ledger) Runs(tenant string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, entry := range l.namespaces {
		if use := entry.use(); key.Namespace == tenant && !use.IsNothing() {
			return true
		}
	}
	return false
}

// Namespaces returns the keys of the NamespacePlacements of all namespaces that the ledger knows.
func (l *Ledger) Namespaces() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(l.namespaces))
	for key := range l.namespaces {
		keys = append(keys, key)
	}
	return keys
}

// changeLocked applies change to the entry of a namespace and to the sums over all of them. It returns whether a sum
// has changed, or whether nothing but claims and snapshots is there, and the namespace if it uses less now or has fewer
// of those, or its quota is another or answers another decision.
func (l *Ledger) changeLocked(key types.NamespacedName, change func(*namespaceEntry)) (changed bool, freed []types.NamespacedName) {
	entry, exists := l.namespaces[key]
	if !exists {
		entry = &namespaceEntry{requests: slice.Amounts{}}
		l.namespaces[key] = entry
	}
	before := *entry
	before.requests = maps.Clone(entry.requests)
	change(entry)
	if entry.isEmpty() {
		delete(l.namespaces, key)
	}
	was, is := before.terms(), entry.terms()
	changed = !maps.Equal(was.beyond, is.beyond) || !maps.Equal(was.committed, is.committed)
	if changed {
		addTo(l.beyond, was.beyond, -1)
		addTo(l.beyond, is.beyond, 1)
		addTo(l.committed, was.committed, -1)
		addTo(l.committed, is.committed, 1)
	}
	changed = changed || before.hasOnlyVolumes() != entry.hasOnlyVolumes()
	if before.quota != entry.quota || before.claims > entry.claims || before.snapshots > entry.snapshots || before.decision != entry.decision || !before.requests.Fits(entry.requests) || !before.hard.Fits(entry.hard) {
		freed = []types.NamespacedName{key}
	}
	return changed, freed
}

// namespaceTerms are what one namespace adds to the sums.
type namespaceTerms struct{ beyond, committed slice.Amounts }

func (n *namespaceEntry) terms() namespaceTerms {
	use := n.use()
	beyond := use.MayUse().Minus(n.reserved)
	return namespaceTerms{beyond: beyond, committed: n.reserved.Plus(beyond)}
}

// tell calls Freed for each of namespaces. The lock is not held.
func (l *Ledger) tell(namespaces []types.NamespacedName) {
	if l.Freed == nil {
		return
	}
	for _, namespace := range namespaces {
		l.Freed(namespace)
	}
}

func addTo(sum, term slice.Amounts, sign int64) {
	for resource, amount := range term {
		if sum[resource] += sign * amount; sum[resource] == 0 {
			delete(sum, resource)
		}
	}
}

// decisionOf returns the decision of vc-scheduler that a quota answers, "" for none.
func decisionOf(quota *corev1.ResourceQuota) string {
	return quota.Annotations[schedulerv1alpha1.AnnotationDecision]
}

// hardOf returns what a quota lets pods request, or has charged them for, never nil. Of storage it is what the
// namespace holds, where the syncer says so: else the policy of its tenant bounds it, and none is reserved. A quota
// that was lowered lets them request what it did before until the super cluster's controller manager has written its
// status, by which admission goes. A pod is charged before it is stored, and the watch of pods may be behind that of
// quotas.
func hardOf(quota *corev1.ResourceQuota) slice.Amounts {
	hard := slice.Amounts{}
	for _, list := range []corev1.ResourceList{quota.Spec.Hard, quota.Status.Hard, quota.Status.Used} {
		for name, amount := range amountsOf(list) {
			hard[name] = max(hard[name], amount)
		}
	}
	if quota.Annotations[schedulerv1alpha1.AnnotationHoldsStorage] != "true" {
		delete(hard, corev1.ResourceStorage)
	}
	return hard
}

// amountsOf returns what a list of a quota says about resources that are placed.
func amountsOf(list corev1.ResourceList) slice.Amounts {
	named := corev1.ResourceList{}
	for key, quantity := range list {
		if dimension, ok := slice.DimensionOfQuotaKey(key); ok {
			named[dimension.Name] = quantity
		}
	}
	return slice.Of(named)
}
