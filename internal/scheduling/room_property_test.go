package scheduling

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

const (
	// longestLag is how late the informers of vc-scheduler see a quota. Pods they see up to twice as late, which is
	// below placement.SettleTime, and syncers see NamespacePlacements up to five times as late.
	longestLag = 4 * time.Second
	// longestHang is how late a write of a syncer comes into force.
	longestHang = 2 * time.Minute
)

// roomWorld is a pool in memory: the real functions of vc-scheduler decide, over super clusters, syncers and tenants
// that do at random what they may do, each seeing the others late.
type roomWorld struct {
	*testing.T
	random     *rand.Rand
	clock      *testingclock.FakePassiveClock
	supers     map[string]*roomSuper
	tenants    map[types.NamespacedName]*roomNamespace
	placements map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement
	// history holds what was stored when, per NamespacePlacement: syncers see it late. nil: it was not there.
	history map[types.NamespacedName][]roomVersion
	serial  int
	did     map[string]int
}

type roomVersion struct {
	at        time.Time
	placement *schedulerv1alpha1.NamespacePlacement
}

// roomNamespace is a namespace in a tenant's control plane.
type roomNamespace struct {
	object *corev1.Namespace // nil: it was deleted
	quota  *corev1.ResourceQuota
}

// roomSuper is a super cluster: what runs there, and what vc-scheduler knows of it.
type roomSuper struct {
	id       string
	headroom superclusters.Headroom
	ledger   *superclusters.Ledger
	silent   bool
	drained  bool
	pods     map[types.UID]*corev1.Pod
	quotas   map[types.NamespacedName]*corev1.ResourceQuota
	// ending holds the namespaces whose super namespace terminates.
	ending map[types.NamespacedName]bool
	// podEvents and quotaEvents are on their way to the ledger.
	podEvents, quotaEvents []roomEvent
	// writes of the syncer are on their way to the API server.
	writes []roomEvent
}

type roomEvent struct {
	at    time.Time
	apply func()
}

func newRoomWorld(t *testing.T, seed uint64) *roomWorld {
	t.Helper()
	w := &roomWorld{
		T: t, random: rand.New(rand.NewPCG(seed, 17)), clock: testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		supers: map[string]*roomSuper{}, tenants: map[types.NamespacedName]*roomNamespace{}, did: map[string]int{},
		placements: map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement{}, history: map[types.NamespacedName][]roomVersion{},
	}
	headroom, err := superclusters.ParseHeadroom(`{"cpu":"10%"}`)
	require.NoError(t, err)
	for _, id := range []string{"r1", "r2"} {
		super := &roomSuper{
			id: id, headroom: headroom, ledger: superclusters.NewLedger(), pods: map[types.UID]*corev1.Pod{},
			quotas: map[types.NamespacedName]*corev1.ResourceQuota{}, ending: map[types.NamespacedName]bool{},
		}
		super.ledger.Clock = w.clock
		super.ledger.SetNode(builders.Node("n1", "cpu", "8", "memory", "8Gi", "pods", "500").Obj())
		super.ledger.SetPod(builders.Pod("kube-system", "foreign", "cpu", "1", "memory", "1Gi").UID("foreign-" + id).Node("n1").Obj())
		w.supers[id] = super
	}
	for i := range 6 {
		w.tenants[types.NamespacedName{Namespace: fmt.Sprintf("tenant-%d", i%3), Name: fmt.Sprintf("ns%d", i)}] = &roomNamespace{}
	}
	return w
}

func (w *roomWorld) lag() time.Duration { return time.Duration(w.random.Int64N(int64(longestLag))) }

// hang is how long a write takes: one in three longer than all patience.
func (w *roomWorld) hang() time.Duration {
	if w.random.IntN(3) > 0 {
		return time.Duration(w.random.Int64N(int64(100 * time.Millisecond)))
	}
	return time.Duration(math.Pow(w.random.Float64(), 3) * float64(longestHang))
}

func (w *roomWorld) version() string {
	w.serial++
	return fmt.Sprint(w.serial)
}

func (w *roomWorld) superCluster() *roomSuper {
	return w.supers[[]string{"r1", "r2"}[w.random.IntN(2)]]
}

