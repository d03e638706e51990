package scheduling

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/eviction"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/namespacescheduler"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/preemption"
	"github.com/superpool/superpool/internal/scheduling/rebalance"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// modelLostToleration is Evacuator.LostToleration.
const modelLostToleration = 90 * time.Second

// modelQuotaGrace is Tenants.QuotaGrace.
const modelQuotaGrace = 30 * time.Second

// modelPreemptionGrace is Preemptor.Grace.
const modelPreemptionGrace = 20 * time.Second

// modelProcess is vc-scheduler from its start as the leader until it is killed: its real reconcilers, over caches that
// are behind, and a simple placer in the place of kube-scheduler. What it knows ends with it.
type modelProcess struct {
	world *modelWorld
	//nolint:containedctx // it lives as long as the process
	ctx   context.Context
	kill  context.CancelFunc
	began time.Time
	// cache and nodes are its caches of NamespacePlacements and virtual Nodes, and cached and noded how many of the
	// world's events they have seen. The placer begins when the cache holds what was stored at the start.
	cache         map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement
	nodes         map[string]*corev1.Node
	cached, noded int
	caughtUp      int
	// ledgers are those of the super clusters that it has listed.
	ledgers map[string]*usage.Ledger
	tenants map[string]*modelConnection
	// busy are the workers that are at work: each does one thing at a time.
	busy map[string]bool

	store      *placements.Store
	sink       *namespacescheduler.StatusSink
	namespaces *view.Namespaces
	evacuator  *eviction.Evacuator
	releaser   *eviction.Releaser
	guarantor  *preemption.Guarantor
	preemptor  *preemption.Preemptor
}

// modelConnection is what vc-scheduler has of one tenant: its reconcilers, and informers that have seen so many of the
// tenant's events.
type modelConnection struct {
	seen       int
	informers  map[string]cache.Indexer
	namespace  *namespaces.Reconciler
	annotation *namespaces.AnnotationReconciler
	move       *rebalance.MoveReconciler
}

// newModelProcess starts a process. A shadow writes into another store, and its writes happen.
func newModelProcess(w *modelWorld, store *modelStore) *modelProcess {
	p := &modelProcess{
		world: w, began: w.clock.Now(), cache: map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement{}, nodes: map[string]*corev1.Node{},
		ledgers: map[string]*usage.Ledger{}, tenants: map[string]*modelConnection{}, busy: map[string]bool{}, namespaces: view.NewNamespaces(),
	}
	p.ctx, p.kill = context.WithCancel(klog.NewContext(w.Context(), logr.Discard()))
	written, live := plainClient(store), plainClient(store)
	isShadow := store != w.meta
	if !isShadow {
		written.read = func() (map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement, error) { return p.cache, nil }
		written.write = p.write
		live.read = p.readLive
	}
	p.store = placements.NewStore(written, live)
	p.sink = namespacescheduler.NewStatusSink(p.store, w.clock)
	p.evacuator = &eviction.Evacuator{Store: p.store, Usage: p, LostToleration: modelLostToleration, Clock: w.clock}
	p.releaser = &eviction.Releaser{Store: p.store, Usage: p, Clock: w.clock}
	p.guarantor = &preemption.Guarantor{Store: p.store, Clock: w.clock}
	p.preemptor = &preemption.Preemptor{Store: p.store, Reader: modelPool{p, written}, Usage: p, Grace: modelPreemptionGrace, Clock: w.clock, Find: p.victims}
	for _, key := range sortedNames(w.tenants) {
		p.tenants[key] = p.connect(w.tenants[key])
	}
	p.syncs(w.clock.Now().Add(-w.lag()))
	return p
}

// syncs fills the caches: that of NamespacePlacements with what was stored at a time, for the API server's own is
// behind.
func (p *modelProcess) syncs(at time.Time) {
	w := p.world
	p.caughtUp = len(w.placementEvents)
	last := map[types.NamespacedName]int{}
	for i := range w.placementEvents {
		if !w.placementEvents[i].at.After(at) {
			last[w.placementEvents[i].key], p.cached = i, i+1
		}
	}
	for _, key := range sortedKeys(last) {
		p.hearsPlacement(w.placementEvents[last[key]])
	}
	for _, id := range sortedNames(w.supers) {
		p.hearsNode(modelNodeEvent{id: id, node: w.supers[id].node})
	}
	p.noded = len(w.nodeEvents)
	for _, key := range sortedNames(p.tenants) {
		c, tenant := p.tenants[key], w.tenants[key]
		c.seen = len(tenant.events)
		for _, ns := range tenant.namespaces {
			if ns.object != nil {
				_ = c.informers["namespaces"].Add(ns.object)
			}
			if ns.quota != nil {
				_ = c.informers["quotas"].Add(ns.quota)
			}
		}
		for _, pod := range tenant.pods {
			_ = c.informers["pods"].Add(pod.projected)
		}
	}
}

