package usage_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/test/builders"
)

// node is a Ready node with room for 110 pods.
func node(name, cpu, memory string, changes ...func(*corev1.Node)) *corev1.Node {
	made := builders.Node(name, "cpu", cpu, "memory", memory, "pods", "110").Label(corev1.LabelHostname, name).Obj()
	for _, change := range changes {
		change(made)
	}
	return made
}

func podOn(uid, node, cpu, memory string) *corev1.Pod {
	return builders.Pod("web", uid, "cpu", cpu, "memory", memory).UID(uid).Node(node).Obj()
}

func taint(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "k", Effect: effect})
	}
}

func TestCounted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*corev1.Node)
		want   bool
	}{
		{name: "ready", change: func(*corev1.Node) {}, want: true},
		{name: "cordoned", change: func(node *corev1.Node) { node.Spec.Unschedulable = true }},
		{name: "not ready", change: func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown }},
		{name: "no condition", change: func(node *corev1.Node) { node.Status.Conditions = nil }},
		{name: "NoSchedule", change: taint(corev1.TaintEffectNoSchedule)},
		{name: "NoExecute", change: taint(corev1.TaintEffectNoExecute)},
		{name: "PreferNoSchedule", change: taint(corev1.TaintEffectPreferNoSchedule), want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, usage.Counted(node("n", "1", "1Gi", tc.change)))
		})
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	ledger := usage.NewLedger()
	require.False(t, ledger.SetPod(podOn("early", "n1", "1", "1Gi")), "a pod may come before its node")
	require.True(t, ledger.SetNode(node("n1", "4", "8Gi")))
	require.True(t, ledger.SetNode(node("n2", "2", "16Gi")))
	offered := func() string { return ledger.Capacity().Offered.String() }
	require.Equal(t, "cpu=5,memory=23Gi,pods=219", offered())

	require.False(t, ledger.SetNode(node("n1", "4", "8Gi")), "a heartbeat changes nothing")
	require.False(t, ledger.SetPod(podOn("early", "n1", "1", "1Gi")))
	require.True(t, ledger.SetPod(podOn("big", "n2", "3", "1Gi")))
	require.Equal(t, "cpu=3,memory=22Gi,pods=218", offered(), "no node offers less than nothing")
	require.True(t, ledger.SetPod(podOn("big", "n2", "500m", "1Gi")), "a pod resized in place")
	require.Equal(t, "cpu=4500m,memory=22Gi,pods=218", offered())
	require.True(t, ledger.SetNode(node("n2", "2", "16Gi", func(node *corev1.Node) { node.Spec.Unschedulable = true })))
	require.Equal(t, "cpu=3,memory=7Gi,pods=109", offered())
	require.False(t, ledger.DeletePod("big"), "the node offers nothing anyway")
	require.True(t, ledger.SetNode(node("n2", "2", "16Gi")))
	require.Equal(t, "cpu=5,memory=23Gi,pods=219", offered())
	require.True(t, ledger.DeleteNode("n1"))
	require.False(t, ledger.DeleteNode("n1"))
	require.False(t, ledger.DeletePod("unknown"))
	require.Equal(t, "cpu=2,memory=16Gi,pods=110", offered())
	require.True(t, ledger.DeleteNode("n2"))
	require.Empty(t, offered())
	require.JSONEq(t, `{"groups":[]}`, ledger.Capacity().Groups)
}

// TestLedgerFree: what is free is known node by node. Pods of tenants are inside what is reserved for them, and change
// nothing.
func TestLedgerFree(t *testing.T) {
	t.Parallel()
	ledger := usage.NewLedger()
	want := func(text string) {
		t.Helper()
		require.JSONEq(t, text, freenodes.Encode(ledger.Capacity().Free))
	}
	want(`[]`)
	for i := range 3 {
		ledger.SetNode(node(fmt.Sprintf("n%d", i), "4", "8Gi"))
	}
	want(`[{"nodes":3,"free":{"cpu":"4","memory":"8Gi"}}]`)
	ledger.SetPod(builders.Pod("kube-system", "small").UID("small").Node("n0").Obj())
	want(`[{"nodes":3,"free":{"cpu":"4","memory":"8Gi"}}]`)
	ledger.SetPod(podOn("foreign", "n0", "3", "1Gi"))
	want(`[{"nodes":2,"free":{"cpu":"4","memory":"8Gi"}},{"nodes":1,"free":{"cpu":"1","memory":"7Gi"}}]`)
	tenants := podOn("tenant", "n1", "3", "1Gi")
	tenants.Namespace = "vc-web"
	ledger.SetPod(builders.Owned(tenants, builders.Owner("vc", "web", "uid")))
	want(`[{"nodes":2,"free":{"cpu":"4","memory":"8Gi"}},{"nodes":1,"free":{"cpu":"1","memory":"7Gi"}}]`)
	ledger.SetNode(node("n2", "4", "8Gi", taint(corev1.TaintEffectNoSchedule)))
	want(`[{"nodes":1,"free":{"cpu":"4","memory":"8Gi"}},{"nodes":1,"free":{"cpu":"1","memory":"7Gi"}}]`)
	ledger.DeletePod("foreign")
	want(`[{"nodes":2,"free":{"cpu":"4","memory":"8Gi"}}]`)
	ledger.SetPod(podOn("full", "n0", "9", "9Gi"))
	ledger.DeleteNode("n1")
	want(`[]`)
}

