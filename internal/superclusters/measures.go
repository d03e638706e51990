package superclusters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
)

// heldPatience is for how long after its start vc-scheduler waits for super clusters before it takes what they hold for
// known.
const heldPatience = 30 * time.Second

// measures knows the ledgers of the super clusters that are served, and feeds them what NamespacePlacements reserve.
// The zero value is ready for use, by many goroutines.
type measures struct {
	mu        sync.Mutex
	serving   map[string]*measure                               // by super cluster id
	reserved  map[string]map[types.NamespacedName]slice.Amounts // by super cluster id, and by NamespacePlacement
	slices    map[string]int64                                  // that stay in a super cluster, by its id
	lacking   map[types.NamespacedName]bool                     // the NamespacePlacements of which something leaves, and waits for room
	listeners []func(types.NamespacedName)
	// replaceable are the conditions Replaceable that were told last, by super cluster id.
	replaceable map[string]*corev1.NodeCondition
	started     time.Time // when the process began to lead, zero before
	// emptied is called with the id of a super cluster in which nothing is reserved any more, if it is not nil.
	emptied func(id string)
	// synced is closed once reserved holds all NamespacePlacements. nil: nobody feeds them.
	synced chan struct{}
}

// measure is the ledger of a super cluster that is served.
type measure struct {
	ledger *usage.Ledger
	// touch has the virtual Node compared with the ledger.
	touch func()
	// client reads the super cluster live, and uid is the UID that it had when client was made.
	client kubernetes.Interface
	uid    types.UID
	// answers is whether everything was listed and the last probe was answered.
	answers bool
}

// serve makes served the measure of a super cluster, until the function that it returns is called.
func (m *measures) serve(id string, served *measure) (stop func()) {
	ledger := served.ledger
	ledger.Freed = m.freed
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		m.serving = map[string]*measure{}
	}
	m.serving[id] = served
	for namespace, amounts := range m.reserved[id] {
		ledger.SetReserved(namespace, amounts)
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.serving[id] == served {
			delete(m.serving, id)
		}
	}
}

// setAnswers records whether a super cluster that is served answers. When it does again, everyone who waits for what it
// says is told.
func (m *measures) setAnswers(id string, answers bool) {
	m.mu.Lock()
	served, exists := m.serving[id]
	if !exists || served.answers == answers {
		m.mu.Unlock()
		return
	}
	served.answers = answers
	m.mu.Unlock()
	if answers {
		m.tell(served.ledger.Namespaces())
	}
}

// gone tells everyone who waits for what a super cluster says which is not served any more.
func (m *measures) gone(id string) {
	m.mu.Lock()
	namespaces := slices.Collect(maps.Keys(m.reserved[id]))
	m.mu.Unlock()
	m.tell(namespaces)
}

func (m *measures) freed(namespace types.NamespacedName) { m.tell([]types.NamespacedName{namespace}) }

func (m *measures) tell(namespaces []types.NamespacedName) {
	m.mu.Lock()
	listeners := m.listeners
	m.mu.Unlock()
	for _, namespace := range namespaces {
		for _, listener := range listeners {
			listener(namespace)
		}
	}
}

// ledger returns the ledger of a super cluster that answers, nil for any other.
func (m *measures) ledger(id string) *usage.Ledger {
	m.mu.Lock()
	defer m.mu.Unlock()
	if served, exists := m.serving[id]; exists && served.answers {
		return served.ledger
	}
	return nil
}

// client returns the client of a super cluster that answers, and its UID, nil for any other.
func (m *measures) client(id string) (kubernetes.Interface, types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if served, exists := m.serving[id]; exists && served.answers {
		return served.client, served.uid
	}
	return nil, ""
}

// all returns the ledgers of the super clusters that answer.
func (m *measures) all() map[string]*usage.Ledger {
	m.mu.Lock()
	defer m.mu.Unlock()
	ledgers := make(map[string]*usage.Ledger, len(m.serving))
	for id, served := range m.serving {
		if served.answers {
			ledgers[id] = served.ledger
		}
	}
	return ledgers
}

// reserve records what a NamespacePlacement reserves. before is what it was, nil if it was created; current is nil when
// it was deleted.
func (m *measures) reserve(before, current *schedulerv1alpha1.NamespacePlacement) {
	reserved := map[string]slice.Amounts{}
	var namespace types.NamespacedName
	if before != nil {
		namespace = client.ObjectKeyFromObject(before)
		for i := range before.Status.Placements {
			reserved[before.Status.Placements[i].Cluster] = nil
		}
	}
	if current != nil {
		namespace = client.ObjectKeyFromObject(current)
		for i := range current.Status.Placements {
			p := &current.Status.Placements[i]
			reserved[p.Cluster] = slice.Of(p.Reserved)
		}
	}
	for _, id := range m.record(namespace, before, current, reserved) {
		if m.emptied != nil {
			m.emptied(id)
		}
	}
}

