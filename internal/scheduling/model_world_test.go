package scheduling

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

const (
	// longestLag is how late the informers of vc-scheduler see anything but pods of super clusters. Those they see up
	// to twice as late, which is below placement.SettleTime, and syncers see NamespacePlacements up to five times as
	// late.
	longestLag = 4 * time.Second
	// longestHang is how late a write of a syncer comes into force.
	longestHang = 2 * time.Minute
)

var (
	modelSlice = slice.Of(builders.Resources("cpu", "1", "memory", "1Gi"))
	// modelStorage is what the operator says that each super cluster has.
	modelStorage  = slice.Of(builders.Resources("storage", "8Gi"))
	metav1ListAll = metav1.ListOptions{}
)

// modelWorld is a pool in memory. The real reconcilers of vc-scheduler decide, over super clusters, syncers, tenants
// and operators that do at random what they may do, each seeing the others late. A step is one action of one of them.
// Nothing runs beside it and no time passes but the world's own, so a seed always gives the same world.
type modelWorld struct {
	*testing.T
	random   *rand.Rand
	clock    *testingclock.FakePassiveClock
	headroom usage.Headroom
	meta     *modelStore
	// supers are the super clusters that are there, and joined all that ever were.
	supers  map[string]*modelSuper
	joined  map[string]*modelSuper
	tenants map[string]*modelTenant
	keys    []types.NamespacedName
	process *modelProcess
	// placementEvents and nodeEvents are what the meta cluster tells its watches.
	placementEvents []modelPlacementEvent
	nodeEvents      []modelNodeEvent
	// history holds what was stored when, per NamespacePlacement. nil: it was not there.
	history map[types.NamespacedName][]modelPlacementEvent
	// deletedByHand holds what a person has deleted, until it is decided anew.
	deletedByHand map[types.NamespacedName]bool
	// madeAgain is when that was.
	madeAgain map[types.NamespacedName]time.Time
	// tookBack is when what a NamespacePlacement had reserved before it was deleted was reserved again.
	tookBack map[types.NamespacedName]time.Time
	// owed is what has left super clusters and is to be placed elsewhere, as the rules count it.
	owed map[types.NamespacedName]slice.Amounts
	// policies are the tenants' policies, and nominated is when something of a tenant was last nominated, and by whom.
	policies    map[string]*policy.Ref
	nominated   map[string]time.Time
	nominatedBy map[string]*modelProcess
	// late holds writes that come into force with the next one. calm is when nothing fails, nothing is late, and nobody
	// acts from outside, and nested while others act in the midst of an action.
	late         []func() error
	calm, nested bool
	serial       int
	did          map[string]int
	trace        []string
}

type modelPlacementEvent struct {
	at        time.Time
	key       types.NamespacedName
	placement *schedulerv1alpha1.NamespacePlacement
	// owed is what of it is to be placed elsewhere, as the rules count it.
	owed slice.Amounts
}

type modelNodeEvent struct {
	at   time.Time
	id   string
	node *corev1.Node
}

// modelTenant is a tenant's control plane.
type modelTenant struct {
	world      *modelWorld
	key        string
	namespaces map[string]*modelNamespace
	pods       map[types.UID]*modelPod
	events     []modelTenantEvent
}

type modelTenantEvent struct {
	at     time.Time
	kind   string
	object any
	ended  bool
}

// modelNamespace is a namespace of a tenant, with a workload and its budget.
type modelNamespace struct {
	object *corev1.Namespace // nil: it was deleted
	quota  *corev1.ResourceQuota
	// deleted is the quota that was deleted last, quotaGone when, and quotaBack when one was applied again.
	deleted              *corev1.ResourceQuota
	quotaGone, quotaBack time.Time
	// looked is when the Evacuator last looked at the namespace, and lookedBefore when it had before modelWindow began:
	// who acts now may have decided by that.
	looked, lookedBefore time.Time
	// quotaSeen is when vc-scheduler last looked at the namespace, and saw a quota.
	quotaSeen time.Time
	// replicas is how many pods the workload has, and available how many of them the budget wants to be Ready.
	replicas, available int
	// asked holds what the tenant has written into the placements annotation.
	asked map[string]bool
	// ordered is whether anyone has ordered a move.
	ordered bool
	// jobs is whether pods end.
	jobs bool
}

// modelPod is a pod in a tenant's control plane.
type modelPod struct {
	key    types.NamespacedName
	object *corev1.Pod // as stored, never changed
	// projected is the object as the pod view has it.
	projected *corev1.Pod
	requests  slice.Amounts
	// cluster is where it is to run, "" for nowhere yet.
	cluster string
	ready   bool
	// finished is when it ended well.
	finished time.Time
	// readySince is since when it is Ready.
	readySince time.Time
}

func (p *modelPod) isTerminal() bool {
	return p.object.Status.Phase == corev1.PodSucceeded || p.object.Status.Phase == corev1.PodFailed
}

