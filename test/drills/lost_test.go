//go:build drills

package drills_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// stopNode lets somebody else hold the Lease of a node, so that its fake kubelet does nothing any more, and nobody
// renews it. startNode takes it away from that one.
func (b *bed) stopNode(ctx context.Context, t *testing.T, id, name string) {
	t.Helper()
	t.Logf("$ (node %s of %s stops)", name, id)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"stopped","leaseDurationSeconds":86400}}`))
	require.NoError(t, b.supers[id].Client.Patch(ctx, lease(name), patch))
}

func (b *bed) startNode(ctx context.Context, t *testing.T, id, name string) {
	t.Helper()
	t.Logf("$ (node %s of %s starts)", name, id)
	require.NoError(t, b.supers[id].Client.Delete(ctx, lease(name)))
}

func lease(node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}}
}

// node lets a node of r1 stop, whose super cluster answers.
func (b *bed) node(ctx context.Context, t *testing.T) {
	first, second := []string{"r1.node-1", "r1.node-1"}, []string{"r1.node-2", "r1.node-2"}
	placed := map[string]int{"r1": 4}
	r1 := b.supers["r1"].Client

	step(t, "A node of r1 stops: its pods run again on another node of r1, and no slice moves")
	require.NoError(t, controlplane.CreateNode(ctx, r1, node("node-2")))
	eventually(ctx, t, "whether node-2 is ready", corev1.ConditionTrue, status(r1, "node-2", corev1.NodeReady))
	equal(ctx, t, "the tenant's nodes of the pods", first, b.nodes)
	b.stopNode(ctx, t, "r1", "node-1")
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionUnknown, b.nodeReady("r1"))
	equal(ctx, t, "the taints of the virtual Node", []string{providerTaint}, b.taints("r1"))
	eventually(ctx, t, "the tenant's nodes of the pods", second, b.nodes)
	equal(ctx, t, "the placements", placed, b.placements("web"))
	equal(ctx, t, "the pods that wait for their node", 2, b.leaving)
	b.describe(ctx, t)

	step(t, "The node is back: what it ran is removed")
	b.startNode(ctx, t, "r1", "node-1")
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionTrue, b.nodeReady("r1"))
	eventually(ctx, t, "the pods that wait for their node", 0, b.leaving)
	eventually(ctx, t, "the pods in r1", 2, b.inSuper("r1", "web"))
	equal(ctx, t, "the tenant's nodes of the pods", second, b.nodes)
	equal(ctx, t, "the placements", placed, b.placements("web"))

	step(t, "The other node is emptied and removed")
	cordon(t, r1, "node-2", true)
	require.NoError(t, b.tenant.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("web"), client.MatchingLabels{"app": "web"}))
	eventually(ctx, t, "the tenant's nodes of the pods", first, b.nodes)
	eventually(ctx, t, "the pods in r1", 2, b.inSuper("r1", "web"))
	require.NoError(t, r1.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}))
}

// away takes a super cluster away for so long that the tenant's controllers have given up all that was there.
func (b *bed) away(ctx context.Context, t *testing.T) {
	b.loseAndReturn(ctx, t, "r1", "r2", *away)
	b.loseAndReturn(ctx, t, "r2", "r1", 0)
}

// outOfService is the key of the taint by which an operator says that the machines are off.
const outOfService = corev1.TaintNodeOutOfService

// cut cuts the link to r1, whose pods run on.
func (b *bed) cut(ctx context.Context, t *testing.T) {
	b.placeDatabase(ctx, t)
	first := now(ctx, t, b.database)

	step(t, "The link to r1 is cut, and its pods run on: the Deployment runs again in r2, the StatefulSet waits")
	b.link.cut()
	eventually(ctx, t, "the placements", map[string]int{"r2": 4}, b.placements("web"))
	eventually(ctx, t, "the placements of db", map[string]int{"r2": 2}, b.placements("db"))
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionUnknown, b.nodeReady("r1"))
	eventually(ctx, t, "the super clusters of the pods", []string{"r2", "r2"}, b.where)
	first.Ends = true
	eventually(ctx, t, "the StatefulSet's pod, which is being deleted", first, b.database)
	equal(ctx, t, "the pods of the Deployment in r1", 2, b.inSuper("r1", "web"))

	step(t, "The operator says that r1 is out of service: the StatefulSet runs again in r2, and r1 knows nothing of it")
	b.taint(t, "r1", outOfService, "nodeshutdown")
	eventually(ctx, t, "where the StatefulSet's pod runs", "r2.node-1", b.databaseRuns)
	second := now(ctx, t, b.database)
	require.NotEqual(t, first.UID, second.UID)
	equal(ctx, t, "the pods of the Deployment in r1", 2, b.inSuper("r1", "web"))
	equal(ctx, t, "the pods in r1 that run", 1, b.running("r1", "db"))
	b.describe(ctx, t)

	step(t, "The link is back: what r1 ran is removed, and the tenant hears nothing of it")
	seen := b.watchDatabase(ctx, t)
	b.link.heal()
	eventually(ctx, t, "the pods of the Deployment in r1", 0, b.inSuper("r1", "web"))
	eventually(ctx, t, "the pods in r1 that run", 0, b.running("r1", "db"))
	eventually(ctx, t, "what holds anything of the namespace", []string{"r2"}, b.reserved("web"))
	eventually(ctx, t, "what holds anything of namespace db", []string{"r2"}, b.reserved("db"))
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionTrue, b.nodeReady("r1"))
	b.untaint(t, "r1", outOfService)
	equal(ctx, t, "all that the tenant saw of the StatefulSet's pod", map[instance]bool{second: true}, seen)
	equal(ctx, t, "what the Job has tried", tries{Succeeded: 1, Pods: 1}, b.job)
	eventually(ctx, t, "the tenant's pods", 2, b.count)
}

// placeDatabase makes namespace db in r1, and lets the pod of its Job succeed.
func (b *bed) placeDatabase(ctx context.Context, t *testing.T) {
	t.Helper()
	step(t, "A StatefulSet and a Job in r1; the Job's pod has finished")
	cordon(t, b.meta, "r2", true)
	b.create(ctx, t, "db.yaml")
	eventually(ctx, t, "the placements of db", map[string]int{"r1": 2}, b.placements("db"))
	eventually(ctx, t, "where the StatefulSet's pod runs", "r1.node-1", b.databaseRuns)
	eventually(ctx, t, "the pods in r1", 2, b.inSuper("r1", "db"))
	var pods corev1.PodList
	require.NoError(t, b.tenant.List(ctx, &pods, client.InNamespace("db"), client.MatchingLabels{"job-name": "once"}))
	require.Len(t, pods.Items, 1)
	below := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy.SuperNamespace(b.key, "db"), Name: pods.Items[0].Name}}
	await.Change(t, b.supers["r1"].Client, below, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, "status")
	eventually(ctx, t, "what the Job has tried", tries{Succeeded: 1, Pods: 1}, b.job)
	cordon(t, b.meta, "r2", false)
}

// watchDatabase returns what the tenant sees of the StatefulSet's pod from now on.
func (b *bed) watchDatabase(ctx context.Context, t *testing.T) get[map[instance]bool] {
	t.Helper()
	var mu sync.Mutex
	seen := map[instance]bool{}
	b.watchAll(ctx, t, &corev1.PodList{}, func(object client.Object) {
		if pod, ok := object.(*corev1.Pod); ok {
			mu.Lock()
			defer mu.Unlock()
			seen[instanceOf(pod)] = true
		}
	}, client.InNamespace("db"), client.MatchingLabels{"app": "db"})
	return func(context.Context) (map[instance]bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen), nil
	}
}

// gone stops r2 for good.
func (b *bed) gone(ctx context.Context, t *testing.T) {
	first := now(ctx, t, b.database)
	step(t, "r2's API server is stopped for good, and its Cluster is deleted: all is in r1, once")
	b.stopSuper(t, "r2")
	eventually(ctx, t, "the placements", map[string]int{"r1": 4}, b.placements("web"))
	eventually(ctx, t, "the placements of db", map[string]int{"r1": 2}, b.placements("db"))
	eventually(ctx, t, "whether the tenant's node is ready", corev1.ConditionUnknown, b.nodeReady("r2"))
	// By itself vc-scheduler says so of Nodes that have not been ready for 5 minutes, once the Cluster is deleted.
	b.taint(t, "r2", outOfService, "nodeshutdown")
	eventually(ctx, t, "where the StatefulSet's pod runs", "r1.node-1", b.databaseRuns)
	require.NotEqual(t, first.UID, now(ctx, t, b.database).UID)
	require.NoError(t, b.meta.Delete(ctx, builders.Cluster("r2")))
	eventually(ctx, t, "whether r2 has a virtual Node", false, b.hasVirtualNode("r2"))
	equal(ctx, t, "what holds anything of the namespace", []string{"r1"}, b.reserved("web"))
	equal(ctx, t, "what holds anything of namespace db", []string{"r1"}, b.reserved("db"))
	eventually(ctx, t, "the super clusters of the pods", []string{"r1", "r1"}, b.where)
	eventually(ctx, t, "the tenant's pods", 2, b.count)
	equal(ctx, t, "what the Job has tried", tries{Succeeded: 1, Pods: 1}, b.job)
	b.describe(ctx, t)
}