func (c *modelConnection) world() *modelTenant { return c.namespace.API.(*modelTenantAPI).tenant }

// connect makes the reconcilers of one tenant.
func (p *modelProcess) connect(tenant *modelTenant) *modelConnection {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	c := &modelConnection{informers: map[string]cache.Indexer{}}
	for _, kind := range []string{"namespaces", "quotas", "pods"} {
		c.informers[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	}
	lister := corev1listers.NewNamespaceLister(c.informers["namespaces"])
	quotas := corev1listers.NewResourceQuotaLister(c.informers["quotas"])
	told := tenantevents.NamespaceEvents{Quotas: quotas, Recorder: &events.FakeRecorder{}}
	api := &modelTenantAPI{tenant: tenant, write: p.write}
	c.namespace = &namespaces.Reconciler{
		Key: tenant.key, Store: p.store, API: api, Namespaces: lister, Quotas: quotas, Usage: p, Clock: p.world.clock, Recognized: api.recognized,
		DefaultSlice: modelSlice, QuotaGrace: modelQuotaGrace, Events: told, Changes: namespaces.NewChanges(), Policy: p.world.policies[tenant.key],
		Evictor: &eviction.Evictor{
			Post:   func(_ context.Context, eviction *policyv1.Eviction) error { return p.evicts(tenant, eviction) },
			Remove: func(_ context.Context, pod *corev1.Pod) error { return p.removes(tenant, pod) },
			Pods:   corev1listers.NewPodLister(c.informers["pods"]), Namespaces: lister, Events: told, Clock: p.world.clock,
		},
	}
	c.annotation = &namespaces.AnnotationReconciler{
		Key: tenant.key, Store: p.store, API: api, Namespaces: lister, Events: told, Clock: p.world.clock, Restores: namespaces.NewRestoreLimiter(),
	}
	c.move = &rebalance.MoveReconciler{Key: tenant.key, Store: p.store, Namespaces: lister, Usage: p, Events: told, Clock: p.world.clock}
	return c
}

// next lets the informers see one more event of the tenant.
func (c *modelConnection) next() {
	event := c.world().events[c.seen]
	c.seen++
	informer := c.informers[event.kind]
	if event.ended {
		_ = informer.Delete(event.object)
		return
	}
	_ = informer.Add(event.object)
}

// nextPlacement lets the cache see one more event, and all that it feeds.
func (p *modelProcess) nextPlacement() {
	p.hearsPlacement(p.world.placementEvents[p.cached])
	p.cached++
}

func (p *modelProcess) hearsPlacement(event modelPlacementEvent) {
	if event.placement == nil {
		delete(p.cache, event.key)
		p.namespaces.Delete(event.key)
		p.sink.Forget(event.key)
	} else {
		p.cache[event.key] = event.placement
		p.namespaces.Set(namespacescheduler.ToBePlaced(event.placement))
	}
	for _, id := range sortedNames(p.ledgers) {
		p.ledgers[id].SetReserved(event.key, reservedOf(event.placement, id))
	}
}

func (p *modelProcess) nextNode() {
	p.hearsNode(p.world.nodeEvents[p.noded])
	p.noded++
}

func (p *modelProcess) hearsNode(event modelNodeEvent) {
	if event.node == nil {
		delete(p.nodes, event.id)
		p.evacuator.DeleteNode(event.id)
		return
	}
	p.nodes[event.id] = event.node
	p.evacuator.SetNode(event.node)
}

// hears lets caches see what is due: at random, and all that is older than longestLag.
func (p *modelProcess) hears() {
	w := p.world
	behind := func(at time.Time) bool { return w.calm || w.clock.Since(at) > longestLag || w.random.IntN(8) == 0 }
	for p.cached < len(w.placementEvents) && behind(w.placementEvents[p.cached].at) {
		p.nextPlacement()
	}
	for p.noded < len(w.nodeEvents) && behind(w.nodeEvents[p.noded].at) {
		p.nextNode()
	}
	for _, key := range sortedNames(p.tenants) {
		for c := p.tenants[key]; c.seen < len(c.world().events) && behind(c.world().events[c.seen].at); {
			c.next()
		}
	}
}

// lists begins to measure a super cluster, from what it holds now.
func (p *modelProcess) lists(super *modelSuper) {
	ledger := usage.NewLedger()
	ledger.Clock = p.world.clock
	for _, node := range super.nodes {
		ledger.SetNode(node)
	}
	ledger.SetPod(super.foreign)
	for _, uid := range slices.Sorted(maps.Keys(super.pods)) {
		ledger.SetPod(super.pods[uid].object)
	}
	for _, key := range sortedKeys(super.quotas) {
		ledger.SetQuota(super.quotas[key])
	}
	for _, key := range sortedKeys(p.cache) {
		ledger.SetReserved(key, reservedOf(p.cache[key], super.id))
	}
	p.ledgers[super.id] = ledger
}

// Usage implements Usage.
func (p *modelProcess) Usage(_ context.Context, namespace types.NamespacedName, superClusters []string) map[string]placement.Use {
	used := map[string]placement.Use{}
	for _, id := range superClusters {
		super := p.world.supers[id]
		switch ledger := p.ledgers[id]; {
		case super == nil || super.removed:
			used[id] = placement.Use{Gone: true}
		case ledger != nil && !super.silent:
			used[id] = ledger.Use(namespace)
		}
	}
	return used
}

// Held implements Usage.
func (p *modelProcess) Held(_ context.Context, namespace types.NamespacedName, uid types.UID) (map[string]slice.Amounts, bool) {
	held, complete := map[string]slice.Amounts{}, true
	for id, super := range p.world.supers {
		ledger := p.ledgers[id]
		switch {
		case super.removed:
		case ledger == nil || super.silent:
			complete = false
		default:
			use := ledger.Use(namespace)
			mayUse := use.MayUse()
			delete(mayUse, corev1.ResourcePods) // slices of the model have none
			if use.NamespaceUID == uid && !mayUse.IsZero() {
				held[id] = mayUse
			}
		}
	}
	return held, complete
}

// readLive is a read of the API server. It may fail.
func (p *modelProcess) readLive() (map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement, error) {
	if p.ctx.Err() != nil {
		return nil, p.ctx.Err()
	}
	if p.world.fails(20) {
		return nil, errNoAnswer
	}
	return p.world.meta.objects, nil
}

// write does a write, or what fails of it: it is lost, it happens and nobody says so, it happens later, or the process
// is killed before or after it. Others act in between.
func (p *modelProcess) write(ctx context.Context, do func() error) error {
	w := p.world
	w.landLate()
	if !w.nested && w.fails(6) {
		w.meanwhile()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !w.fails(12) {
		return do()
	}
	switch w.random.IntN(6) {
	case 0:
		w.did["a write was lost"]++
	case 1, 2:
		w.did["an answer was lost"]++
		if err := do(); err != nil {
			return err
		}
	case 3:
		w.did["a write came late"]++
		w.late = append(w.late, do)
	case 4:
		w.did["killed before a write"]++
		w.restarts()
		return context.Canceled
	default:
		w.did["killed after a write"]++
		err := do()
		w.restarts()
		return errors.Join(context.Canceled, err)
	}
	if w.random.IntN(2) == 0 {
		return apierrors.NewTimeoutError("it took too long", 0)
	}
	return errNoAnswer
}

// works runs what one worker of the process does, unless it is at work.
func (p *modelProcess) works(worker string, do func() error) {
	if p.busy[worker] || p.ctx.Err() != nil {
		return
	}
	p.busy[worker] = true
	err := do()
	p.busy[worker] = false
	var unknown *apierrors.StatusError
	if err != nil && p.ctx.Err() == nil && !errors.Is(err, errNoAnswer) && !errors.Is(err, placements.ErrChanged) && !errors.As(err, &unknown) {
		require.NoError(p.world, err)
	}
}

// evicts is the tenant's Eviction API.
func (p *modelProcess) evicts(tenant *modelTenant, eviction *policyv1.Eviction) error {
	return p.write(p.ctx, func() error {
		pod := tenant.pods[*eviction.DeleteOptions.Preconditions.UID]
		if pod == nil {
			return apierrors.NewNotFound(corev1.Resource("pods"), eviction.Name)
		}
		p.world.checkEviction(pod, false)
		if pod.object.DeletionTimestamp == nil && !tenant.allows(pod) {
			p.world.did["a budget forbade an eviction"]++
			return schedulingtest.Forbidden()
		}
		p.world.did["evicted a pod"]++
		tenant.terminate(pod)
		return nil
	})
}

// removes is a deletion of a pod by vc-scheduler.
func (p *modelProcess) removes(tenant *modelTenant, object *corev1.Pod) error {
	return p.write(p.ctx, func() error {
		pod := tenant.pods[object.UID]
		if pod == nil {
			return apierrors.NewNotFound(corev1.Resource("pods"), object.Name)
		}
		p.world.checkEviction(pod, true)
		if placed, _ := placedOf(p.world.meta.objects[pod.key]); placed[pod.cluster].leavesFor(schedulerv1alpha1.LeavingPreempted) {
			p.world.did["deleted an overdue pod"]++
		} else {
			p.world.did["deleted a lost pod"]++
		}
		tenant.terminate(pod)
		return nil
	})
}

func (p *modelProcess) reconcilesNamespace(key types.NamespacedName) {
	p.works(key.Namespace, func() error {
		c := p.tenants[key.Namespace]
		_, hasQuota, _ := c.informers["quotas"].GetByKey(key.Name + "/quota")
		_, err := c.namespace.Reconcile(p.ctx, dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: key.Name})
		if err == nil && hasQuota && p.cached >= p.caughtUp {
			p.world.namespace(key).quotaSeen = p.world.clock.Now()
		}
		return err
	})
}

func (p *modelProcess) reconcilesAnnotation(key types.NamespacedName) {
	p.works(key.Namespace, func() error {
		_, err := p.tenants[key.Namespace].annotation.Reconcile(p.ctx, dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: key.Name})
		return err
	})
}