// modelSuper is a super cluster: what runs there, and its virtual Node.
type modelSuper struct {
	id      string
	nodes   []*corev1.Node
	foreign *corev1.Pod
	// silent is while vc-scheduler does not reach it, dead while nobody does, removed once its Cluster was deleted.
	silent, dead, removed bool
	pods                  map[types.UID]*modelSuperPod
	quotas                map[types.NamespacedName]*corev1.ResourceQuota
	// ending holds the namespaces whose super namespace terminates.
	ending map[types.NamespacedName]bool
	// podEvents and quotaEvents are on their way to vc-scheduler.
	podEvents, quotaEvents []modelEvent
	// writes of the syncer are on their way to the API server, and writing is until when, by namespace.
	writes  []modelEvent
	writing map[types.NamespacedName]time.Time
	// node is its virtual Node, and states are what its virtual Node said, and since when.
	node   *corev1.Node
	states []modelNodeState
}

// modelSuperPod runs a tenant's pod.
type modelSuperPod struct {
	key    types.NamespacedName
	object *corev1.Pod
	of     types.UID
}

type modelEvent struct {
	at    time.Time
	apply func()
}

// modelNodeState is what a virtual Node says from a moment on.
type modelNodeState struct {
	from              time.Time
	cordoned, drained bool
	removed           bool
	silentSince       time.Time
	room              slice.Amounts
}

func newModelWorld(t *testing.T, seed uint64) *modelWorld {
	t.Helper()
	w := &modelWorld{
		T: t, random: rand.New(rand.NewPCG(seed, 17)), clock: testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		supers: map[string]*modelSuper{}, joined: map[string]*modelSuper{}, tenants: map[string]*modelTenant{}, did: map[string]int{},
		history: map[types.NamespacedName][]modelPlacementEvent{}, deletedByHand: map[types.NamespacedName]bool{}, madeAgain: map[types.NamespacedName]time.Time{}, tookBack: map[types.NamespacedName]time.Time{}, owed: map[types.NamespacedName]slice.Amounts{},
		policies: map[string]*policy.Ref{}, nominated: map[string]time.Time{}, nominatedBy: map[string]*modelProcess{},
	}
	var err error
	w.headroom, err = usage.ParseHeadroom(`{"cpu":"10%"}`)
	require.NoError(t, err)
	w.meta = &modelStore{
		objects: map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement{}, wrote: w.wrote,
		now: func() metav1.Time { return metav1.Time{Time: w.clock.Now()}.Rfc3339Copy() },
	}
	for i := range 6 {
		key := types.NamespacedName{Namespace: fmt.Sprintf("tenant-%d", i%3), Name: fmt.Sprintf("ns%d", i)}
		w.keys = append(w.keys, key)
		tenant := w.tenants[key.Namespace]
		if tenant == nil {
			tenant = &modelTenant{world: w, key: key.Namespace, namespaces: map[string]*modelNamespace{}, pods: map[types.UID]*modelPod{}}
			w.tenants[key.Namespace], w.policies[key.Namespace] = tenant, &policy.Ref{}
			w.guarantees(key.Namespace)
		}
		tenant.namespaces[key.Name] = &modelNamespace{asked: map[string]bool{}, replicas: 1 + w.random.IntN(4)}
	}
	w.joins()
	w.joins()
	w.process = newModelProcess(w, w.meta)
	for _, key := range w.keys {
		w.tenantActs(key)
	}
	return w
}

func (w *modelWorld) lag() time.Duration {
	if w.calm {
		return 0
	}
	return time.Duration(w.random.Int64N(int64(longestLag)))
}

// hang is how long a write of a syncer takes: one in three longer than all patience.
func (w *modelWorld) hang() time.Duration {
	switch {
	case w.calm:
		return 0
	case w.random.IntN(3) > 0:
		return time.Duration(w.random.Int64N(int64(100 * time.Millisecond)))
	}
	return time.Duration(math.Pow(w.random.Float64(), 3) * float64(longestHang))
}

// fails is true once in n times, while things fail.
func (w *modelWorld) fails(n int) bool { return !w.calm && w.random.IntN(n) == 0 }

func (w *modelWorld) version() string {
	w.serial++
	return fmt.Sprint("v", w.serial)
}

func (w *modelWorld) superCluster() *modelSuper {
	ids := sortedNames(w.supers)
	id := ids[w.random.IntN(len(ids))]
	w.trace[len(w.trace)-1] += " " + id
	return w.supers[id]
}

func (w *modelWorld) key() types.NamespacedName {
	key := w.keys[w.random.IntN(len(w.keys))]
	w.trace[len(w.trace)-1] += " " + key.Name
	return key
}

func (w *modelWorld) namespace(key types.NamespacedName) *modelNamespace {
	return w.tenants[key.Namespace].namespaces[key.Name]
}

// wrote is told what was written to a NamespacePlacement.
func (w *modelWorld) wrote(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement) {
	event := modelPlacementEvent{at: w.clock.Now(), key: key, placement: after}
	w.placementEvents = append(w.placementEvents, event)
	w.history[key] = append(w.history[key], event)
	w.tracef("wrote %s: %s", key, describe(after))
	w.checkWrite(key, before, after)
}

// seen returns a NamespacePlacement as a syncer has it.
func (w *modelWorld) seen(key types.NamespacedName) *schedulerv1alpha1.NamespacePlacement {
	at := w.clock.Now().Add(-w.lag())
	if w.fails(4) { // it has restarted, and the API server's own cache lags
		at = at.Add(-4 * w.lag())
	}
	versions := w.history[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if !versions[i].at.After(at) {
			return versions[i].placement
		}
	}
	return nil
}