func (w *roomWorld) key() types.NamespacedName {
	i := w.random.IntN(len(w.tenants))
	return types.NamespacedName{Namespace: fmt.Sprintf("tenant-%d", i%3), Name: fmt.Sprintf("ns%d", i)}
}

// Usage implements Usage.
func (w *roomWorld) Usage(_ context.Context, namespace types.NamespacedName, superClusters []string) map[string]placement.Use {
	used := map[string]placement.Use{}
	for _, id := range superClusters {
		if super := w.supers[id]; !super.silent {
			used[id] = super.ledger.Use(namespace)
		}
	}
	return used
}

// Held implements Usage.
func (w *roomWorld) Held(_ context.Context, namespace types.NamespacedName, uid types.UID) (map[string]slice.Amounts, bool) {
	held := map[string]slice.Amounts{}
	for id, super := range w.supers {
		if use := super.ledger.Use(namespace); use.NamespaceUID == uid && !use.Hard.IsZero() {
			held[id] = use.Hard
		}
	}
	return held, !w.supers["r1"].silent && !w.supers["r2"].silent
}

// store writes a NamespacePlacement, nil to delete it. The ledgers count what it reserves at once.
func (w *roomWorld) store(key types.NamespacedName, np *schedulerv1alpha1.NamespacePlacement) {
	if np == nil {
		delete(w.placements, key)
	} else {
		np = np.DeepCopy()
		np.ResourceVersion = w.version()
		w.placements[key] = np
	}
	w.history[key] = append(w.history[key], roomVersion{w.clock.Now(), np})
	for id, super := range w.supers {
		super.ledger.SetReserved(key, reservedOf(np, id))
	}
}

// seen returns a NamespacePlacement as a syncer has it.
func (w *roomWorld) seen(key types.NamespacedName) *schedulerv1alpha1.NamespacePlacement {
	at := w.clock.Now().Add(-w.lag())
	if w.random.IntN(4) == 0 { // it has restarted, and the API server's own cache lags
		at = at.Add(-4 * w.lag())
	}
	var seen *schedulerv1alpha1.NamespacePlacement
	for _, version := range w.history[key] {
		if version.at.After(at) {
			break
		}
		seen = version.placement
	}
	return seen
}

func reservedOf(np *schedulerv1alpha1.NamespacePlacement, cluster string) slice.Amounts {
	if np != nil {
		for i := range np.Status.Placements {
			if np.Status.Placements[i].Cluster == cluster {
				return slice.Of(np.Status.Placements[i].Reserved)
			}
		}
	}
	return nil
}

// tenantActs writes a quota, deletes a namespace or makes it again.
func (w *roomWorld) tenantActs() {
	ns := w.tenants[w.key()]
	switch w.random.IntN(6) {
	case 0:
		ns.object, ns.quota = nil, nil
	case 1:
		ns.quota = nil
	default:
		if ns.object == nil {
			w.serial++
			ns.object = builders.Namespace("")
			ns.object.UID = types.UID(fmt.Sprintf("uid-%d", w.serial))
		}
		ns.quota = builders.Quota("", "quota", "cpu", fmt.Sprintf("%dm", 500*w.random.IntN(12)), "memory", fmt.Sprintf("%dMi", 512*w.random.IntN(10)))
	}
}

// reconciles is what namespaceReconciler and Releaser do.
func (w *roomWorld) reconciles(key types.NamespacedName) {
	ns, np := w.tenants[key], w.placements[key]
	r := &namespaceReconciler{key: key.Namespace, usage: w, clock: w.clock, defaultSlice: slice.Of(builders.Resources("cpu", "1", "memory", "1Gi"))}
	var kept map[string]slice.Amounts
	switch {
	case np != nil && (ns.object == nil || np.Spec.NamespaceUID != ns.object.UID):
		if np.DeletionTimestamp == nil {
			np = np.DeepCopy()
			np.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
			w.store(key, np)
		} else if (&Releaser{Usage: w, Clock: w.clock}).wait(w.Context(), np) == 0 {
			w.did["released a namespace"]++
			w.store(key, nil)
		}
		return
	case ns.object == nil:
		return
	case np != nil && np.DeletionTimestamp != nil:
		if _, complete := w.Held(w.Context(), key, np.Spec.NamespaceUID); !complete {
			return
		}
		kept = keptOf(np)
		np = nil
		w.did["took back"]++
	}
	var quotas []corev1.ResourceQuota
	if ns.quota != nil {
		quotas = append(quotas, *ns.quota)
	}
	if np == nil {
		np = &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		_, _, err := r.change(w.Context(), np, ns.object, quotas, kept)
		require.NoError(w, err)
		if np.Spec.NamespaceUID == "" {
			return
		}
		np.UID, np.ResourceVersion = types.UID("uid-"+w.version()), w.version()
	} else {
		np = np.DeepCopy()
	}
	before := placement.Reserved(np.Status.Placements)
	_, _, err := r.change(w.Context(), np, ns.object, quotas, kept)
	require.NoError(w, err)
	if after := placement.Reserved(np.Status.Placements); !before.Fits(after) {
		w.did["released a part"]++
	}
	w.store(key, np)
}