func (p *modelProcess) moves(key types.NamespacedName) {
	p.works(key.Namespace, func() error {
		_, err := p.tenants[key.Namespace].move.Reconcile(p.ctx, dispatch.Request{Concern: dispatch.ConcernMove, Namespace: key.Name})
		return err
	})
}

func (p *modelProcess) leaves(key types.NamespacedName) {
	p.works("evacuator "+key.String(), func() error {
		_, err := p.evacuator.Reconcile(p.ctx, reconcile.Request{NamespacedName: key})
		if err == nil {
			ns, now := p.world.namespace(key), p.world.clock.Now()
			if now.Sub(ns.looked) > modelWindow {
				ns.lookedBefore = ns.looked
			}
			ns.looked = now
		}
		return err
	})
}

func (p *modelProcess) releases(key types.NamespacedName) {
	p.works("releaser", func() error {
		_, err := p.releaser.Reconcile(p.ctx, reconcile.Request{NamespacedName: key})
		return err
	})
}

// measures compares a virtual Node with the super cluster, as superclusters.Controller does.
func (p *modelProcess) measures(super *modelSuper) {
	w := p.world
	switch ledger := p.ledgers[super.id]; {
	case super.removed:
		for _, np := range w.meta.objects {
			if reservedOf(np, super.id) != nil {
				w.setNode(super, func(state *modelNodeState) { state.removed = true })
				return
			}
		}
		w.dropSuper(super)
	case super.silent:
		w.setNode(super, func(state *modelNodeState) {
			if state.silentSince.IsZero() {
				state.silentSince = w.clock.Now()
			}
		})
	case ledger == nil:
		p.lists(super)
		super.podEvents, super.quotaEvents = nil, nil
	default:
		capacity := ledger.Capacity()
		w.setNode(super, func(state *modelNodeState) {
			state.silentSince = time.Time{}
			state.room = w.headroom.Apply(capacity.Offered.Plus(modelStorage)).Minus(capacity.Beyond)
		})
	}
}

