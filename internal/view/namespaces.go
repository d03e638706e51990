package view

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slicepod"
)

// Namespaces projects NamespacePlacements into a Source of Pods. Of a gang that waits, the Source has the first slice
// alone until Expand, so a tenant's namespace that cannot be placed costs one Pod, however many slices it has. One for
// which others give way has all of them, each nominated for the super cluster where it is to go: others with its
// priority, or a lower one, leave that much free there.
//
// A waiting namespace has a turn: tenants that wait with the same priority take turns, and those with few waiting
// namespaces do not wait for all of one with many. A tenant's first turn has as many namespaces as its weight, the
// oldest; with each further turn twice as many of them have had theirs. So a namespace that leaves the list changes the
// turns of few others. It is safe for concurrent use.
type Namespaces struct {
	pods *Source

	mu sync.Mutex
	// waiting holds the namespaces with slices that are still to be placed, and tenants the same by tenant, in the
	// order of compareWaiting.
	waiting map[types.NamespacedName]*waitingNamespace
	tenants map[string][]*waitingNamespace
}

// waitingNamespace is a namespace with slices that are still to be placed.
type waitingNamespace struct {
	// placement is shared with the caller of Set and never changed.
	placement *schedulerv1alpha1.NamespacePlacement
	gang      string
	turn      int
	expanded  bool
	// bound is where the slices were placed, by name, nil while they wait. The placement is still the one before.
	bound map[string]string
}

// compareWaiting orders the waiting namespaces of a tenant: those that are guaranteed first.
func compareWaiting(a, b *waitingNamespace) int {
	return cmp.Or(
		cmp.Compare(placement.Priority(b.placement), placement.Priority(a.placement)),
		placement.Compare(a.placement, b.placement),
	)
}

// NewNamespaces returns an empty projection.
func NewNamespaces() *Namespaces {
	return &Namespaces{
		pods: NewPodSource(), waiting: map[types.NamespacedName]*waitingNamespace{}, tenants: map[string][]*waitingNamespace{},
	}
}

// Pods returns the Source.
func (n *Namespaces) Pods() *Source { return n.pods }

// Set projects a NamespacePlacement in place of what was projected of it before. It must not be changed afterwards.
func (n *Namespaces) Set(np *schedulerv1alpha1.NamespacePlacement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := client.ObjectKeyFromObject(np)
	old := n.waiting[key]
	if len(placement.Missing(np)) == 0 {
		n.remove(old)
		n.pods.Set(key.String(), Slices(np)...)
		return
	}
	next := &waitingNamespace{placement: np, gang: Gang(np)}
	if old != nil && old.gang == next.gang { // whatever its place among those that wait
		next.expanded, next.bound = old.expanded, old.bound
	}
	if old != nil && compareWaiting(old, next) == 0 && old.placement.Spec.Weight == np.Spec.Weight {
		next.turn = old.turn
		*old = *next
		n.project(old)
		return
	}
	n.remove(old)
	list := n.tenants[np.Namespace]
	at, _ := slices.BinarySearchFunc(list, next, compareWaiting)
	list = slices.Insert(list, at, next)
	n.waiting[key], n.tenants[np.Namespace] = next, list
	next.turn = turnOf(at, next)
	n.project(next)
	n.turn(list)
}

// Delete projects nothing of a NamespacePlacement any more.
func (n *Namespaces) Delete(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remove(n.waiting[key])
	n.pods.Set(key.String())
}

// Expand projects all slices of a gang. It returns the last of them, and false if the gang is not waiting any more.
func (n *Namespaces) Expand(gang string) (last types.NamespacedName, waits bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.waiting[slicepod.PlacementOf(gang)]
	if w == nil || w.gang != gang {
		return last, false
	}
	w.expanded = true
	return client.ObjectKeyFromObject(n.project(w)), true
}

// Collapse projects the first slice of a gang alone again, if it is still waiting.
func (n *Namespaces) Collapse(gang string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.waiting[slicepod.PlacementOf(gang)]; w != nil && w.gang == gang && w.expanded && w.bound == nil {
		w.expanded = false
		n.project(w)
	}
}

// Bind projects the slices of a gang whose placement was stored, each with the super cluster as its node, until Set
// hands in what was stored: what was there before may come again until then. Where Set already has, watchers receive
// Added and Deleted for each of them (Source.Update).
func (n *Namespaces) Bind(gang string, bound []*corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.waiting[slicepod.PlacementOf(gang)]; w != nil && w.gang == gang {
		w.bound = make(map[string]string, len(bound))
		for _, pod := range bound {
			w.bound[pod.Name] = pod.Spec.NodeName
		}
	}
	for _, pod := range bound {
		n.pods.Update(slicepod.PlacementOf(gang).String(), pod)
	}
}

// remove takes a namespace off the lists, nil for none. The caller holds mu, and projects it.
func (n *Namespaces) remove(w *waitingNamespace) {
	if w == nil {
		return
	}
	tenant := w.placement.Namespace
	delete(n.waiting, client.ObjectKeyFromObject(w.placement))
	list := n.tenants[tenant]
	if at, found := slices.BinarySearchFunc(list, w, compareWaiting); found {
		list = slices.Delete(list, at, at+1)
	}
	if len(list) == 0 {
		delete(n.tenants, tenant)
		return
	}
	n.tenants[tenant] = list
	n.turn(list)
}

// turn gives the namespaces at the ends of turns their turn: after one has come or gone, no other has another one. The
// caller holds mu.
func (n *Namespaces) turn(list []*waitingNamespace) {
	for first := weightOf(list[0]); first <= len(list); first *= 2 {
		for at := first - 1; at <= first && at < len(list); at++ {
			if turn := turnOf(at, list[at]); turn != list[at].turn {
				list[at].turn = turn
				n.project(list[at])
			}
		}
	}
}

// turnOf returns the turn of the namespace at an index of its tenant's list.
func turnOf(at int, w *waitingNamespace) int { return bits.Len(uint(at / weightOf(w))) }

func weightOf(w *waitingNamespace) int { return max(1, int(w.placement.Spec.Weight)) }

// project projects a waiting namespace, and returns its last slice. The caller holds mu.
func (n *Namespaces) project(w *waitingNamespace) client.Object {
	most := int64(1)
	if w.expanded || w.bound != nil || w.placement.Status.Nominated != nil {
		most = placement.MaxSlices
	}
	objects := projectSlices(w.placement, w.turn, most)
	for _, object := range objects {
		if cluster, isBound := w.bound[object.GetName()]; isBound {
			object.(*corev1.Pod).Spec.NodeName = cluster
		}
	}
	n.pods.Set(client.ObjectKeyFromObject(w.placement).String(), objects...)
	return objects[len(objects)-1]
}