// schedules is what the namespace scheduler does: all slices that a namespace lacks are placed, or none.
func (w *roomWorld) schedules(key types.NamespacedName) {
	np := w.placements[key]
	if np == nil || !placement.IsDecided(np) || np.DeletionTimestamp != nil {
		return
	}
	room := map[string]slice.Amounts{}
	for id, super := range w.supers {
		if !super.silent && !super.drained {
			capacity := super.ledger.Capacity()
			room[id] = super.headroom.Apply(capacity.Offered).Minus(capacity.Beyond)
			for _, other := range w.placements {
				room[id] = room[id].Minus(reservedOf(other, id))
			}
		}
	}
	granted := map[string]slice.Amounts{}
	for _, run := range placement.Missing(np) {
		for range run.Count {
			order := slices.Sorted(maps.Keys(room))
			w.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			at := slices.IndexFunc(order, func(id string) bool { return run.Size.Fits(room[id]) })
			if at < 0 {
				return
			}
			room[order[at]] = room[order[at]].Minus(run.Size)
			granted[order[at]] = granted[order[at]].Plus(run.Size)
		}
	}
	if len(granted) == 0 {
		return
	}
	w.did["placed"]++
	np = np.DeepCopy()
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: w.clock.Now(), Granted: granted})
	w.store(key, np)
}

// operatorActs silences or drains a super cluster, or not any more, or deletes a NamespacePlacement by hand.
func (w *roomWorld) operatorActs(super *roomSuper, key types.NamespacedName) {
	np := w.placements[key]
	switch w.random.IntN(3) {
	case 0:
		super.silent = !super.silent && w.random.IntN(2) == 0
	case 1:
		super.drained = !super.drained && w.random.IntN(3) == 0
	default:
		if np != nil && np.DeletionTimestamp == nil {
			np = np.DeepCopy()
			np.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
			w.store(client.ObjectKeyFromObject(np), np)
		}
	}
}

// leaves is what the Leaver does.
func (w *roomWorld) leaves(key types.NamespacedName) {
	np := w.placements[key]
	if np == nil || np.DeletionTimestamp != nil {
		return
	}
	leave := map[string]schedulerv1alpha1.LeavingReason{}
	for id, super := range w.supers {
		switch leave[id] = ""; {
		case super.drained:
			leave[id] = schedulerv1alpha1.LeavingDrained
		case super.silent && w.random.IntN(2) == 0:
			leave[id] = schedulerv1alpha1.LeavingLost
			w.did["lost"]++
		}
	}
	if !matters(np, leave) {
		return
	}
	before := np
	np = np.DeepCopy()
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: w.clock.Now(), Leave: leave, Used: w.Usage(w.Context(), key, clustersOf(np, nil))})
	quota := slice.Of(np.Spec.Quota)
	had := least(placement.Reserved(before.Status.Placements), quota)
	require.True(w, had.Fits(placement.Reserved(np.Status.Placements)), "a namespace keeps what it had")
	w.did["left"]++
	w.store(key, np)
}

func least(a, b slice.Amounts) slice.Amounts { return a.Minus(a.Minus(b)) }