// schedules is a simple placer in the place of kube-scheduler: one gang that waits is placed whole, or not at all. It
// sees what kube-scheduler would see, and commits as placer.committer does.
func (p *modelProcess) schedules(pick func(n int) int) {
	p.works("placer", func() error {
		if p.cached < p.caughtUp {
			return nil
		}
		room, gangs, nominated := p.room(), map[string][]*corev1.Pod{}, map[string][]*corev1.Pod{}
		for _, pod := range p.slices() {
			if pod.Spec.NodeName != "" {
				room[pod.Spec.NodeName] = room[pod.Spec.NodeName].Minus(slicepod.AmountsOf(pod))
			} else if gang := slicepod.GangName(pod); gang != "" {
				gangs[gang] = append(gangs[gang], pod)
				if pod.Status.NominatedNodeName != "" {
					nominated[gang] = append(nominated[gang], pod)
				}
			}
		}
		if len(gangs) == 0 {
			return nil
		}
		names := sortedNames(gangs)
		gang := names[pick(len(names))]
		delete(nominated, gang)
		keepNominated(room, nominated, *gangs[gang][0].Spec.Priority)
		p.namespaces.Expand(gang)
		var assignments []namespacegang.Assignment
		for _, pod := range p.slices() {
			if slicepod.GangName(pod) != gang || pod.Spec.NodeName != "" {
				continue
			}
			size := slicepod.AmountsOf(pod)
			fits := p.matching(pod, p.fits(room, size, slicepod.PinOf(pod)))
			if len(fits) == 0 {
				p.namespaces.Collapse(gang)
				_, err := p.sink.Change(p.ctx, gang, placement.Facts{Unschedulable: "no room"})
				return err
			}
			id := fits[pick(len(fits))]
			if slices.Contains(fits, pod.Status.NominatedNodeName) {
				id = pod.Status.NominatedNodeName
				p.world.did["placed where it was nominated"]++
			}
			room[id] = room[id].Minus(size)
			assignments = append(assignments, namespacegang.Assignment{Pod: pod, Cluster: id})
		}
		if len(assignments) == 0 {
			return nil
		}
		if err := p.sink.Commit(p.ctx, gang, assignments); err != nil {
			p.namespaces.Collapse(gang)
			return err
		}
		p.world.did["placed"]++
		bound := make([]*corev1.Pod, len(assignments))
		for i, assignment := range assignments {
			bound[i] = assignment.Pod.DeepCopy()
			bound[i].Spec.NodeName = assignment.Cluster
		}
		p.namespaces.Bind(gang, bound)
		return nil
	})
}

