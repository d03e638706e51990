package superclusters

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/test/builders"
)

func TestLeaveReason(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
	}
	ready := func(status corev1.ConditionStatus, reason string, since time.Duration) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(ago(since)),
			}}
		}
	}
	silent := func(since time.Duration) func(*corev1.Node) {
		return ready(corev1.ConditionUnknown, ReasonSuperClusterUnreachable, since)
	}
	for name, tc := range map[string]struct {
		changes    []func(*corev1.Node)
		reachable  time.Duration // ago; 0 for not at all
		toleration time.Duration
		want       schedulerv1alpha1.LeavingReason
		wantAgain  time.Duration
	}{
		"nothing is wrong":                {reachable: time.Hour},
		"cordoned":                        {reachable: time.Hour, changes: []func(*corev1.Node){func(n *corev1.Node) { n.Spec.Unschedulable = true }}},
		"no Ready condition":              {reachable: time.Hour, changes: []func(*corev1.Node){func(n *corev1.Node) { n.Status.Conditions = nil }}},
		"drained":                         {changes: []func(*corev1.Node){taint("maintenance", "NoExecute")}, want: "Drained"},
		"drained, and it does not answer": {changes: []func(*corev1.Node){taint("maintenance", "NoExecute"), silent(time.Hour)}, reachable: time.Hour, want: "Lost"},
		"drained, and it is silent for less": {
			changes: []func(*corev1.Node){taint("maintenance", "NoExecute"), silent(2 * time.Minute)}, reachable: time.Hour, toleration: 5 * time.Minute, want: "Drained", wantAgain: 3 * time.Minute,
		},
		"it refuses what is asked":                        {changes: []func(*corev1.Node){ready(corev1.ConditionUnknown, ReasonSuperClusterRefuses, time.Hour)}, reachable: time.Hour},
		"a taint that keeps new ones away":                {changes: []func(*corev1.Node){taint("maintenance", "NoSchedule")}},
		"the taint of the controllers: it is not ready":   {changes: []func(*corev1.Node){taint(corev1.TaintNodeNotReady, "NoExecute")}},
		"the taint of the controllers: it does not reply": {changes: []func(*corev1.Node){taint(corev1.TaintNodeUnreachable, "NoExecute")}},
		"out of service":                                  {changes: []func(*corev1.Node){taint(corev1.TaintNodeOutOfService, "NoExecute")}},
		"the taint of a cloud":                            {changes: []func(*corev1.Node){taint("node.cloudprovider.kubernetes.io/shutdown", "NoExecute")}},
		"a taint that slices tolerate":                    {changes: []func(*corev1.Node){taint(schedulerv1alpha1.TaintProvider, "NoExecute")}},
		"its Cluster was deleted":                         {changes: []func(*corev1.Node){ready(corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved, 0)}, want: "Drained"},
		"silent for longer":                               {changes: []func(*corev1.Node){silent(6 * time.Minute)}, reachable: time.Hour, toleration: 5 * time.Minute, want: "Lost"},
		"silent for exactly as long":                      {changes: []func(*corev1.Node){silent(5 * time.Minute)}, reachable: time.Hour, toleration: 5 * time.Minute, want: "Lost"},
		"silent for less":                                 {changes: []func(*corev1.Node){silent(2 * time.Minute)}, reachable: time.Hour, toleration: 5 * time.Minute, wantAgain: 3 * time.Minute},
		"silent, and none is tolerated":                   {changes: []func(*corev1.Node){silent(0)}, reachable: time.Hour, want: "Lost"},
		"silent, and none answers":                        {changes: []func(*corev1.Node){silent(time.Hour)}},
		"silent since before a restart":                   {changes: []func(*corev1.Node){silent(time.Hour)}, reachable: time.Minute, toleration: 5 * time.Minute, wantAgain: 4 * time.Minute},
		"the others have just come back":                  {changes: []func(*corev1.Node){silent(time.Hour)}, reachable: -30 * time.Second, wantAgain: 30 * time.Second},
		"only the meta cluster's own controllers miss it": {changes: []func(*corev1.Node){ready(corev1.ConditionUnknown, "NodeStatusUnknown", time.Hour)}, reachable: time.Hour},
		"its kubeconfig is missing":                       {changes: []func(*corev1.Node){ready(corev1.ConditionUnknown, ReasonSecretNotFound, time.Hour)}, reachable: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := builders.VirtualNode("r1").Obj()
			for _, change := range tc.changes {
				change(node)
			}
			reachable := time.Time{}
			if tc.reachable != 0 {
				reachable = ago(tc.reachable)
			}
			reason, again := NodeStateOf(node).LeaveReason(reachable, now, tc.toleration)
			require.Equal(t, tc.want, reason)
			require.Equal(t, tc.wantAgain, again)
		})
	}
}