func TestLedgerTopology(t *testing.T) {
	t.Parallel()
	in := func(region, zone string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone] = region, zone
		}
	}
	ledger := usage.NewLedger()
	ledger.SetNode(node("a", "1", "1Gi", in("east", "1")))
	ledger.SetNode(node("b", "1", "1Gi", in("east", "2")))
	ledger.SetNode(node("c", "1", "1Gi", in("west", "2"), taint(corev1.TaintEffectNoSchedule)))
	capacity := ledger.Capacity()
	require.Equal(t, []any{"east", "", 2, 3}, []any{capacity.Region, capacity.Zone, capacity.Nodes, capacity.AllNodes})
}

// TestLedgerIsASum checks random events against the sum made from scratch.
func TestLedgerIsASum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	ledger := usage.NewLedger()
	nodes, pods := map[string]*corev1.Node{}, map[string]*corev1.Pod{}
	for range 5_000 {
		name := fmt.Sprintf("n%d", random.IntN(8))
		uid := fmt.Sprintf("p%d", random.IntN(40))
		switch random.IntN(5) {
		case 0:
			object := node(name, fmt.Sprint(1+random.IntN(8)), "8Gi", func(n *corev1.Node) { n.Spec.Unschedulable = random.IntN(4) == 0 })
			nodes[name] = object
			ledger.SetNode(object)
		case 1:
			delete(nodes, name)
			ledger.DeleteNode(name)
		case 2, 3:
			object := podOn(uid, name, fmt.Sprintf("%dm", random.IntN(2000)), "1Gi")
			pods[uid] = object
			ledger.SetPod(object)
		default:
			delete(pods, uid)
			ledger.DeletePod(types.UID(uid))
		}
		want := slice.Amounts{}
		var offered []slice.Amounts
		for name, node := range nodes {
			used := slice.Amounts{}
			for _, pod := range pods {
				if pod.Spec.NodeName == name {
					used = used.Plus(slice.Taken(pod, slice.Reading{Pods: true}))
				}
			}
			offers := usage.Contribution(usage.Counted(node), slice.Of(node.Status.Allocatable), used)
			want, offered = want.Plus(offers), append(offered, offers)
		}
		require.Empty(t, cmp.Diff(freenodes.Classes(offered, freenodes.MaxClasses), ledger.Capacity().Free))
		require.Empty(t, cmp.Diff(want, ledger.Capacity().Offered))
	}
}

func BenchmarkLedger(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{10, 200}, {1_000, 20_000}} {
		ledger := usage.NewLedger()
		for i := range size.nodes {
			ledger.SetNode(node(fmt.Sprintf("n%d", i), "64", "256Gi"))
		}
		pods := make([][2]*corev1.Pod, size.pods)
		for i := range pods {
			uid, node := fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i%size.nodes)
			pods[i] = [2]*corev1.Pod{podOn(uid, node, "100m", "1Gi"), podOn(uid, node, "200m", "1Gi")}
			ledger.SetPod(pods[i][0])
		}
		name := fmt.Sprintf("nodes=%d/pods=%d", size.nodes, size.pods)
		b.Run(name+"/event", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				ledger.SetPod(pods[i%len(pods)][(i/len(pods)+1)%2])
			}
		})
		b.Run(name+"/event and capacity", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				ledger.SetPod(pods[i%len(pods)][(i/len(pods)+1)%2])
				ledger.Capacity()
			}
		})
		b.Run(name+"/capacity", func(b *testing.B) {
			for b.Loop() {
				ledger.Capacity()
			}
		})
	}
}
