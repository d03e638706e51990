package placer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
)

const (
	// PreemptedPeriod is for how long a tenant does not take anything of a namespace again that has given way to it.
	PreemptedPeriod = time.Hour
	// stuckTime is how long after its deadline a part that gives way is not counted on any more.
	stuckTime = 5 * time.Minute
	// maxParts bounds what is looked at in one order, and maxVictims what gives way for one namespace at a time.
	maxParts, maxVictims = 2000, 100
	// preemptionPatience bounds how long a Preemption looks for victims.
	preemptionPatience = 30 * time.Second
)

var (
	// errPatience ends a search that takes longer than preemptionPatience.
	errPatience = fmt.Errorf("no victims found within %s", preemptionPatience)
	// errEnough ends a search that has found maxVictims, and one more.
	errEnough = errors.New("enough victims for now")
)

// Part is what a namespace has in one super cluster.
type Part struct {
	Namespace types.NamespacedName
	Cluster   string
	// Amounts are what it has there, without storage: that gives way to nobody, for volumes stay.
	Amounts slice.Amounts
}

// PoolOf returns what decides where namespaces may go: all virtual Nodes and NamespacePlacements that a reader lists.
func PoolOf(ctx context.Context, reader client.Reader) ([]*corev1.Node, []*schedulerv1alpha1.NamespacePlacement, error) {
	nodes, placements := &corev1.NodeList{}, &schedulerv1alpha1.NamespacePlacementList{}
	if err := reader.List(ctx, nodes); err != nil {
		return nil, nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	if err := reader.List(ctx, placements); err != nil {
		return nil, nil, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	return pointers(nodes.Items), pointers(placements.Items), nil
}

func pointers[T any](items []T) []*T {
	var list []*T
	for i := range items {
		list = append(list, &items[i])
	}
	return list
}

// Preemption looks for namespaces that borrow what a namespace needs that is within its tenant's guarantee. Nothing is
// written, and nothing that is handed in is changed.
type Preemption struct {
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration
	// Nodes are the virtual Nodes.
	Nodes []*corev1.Node
	// Placements are all NamespacePlacements of the pool. Their UIDs differ.
	Placements []*schedulerv1alpha1.NamespacePlacement
	// Now is the time.
	Now time.Time
}

// Victims are what gives way for a namespace.
type Victims struct {
	// Parts give way. None is needless: without any of them the namespace does not fit. None: it fits without, or
	// whoever gives way.
	Parts []Part
	// More is whether others have to give way, too, who are found once these have.
	More bool
	// Granted is where what is missing of the namespace goes then, by super cluster, nil for nowhere.
	Granted map[string]slice.Amounts
	// Why is why it fits nowhere, though all give way that may.
	Why refusal.Refusal
}

// Find returns what gives way for the NamespacePlacement key. Parts are taken of what borrows: of its own tenant first,
// then of others if it may (placement.MayTakeOfOthers), those of the lowest priority first, then the youngest. Where
// these are too many, as of a tenant with very many small namespaces, the largest are taken instead. Where those are
// too many, too, or time is short, some of them are returned, each of which is needed (Victims.More). What gives way to
// it already counts as free, and what others are nominated for as taken.
func (p *Preemption) Find(ctx context.Context, key types.NamespacedName) (Victims, error) {
	pool, preemptor := p.pool(key)
	if preemptor == nil || len(placement.Missing(preemptor)) == 0 {
		return Victims{}, nil
	}
	parts, largest := p.candidates(preemptor)
	ctx, cancel := context.WithTimeoutCause(ctx, preemptionPatience, errPatience)
	defer cancel()
	s, end, err := (&Rehearsal{Config: p.Config, Nodes: p.Nodes, Placements: pool}).begin(ctx)
	if err != nil {
		return Victims{}, err
	}
	defer end()
	t := &trial{stage: s, preemptor: preemptor, pool: map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement{}, gone: map[partKey]bool{}}
	for _, np := range pool {
		t.pool[client.ObjectKeyFromObject(np)] = np
	}
	victims, err := t.find(ctx, parts)
	if err != nil || largest == nil || victims.Granted != nil && !victims.More || ctx.Err() != nil {
		return victims, err
	}
	if err = t.set(ctx, parts, false); err != nil {
		return Victims{}, err
	}
	ofLargest, err := t.find(ctx, largest)
	if victims.Granted != nil && ofLargest.Granted == nil {
		return victims, nil // what was found is needed, whatever became of the other order
	}
	return ofLargest, err
}

// pool returns the pool in which everyone has given way who is to, and the NamespacePlacement key in it.
func (p *Preemption) pool(key types.NamespacedName) (pool []*schedulerv1alpha1.NamespacePlacement, preemptor *schedulerv1alpha1.NamespacePlacement) {
	waits := map[string]*schedulerv1alpha1.NamespacePlacement{}
	for _, np := range p.Placements {
		if np.Status.Nominated != nil {
			waits[client.ObjectKeyFromObject(np).String()] = np
		}
	}
	for _, np := range p.Placements {
		np = np.DeepCopy()
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			if by := waits[forOf(part)]; by != nil && placement.IsNominated(by, part.Cluster) && !isStuck(part, p.Now) {
				stays := placement.StayingIn(part)
				part.Reserved, part.Leaving = stays.Plus(slice.Of(part.Reserved).OfClaims().Minus(stays)).List(), nil
			}
		}
		np.Status.Placements = slices.DeleteFunc(np.Status.Placements, func(part schedulerv1alpha1.ClusterPlacement) bool { return len(part.Reserved) == 0 })
		if client.ObjectKeyFromObject(np) == key {
			preemptor, np.Status.Nominated = np, nil
		}
		pool = append(pool, np)
	}
	return pool, preemptor
}

// forOf returns for whom a part gives way, "" if it does not.
func forOf(part *schedulerv1alpha1.ClusterPlacement) string {
	if part.Leaving == nil || part.Leaving.Reason != schedulerv1alpha1.LeavingPreempted {
		return ""
	}
	return part.Leaving.For
}

// isStuck reports whether a part that gives way is not counted on: it should be free for long.
func isStuck(part *schedulerv1alpha1.ClusterPlacement, now time.Time) bool {
	return part.Leaving.Deadline != nil && now.Sub(part.Leaving.Deadline.Time) > stuckTime
}

// WaitsFor reports whether anything gives way for the NamespacePlacement key that can be counted on.
func (p *Preemption) WaitsFor(key types.NamespacedName) bool {
	for _, np := range p.Placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			if forOf(part) == key.String() && !isStuck(part, p.Now) && !slice.Of(part.Leaving.Reserved).OfPods().IsZero() {
				return true
			}
		}
	}
	return false
}