// syncs is what the syncer of a super cluster does about a namespace: the quota lets pods request what stays.
func (w *roomWorld) syncs(super *roomSuper, key types.NamespacedName) {
	np, ns, quota := w.seen(key), w.tenants[key], super.quotas[key]
	owner := tenancy.Owner{ClusterKey: key.Namespace, VirtualCluster: types.NamespacedName{Namespace: "default", Name: key.Namespace}, VirtualClusterUID: "vc", Namespace: key.Name}
	if quota != nil {
		owner, _ = tenancy.GetOwner(quota)
	}
	isGone := ns.object == nil || owner.UID != ns.object.UID
	if quota != nil && isGone && !isFor(np, owner.UID) {
		w.withdraws(super, key, quota) // the tenant's namespace is gone, with proof
		return
	}
	if np == nil || super.ending[key] || ns.object == nil || ns.object.UID != np.Spec.NamespaceUID {
		return
	}
	owner.UID = ns.object.UID
	_, here := staysIn(np, super.id)
	switch {
	case quota == nil && here:
		w.creates(super, key, quotaOf(key, owner, nil, ""))
	case quota == nil:
	case !here:
		w.updates(super, key, quota, quotaOf(key, owner, nil, ""))
	default:
		w.bounds(super, key, owner, quota)
	}
}

// isFor returns whether np is for the namespace with that UID, and is not being deleted.
func isFor(np *schedulerv1alpha1.NamespacePlacement, uid types.UID) bool {
	return np != nil && np.DeletionTimestamp == nil && np.Spec.NamespaceUID == uid
}

// bounds lets the quota of a namespace that is placed answer, upon a live read of the NamespacePlacement.
func (w *roomWorld) bounds(super *roomSuper, key types.NamespacedName, owner tenancy.Owner, quota *corev1.ResourceQuota) {
	live := w.placements[key]
	if live == nil || live.DeletionTimestamp != nil || live.Spec.NamespaceUID != owner.UID {
		return
	}
	if stays, here := staysIn(live, super.id); here {
		w.updates(super, key, quota, quotaOf(key, owner, stays, placement.Decision(live, super.id)))
	}
}

// withdraws lets the quota of a super namespace answer, and then deletes the super namespace.
func (w *roomWorld) withdraws(super *roomSuper, key types.NamespacedName, quota *corev1.ResourceQuota) {
	if live := w.placements[key]; live != nil && live.DeletionTimestamp != nil {
		if decision := placement.Decision(live, super.id); quota.Annotations[schedulerv1alpha1.AnnotationDecision] != decision {
			desired := quota.DeepCopy()
			desired.Annotations[schedulerv1alpha1.AnnotationDecision] = decision
			w.updates(super, key, quota, desired)
			return
		}
	}
	super.ending[key] = true
}

// quotaOf returns a quota as a syncer writes it.
func quotaOf(key types.NamespacedName, owner tenancy.Owner, stays slice.Amounts, decision string) *corev1.ResourceQuota {
	quota := builders.Quota(key.String(), "superpool", "requests.cpu", fmt.Sprintf("%dm", stays["cpu"]), "requests.memory", fmt.Sprint(stays["memory"]))
	tenancy.SetOwner(quota, owner)
	if decision != "" {
		quota.Annotations[schedulerv1alpha1.AnnotationDecision] = decision
	}
	return quota
}

// creates sends a create, which fails if there is a quota when it comes into force, or the super namespace terminates.
func (w *roomWorld) creates(super *roomSuper, key types.NamespacedName, quota *corev1.ResourceQuota) {
	super.writes = append(super.writes, roomEvent{w.clock.Now().Add(w.hang()), func() {
		if super.quotas[key] != nil || super.ending[key] {
			w.did["could not create a quota"]++
			return
		}
		quota.UID = types.UID("uid-" + w.version())
		w.setQuota(super, key, quota)
	}})
}

// updates sends an update, which fails if the quota is not as it was read when it comes into force.
func (w *roomWorld) updates(super *roomSuper, key types.NamespacedName, base, desired *corev1.ResourceQuota) {
	sent := w.clock.Now()
	super.writes = append(super.writes, roomEvent{sent.Add(w.hang()), func() {
		stored := super.quotas[key]
		if stored == nil || stored.ResourceVersion != base.ResourceVersion {
			w.did["could not update a quota"]++
			return
		}
		if w.clock.Since(sent) > longestLag {
			w.did["updated a quota late"]++
		}
		stored = stored.DeepCopy()
		stored.Spec, stored.Labels = desired.Spec, desired.Labels
		maps.Copy(stored.Annotations, desired.Annotations)
		w.setQuota(super, key, stored)
	}})
}