// landLate lets the writes come into force of which nobody knows whether they did.
func (w *modelWorld) landLate() {
	late := w.late
	w.late = nil
	for _, do := range late {
		_ = do()
	}
}

// restarts ends the leader, and starts the next one: nothing of what it knew remains.
func (w *modelWorld) restarts() {
	w.tracef("restarts")
	w.process.kill()
	w.process = newModelProcess(w, w.meta)
}

// ---- operators ----

// joins adds a super cluster.
func (w *modelWorld) joins() {
	if len(w.supers) >= 4 {
		return
	}
	w.serial++
	id := fmt.Sprintf("r%d", w.serial)
	super := &modelSuper{
		id: id, pods: map[types.UID]*modelSuperPod{}, quotas: map[types.NamespacedName]*corev1.ResourceQuota{}, ending: map[types.NamespacedName]bool{},
		writing: map[types.NamespacedName]time.Time{},
		foreign: builders.Pod("kube-system", "foreign", "cpu", "1", "memory", "1Gi").UID("foreign-" + id).Node("n1").Obj(),
		nodes:   []*corev1.Node{builders.Node("n1", "cpu", "8", "memory", "8Gi", "pods", "500").Obj()},
	}
	w.supers[id], w.joined[id] = super, super
	w.setNode(super, func(state *modelNodeState) {})
	w.did["joined"]++
}

// dropSuper forgets a super cluster that was removed.
func (w *modelWorld) dropSuper(super *modelSuper) {
	delete(w.supers, super.id)
	w.nodeEvents = append(w.nodeEvents, modelNodeEvent{w.clock.Now(), super.id, nil})
	w.did["was removed"]++
}

// setNode writes the virtual Node of a super cluster, where anything is another.
func (w *modelWorld) setNode(super *modelSuper, change func(*modelNodeState)) {
	var state modelNodeState
	if n := len(super.states); n > 0 {
		state = super.states[n-1]
	}
	before := state
	change(&state)
	if len(super.states) > 0 && reflect.DeepEqual(before, state) {
		return
	}
	state.from = w.clock.Now()
	super.states = append(super.states, state)
	node := builders.VirtualNode(super.id).Obj()
	node.Labels[corev1.LabelHostname] = super.id
	node.Status.Allocatable = state.room.List()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	switch {
	case state.removed:
		ready.Status, ready.Reason = corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved
	case !state.silentSince.IsZero():
		ready.Status, ready.Reason, ready.LastTransitionTime = corev1.ConditionUnknown, superclusters.ReasonSuperClusterUnreachable, metav1.NewTime(state.silentSince)
	}
	if state.room != nil || ready.Status != corev1.ConditionTrue {
		node.Status.Conditions = []corev1.NodeCondition{ready}
	}
	if state.cordoned {
		node.Spec.Unschedulable = true
	}
	if state.drained {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
	}
	super.node = node
	w.nodeEvents = append(w.nodeEvents, modelNodeEvent{w.clock.Now(), super.id, node})
}

func (w *modelWorld) cordons(super *modelSuper) {
	w.setNode(super, func(state *modelNodeState) { state.cordoned = !state.cordoned && w.random.IntN(3) == 0 })
}

func (w *modelWorld) drains(super *modelSuper) {
	w.setNode(super, func(state *modelNodeState) {
		state.drained = state.drained && w.random.IntN(2) == 0 || !state.drained && w.random.IntN(2) == 0
		w.did[fmt.Sprintf("drained %t", state.drained)]++
	})
}

func (w *modelWorld) loses(super *modelSuper) {
	super.silent = super.silent && w.random.IntN(3) > 0 || !super.silent && w.random.IntN(3) == 0
	super.dead = super.silent && w.random.IntN(2) == 0
}

// resizes makes the nodes of a super cluster larger or smaller.
func (w *modelWorld) resizes(super *modelSuper) {
	size := fmt.Sprint([]int{4, 6, 8, 8, 12}[w.random.IntN(5)])
	node := builders.Node("n1", "cpu", size, "memory", size+"Gi", "pods", "500").Obj()
	super.nodes = []*corev1.Node{node}
	w.tells(super, &super.quotaEvents, 1, func(ledger *usage.Ledger) { ledger.SetNode(node) })
	w.did["resized"]++
}

// removes deletes a super cluster's Cluster.
func (w *modelWorld) removes(super *modelSuper) {
	left := 0
	for _, other := range w.supers {
		if !other.removed {
			left++
		}
	}
	super.removed = super.removed || left > 1
}

// guarantees guarantees something else to a tenant, or nothing.
func (w *modelWorld) guarantees(tenant string) {
	spec := *policy.Default().Spec().DeepCopy()
	if size := []int{0, 3, 6}[w.random.IntN(3)]; size > 0 {
		spec.Scheduling.Guaranteed = builders.Resources("cpu", fmt.Sprint(size), "memory", fmt.Sprintf("%dGi", size))
	}
	current, err := policy.New("guarantees", &spec)
	require.NoError(w, err)
	w.policies[tenant].Set(current)
}