// record takes over what a NamespacePlacement reserves. It returns those of its super clusters in which nothing is
// reserved any more.
func (m *measures) record(namespace types.NamespacedName, before, current *schedulerv1alpha1.NamespacePlacement, reserved map[string]slice.Amounts) (empty []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lacking, namespace)
	if current != nil && !placement.Displaced(current).IsZero() {
		if m.lacking == nil {
			m.lacking = map[types.NamespacedName]bool{}
		}
		m.lacking[namespace] = true
	}
	m.countSlices(before, -1)
	m.countSlices(current, 1)
	for id, amounts := range reserved {
		m.reserveLocked(id, namespace, amounts)
		if len(m.reserved[id]) == 0 {
			empty = append(empty, id)
		}
	}
	return empty
}

// countSlices adds the slices of a NamespacePlacement, nil for none, as often as times says. The caller holds mu.
func (m *measures) countSlices(np *schedulerv1alpha1.NamespacePlacement, times int64) {
	if np == nil {
		return
	}
	if m.slices == nil {
		m.slices = map[string]int64{}
	}
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		if m.slices[p.Cluster] += times * int64(p.Slices); m.slices[p.Cluster] == 0 {
			delete(m.slices, p.Cluster)
		}
	}
}

// slicesIn returns how many slices are placed in a super cluster and stay there.
func (m *measures) slicesIn(id string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slices[id]
}

// drain is how far a super cluster is left.
type drain struct {
	// room and pods are how many namespaces are placed there and wait for room elsewhere, or for their pods to end.
	room, pods int
	// volumes is how many have nothing there but volumes, which do not move.
	volumes int
}

// drainOf returns how far a super cluster is left. It returns false while NamespacePlacements are not known.
func (m *measures) drainOf(id string) (drain, bool) {
	if m.synced != nil {
		select {
		case <-m.synced:
		default:
			return drain{}, false
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var left drain
	for namespace := range m.reserved[id] {
		served := m.serving[id]
		switch {
		case m.lacking[namespace]:
			left.room++
		case served != nil && served.ledger.HasOnlyVolumes(namespace):
			left.volumes++
		default:
			left.pods++
		}
	}
	return left, true
}

// replaceableOf returns the condition Replaceable of a super cluster, nil where none was told.
func (m *measures) replaceableOf(id string) *corev1.NodeCondition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaceable[id]
}

// SetReplaceable has the condition Replaceable of a super cluster written, without its times, nil to write none any
// more. It is written with the next change of the virtual Node where nothing connects to the super cluster.
func (c *Controller) SetReplaceable(id string, condition *corev1.NodeCondition) {
	m := &c.measures
	m.mu.Lock()
	defer m.mu.Unlock()
	if condition == nil {
		delete(m.replaceable, id)
		return
	}
	if m.replaceable == nil {
		m.replaceable = map[string]*corev1.NodeCondition{}
	}
	m.replaceable[id] = condition
	if served, exists := m.serving[id]; exists {
		served.touch()
	}
}

func (m *measures) reserveLocked(id string, namespace types.NamespacedName, amounts slice.Amounts) {
	here := m.reserved[id]
	switch {
	case len(amounts) == 0:
		delete(here, namespace)
		if len(here) == 0 {
			delete(m.reserved, id)
		}
	case here == nil:
		if m.reserved == nil {
			m.reserved = map[string]map[types.NamespacedName]slice.Amounts{}
		}
		m.reserved[id] = map[types.NamespacedName]slice.Amounts{namespace: amounts}
	default:
		here[namespace] = amounts
	}
	if served, exists := m.serving[id]; exists && served.ledger.SetReserved(namespace, amounts) {
		served.touch()
	}
}

// placementFeed feeds measures from the NamespacePlacements of the meta cluster. It is a runnable of a manager, for the
// leader only.
type placementFeed struct {
	measures *measures
	cache    ctrlcache.Cache
}

// Start implements controller-runtime's Runnable.
func (f *placementFeed) Start(ctx context.Context) error {
	f.measures.mu.Lock()
	f.measures.started = time.Now()
	f.measures.mu.Unlock()
	informer, err := f.cache.GetInformer(ctx, &schedulerv1alpha1.NamespacePlacement{})
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	of := func(object any) *schedulerv1alpha1.NamespacePlacement {
		np, _ := engage.Object[*schedulerv1alpha1.NamespacePlacement](object)
		return np
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.measures.reserve(nil, of(object)) },
		UpdateFunc: func(old, object any) { f.measures.reserve(of(old), of(object)) },
		DeleteFunc: func(object any) { f.measures.reserve(of(object), nil) },
	}
	registration, err := informer.AddEventHandler(engage.Handler(ctx, "reservations of NamespacePlacements", nil, handler))
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		close(f.measures.synced)
	}
	<-ctx.Done()
	return nil
}

// waitSynced waits until what is reserved is known. It returns false when ctx has ended.
func (m *measures) waitSynced(ctx context.Context) bool {
	if m.synced == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-m.synced:
		return true
	}
}

// OnFreed has listener called with the key of a NamespacePlacement when a super cluster shows that the namespace's pods
// or quota there use less than before, and when a super cluster can be measured again. It must not block. Call it
// before the manager starts.
func (c *Controller) OnFreed(listener func(namespace types.NamespacedName)) {
	c.measures.mu.Lock()
	defer c.measures.mu.Unlock()
	c.measures.listeners = append(c.measures.listeners, listener)
}