// staysIn returns what of a reservation stays in a super cluster, false if np reserves nothing there.
func staysIn(np *schedulerv1alpha1.NamespacePlacement, id string) (slice.Amounts, bool) {
	for i := range np.Status.Placements {
		if p := &np.Status.Placements[i]; p.Cluster == id {
			return placement.StayingIn(p), true
		}
	}
	return nil, false
}

// setQuota stores a quota that belongs to w from then on.
func (w *roomWorld) setQuota(super *roomSuper, key types.NamespacedName, quota *corev1.ResourceQuota) {
	quota.ResourceVersion = w.version()
	super.quotas[key] = quota
	super.quotaEvents = append(super.quotaEvents, roomEvent{w.clock.Now().Add(w.lag()), func() { super.ledger.SetQuota(quota) }})
}

// superActs is what a super cluster does of itself: controllers follow specs, pods start as far as the quota lets them,
// and end.
func (w *roomWorld) superActs(super *roomSuper, key types.NamespacedName) {
	quota := super.quotas[key]
	switch w.random.IntN(4) {
	case 0: // the controller manager writes the status
		if quota != nil {
			status := corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: charges(super.requests(key))}
			if !equality.Semantic.DeepEqual(quota.Status, status) {
				quota = quota.DeepCopy()
				quota.Status = status
				w.setQuota(super, key, quota)
			}
		}
	case 1: // a pod starts
		if quota != nil && !super.ending[key] {
			w.starts(super, key, quota)
		}
	case 2: // a pod ends
		for _, uid := range slices.Sorted(maps.Keys(super.pods)) {
			if pod := super.pods[uid]; keyOf(pod) == key {
				delete(super.pods, uid)
				super.podEvents = append(super.podEvents, roomEvent{w.clock.Now().Add(w.lag()), func() { super.ledger.DeletePod(uid) }})
				break
			}
		}
	default: // the super namespace ends: its quota goes before or after its pods
		if super.ending[key] && quota != nil {
			delete(super.quotas, key)
			super.quotaEvents = append(super.quotaEvents, roomEvent{w.clock.Now().Add(w.lag()), func() { super.ledger.DeleteQuota(quota) }})
		}
		if super.ending[key] && super.quotas[key] == nil && super.requests(key).IsZero() {
			delete(super.ending, key)
		}
	}
}

// starts lets a pod start, if admission does: it goes by the status of the quota.
func (w *roomWorld) starts(super *roomSuper, key types.NamespacedName, quota *corev1.ResourceQuota) {
	w.serial++
	name := fmt.Sprintf("pod-%d", w.serial)
	pod := builders.Pod(key.String(), name, "cpu", fmt.Sprintf("%dm", 100*w.random.IntN(10)), "memory", fmt.Sprintf("%dMi", 100*w.random.IntN(10))).UID(name).Obj()
	owner, _ := tenancy.GetOwner(quota)
	owner.UID = "of-the-tenant's-pod"
	tenancy.SetOwner(pod, owner)
	sum := amountsOf(quota.Status.Used).Plus(slice.Taken(pod, slice.Reading{}))
	sum = sum.Minus(slice.Amounts{"pods": sum["pods"]})
	if quota.Status.Hard == nil || !sum.Fits(amountsOf(quota.Status.Hard)) {
		return
	}
	w.did["started a pod"]++
	quota = quota.DeepCopy()
	quota.Status.Used = charges(sum)
	w.setQuota(super, key, quota)
	super.pods[pod.UID] = pod
	super.podEvents = append(super.podEvents, roomEvent{w.clock.Now().Add(2 * w.lag()), func() { super.ledger.SetPod(pod) }})
}

// charges is what a quota says is used.
func charges(sum slice.Amounts) corev1.ResourceList {
	return builders.Resources("requests.cpu", fmt.Sprintf("%dm", sum["cpu"]), "requests.memory", fmt.Sprint(sum["memory"]))
}