// pauses pauses a tenant, or lets it go on, as an operator does.
func (w *modelWorld) pauses(tenant string) { w.policies[tenant].Pause(w.random.IntN(3) == 0) }

// ordersMove orders a move of unused slices, as an operator does.
func (w *modelWorld) ordersMove(key types.NamespacedName) {
	np := w.meta.objects[key]
	if np == nil || np.DeletionTimestamp != nil || np.Status.Slices == 0 {
		return
	}
	order := placement.MoveOrder{Cause: schedulerv1alpha1.MoveForRebalance, Placements: map[string]int32{}, Since: w.meta.now()}
	ids := sortedNames(w.supers)
	to := ids[w.random.IntN(len(ids))]
	for range np.Status.Slices { // mostly together, for nothing may come to be in smaller pieces
		if w.random.IntN(6) == 0 {
			to = ids[w.random.IntN(len(ids))]
		}
		order.Placements[to]++
	}
	ordered := np.DeepCopy()
	metav1.SetMetaDataAnnotation(&ordered.ObjectMeta, schedulerv1alpha1.AnnotationMove, order.Encode())
	w.namespace(key).ordered = true
	require.NoError(w, w.meta.update(ordered, false))
}

// deletesByHand deletes a NamespacePlacement.
func (w *modelWorld) deletesByHand(key types.NamespacedName) {
	if np := w.meta.objects[key]; np != nil && np.DeletionTimestamp == nil {
		w.deletedByHand[key] = true
		require.NoError(w, w.meta.remove(key, np.UID, np.ResourceVersion))
	}
}

// ---- tenants ----

func (t *modelTenant) tell(kind string, object any, ended bool) {
	t.events = append(t.events, modelTenantEvent{t.world.clock.Now(), kind, object, ended})
}

// annotate writes the placements annotation, nil for none.
func (t *modelTenant) annotate(name string, text *string) {
	ns := t.namespaces[name]
	ns.object = ns.object.DeepCopy()
	ns.object.ResourceVersion = t.world.version()
	ns.object.Annotations = maps.Clone(ns.object.Annotations)
	delete(ns.object.Annotations, schedulerv1alpha1.AnnotationPlacements)
	if text != nil {
		metav1.SetMetaDataAnnotation(&ns.object.ObjectMeta, schedulerv1alpha1.AnnotationPlacements, *text)
	}
	t.tell("namespaces", ns.object, false)
	t.world.tracef("annotated %s: %s", name, ptr.Deref(text, "removed"))
}

// setQuota writes a quota, nil for none.
func (t *modelTenant) setQuota(ns *modelNamespace, quota *corev1.ResourceQuota) {
	if quota == nil {
		if ns.quota != nil {
			t.tell("quotas", ns.quota, true)
			ns.deleted, ns.quotaGone = ns.quota, t.world.clock.Now()
		}
	} else {
		t.tell("quotas", quota, false)
		if ns.quota == nil {
			ns.quotaBack = t.world.clock.Now()
		}
	}
	ns.quota = quota
}

// tenantActs writes a quota, deletes a namespace or makes it again.
func (w *modelWorld) tenantActs(key types.NamespacedName) {
	tenant, ns := w.tenants[key.Namespace], w.namespace(key)
	switch w.random.IntN(8) {
	case 0:
		if ns.object != nil {
			tenant.setQuota(ns, nil)
			tenant.tell("namespaces", ns.object, true)
			ns.object = nil
			w.did["deleted a namespace"]++
		}
	case 1:
		tenant.setQuota(ns, nil)
	default:
		if ns.object == nil {
			ns.object = builders.Namespace(key.Name)
			ns.object.UID, ns.object.ResourceVersion = types.UID("uid-"+w.version()), w.version()
			tenant.tell("namespaces", ns.object, false)
		}
		cpu, memory := fmt.Sprintf("%dm", 500*(1+w.random.IntN(11))), fmt.Sprintf("%dMi", 512*(1+w.random.IntN(10)))
		switch w.random.IntN(40) {
		case 0:
			cpu = "-1"
		case 1:
			cpu = "0"
		case 2:
			memory = "0"
		}
		hard := []string{"cpu", cpu, "memory", memory}
		if w.random.IntN(3) == 0 {
			hard = append(hard, "requests.storage", fmt.Sprintf("%dGi", w.random.IntN(8)))
			w.did["named storage"]++
		}
		tenant.setQuota(ns, builders.Quota(key.Name, "quota", hard...))
		w.did["changed a quota"]++
	}
}

// replaces deletes a quota, or applies again what was deleted.
func (w *modelWorld) replaces(key types.NamespacedName) {
	tenant, ns := w.tenants[key.Namespace], w.namespace(key)
	switch {
	case ns.object == nil:
	case ns.quota != nil:
		tenant.setQuota(ns, nil)
	case ns.deleted != nil:
		if w.clock.Since(ns.quotaGone) < modelQuotaGrace {
			w.did["a quota came back in time"]++
		} else {
			w.did["a quota came back late"]++
		}
		tenant.setQuota(ns, ns.deleted)
	}
}

