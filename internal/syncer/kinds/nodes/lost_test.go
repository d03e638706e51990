package nodes_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestNodeOfSilentSuperCluster: the Lease of a tenant's Node says when the super cluster last answered, and what the
// tenant's controllers and vc-scheduler write on the Node of one that does not stays.
func TestNodeOfSilentSuperCluster(t *testing.T) {
	t.Parallel()
	ready := func(status corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
	superNode := builders.Node("n1").Obj()
	superNode.Status.Conditions = ready(corev1.ConditionTrue)
	tenantNode := &corev1.Node{}
	nodes.TenantNode(superNode, tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})

	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(tenantNode).WithStatusSubresource(tenantNode).Build(), kindtest.TenantUID)
	p.SuperCache[kind.Node], p.SuperCache[kind.Pod] = []client.Object{superNode}, []client.Object{kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"))}
	super := &kindtest.Silent{Cache: p.SuperCache, Current: true}
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	var answered time.Time
	p.Env.SuperCache, p.Env.Clock, p.Env.Answered = super, clock, func() time.Time { return answered }
	nodes := p.Kind(kind.Node)
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}
	live := func() *corev1.Node {
		node := &corev1.Node{}
		require.NoError(t, p.Tenant.Client.Get(t.Context(), types.NamespacedName{Name: "r1.n1"}, node))
		return node
	}
	outOfService := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	for _, tc := range []struct {
		name string
		// at is the time, answered when the super cluster last answered, in seconds.
		at, answered int64
		// behind is whether its caches do not show yet what it says.
		behind bool
		// happens, if not nil, is what others write on the tenant's Node before.
		happens     func(node *corev1.Node)
		wantRenewed int64
		wantReady   corev1.ConditionStatus
		wantTaints  int
	}{
		{name: "it answers", at: 1000, answered: 995, wantRenewed: 995, wantReady: corev1.ConditionTrue},
		{name: "it answered a moment ago", at: 1020, answered: 1015, wantRenewed: 1015, wantReady: corev1.ConditionTrue},
		{name: "too soon", at: 1030, answered: 1025, wantRenewed: 1015, wantReady: corev1.ConditionTrue},
		{name: "it answered after that", at: 1040, answered: 1025, wantRenewed: 1025, wantReady: corev1.ConditionTrue},
		{name: "it has not answered since", at: 1050, answered: 1025, wantRenewed: 1025, wantReady: corev1.ConditionTrue},
		{name: "it is silent", at: 1080, answered: 1025, behind: true, wantRenewed: 1025, wantReady: corev1.ConditionUnknown, happens: func(node *corev1.Node) {
			node.Status.Conditions = ready(corev1.ConditionUnknown)
		}},
		{name: "it is out of service", at: 2000, answered: 1025, behind: true, wantRenewed: 1025, wantReady: corev1.ConditionUnknown, wantTaints: 1, happens: func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, outOfService)
		}},
		{name: "it answers again", at: 3000, answered: 2999, behind: true, wantRenewed: 2999, wantReady: corev1.ConditionUnknown, wantTaints: 1},
		{name: "its caches have caught up", at: 3010, answered: 3009, wantRenewed: 2999, wantReady: corev1.ConditionTrue, wantTaints: 1},
		{name: "a label is written, too", at: 3011, answered: 3009, wantRenewed: 2999, wantReady: corev1.ConditionTrue, wantTaints: 1, happens: func(node *corev1.Node) {
			superNode.Labels = map[string]string{corev1.LabelTopologyZone: "z1"}
		}},
		{name: "its clock is ahead", at: 3040, answered: 9999, wantRenewed: 3040, wantReady: corev1.ConditionTrue, wantTaints: 1},
	} {
		clock.SetTime(time.Unix(tc.at, 0))
		answered, super.Current = time.Unix(tc.answered, 0), !tc.behind
		if tc.happens != nil {
			node := live()
			tc.happens(node)
			require.NoError(t, p.Tenant.Client.Update(t.Context(), node.DeepCopy()))
			status := live()
			status.Status = node.Status
			require.NoError(t, p.Tenant.Client.Status().Update(t.Context(), status))
		}
		p.TenantCache[kind.Node] = []client.Object{live()}
		after, err := nodes.Reconcile(t.Context(), key, 0)
		require.NoError(t, err, tc.name)
		require.Equal(t, 20*time.Second, after, tc.name)
		lease := &coordinationv1.Lease{}
		require.NoError(t, p.Tenant.Client.Get(t.Context(), types.NamespacedName{Namespace: "kube-node-lease", Name: "r1.n1"}, lease))
		require.Equal(t, tc.wantRenewed, lease.Spec.RenewTime.Unix(), tc.name)
		node := live()
		require.Empty(t, cmp.Diff(ready(tc.wantReady), node.Status.Conditions), tc.name)
		require.Len(t, node.Spec.Taints, tc.wantTaints, tc.name)
	}
	require.Equal(t, "z1", live().Labels[corev1.LabelTopologyZone])
}

// TestNodeOfDeadKubelet lets a node of a super cluster that answers be NotReady: so is the tenant's, whose Lease goes
// on, because there the super cluster's own controllers look after it.
func TestNodeOfDeadKubelet(t *testing.T) {
	t.Parallel()
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		superNode, tenantNode := builders.Node("n1").Obj(), &corev1.Node{}
		superNode.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes.TenantNode(superNode, tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
		superNode.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "NodeStatusUnknown"}}
		p := kindtest.NewPool(t, interceptor.Funcs{})
		p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(tenantNode).WithStatusSubresource(tenantNode).Build(), kindtest.TenantUID)
		require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), tenantNode))
		p.TenantCache[kind.Node], p.SuperCache[kind.Node] = []client.Object{tenantNode}, []client.Object{superNode}
		p.SuperCache[kind.Pod] = []client.Object{kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"))}
		_, err := p.Kind(kind.Node).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}, 0)
		require.NoError(t, err)
		live := &corev1.Node{}
		require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), live))
		require.Equal(t, superNode.Status.Conditions, live.Status.Conditions)
		require.NoError(t, p.Tenant.Client.Get(t.Context(), types.NamespacedName{Namespace: "kube-node-lease", Name: "r1.n1"}, &coordinationv1.Lease{}))
	}
}