// candidates returns what may give way for np where it may be placed, those first that keep it longest. largest are the
// largest of them, the smallest first, nil where they are no others.
func (p *Preemption) candidates(np *schedulerv1alpha1.NamespacePlacement) (parts, largest []Part) {
	open, ofOthers := p.open(np), p.mayTakeOfOthers(np)
	missing := slice.Total(placement.Missing(np))
	own := func(other *schedulerv1alpha1.NamespacePlacement) int {
		if other.Namespace == np.Namespace {
			return 0
		}
		return 1
	}
	order := slices.SortedFunc(slices.Values(p.Placements), func(a, b *schedulerv1alpha1.NamespacePlacement) int {
		return cmp.Or(cmp.Compare(own(a), own(b)), cmp.Compare(a.Spec.Priority, b.Spec.Priority), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, other := range order {
		if !ofOthers && own(other) > 0 {
			break
		}
		for i := range other.Status.Placements {
			part := &other.Status.Placements[i]
			amounts := slice.Of(part.Reserved).OfPods()
			helps := !missing.Fits(missing.Minus(amounts))
			if open[part.Cluster] && helps && placement.CanGiveWay(other, part, np.Namespace, p.Now.Add(-PreemptedPeriod)) {
				parts = append(parts, Part{Namespace: client.ObjectKeyFromObject(other), Cluster: part.Cluster, Amounts: amounts})
			}
		}
	}
	slices.Reverse(parts)
	if len(parts) > maxVictims {
		largest = slices.Clone(parts)
		slices.SortStableFunc(largest, func(a, b Part) int { return cmp.Compare(helpOf(a.Amounts, missing), helpOf(b.Amounts, missing)) })
		largest = largest[max(0, len(largest)-maxParts):]
	}
	return parts[max(0, len(parts)-maxParts):], largest
}

// helpOf returns how much of what is missing amounts are: of the resource of which they are the smallest part, in
// thousandths.
func helpOf(amounts, missing slice.Amounts) int64 {
	help := int64(1000)
	for name, lacking := range missing {
		if lacking > 0 && amounts[name] < lacking {
			help = min(help, int64(float64(amounts[name])/float64(lacking)*1000))
		}
	}
	return help
}

// mayTakeOfOthers is placement.MayTakeOfOthers of np in the pool.
func (p *Preemption) mayTakeOfOthers(np *schedulerv1alpha1.NamespacePlacement) bool {
	return placement.MayTakeOfOthers(np, slices.DeleteFunc(slices.Clone(p.Placements), func(other *schedulerv1alpha1.NamespacePlacement) bool {
		return other.Namespace != np.Namespace
	}), p.Now)
}

// open returns the super clusters where slices of np may be placed, whatever is free there.
func (p *Preemption) open(np *schedulerv1alpha1.NamespacePlacement) map[string]bool {
	open := map[string]bool{}
	for _, object := range view.Slices(np) {
		pod := object.(*corev1.Pod)
		if !slicepod.IsFirst(pod) {
			continue
		}
		selected := nodeaffinity.GetRequiredNodeAffinity(pod)
		for _, node := range p.Nodes {
			node := view.NamespaceNode(node)
			matches, err := selected.Match(node)
			open[node.Name] = err == nil && matches && refusal.State(node, pod.Spec.Tolerations) == ""
		}
	}
	return open
}

// trial tries one namespace again and again, while others give way or do not.
type trial struct {
	*stage
	preemptor *schedulerv1alpha1.NamespacePlacement
	pool      map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement
	gone      map[partKey]bool
	// found are the parts that are needed, as far as they are known.
	found []Part
	// last is the outcome with which it fitted last.
	last map[string]slice.Amounts
}

// partKey names a Part.
type partKey struct {
	namespace types.NamespacedName
	cluster   string
}

func keyOf(part *Part) partKey { return partKey{part.Namespace, part.Cluster} }

// find takes all parts away, and puts back what is not needed, in their order.
func (t *trial) find(ctx context.Context, parts []Part) (Victims, error) {
	why, err := t.try(ctx)
	if err != nil || why.IsZero() || len(parts) == 0 {
		return Victims{Granted: t.last, Why: why}, err
	}
	if err := t.set(ctx, parts, true); err != nil {
		return Victims{}, err
	}
	if why, err = t.try(ctx); err != nil || !why.IsZero() {
		return Victims{Why: why}, err
	}
	t.found = nil
	err = t.needed(ctx, parts)
	more := errors.Is(err, errEnough) || err != nil && len(t.found) > 0 && errors.Is(context.Cause(ctx), errPatience)
	if err != nil && !more {
		return Victims{}, err
	}
	return Victims{Parts: t.found, More: more, Granted: t.last}, nil
}

// needed puts parts back, and adds those to found that it cannot: the namespace does not fit beside any of them, though
// all give way that come later. It fits when it is called, and when it returns. It takes about as many tries as there
// are victims, times the logarithm of parts. Beyond maxVictims it returns errEnough.
func (t *trial) needed(ctx context.Context, parts []Part) error {
	if err := t.set(ctx, parts, false); err != nil {
		return err
	}
	why, err := t.try(ctx)
	if err != nil || why.IsZero() {
		return err
	}
	if err := t.set(ctx, parts, true); err != nil {
		return err
	}
	if len(parts) == 1 {
		if len(t.found) == maxVictims {
			return errEnough
		}
		t.found = append(t.found, parts[0])
		return nil
	}
	half := len(parts) / 2
	if err := t.needed(ctx, parts[:half]); err != nil {
		return err
	}
	return t.needed(ctx, parts[half:])
}

// set lets parts give way, or not.
func (t *trial) set(ctx context.Context, parts []Part, gone bool) error {
	changed := map[types.NamespacedName]bool{}
	for i := range parts {
		t.gone[keyOf(&parts[i])] = gone
		changed[parts[i].Namespace] = true
	}
	for key := range changed {
		np := held(t.pool[key])
		np.Status.Placements = slices.Clone(np.Status.Placements)
		for i := range np.Status.Placements {
			if part := &np.Status.Placements[i]; t.gone[partKey{key, part.Cluster}] {
				part.Reserved, part.Leaving = slice.Of(part.Reserved).OfClaims().List(), nil
			}
		}
		np.Status.Placements = slices.DeleteFunc(np.Status.Placements, func(part schedulerv1alpha1.ClusterPlacement) bool { return len(part.Reserved) == 0 })
		if err := t.settle(ctx, t.project(np)); err != nil {
			return err
		}
	}
	return nil
}

// try tries the namespace, and takes it back.
func (t *trial) try(ctx context.Context) (refusal.Refusal, error) {
	t.preemptor = t.preemptor.DeepCopy()
	t.preemptor.Generation++ // another decision: what comes late of the one before is not about this one
	outcome, err := t.stage.try(ctx, t.preemptor)
	if err != nil || !outcome.Why.IsZero() {
		return outcome.Why, err
	}
	t.last = map[string]slice.Amounts{}
	for i := range outcome.Placement.Status.Placements {
		part := &outcome.Placement.Status.Placements[i]
		t.last[part.Cluster] = slice.Of(part.Reserved)
	}
	for i := range t.preemptor.Status.Placements {
		part := &t.preemptor.Status.Placements[i]
		t.last[part.Cluster] = t.last[part.Cluster].Minus(slice.Of(part.Reserved))
	}
	return outcome.Why, t.settle(ctx, t.project(held(t.preemptor)))
}