// keepNominated takes off room what is nominated with a priority, or a higher one.
func keepNominated(room map[string]slice.Amounts, nominated map[string][]*corev1.Pod, priority int32) {
	for _, pods := range nominated {
		for _, pod := range pods {
			if id := pod.Status.NominatedNodeName; *pod.Spec.Priority >= priority {
				room[id] = room[id].Minus(slicepod.AmountsOf(pod))
			}
		}
	}
}

// matching returns those of super clusters that the labels of a slice allow.
func (p *modelProcess) matching(pod *corev1.Pod, ids []string) []string {
	return slices.DeleteFunc(ids, func(id string) bool {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{corev1.LabelHostname: id}}}
		matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
		require.NoError(p.world, err)
		return !matches
	})
}

// chooses is Rescheduler.Reconcile with the simple placer in the place of a Rehearsal.
func (p *modelProcess) chooses(key types.NamespacedName, pick func(n int) int) {
	p.works("rescheduler", func() error {
		np, err := p.store.Get(p.ctx, key)
		if err != nil || np == nil || np.DeletionTimestamp != nil || !placement.IsToBeChosen(np) {
			return err
		}
		room, granted, why := p.roomBeside(key), map[string]slice.Amounts{}, ""
		for _, run := range slice.Cut(slice.Of(np.Spec.Quota), slice.Of(np.Spec.Slice)) {
			for range run.Count {
				fits := p.fits(room, run.Size, chosenIn(np))
				if len(fits) == 0 {
					why = "no room"
					break
				}
				id := fits[pick(len(fits))]
				room[id], granted[id] = room[id].Minus(run.Size), granted[id].Plus(run.Size)
			}
		}
		empty := np.DeepCopy()
		empty.Status = schedulerv1alpha1.NamespacePlacementStatus{}
		chosen, _, _ := placement.Next(empty, placement.Facts{Now: p.world.clock.Now(), Granted: granted})
		since := np.Status.Requested.Since
		_, err = p.store.Change(p.ctx, key, func(np *schedulerv1alpha1.NamespacePlacement) error {
			if np.ResourceVersion != "" && np.DeletionTimestamp == nil && np.Status.Requested != nil && np.Status.Requested.Since.Equal(&since) {
				np.Status, _ = placement.Choose(np, chosen.Placements, why, p.world.clock.Now())
			}
			return nil
		})
		return err
	})
}