// tenantChooses chooses one super cluster or any, or writes nonsense.
func (w *modelWorld) tenantChooses(key types.NamespacedName) {
	if w.namespace(key).object == nil {
		return
	}
	text, ids := "", sortedNames(w.supers)
	switch w.random.IntN(6) {
	case 0:
		text = "{nonsense"
	case 1, 2:
		text = fmt.Sprintf(`{"nodeSelector":{%q:%q}}`, corev1.LabelHostname, ids[w.random.IntN(len(ids))])
	}
	w.chooses(key, text)
}

// chooses writes the cluster-choice annotation, "" for none.
func (w *modelWorld) chooses(key types.NamespacedName, text string) {
	ns := w.namespace(key)
	ns.object = ns.object.DeepCopy()
	ns.object.ResourceVersion = w.version()
	delete(ns.object.Annotations, schedulerv1alpha1.AnnotationClusterChoice)
	if text != "" {
		metav1.SetMetaDataAnnotation(&ns.object.ObjectMeta, schedulerv1alpha1.AnnotationClusterChoice, text)
	}
	w.tenants[key.Namespace].tell("namespaces", ns.object, false)
	w.tracef("%s chooses %s", key.Name, text)
}

// tenantWrites overwrites the placements annotation, or clears it.
func (w *modelWorld) tenantWrites(key types.NamespacedName) {
	ns := w.namespace(key)
	if ns.object == nil {
		return
	}
	var text *string
	ids := sortedNames(w.supers)
	switch w.random.IntN(8) {
	case 0:
		text = ptr.To("{nonsense")
	case 1, 2, 3, 4, 5:
		counts := map[string]int32{}
		if np := w.meta.objects[key]; np != nil {
			for range np.Status.Slices - int32(w.random.IntN(10)/9) {
				counts[ids[w.random.IntN(len(ids))]]++
			}
		}
		encoded, err := json.Marshal(counts)
		require.NoError(w, err)
		text = ptr.To(string(encoded))
	}
	ns.asked[ptr.Deref(text, "")] = true
	w.tenants[key.Namespace].annotate(key.Name, text)
	w.did["wrote the annotation"]++
}

// workloads is what a tenant does about a workload, and its controllers.
func (w *modelWorld) workloads(key types.NamespacedName) {
	tenant, ns := w.tenants[key.Namespace], w.namespace(key)
	if w.random.IntN(15) == 0 {
		ns.replicas, ns.jobs = w.random.IntN(5), w.random.IntN(3) == 0
		ns.available = w.random.IntN(ns.replicas + 1)
	}
	tenant.controls(key, ns)
}

// controls lets the workload of a namespace have as many pods as it is to have, and finished ones stay for a while.
func (t *modelTenant) controls(key types.NamespacedName, ns *modelNamespace) {
	w := t.world
	var active []*modelPod
	for _, uid := range sortedNames(t.pods) {
		pod := t.pods[uid]
		switch {
		case pod.key != key:
		case ns.object == nil:
			t.terminate(pod)
		case pod.isTerminal():
			if w.random.IntN(4) == 0 {
				t.terminate(pod)
			}
		case pod.object.DeletionTimestamp == nil:
			active = append(active, pod)
		}
	}
	switch {
	case ns.object == nil:
	case len(active) > ns.replicas:
		t.terminate(active[len(active)-1])
	case len(active) < ns.replicas:
		t.creates(key)
	}
}

func (t *modelTenant) creates(key types.NamespacedName) {
	w := t.world
	name := "pod-" + w.version()
	object := builders.Pod(key.Name, name, "cpu", fmt.Sprintf("%dm", 100*w.random.IntN(10)), "memory", fmt.Sprintf("%dMi", 100*w.random.IntN(10))).UID(name).Obj()
	object.CreationTimestamp = w.meta.now()
	requests := slice.Taken(object, slice.Reading{})
	pod := &modelPod{key: key, object: object, requests: requests.Minus(slice.Amounts{"pods": requests["pods"]})}
	t.pods[object.UID] = pod
	t.change(pod, func(*corev1.Pod) {})
}

// change changes a pod, and tells the watches.
func (t *modelTenant) change(pod *modelPod, change func(*corev1.Pod)) {
	pod.object = pod.object.DeepCopy()
	change(pod.object)
	projected, err := view.TenantPod(pod.object.DeepCopy())
	require.NoError(t.world, err)
	pod.projected = projected.(*corev1.Pod)
	t.tell("pods", pod.projected, false)
}

// setReady writes whether a pod is Ready.
func (t *modelTenant) setReady(pod *modelPod, ready bool) {
	if pod.ready == ready {
		return
	}
	pod.ready, pod.readySince = ready, t.world.clock.Now()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	t.change(pod, func(object *corev1.Pod) {
		object.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	})
}

// terminate begins the end of a pod. One that runs nowhere ends at once.
func (t *modelTenant) terminate(pod *modelPod) {
	if pod.cluster == "" || pod.isTerminal() {
		t.ends(pod)
	} else if pod.object.DeletionTimestamp == nil {
		t.change(pod, func(object *corev1.Pod) { object.DeletionTimestamp = ptr.To(t.world.meta.now()) })
	}
}

func (t *modelTenant) ends(pod *modelPod) {
	delete(t.pods, pod.object.UID)
	t.tell("pods", pod.projected, true)
}