func TestNodeStateIsThatOfAHeartbeatBefore(t *testing.T) {
	t.Parallel()
	node := builders.VirtualNode("r1", "cpu", "4").Obj()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: ReasonSuperClusterUnreachable, LastTransitionTime: metav1.Now()}}
	other := node.DeepCopy()
	other.Status.Conditions[0].LastHeartbeatTime, other.Status.Conditions[0].Message = metav1.Now(), "other"
	other.Status.Conditions[0].LastTransitionTime = metav1.NewTime(node.Status.Conditions[0].LastTransitionTime.UTC())
	other.Status.Allocatable = builders.Resources("cpu", "1")
	require.Equal(t, NodeStateOf(node), NodeStateOf(other))
	other.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Hour))
	require.NotEqual(t, NodeStateOf(node), NodeStateOf(other))
}

// TestProgressOfADrain follows condition Drained over a drain that is taken back, and one that ends.
func TestProgressOfADrain(t *testing.T) {
	t.Parallel()
	m := measures{}
	reserve := func(name string, quota string, clusters ...string) {
		np := builders.Placement("vc", name).Slice("cpu", "1").Quota("cpu", quota).Obj()
		for _, cluster := range clusters {
			part := builders.HeldSlices(cluster, 1, "cpu", "1")
			if cluster == "r1" {
				part.Leaving = &schedulerv1alpha1.Leaving{Reserved: part.Reserved, Reason: schedulerv1alpha1.LeavingDrained}
			}
			np.Status.Placements = append(np.Status.Placements, part)
		}
		m.reserve(np, np)
	}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	node := newNode(desired("", ""))
	look := func(wantChanged bool, want string) {
		t.Helper()
		require.Equal(t, wantChanged, applyDrained(node, m.drainOf, now))
		got := ""
		if c := findCondition(node, schedulerv1alpha1.NodeDrained); c != nil {
			got = string(c.Status) + " " + c.Reason + ": " + c.Message
		}
		require.Equal(t, want, got)
		require.False(t, applyDrained(node, m.drainOf, now), "written on change only")
	}
	reserve("waits-for-pods", "1", "r1", "r2")
	reserve("waits-for-room", "1", "r1")
	look(false, "")
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
	look(true, "False Draining: Namespaces that are still placed here: 2; waiting for room elsewhere: 1, for pods to end: 1")
	taints := node.Spec.Taints
	node.Spec.Taints = nil
	look(true, "")
	node.Spec.Taints = taints
	reserve("waits-for-room", "1", "r1", "r2")
	look(true, "False Draining: Namespaces that are still placed here: 2; waiting for room elsewhere: 0, for pods to end: 2")
	growing := builders.Placement("vc", "waits-for-pods").Slice("cpu", "1").Quota("cpu", "9").Held("r1", 1, "cpu", "1").Held("r2", 1, "cpu", "1").Obj()
	growing.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reserved: growing.Status.Placements[0].Reserved, Reason: schedulerv1alpha1.LeavingDrained}
	growing.Status.Displaced = &schedulerv1alpha1.Displaced{}
	m.reserve(growing, growing) // what waits for room is what the quota has grown by
	look(false, "False Draining: Namespaces that are still placed here: 2; waiting for room elsewhere: 0, for pods to end: 2")

	ledger := usage.NewLedger()
	defer m.serve("r1", &measure{ledger: ledger, touch: func() {}})()
	for i, name := range []string{"waits-for-room", "waits-for-pods"} {
		ledger.SetClaim(builders.OwnedClaim(types.NamespacedName{Namespace: "vc", Name: name}, types.UID(name)))
		look(true, []string{
			"False Draining: Namespaces that are still placed here: 2; waiting for room elsewhere: 0, for pods to end: 1; kept for their volumes, which do not move: 1",
			"False VolumesStay: Namespaces that are still placed here: 2; waiting for room elsewhere: 0, for pods to end: 0; kept for their volumes, which do not move: 2",
		}[i])
	}
	for _, name := range []string{"waits-for-room", "waits-for-pods"} {
		m.reserve(builders.Placement("vc", name).Held("r1", 1, "cpu", "1").Obj(), nil)
	}
	look(true, "True Drained: No namespace is placed here")
	m.synced = make(chan struct{})
	node.Status.Conditions = nil
	look(false, "")
	require.Empty(t, m.lacking)
}