// modelPool is what a process has cached of the pool.
type modelPool struct {
	process *modelProcess
	client.Reader
}

// List implements client.Reader.
func (r modelPool) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	nodes, isNodes := list.(*corev1.NodeList)
	if !isNodes {
		return r.Reader.List(ctx, list, options...)
	}
	for _, id := range sortedNames(r.process.nodes) {
		nodes.Items = append(nodes.Items, *r.process.nodes[id])
	}
	return nil
}

func (p *modelProcess) shares(tenant string) {
	p.works("guarantor "+tenant, func() error {
		_, err := p.guarantor.Reconcile(p.ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: tenant}})
		return err
	})
}

func (p *modelProcess) preempts(tenant string) {
	p.works("preemptor", func() error {
		_, err := p.preemptor.Reconcile(p.ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: tenant}})
		return err
	})
}

// victims is a simple search in the place of placer.Preemption.Find: the first that help, and none that are needless.
func (p *modelProcess) victims(pool *placer.Preemption, key types.NamespacedName) (placer.Victims, error) {
	room, parts, preemptor := p.candidates(pool, key)
	place := func(parts []placer.Part) map[string]slice.Amounts {
		free, granted := maps.Clone(room), map[string]slice.Amounts{}
		for i := range parts {
			free[parts[i].Cluster] = free[parts[i].Cluster].Plus(parts[i].Amounts)
		}
		for _, run := range placement.Missing(preemptor) {
			for range run.Count {
				fits := p.fits(free, run.Size, chosenIn(preemptor))
				if len(fits) == 0 {
					return nil
				}
				free[fits[0]], granted[fits[0]] = free[fits[0]].Minus(run.Size), granted[fits[0]].Plus(run.Size)
			}
		}
		return granted
	}
	found := placer.Victims{Parts: parts}
	if found.Granted = place(parts); found.Granted == nil {
		return placer.Victims{}, nil
	}
	for i := len(parts) - 1; i >= 0; i-- {
		rest := slices.Delete(slices.Clone(found.Parts), i, i+1)
		if granted := place(rest); granted != nil {
			found = placer.Victims{Parts: rest, Granted: granted}
		}
	}
	return found, nil
}

// candidates returns what may give way for a namespace, and the room beside all that has not given way.
func (p *modelProcess) candidates(pool *placer.Preemption, key types.NamespacedName) (
	room map[string]slice.Amounts, parts []placer.Part, preemptor *schedulerv1alpha1.NamespacePlacement,
) {
	room, nominated := p.room(), map[string]*schedulerv1alpha1.NamespacePlacement{}
	for _, np := range pool.Placements {
		nominated[client.ObjectKeyFromObject(np).String()] = np
	}
	for _, np := range pool.Placements {
		if client.ObjectKeyFromObject(np) == key {
			preemptor = np
		} else if np.Status.Nominated != nil {
			for _, part := range np.Status.Nominated.Placements {
				room[part.Cluster] = room[part.Cluster].Minus(slice.Of(part.Reserved))
			}
		}
	}
	ofOthers := placement.MayTakeOfOthers(preemptor, slices.DeleteFunc(slices.Clone(pool.Placements), func(np *schedulerv1alpha1.NamespacePlacement) bool {
		return np.Namespace != key.Namespace
	}), pool.Now)
	for _, np := range pool.Placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			amounts := slice.Of(part.Reserved)
			if isWaitedFor(part, nominated) {
				stays := placement.StayingIn(part)
				room[part.Cluster] = room[part.Cluster].Minus(stays.Plus(amounts.OfClaims().Minus(stays)))
				continue
			}
			room[part.Cluster] = room[part.Cluster].Minus(amounts)
			if p.nodes[part.Cluster] != nil && (ofOthers || np.Namespace == key.Namespace) && placement.CanGiveWay(np, part, key.Namespace, pool.Now.Add(-placer.PreemptedPeriod)) {
				parts = append(parts, placer.Part{Namespace: client.ObjectKeyFromObject(np), Cluster: part.Cluster, Amounts: amounts.OfPods()})
			}
		}
	}
	return room, parts, preemptor
}