// allows is what the budget of a pod says to its eviction, as Kubernetes' Eviction API has it: pods that do not run yet
// are not asked about, and others that are not Ready only have to leave enough that are.
func (t *modelTenant) allows(pod *modelPod) bool {
	if pod.object.Spec.NodeName == "" || pod.isTerminal() {
		return true
	}
	ready := 0
	for _, other := range t.pods {
		if other.key == pod.key && other.ready && other.object.DeletionTimestamp == nil {
			ready++
		}
	}
	available := t.namespaces[pod.key.Name].available
	return ready > available || !pod.ready && ready >= available
}

// nodeLifecycle is what the tenants' own controllers do about Nodes of a super cluster that is not heard of: pods there
// are not Ready, and later some are deleted.
func (w *modelWorld) nodeLifecycle(super *modelSuper) {
	state := super.states[len(super.states)-1]
	if state.silentSince.IsZero() || w.clock.Since(state.silentSince) < 40*time.Second {
		return
	}
	for _, key := range sortedNames(w.tenants) {
		tenant := w.tenants[key]
		for _, uid := range sortedNames(tenant.pods) {
			if pod := tenant.pods[uid]; pod.cluster == super.id {
				tenant.setReady(pod, false)
				if w.clock.Since(state.silentSince) > 5*time.Minute && w.random.IntN(4) == 0 {
					tenant.terminate(pod)
				}
			}
		}
	}
}

// outOfService is what the tenants' pod garbage collectors do once the operator says that the Nodes of a super cluster
// are out of service.
func (w *modelWorld) outOfService(super *modelSuper) {
	if !super.dead && !super.removed {
		return
	}
	for _, key := range sortedNames(w.tenants) {
		tenant := w.tenants[key]
		for _, uid := range sortedNames(tenant.pods) {
			if pod := tenant.pods[uid]; pod.cluster == super.id && (pod.object.DeletionTimestamp != nil || super.removed) {
				tenant.ends(pod)
			}
		}
	}
}

// ---- super clusters and their syncers ----

// syncs is what the syncer of a super cluster does about a namespace: the quota lets pods request what stays.
func (w *modelWorld) syncs(super *modelSuper, key types.NamespacedName) {
	if !w.isFree(super, key) {
		return
	}
	np, ns, quota := w.seen(key), w.namespace(key), super.quotas[key]
	owner := syncedQuota(key, quota)
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
		w.createsQuota(super, key, quotaOf(key, owner, nil, ""))
	case quota == nil:
	case !here:
		w.updatesQuota(super, key, quota, quotaOf(key, owner, nil, ""))
	default:
		w.bounds(super, key, owner, quota)
	}
}

// isFree returns whether a syncer's worker does not wait for its last write, or has restarted.
func (w *modelWorld) isFree(super *modelSuper, key types.NamespacedName) bool {
	return !super.dead && (!w.clock.Now().Before(super.writing[key]) || w.fails(20))
}

// isFor returns whether np is for the namespace with that UID, and is not being deleted.
func isFor(np *schedulerv1alpha1.NamespacePlacement, uid types.UID) bool {
	return np != nil && np.DeletionTimestamp == nil && np.Spec.NamespaceUID == uid
}

// bounds lets the quota of a namespace that is placed answer, upon a live read of the NamespacePlacement.
func (w *modelWorld) bounds(super *modelSuper, key types.NamespacedName, owner tenancy.Owner, quota *corev1.ResourceQuota) {
	live := w.meta.objects[key]
	if live == nil || live.DeletionTimestamp != nil || live.Spec.NamespaceUID != owner.UID {
		return
	}
	if stays, here := staysIn(live, super.id); here {
		desired := quotaOf(key, owner, stays, placement.Decision(live, super.id))
		if placement.NamesStorage(live) {
			desired.Annotations[schedulerv1alpha1.AnnotationHoldsStorage] = "true"
			desired.Spec.Hard["requests.storage"] = *resource.NewQuantity(stays["storage"], resource.BinarySI)
		}
		w.updatesQuota(super, key, quota, desired)
	}
}

// withdraws lets the quota of a super namespace answer, and then deletes the super namespace.
func (w *modelWorld) withdraws(super *modelSuper, key types.NamespacedName, quota *corev1.ResourceQuota) {
	if live := w.meta.objects[key]; live != nil && live.DeletionTimestamp != nil {
		if decision := placement.Decision(live, super.id); quota.Annotations[schedulerv1alpha1.AnnotationDecision] != decision {
			desired := quota.DeepCopy()
			desired.Annotations[schedulerv1alpha1.AnnotationDecision] = decision
			w.updatesQuota(super, key, quota, desired)
			return
		}
	}
	super.ending[key] = true
}

// quotaOf returns a quota as a syncer writes it.
func quotaOf(key types.NamespacedName, owner tenancy.Owner, stays slice.Amounts, decision string) *corev1.ResourceQuota {
	quota := builders.Quota(tenancy.SuperNamespace(key.Namespace, key.Name), "superpool", "requests.cpu", fmt.Sprintf("%dm", stays["cpu"]), "requests.memory", fmt.Sprint(stays["memory"]))
	tenancy.SetOwner(quota, owner)
	if decision != "" {
		quota.Annotations[schedulerv1alpha1.AnnotationDecision] = decision
	}
	return quota
}

