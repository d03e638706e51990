package budgets_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// nodeWith is a Node whose condition Ready is as given, since a time.
func nodeWith(name string, status corev1.ConditionStatus, reason string, since time.Time, taints ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since)}}
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return node
}

// tenantNodeIn is a tenant's Node of a super cluster.
func tenantNodeIn(superCluster string, status corev1.ConditionStatus, since time.Time) *corev1.Node {
	node := nodeWith(superCluster+".n1", status, "", since)
	node.Labels = map[string]string{tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: superCluster}
	return node
}

// TestTurnOfALostSuperCluster: super cluster r1 wants to drain a node while another one has the turn.
func TestTurnOfALostSuperCluster(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	const outOfService, unreachable = "node.kubernetes.io/out-of-service", "node.kubernetes.io/unreachable"
	lost := nodeWith("r2", corev1.ConditionUnknown, "SuperClusterUnreachable", now, unreachable)
	gone := nodeWith("r2", corev1.ConditionUnknown, "ClusterRemoved", now)
	for _, tc := range []struct {
		name string
		// holder has the turn; "": r2.
		holder string
		// member is the virtual Node of r2, nil for none.
		member *corev1.Node
		// nodes are the tenant's.
		nodes []client.Object
		want  string
		// tells is whether tenant and operator are told.
		tells bool
	}{
		{name: "it serves", member: nodeWith("r2", corev1.ConditionTrue, "", now), want: "r2"},
		{name: "nothing is known of it yet", member: &corev1.Node{}, want: "r2"},
		{name: "it is lost", member: lost, nodes: []client.Object{tenantNodeIn("r2", corev1.ConditionUnknown, now.Add(-time.Hour))}, want: "r2", tells: true},
		{name: "its operator says that it is out of service", member: nodeWith("r2", corev1.ConditionUnknown, "SuperClusterUnreachable", now, unreachable, outOfService), want: "r1"},
		{name: "its Cluster was deleted, and its syncer works", member: gone, nodes: []client.Object{tenantNodeIn("r2", corev1.ConditionTrue, now.Add(-time.Hour))}, want: "r2"},
		{name: "its Cluster was deleted, and a Node has no condition", member: gone, nodes: []client.Object{&corev1.Node{ObjectMeta: tenantNodeIn("r2", "", now).ObjectMeta}}, want: "r2"},
		{name: "its Cluster was deleted, and it does not answer", member: gone, nodes: []client.Object{tenantNodeIn("r2", corev1.ConditionUnknown, now), tenantNodeIn("r3", corev1.ConditionTrue, now)}, want: "r1"},
		{name: "its Cluster was deleted, and nothing runs there", member: gone, want: "r1"},
		{name: "its virtual Node was deleted by hand", nodes: []client.Object{tenantNodeIn("r2", corev1.ConditionUnknown, now.Add(-time.Minute))}, want: "r2"},
		{name: "it has left the pool long ago", nodes: []client.Object{tenantNodeIn("r2", corev1.ConditionUnknown, now.Add(-5*time.Minute))}, want: "r1"},
		{name: "the tenant has named what cannot be", holder: "../nodes/r1", want: "r1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			holder := tc.holder
			if holder == "" {
				holder = "r2"
			}
			b := drained(t, map[string]string{tenancyv1alpha1.AnnotationDisruptedIn: holder}, tc.nodes...)
			told := record.NewFakeRecorder(10)
			b.Env.MetaRecorder, b.Env.VirtualNode = told, func() *corev1.Node { return nodeWith("r1", corev1.ConditionTrue, "", now) }
			b.Env.Member = func(_ context.Context, superCluster string) (*corev1.Node, error) {
				require.Equal(t, "r2", superCluster)
				return tc.member, nil
			}
			again, has := b.look(t)
			require.Equal(t, tc.want, has)
			require.Equal(t, has == "r2", again == time.Minute, "it is looked at again")
			if !tc.tells {
				require.Empty(t, b.Told())
				require.Empty(t, told.Events)
				return
			}
			require.Contains(t, <-b.Events.Events, "super cluster r2 has the turn")
			require.Contains(t, <-told.Events, "kubectl taint node r2 node.kubernetes.io/out-of-service")
			b.look(t)
			require.Empty(t, b.Told(), "once")
			require.Empty(t, told.Events, "once")
			tc.member.Spec.Taints = append(tc.member.Spec.Taints, corev1.Taint{Key: outOfService})
			_, has = b.look(t)
			require.Equal(t, "r1", has)
		})
	}
}