// isWaitedFor returns whether what gives way does so for a namespace that is nominated for it.
func isWaitedFor(part *schedulerv1alpha1.ClusterPlacement, nominated map[string]*schedulerv1alpha1.NamespacePlacement) bool {
	return part.Leaving != nil && nominated[part.Leaving.For] != nil && placement.IsNominated(nominated[part.Leaving.For], part.Cluster)
}

// slices returns the slices of the namespace scheduler's view.
func (p *modelProcess) slices() (pods []*corev1.Pod) {
	list, err := p.namespaces.Pods().List(metav1ListAll)
	require.NoError(p.world, err)
	for i := range list.(*corev1.PodList).Items {
		pods = append(pods, &list.(*corev1.PodList).Items[i])
	}
	return pods
}

// room returns what virtual Nodes offer.
func (p *modelProcess) room() map[string]slice.Amounts {
	room := map[string]slice.Amounts{}
	for id, node := range p.nodes {
		room[id] = slice.Of(node.Status.Allocatable)
	}
	return room
}

// roomBeside returns what virtual Nodes offer beside what all other namespaces hold.
func (p *modelProcess) roomBeside(key types.NamespacedName) map[string]slice.Amounts {
	room := p.room()
	for id := range room {
		for other, held := range p.cache {
			if other != key {
				room[id] = room[id].Minus(reservedOf(held, id))
			}
		}
	}
	return room
}

// fits returns where a slice may go, that is pinned to one super cluster or to none.
func (p *modelProcess) fits(room map[string]slice.Amounts, size slice.Amounts, pin string) []string {
	return slices.DeleteFunc(sortedNames(room), func(id string) bool {
		return !size.Fits(room[id]) || !p.isOpen(id) || pin != "" && pin != id
	})
}

// isOpen returns whether slices may go to a virtual Node.
func (p *modelProcess) isOpen(id string) bool {
	node := view.NamespaceNode(p.nodes[id])
	return !node.Spec.Unschedulable && !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key != schedulerv1alpha1.TaintProvider
	})
}

// binds chooses a super cluster for a pod that waits, as a tenant's pod scheduler does: one where its namespace is
// placed, and has room left.
func (w *modelWorld) binds(pod *modelPod) {
	np := w.seen(pod.key)
	if np == nil || pod.object.DeletionTimestamp != nil {
		return
	}
	tenant, clusters := w.tenants[pod.key.Namespace], placement.Clusters(np.Status.Placements)
	if pod.cluster != "" && pod.object.Spec.NodeName == "" && !clusters.Has(pod.cluster) {
		pod.cluster = "" // podscheduler.Reconciler
		tenant.change(pod, func(object *corev1.Pod) { object.Annotations = nil })
	}
	if pod.cluster != "" {
		return
	}
	for _, id := range sets.List(clusters) {
		stays, _ := staysIn(np, id)
		if pod.requests.Fits(stays.Minus(tenant.uses(pod.key, id))) {
			pod.cluster = id
			break
		}
	}
	if pod.cluster != "" {
		cluster := pod.cluster
		tenant.change(pod, func(object *corev1.Pod) {
			object.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: cluster}
		})
	}
}

// uses is what the pods of a namespace request that are to run in a super cluster.
func (t *modelTenant) uses(key types.NamespacedName, id string) slice.Amounts {
	sum := slice.Amounts{}
	for _, pod := range t.pods {
		if pod.key == key && pod.cluster == id && !pod.isTerminal() {
			sum = sum.Plus(pod.requests)
		}
	}
	return sum
}

// syncedQuota is what the syncer of a super cluster knows about the owner of a quota.
func syncedQuota(key types.NamespacedName, quota *corev1.ResourceQuota) tenancy.Owner {
	if quota != nil {
		owner, _ := tenancy.GetOwner(quota)
		return owner
	}
	return tenancy.Owner{ClusterKey: key.Namespace, VirtualCluster: types.NamespacedName{Namespace: "default", Name: key.Namespace}, VirtualClusterUID: "vc", Namespace: key.Name}
}