// createsQuota sends a create, which fails if there is a quota when it comes into force, or the super namespace
// terminates.
func (w *modelWorld) createsQuota(super *modelSuper, key types.NamespacedName, quota *corev1.ResourceQuota) {
	w.sends(super, key, func() {
		if super.quotas[key] != nil || super.ending[key] {
			w.did["could not create a quota"]++
			return
		}
		quota.UID = types.UID("uid-" + w.version())
		w.storeQuota(super, key, quota)
	})
}

// sends sends a write.
func (w *modelWorld) sends(super *modelSuper, key types.NamespacedName, write func()) {
	at := w.clock.Now().Add(w.hang())
	super.writing[key] = at
	super.writes = append(super.writes, modelEvent{at, write})
}

// updatesQuota sends an update, which fails if the quota is not as it was read when it comes into force.
func (w *modelWorld) updatesQuota(super *modelSuper, key types.NamespacedName, base, desired *corev1.ResourceQuota) {
	if equality.Semantic.DeepEqual(base.Spec, desired.Spec) && equality.Semantic.DeepEqual(base.Annotations, desired.Annotations) {
		return
	}
	sent := w.clock.Now()
	w.sends(super, key, func() {
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
		delete(stored.Annotations, schedulerv1alpha1.AnnotationHoldsStorage)
		maps.Copy(stored.Annotations, desired.Annotations)
		w.storeQuota(super, key, stored)
	})
}

// staysIn returns what of a reservation stays in a super cluster, false if np reserves nothing there.
func staysIn(np *schedulerv1alpha1.NamespacePlacement, id string) (slice.Amounts, bool) {
	if np != nil {
		for i := range np.Status.Placements {
			if p := &np.Status.Placements[i]; p.Cluster == id {
				return placement.StayingIn(p), true
			}
		}
	}
	return nil, false
}

// reservedOf returns what np, nil for none, reserves in a super cluster.
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

// tells has the ledger of the process told of something, later: at most a multiple of longestLag.
func (w *modelWorld) tells(super *modelSuper, queue *[]modelEvent, times time.Duration, tell func(*usage.Ledger)) {
	*queue = append(*queue, modelEvent{w.clock.Now().Add(times * w.lag()), func() {
		if ledger := w.process.ledgers[super.id]; ledger != nil {
			tell(ledger)
		}
	}})
}

// storeQuota stores a quota that belongs to w from then on.
func (w *modelWorld) storeQuota(super *modelSuper, key types.NamespacedName, quota *corev1.ResourceQuota) {
	quota.ResourceVersion = w.version()
	super.quotas[key] = quota
	w.tells(super, &super.quotaEvents, 1, func(ledger *usage.Ledger) { ledger.SetQuota(quota) })
}

// superActs is what a super cluster and its syncer do about a namespace: controllers follow specs, pods start as far as
// the quota lets them, are told of to the tenant, and end.
func (w *modelWorld) superActs(super *modelSuper, key types.NamespacedName, action int) {
	if super.dead {
		return
	}
	switch action {
	case 0:
		w.charges(super, key)
	case 1:
		w.startsPods(super, key)
	case 2:
		w.endsPods(super, key)
	case 3:
		w.reportsPods(super, key)
	default:
		w.endsNamespace(super, key)
	}
}

// charges lets the controller manager write the status of a quota.
func (w *modelWorld) charges(super *modelSuper, key types.NamespacedName) {
	quota := super.quotas[key]
	if quota == nil {
		return
	}
	status := corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: charges(super.requests(key))}
	if !equality.Semantic.DeepEqual(quota.Status, status) {
		quota = quota.DeepCopy()
		quota.Status = status
		w.storeQuota(super, key, quota)
	}
}

func (w *modelWorld) startsPods(super *modelSuper, key types.NamespacedName) {
	tenant := w.tenants[key.Namespace]
	for _, uid := range sortedNames(tenant.pods) {
		pod := tenant.pods[uid]
		if quota := super.quotas[key]; quota != nil && !super.ending[key] && pod.key == key && pod.cluster == super.id {
			w.starts(super, pod, quota)
		}
	}
}

// endsPods ends pods where the tenant's does, or is gone, and where the super namespace terminates.
func (w *modelWorld) endsPods(super *modelSuper, key types.NamespacedName) {
	tenant := w.tenants[key.Namespace]
	for _, uid := range sortedNames(super.pods) {
		run := super.pods[uid]
		pod := tenant.pods[run.of]
		if run.key == key && (pod == nil || pod.object.DeletionTimestamp != nil || super.ending[key]) {
			w.stops(super, uid)
		}
	}
	for _, uid := range sortedNames(tenant.pods) {
		pod := tenant.pods[uid]
		if pod.key == key && pod.cluster == super.id && pod.object.DeletionTimestamp != nil && !super.runs(uid) {
			tenant.ends(pod)
		}
	}
}

// reportsPods tells the tenant how its pods are.
func (w *modelWorld) reportsPods(super *modelSuper, key types.NamespacedName) {
	tenant := w.tenants[key.Namespace]
	for _, uid := range sortedNames(super.pods) {
		pod := tenant.pods[super.pods[uid].of]
		switch {
		case pod == nil || pod.key != key || pod.isTerminal():
		case w.namespace(key).jobs && w.random.IntN(10) == 0:
			w.finishes(super, uid, pod)
		default:
			tenant.setReady(pod, w.calm || w.random.IntN(8) > 0)
		}
	}
}