// Usage returns what super clusters say about a tenant namespace, by the key of its NamespacePlacement. A super cluster
// that does not answer, or has not been listed, is not in the answer. One that no Cluster stands for any more uses
// nothing: the operator has removed it.
func (c *Controller) Usage(ctx context.Context, namespace types.NamespacedName, superClusters []string) map[string]placement.Use {
	used := make(map[string]placement.Use, len(superClusters))
	for _, id := range superClusters {
		if ledger := c.measures.ledger(id); ledger != nil {
			used[id] = ledger.Use(namespace)
		} else if c.isGone(ctx, id) {
			used[id] = placement.Use{Gone: true}
		}
	}
	return used
}

// Held returns what a tenant namespace with that UID uses or may use, by super cluster (placement.Use.MayUse). It
// returns false while there may be more: vc-scheduler has just started, and a super cluster that it knows was not
// listed yet.
func (c *Controller) Held(ctx context.Context, namespace types.NamespacedName, uid types.UID) (map[string]slice.Amounts, bool) {
	held := map[string]slice.Amounts{}
	measured := c.measures.all()
	for id, ledger := range measured {
		use := ledger.Use(namespace)
		if mayUse := use.MayUse(); use.NamespaceUID == uid && !mayUse.IsZero() {
			held[id] = mayUse
		}
	}
	return held, c.isComplete(ctx, measured)
}

// Runs returns the super clusters where pods of a tenant run, or may, by its cluster key. It returns false as Held does.
func (c *Controller) Runs(ctx context.Context, key string) (running []string, complete bool) {
	measured := c.measures.all()
	for id, ledger := range measured {
		if ledger.Runs(key) {
			running = append(running, id)
		}
	}
	slices.Sort(running)
	return running, c.isComplete(ctx, measured)
}

// isComplete returns whether measured are all super clusters of which a ledger is to be expected.
func (c *Controller) isComplete(ctx context.Context, measured map[string]*usage.Ledger) bool {
	c.measures.mu.Lock()
	started := c.measures.started
	c.measures.mu.Unlock()
	switch {
	case started.IsZero():
		return false
	case time.Since(started) >= heldPatience:
		return true
	}
	nodes, err := c.virtualNodes(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Looking for super clusters that were not measured")
		return false
	}
	return !slices.ContainsFunc(nodes, func(node corev1.Node) bool {
		_, known := measured[node.Name]
		return !known && node.Annotations[AnnotationClusterRef] != ""
	})
}

// isGone returns whether no Cluster stands for a super cluster any more. It returns false when it does not know: a
// Cluster may be there whose id was never read.
func (c *Controller) isGone(ctx context.Context, id string) bool {
	if c.kind.Load() == nil {
		return false
	}
	clusters, err := c.clusters(ctx)
	var nodes []corev1.Node
	if err == nil {
		nodes, err = c.virtualNodes(ctx)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Looking for the Cluster of a super cluster", "superCluster", id)
		return false
	}
	ids, hasNode := map[types.NamespacedName][]string{}, false
	for i := range nodes {
		hasNode = hasNode || nodes[i].Name == id
		if ready := findCondition(&nodes[i], corev1.NodeReady); ready != nil && ready.Reason == schedulerv1alpha1.ReasonClusterRemoved {
			continue // its Cluster had that id
		}
		cluster := parseName(nodes[i].Annotations[AnnotationClusterRef])
		ids[cluster] = append(ids[cluster], nodes[i].Name)
	}
	for i := range clusters {
		name := client.ObjectKeyFromObject(&clusters[i])
		known := ids[name]
		if read := c.owners.idOf(name); read != "" {
			known = append(known, read)
		}
		mayHave := !hasNode || c.selects(&clusters[i]) // that id, which nobody knows
		if slices.Contains(known, id) || len(known) == 0 && mayHave {
			return false
		}
	}
	return true
}

// virtualNodes returns the virtual Nodes as the cache has them.
func (c *Controller) virtualNodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := c.Client.List(ctx, &list, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	return list.Items, nil
}

// recordOvercommitted records an Event on a Cluster when its virtual Node's condition Overcommitted has changed.
func (c *Controller) recordOvercommitted(ctx context.Context, name types.NamespacedName, condition *corev1.NodeCondition) {
	kind := c.kind.Load()
	if kind == nil || c.Recorder == nil {
		return
	}
	cluster := &metav1.PartialObjectMetadata{}
	cluster.SetGroupVersionKind(*kind)
	if err := c.Client.Get(ctx, name, cluster); err != nil {
		klog.FromContext(ctx).V(2).Info("No Event about what is overcommitted", "cluster", name, "err", err)
		return
	}
	cluster = cluster.DeepCopy()
	cluster.SetGroupVersionKind(*kind)
	level := corev1.EventTypeNormal
	if condition.Status == corev1.ConditionTrue {
		level = corev1.EventTypeWarning
	}
	c.Recorder.Event(cluster, level, condition.Reason, tenancy.Cut(condition.Message, tenancy.MaxEventNote))
}