// amountsOf reads a list of a quota.
func amountsOf(list corev1.ResourceList) slice.Amounts {
	return slice.Of(corev1.ResourceList{"cpu": list["requests.cpu"], "memory": list["requests.memory"]})
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	owner, _ := tenancy.GetOwner(pod)
	return types.NamespacedName{Namespace: owner.ClusterKey, Name: owner.Namespace}
}

// requests is what the pods of a namespace request in truth.
func (s *roomSuper) requests(key types.NamespacedName) slice.Amounts {
	sum := slice.Amounts{}
	for _, pod := range s.pods {
		if keyOf(pod) == key {
			sum = sum.Plus(slice.Taken(pod, slice.Reading{}))
		}
	}
	return sum
}

// mayUse is what the pods of a namespace request in truth, or may request at any moment.
func (s *roomSuper) mayUse(key types.NamespacedName) slice.Amounts {
	sum := s.requests(key)
	if quota := s.quotas[key]; quota != nil {
		sum = sum.Plus(amountsOf(quota.Status.Hard).Minus(sum))
		sum = sum.Plus(amountsOf(quota.Spec.Hard).Minus(sum))
	}
	return sum
}

// deliver lets writes come into force, in any order, and passes events on, in order, as far as they are due.
func (w *roomWorld) deliver(super *roomSuper) {
	super.writes = slices.DeleteFunc(super.writes, func(write roomEvent) bool {
		isDue := !write.at.After(w.clock.Now())
		if isDue {
			write.apply()
		}
		return isDue
	})
	if super.silent {
		return
	}
	for _, queue := range []*[]roomEvent{&super.podEvents, &super.quotaEvents} {
		for len(*queue) > 0 && !(*queue)[0].at.After(w.clock.Now()) {
			(*queue)[0].apply()
			*queue = (*queue)[1:]
		}
	}
}

// check demands that no room is given twice, in truth: may use ≤ reserved, and Σ reserved + foreign ≤ capacity −
// headroom. What a namespace may use is what its pods request, or what its quota lets them request.
func (w *roomWorld) check(step int) {
	for id, super := range w.supers {
		room := super.headroom.Apply(slice.Of(builders.Resources("cpu", "7", "memory", "7Gi")))
		sum := slice.Amounts{}
		for key := range w.tenants {
			reserved, mayUse := reservedOf(w.placements[key], id), super.mayUse(key)
			mayUse = mayUse.Minus(slice.Amounts{"pods": mayUse["pods"]})
			if !mayUse.Fits(reserved) {
				require.Fail(w, "room was released that may be used", "step %d: %s may use %s of %s, where %s is reserved for it", step, key, mayUse, id, reserved)
			}
			sum = sum.Plus(reserved)
		}
		if !sum.Fits(room) {
			require.Fail(w, "room was given twice", "step %d: %s has room for %s, and %s is reserved or used", step, id, room, sum)
		}
	}
}

// TestRoomIsGivenOnce lets random tenants write random quotas, pods and deletions against two super clusters.
func TestRoomIsGivenOnce(t *testing.T) {
	t.Parallel()
	did := map[string]int{}
	for seed := range uint64(20) {
		w := newRoomWorld(t, seed)
		for step := range 4000 {
			w.clock.SetTime(w.clock.Now().Add(time.Duration(w.random.IntN(100)) * time.Millisecond))
			for _, id := range []string{"r1", "r2"} {
				w.deliver(w.supers[id])
			}
			key, super := w.key(), w.superCluster()
			switch n := w.random.IntN(100); {
			case n < 4:
				w.tenantActs()
			case n < 7:
				w.operatorActs(super, key)
			case n < 12:
				w.leaves(key)
			case n < 30:
				w.reconciles(key)
			case n < 45:
				w.schedules(key)
			case n < 65:
				w.syncs(super, key)
			default:
				w.superActs(super, key)
			}
			w.check(step)
		}
		for what, times := range w.did {
			did[what] += times
		}
	}
	t.Log(did)
	for _, what := range []string{
		"placed", "left", "lost", "released a part", "released a namespace", "took back", "started a pod",
		"could not create a quota", "could not update a quota", "updated a quota late",
	} {
		require.Positive(t, did[what], what)
	}
}