// endsNamespace lets a super namespace end: its quota goes before or after its pods.
func (w *modelWorld) endsNamespace(super *modelSuper, key types.NamespacedName) {
	if quota := super.quotas[key]; super.ending[key] && quota != nil {
		delete(super.quotas, key)
		w.tells(super, &super.quotaEvents, 1, func(ledger *usage.Ledger) { ledger.DeleteQuota(quota) })
	}
	if super.ending[key] && super.quotas[key] == nil && super.requests(key).IsZero() {
		delete(super.ending, key)
	}
}

// starts lets a pod start, if admission does: it goes by the status of the quota.
func (w *modelWorld) starts(super *modelSuper, pod *modelPod, quota *corev1.ResourceQuota) {
	if pod.isTerminal() || pod.object.DeletionTimestamp != nil || super.runs(pod.object.UID) {
		return
	}
	name := "super-" + w.version()
	object := builders.Pod(tenancy.SuperNamespace(pod.key.Namespace, pod.key.Name), name).UID(name).Obj()
	object.Spec.Containers = pod.object.Spec.Containers
	owner, _ := tenancy.GetOwner(quota)
	owner.UID = pod.object.UID
	tenancy.SetOwner(object, owner)
	sum := amountsOf(quota.Status.Used).Plus(pod.requests)
	if quota.Status.Hard == nil || !sum.Fits(amountsOf(quota.Status.Hard)) {
		return
	}
	w.did["started a pod"]++
	quota = quota.DeepCopy()
	quota.Status.Used = charges(sum)
	w.storeQuota(super, pod.key, quota)
	super.pods[object.UID] = &modelSuperPod{key: pod.key, object: object, of: pod.object.UID}
	w.tells(super, &super.podEvents, 2, func(ledger *usage.Ledger) { ledger.SetPod(object) })
	w.tenants[pod.key.Namespace].change(pod, func(object *corev1.Pod) { object.Spec.NodeName = super.id })
}

// stops ends a pod of a super cluster.
func (w *modelWorld) stops(super *modelSuper, uid types.UID) {
	delete(super.pods, uid)
	w.tells(super, &super.podEvents, 1, func(ledger *usage.Ledger) { ledger.DeletePod(uid) })
}

// finishes lets a pod end well: it counts no more, and stays.
func (w *modelWorld) finishes(super *modelSuper, uid types.UID, pod *modelPod) {
	w.stops(super, uid)
	pod.finished = w.clock.Now()
	w.tenants[pod.key.Namespace].setReady(pod, false)
	w.tenants[pod.key.Namespace].change(pod, func(object *corev1.Pod) { object.Status.Phase = corev1.PodSucceeded })
	w.did["a pod finished"]++
}

// runs returns whether a super cluster runs a tenant's pod.
func (s *modelSuper) runs(of types.UID) bool {
	for _, run := range s.pods {
		if run.of == of {
			return true
		}
	}
	return false
}

// charges is what a quota says is used.
func charges(sum slice.Amounts) corev1.ResourceList {
	return builders.Resources("requests.cpu", fmt.Sprintf("%dm", sum["cpu"]), "requests.memory", fmt.Sprint(sum["memory"]))
}

// amountsOf reads a list of a quota.
func amountsOf(list corev1.ResourceList) slice.Amounts {
	return slice.Of(corev1.ResourceList{"cpu": list["requests.cpu"], "memory": list["requests.memory"]})
}

// requests is what the pods of a namespace request in truth.
func (s *modelSuper) requests(key types.NamespacedName) slice.Amounts {
	sum := slice.Amounts{}
	for _, run := range s.pods {
		if run.key == key {
			taken := slice.Taken(run.object, slice.Reading{})
			sum = sum.Plus(slice.Amounts{"cpu": taken["cpu"], "memory": taken["memory"]})
		}
	}
	return sum
}

// mayUse is what the pods of a namespace request in truth, or may request at any moment.
func (s *modelSuper) mayUse(key types.NamespacedName) slice.Amounts {
	sum := s.requests(key)
	if quota := s.quotas[key]; quota != nil {
		sum = sum.Plus(amountsOf(quota.Status.Hard).Minus(sum))
		sum = sum.Plus(amountsOf(quota.Spec.Hard).Minus(sum))
	}
	return sum
}

// deliver lets writes come into force, in any order, and passes events on, in order, as far as they are due.
func (w *modelWorld) deliver(super *modelSuper) {
	if !super.dead {
		writes := super.writes
		super.writes = nil
		for _, write := range writes {
			if write.at.After(w.clock.Now()) {
				super.writes = append(super.writes, write)
			} else {
				write.apply()
			}
		}
	}
	if super.silent {
		return
	}
	for _, queue := range []*[]modelEvent{&super.podEvents, &super.quotaEvents} {
		for len(*queue) > 0 && !(*queue)[0].at.After(w.clock.Now()) {
			(*queue)[0].apply()
			*queue = (*queue)[1:]
		}
	}
}

// sortedNames returns the keys of a map in an order that does not depend on the map.
func sortedNames[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
