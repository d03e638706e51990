package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
)

// Loss is what the loss of one super cluster would come to.
type Loss struct {
	SuperCluster string
	// Namespaces is how many have anything there that would have to be placed elsewhere.
	Namespaces int
	// Unplaced is what of it would fit nowhere, sorted by tenant and name: a namespace is placed as a whole or not.
	Unplaced []Unplaced
	// Err is why it is not known.
	Err error
}

// Unplaced is what a namespace has in a super cluster and would fit nowhere else.
type Unplaced struct {
	Namespace types.NamespacedName
	Amounts   slice.Amounts
	// Why is why, as the tenant would read it.
	Why string
}

// Losses tries for each super cluster of pool what would come of its loss, by name, and hands it to told, whose error
// ends it. All else is as it is: what waits already goes on to wait, one that is closed takes nothing, and one that is
// lost or drained already has what has no room elsewhere. The NamespacePlacements of pool have UIDs that differ. What it
// costs is one try for each part that a namespace has in a super cluster, on one goroutine and a few that serve it.
func Losses(ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, told func(Loss) error) error {
	profiles, err := placer.Profiles(cfg)
	if err != nil {
		return fmt.Errorf("reading profiles: %w", err)
	}
	cfg = cfg.DeepCopy()
	cfg.Parallelism = 1
	l := &losing{rehearsal: &placer.Rehearsal{Config: cfg, Nodes: pool.Nodes, Placements: pool.Placements}, profiles: profiles, placed: placedIn(pool)}
	defer l.end()
	for _, node := range pool.Nodes {
		loss := l.try(ctx, node)
		if ctx.Err() != nil {
			return context.Cause(ctx) //nolint:wrapcheck // the caller has ended it
		}
		if err := told(loss); err != nil {
			return err
		}
	}
	return nil
}

// placedIn returns the NamespacePlacements by super cluster, in their order.
func placedIn(pool *Pool) map[string][]*schedulerv1alpha1.NamespacePlacement {
	placed := map[string][]*schedulerv1alpha1.NamespacePlacement{}
	for _, np := range pool.Placements {
		for i := range np.Status.Placements {
			cluster := np.Status.Placements[i].Cluster
			placed[cluster] = append(placed[cluster], np)
		}
	}
	return placed
}

// losing tries losses, one after another.
type losing struct {
	rehearsal *placer.Rehearsal
	profiles  sets.Set[string]
	placed    map[string][]*schedulerv1alpha1.NamespacePlacement
	// trials go on from one loss to the next, nil before the first and after an error.
	trials *placer.Trials
}

func (l *losing) end() {
	if l.trials != nil {
		l.trials.End()
		l.trials = nil
	}
}

func (l *losing) try(ctx context.Context, node *corev1.Node) Loss {
	loss := Loss{SuperCluster: node.Name}
	var displaced []*schedulerv1alpha1.NamespacePlacement
	var held []slice.Amounts // what each of them has there
	for _, np := range l.placed[node.Name] {
		amounts := toReplace(np, node.Name)
		if amounts.IsZero() {
			continue
		}
		loss.Namespaces++
		after := l.without(np, node.Name)
		amounts = common(amounts, placement.Displaced(after))
		switch name := np.Spec.SchedulerName; {
		case amounts.IsZero(): // it has its room elsewhere already, or less is wanted
		case name != "" && !l.profiles.Has(name): // the namespace scheduler would never try it
			loss.add(np, amounts, fmt.Sprintf("there is no profile %q", name))
		default:
			displaced, held = append(displaced, after), append(held, amounts)
		}
	}
	if len(displaced) > 0 {
		if loss.Err = l.place(ctx, node, displaced, func(i int, outcome *placer.Outcome) {
			if lacks := common(held[i], placement.Displaced(outcome.Placement)); !lacks.IsZero() {
				loss.add(displaced[i], lacks, outcome.Why.Message)
			}
		}); loss.Err != nil {
			l.end() // nothing is known of it any more
		}
	}
	slices.SortFunc(loss.Unplaced, func(a, b Unplaced) int {
		return cmp.Or(cmp.Compare(a.Namespace.Namespace, b.Namespace.Namespace), cmp.Compare(a.Namespace.Name, b.Namespace.Name))
	})
	return loss
}

// common returns what is in both.
func common(a, b slice.Amounts) slice.Amounts { return a.Minus(a.Minus(b)) }

func (l *Loss) add(np *schedulerv1alpha1.NamespacePlacement, amounts slice.Amounts, why string) {
	l.Unplaced = append(l.Unplaced, Unplaced{Namespace: client.ObjectKeyFromObject(np), Amounts: amounts, Why: why})
}

// place tries what is displaced in a pool where node does not answer.
func (l *losing) place(ctx context.Context, node *corev1.Node, displaced []*schedulerv1alpha1.NamespacePlacement, tell func(int, *placer.Outcome)) (err error) {
	if l.trials == nil {
		if l.trials, err = l.rehearsal.Trials(ctx); err != nil {
			return err //nolint:wrapcheck // it says all
		}
	}
	outcomes, err := l.trials.Try(ctx, lost(node), displaced)
	if err != nil {
		return err //nolint:wrapcheck // it names the namespace
	}
	for i := range outcomes {
		tell(i, &outcomes[i])
	}
	return nil
}

// toReplace returns what np has in a super cluster and is to have elsewhere if that is lost: what stays there, and what
// leaves because it is drained or lost. What leaves for another reason is owed no room, nor is storage: volumes are lost
// with their super cluster.
func toReplace(np *schedulerv1alpha1.NamespacePlacement, cluster string) slice.Amounts {
	for i := range np.Status.Placements {
		part := &np.Status.Placements[i]
		if part.Cluster != cluster || np.DeletionTimestamp != nil {
			continue
		}
		if leaving := part.Leaving; leaving != nil && (leaving.Reason == schedulerv1alpha1.LeavingDrained || leaving.Reason == schedulerv1alpha1.LeavingLost) {
			return slice.Of(part.Reserved).OfPods()
		}
		return placement.StayingIn(part).OfPods()
	}
	return nil
}

// without returns what np is once a super cluster is lost, before anything of it is placed elsewhere.
func (l *losing) without(np *schedulerv1alpha1.NamespacePlacement, cluster string) *schedulerv1alpha1.NamespacePlacement {
	unmet := clusterchoice.IsUnmet(np, func(yield func(*corev1.Node) bool) {
		for _, node := range l.rehearsal.Nodes {
			if node.Name != cluster && !superclusters.NodeStateOf(node).Drained && !yield(node) {
				return
			}
		}
	})
	after := np.DeepCopy()
	after.Status, _, _ = placement.Next(np, placement.Facts{
		Now: time.Now(), Leave: map[string]schedulerv1alpha1.LeavingReason{cluster: schedulerv1alpha1.LeavingLost}, ChoiceUnmet: ptr.To(unmet),
	})
	return after
}

// lost returns a virtual Node as it is while its super cluster does not answer.
func lost(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: superclusters.ReasonSuperClusterUnreachable,
	})
	return node
}