// TestTheIDThatAClusterHadIsGone: what is placed in a super cluster whose Cluster has another id now is given back.
func TestTheIDThatAClusterHadIsGone(t *testing.T) {
	t.Parallel()
	before := nodeOf("r1", firstCluster)
	before.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: schedulerv1alpha1.ReasonClusterRemoved}}
	controller, _ := newController(t, interceptor.Funcs{}, before, nodeOf("r2", firstCluster), clusterNamed("first"))
	web := types.NamespacedName{Namespace: "vc", Name: "web"}
	used := controller.Usage(t.Context(), web, []string{"r1", "r2"})
	require.True(t, used["r1"].Gone)
	require.NotContains(t, used, "r2", "it may come back")
}

// TestHeld: what a namespace uses counts as held, whatever its quota says by now.
func TestHeld(t *testing.T) {
	t.Parallel()
	controller, _ := newController(t, interceptor.Funcs{})
	ledger := usage.NewLedger()
	defer controller.measures.serve("r1", &measure{ledger: ledger, answers: true, touch: func() {}})()
	ledger.SetQuota(builders.OwnedQuota(webKey, "uid", "requests.cpu", "0"))
	ledger.SetPod(builders.OwnedPod(webKey, "p", "n1", "cpu", "2"))
	held, _ := controller.Held(t.Context(), webKey, "uid")
	require.Equal(t, map[string]slice.Amounts{"r1": {"cpu": 2000, "pods": 1}}, held)
	held, _ = controller.Held(t.Context(), webKey, "another")
	require.Empty(t, held)
}

// TestWhatIsToldOfALoss is written with the next change of the virtual Node, and at once where the super cluster is
// served. What another process has told stays until this one knows.
func TestWhatIsToldOfALoss(t *testing.T) {
	t.Parallel()
	c := Controller{}
	w := writer{measures: &c.measures}
	touched := 0
	defer c.measures.serve("r1", &measure{ledger: usage.NewLedger(), touch: func() { touched++ }})()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	node := newNode(desired("", ""))
	node.Status.Conditions = []corev1.NodeCondition{{Type: schedulerv1alpha1.NodeReplaceable, Status: corev1.ConditionTrue, Reason: ReasonFitsElsewhere}}
	require.False(t, w.applyMeasured(node, now))
	c.SetReplaceable("r2", &corev1.NodeCondition{Type: schedulerv1alpha1.NodeReplaceable, Status: corev1.ConditionFalse})
	require.False(t, w.applyMeasured(node, now), "another super cluster's")
	require.Zero(t, touched)

	c.SetReplaceable("r1", &corev1.NodeCondition{Type: schedulerv1alpha1.NodeReplaceable, Status: corev1.ConditionFalse, Reason: ReasonNoRoomElsewhere, Message: "one"})
	require.Equal(t, 1, touched)
	require.True(t, w.applyMeasured(node, now))
	require.False(t, w.applyMeasured(node, now), "written on change only")
	require.Empty(t, cmp.Diff([]corev1.NodeCondition{{
		Type: schedulerv1alpha1.NodeReplaceable, Status: corev1.ConditionFalse, Reason: ReasonNoRoomElsewhere, Message: "one",
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}}, node.Status.Conditions))
	c.SetReplaceable("r1", nil)
	require.False(t, w.applyMeasured(node, now))
}
