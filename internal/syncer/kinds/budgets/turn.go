package budgets

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	nodehelpers "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonDisruptionTurnHeld: a drain of a super cluster's node waits for the turn of a PodDisruptionBudget, which
// another super cluster has that does not answer: nobody knows what is evicted there. The Event is on the budget, and
// on the virtual Node of the super cluster that waits.
const ReasonDisruptionTurnHeld = "DisruptionTurnHeld"

const (
	// turnLook is how often a syncer that waits for the turn of a budget asks what the super cluster that has it does.
	turnLook = time.Minute
	// turnPatience is for how long a tenant's Nodes may not have been Ready of a super cluster without virtual Node.
	turnPatience = 5 * time.Minute
	// turnNodes is how many of a tenant's Nodes of that super cluster are read. Of one with more nothing is known.
	turnNodes = 5000
)

// Turn is what a super cluster that has the turn of a budget may still do with it.
type Turn int

const (
	// TurnHeld means that it may evict, and that its syncer gives the turn back.
	TurnHeld Turn = iota
	// TurnLost means that it does not answer. Whoever reaches it may drain its nodes, and its budget may be open.
	TurnLost
	// TurnFree means that it evicts nothing any more: its operator has said so, or it has left the pool.
	TurnFree
)

// TurnOf returns what a super cluster may do with a turn. virtualNode is nil where the meta cluster lacks it, and nodes
// are the Nodes that a tenant has of the super cluster, which are asked for where it may have left the pool: those that
// are Ready have a syncer, which gives the turn back. This is by what vc-scheduler declares them out of service.
func TurnOf(virtualNode *corev1.Node, nodes func() ([]corev1.Node, bool, error), now time.Time) (Turn, error) {
	patience := turnPatience
	if virtualNode != nil {
		if slices.ContainsFunc(virtualNode.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }) {
			return TurnFree, nil
		}
		switch _, ready := nodehelpers.GetNodeCondition(&virtualNode.Status, corev1.NodeReady); {
		case ready == nil, ready.Status == corev1.ConditionTrue:
			return TurnHeld, nil
		case ready.Reason != schedulerv1alpha1.ReasonClusterRemoved:
			return TurnLost, nil
		}
		patience = 0
	}
	all, complete, err := nodes()
	if err != nil {
		return TurnHeld, err
	}
	serves := func(node corev1.Node) bool {
		_, ready := nodehelpers.GetNodeCondition(&node.Status, corev1.NodeReady)
		return ready == nil || ready.Status == corev1.ConditionTrue || now.Sub(ready.LastTransitionTime.Time) < patience
	}
	if !complete || slices.ContainsFunc(all, serves) {
		return TurnHeld, nil
	}
	return TurnFree, nil
}

// await takes the turn of a budget from a super cluster that cannot use it any more. One that is lost keeps it, and
// tenant and operator are told.
func (b *Budgets) await(ctx context.Context, tenant *kind.Tenant, tenantBudget *policyv1.PodDisruptionBudget, holder string) error {
	turn, virtualNode := TurnFree, (*corev1.Node)(nil)
	if tenancy.ValidateSuperClusterID(holder) == nil { // else the tenant has written it
		var err error
		if virtualNode, err = b.Env.Member(ctx, holder); err != nil {
			return kind.Unproven(err)
		}
		turn, err = TurnOf(virtualNode, func() ([]corev1.Node, bool, error) { return nodesIn(ctx, tenant, holder) }, b.Env.Clock.Now())
		if err != nil {
			return err
		}
	}
	topic := ofTurn(b.key(tenant, tenantBudget))
	switch turn {
	case TurnFree:
		return b.writeTurn(ctx, tenant, tenantBudget, b.Env.ID)
	case TurnLost:
		b.tellHeld(topic, tenant, tenantBudget, virtualNode)
	case TurnHeld:
		b.Env.Warnings.Clear(topic)
	}
	return nil
}

// nodesIn reads the Nodes that a tenant has of a super cluster, and returns whether these are all.
func nodesIn(ctx context.Context, tenant *kind.Tenant, superCluster string) (nodes []corev1.Node, complete bool, err error) {
	list := &corev1.NodeList{}
	if err := tenant.Client.List(ctx, list, client.Limit(turnNodes), client.MatchingLabels{
		tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: superCluster,
	}); err != nil {
		return nil, false, fmt.Errorf("listing nodes of super cluster %s: %w", superCluster, err)
	}
	return list.Items, list.Continue == "", nil
}

// tellHeld tells the tenant, once for a budget, and the operator, once for a super cluster and a loss of it, that a
// drain waits.
func (b *Budgets) tellHeld(topic kind.Topic, tenant *kind.Tenant, tenantBudget *policyv1.PodDisruptionBudget, virtualNode *corev1.Node) {
	holder := virtualNode.Name
	b.Env.WarnAbout(tenant, topic, tenantBudget, ReasonDisruptionTurnHeld, fmt.Sprintf(
		"Super cluster %s: a drain of its nodes waits: super cluster %s has the turn to evict pods of this budget, and does not answer. "+
			"It ends when that answers, or when the operator says that it is out of service", b.Env.ID, holder))
	if b.Env.MetaRecorder == nil || b.Env.VirtualNode == nil {
		return
	}
	_, ready := nodehelpers.GetNodeCondition(&virtualNode.Status, corev1.NodeReady)
	loss := ready.LastTransitionTime.UTC().Format(time.RFC3339)
	if node := b.Env.VirtualNode(); node != nil && b.toldOf(holder, loss) {
		b.Env.MetaRecorder.Event(node, corev1.EventTypeWarning, ReasonDisruptionTurnHeld, tenancy.Cut(fmt.Sprintf(
			"A drain of nodes waits: super cluster %s has the turn of tenants' PodDisruptionBudgets, as of %s/%s of tenant %s, and does not answer. "+
				"If it runs nothing any more: kubectl taint node %s %s=nodeshutdown:NoExecute, or delete its Cluster",
			holder, tenantBudget.Namespace, tenantBudget.Name, tenant.Key, holder, corev1.TaintNodeOutOfService), tenancy.MaxEventNote))
	}
}

// toldOf notes that the operator is told of a loss of a super cluster, and returns whether it is another one.
func (b *Budgets) toldOf(superCluster, loss string) (isNew bool) {
	b.losses.Update(superCluster, func(last string, _ bool) (string, bool) {
		isNew = last != loss
		return loss, true
	})
	return isNew
}

// ofTurn is what is said of the turn of a budget.
func ofTurn(key engine.Key) kind.Topic { return kind.Topic{Key: key, Of: "turn"} }
