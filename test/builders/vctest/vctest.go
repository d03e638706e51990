// Package vctest is what tests of kubectl vc look at: a pool with its tenants, and what is printed of it.
package vctest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/test/builders"
)

// Tenant returns a VirtualCluster of generation 2 with conditions of it, which change may change.
func Tenant(change func(*tenancyv1alpha1.VirtualCluster), conditions ...metav1.Condition) *tenancyv1alpha1.VirtualCluster {
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme", Generation: 2}}
	vc.Spec.ClusterVersionName, vc.Status.Version = "v1.37", "v1.37.2"
	for _, condition := range conditions {
		if condition.ObservedGeneration == 0 {
			condition.ObservedGeneration = 2
		}
		vc.Status.Conditions = append(vc.Status.Conditions, condition)
	}
	if change != nil {
		change(vc)
	}
	return vc
}

// Is returns a condition that is True.
func Is(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Whole"}
}

// IsNot returns a condition that is False.
func IsNot(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// Paused pauses a tenant.
func Paused(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.Paused = true }

var update = flag.Bool("update", false, "write the golden files")

// Golden compares what is printed with a file of testdata: go test ./cmd/kubectl-vc/pool -update writes them.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), got))
}

// SuperNode returns the virtual Node of a super cluster, which change may change.
func SuperNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	node := builders.VirtualNode(name, "cpu", "100", "memory", "400Gi", "pods", "1000").Obj()
	node.UID, node.Status.NodeInfo.KubeletVersion = "first", "v1.37.2"
	for _, f := range change {
		f(node)
	}
	return node
}

// Says returns a change that sets a condition.
func Says(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		condition := corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message}
		if _, found := nodeutil.GetNodeCondition(&node.Status, kind); found != nil {
			*found = condition
			return
		}
		node.Status.Conditions = append(node.Status.Conditions, condition)
	}
}

// Tainted returns a change that adds a taint.
func Tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

// Cordoned cordons a super cluster.
func Cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

// What operators and vc-scheduler do to a virtual Node.
var (
	Drains     = Tainted("maintenance", corev1.TaintEffectNoExecute)
	Silent     = Says(corev1.NodeReady, corev1.ConditionUnknown, superclusters.ReasonSuperClusterUnreachable, "no route to host")
	IsLeft     = Says(schedulerv1alpha1.NodeDrained, corev1.ConditionTrue, superclusters.ReasonDrained, "No namespace is placed here")
	IsNotLeft  = Says(schedulerv1alpha1.NodeDrained, corev1.ConditionFalse, superclusters.ReasonDraining, "Namespaces that are still placed here: 2")
	NoRoomElse = Says(schedulerv1alpha1.NodeReplaceable, corev1.ConditionFalse, superclusters.ReasonNoRoomElsewhere, "If it were lost, 1 of 2 namespaces would wait for cpu=2")
	HasVolumes = Says(schedulerv1alpha1.NodeDrained, corev1.ConditionFalse, superclusters.ReasonVolumesStay, "kept for their volumes: 1")
)

// Leaving lets all that a namespace has in its first super cluster leave.
func Leaving(np *schedulerv1alpha1.NamespacePlacement, reason schedulerv1alpha1.LeavingReason, missing ...string) *schedulerv1alpha1.NamespacePlacement {
	part := &np.Status.Placements[0]
	part.Slices, part.Leaving = 0, &schedulerv1alpha1.Leaving{Reserved: part.Reserved, Reason: reason, Since: metav1.NewTime(time.Unix(0, 0).UTC())}
	np.Status.Displaced = &schedulerv1alpha1.Displaced{Resources: builders.Resources(missing...)}
	return np
}

// PlacedIs sets condition Placed.
func PlacedIs(np *schedulerv1alpha1.NamespacePlacement, status metav1.ConditionStatus, reason, message string) *schedulerv1alpha1.NamespacePlacement {
	np.Status.Conditions = append(np.Status.Conditions, metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced, Status: status, Reason: reason, Message: message})
	return np
}

// The root namespaces of the tenants.
const (
	AcmeRoot = "tenants-1a2b3c-acme"
	BetaRoot = "tenants-4d5e6f-beta"
)

// Placements returns those of two tenants and of one that is gone.
func Placements() []*schedulerv1alpha1.NamespacePlacement {
	quota := []string{"cpu", "4", "memory", "8Gi", "pods", "40"}
	web := builders.Placement(AcmeRoot, "web").Slice("cpu", "2", "memory", "4Gi", "pods", "20").Quota(quota...).
		Held("r1", 1, "cpu", "2", "memory", "4Gi", "pods", "20").Held("r2", 1, "cpu", "2", "memory", "4Gi", "pods", "20").Obj()
	batch := builders.Placement(AcmeRoot, "batch").Slice("cpu", "1500m", "memory", "1536Mi").Quota("cpu", "15", "memory", "15Gi").Obj()
	data := builders.Placement(BetaRoot, "data").Slice(quota...).Quota(quota...).Held("r2", 1, quota...).Held("r1", 1, quota...).Obj()
	stuck := builders.Placement(BetaRoot, "stuck").Slice("cpu", "60", "memory", "8Gi").Quota("cpu", "60", "memory", "8Gi").Held("r2", 1, "cpu", "60", "memory", "8Gi").Obj()
	lost := builders.Placement("gone", "old").Slice(quota...).Quota(quota...).Held("r4", 1, quota...).Obj()
	strange := builders.Placement("gone", "strange").Slice(quota...).Quota(quota...).Held("r9", 1, quota...).Obj()
	return []*schedulerv1alpha1.NamespacePlacement{
		Leaving(lost, schedulerv1alpha1.LeavingLost), strange,
		PlacedIs(batch, metav1.ConditionFalse, schedulerv1alpha1.ReasonUnschedulable,
			"0/5 super clusters are available: 2 have too little free for the namespace: cpu, 1 is cordoned, 1 is drained, 1 does not answer\x1b[2J\u202e."),
		PlacedIs(web, metav1.ConditionTrue, schedulerv1alpha1.ReasonPlaced, "2 of 2 slices"),
		Leaving(data, schedulerv1alpha1.LeavingDrained),
		PlacedIs(Leaving(stuck, schedulerv1alpha1.LeavingDrained, "cpu", "60", "memory", "8Gi"), metav1.ConditionFalse, schedulerv1alpha1.ReasonUnschedulable,
			"0/5 super clusters are available: 5 have too little free for the namespace: cpu"),
	}
}

// Pool returns five super clusters, each in another state, with Placements.
func Pool() *simulation.Pool {
	gpu := func(node *corev1.Node) { node.Status.Allocatable["nvidia.com/gpu"] = builders.Resources("x", "8")["x"] }
	return &simulation.Pool{Placements: Placements(), Nodes: []*corev1.Node{
		SuperNode("r1", gpu, NoRoomElse), SuperNode("r2", Drains, IsNotLeft), SuperNode("r3", Cordoned, Drains, IsLeft), SuperNode("r4", Silent),
		SuperNode("r5", Tainted("example.com/gpu", corev1.TaintEffectNoSchedule), func(node *corev1.Node) {
			node.Status.Allocatable = builders.Resources("cpu", "15890m", "memory", "64379560Ki")
		}),
	}}
}

// Tenants returns the VirtualClusters of AcmeRoot and BetaRoot.
func Tenants() []tenancyv1alpha1.VirtualCluster {
	acme := Tenant(func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Status.ClusterNamespace, vc.Spec.PolicyName = AcmeRoot, "standard"
		vc.Status.Endpoint = "https://acme.example.com:6443"
		vc.CreationTimestamp = metav1.NewTime(Today.Add(-50 * time.Hour))
		vc.Status.CertificatesExpire = ptr.To(metav1.NewTime(Today.Add(200 * 24 * time.Hour)))
	}, Is("Ready"), IsNot("UpToDate", "Progressing", "API servers: 1 of 2 are of v1.37.2"), IsNot("APIServerReady", "Progressing", "1 of 2 pods is Ready: kube-apiserver-7d8f9c6b5-x2x4z waits for a node with cpu, and has waited for ten minutes"))
	beta := Tenant(func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Name, vc.Status.ClusterNamespace, vc.Status.Version, vc.Spec.ClusterVersionName = "beta", BetaRoot, "", ""
		vc.CreationTimestamp = metav1.NewTime(Today.Add(-5 * time.Minute))
	}, Is("Ready"))
	return []tenancyv1alpha1.VirtualCluster{*beta, *acme}
}

// Today is now.
var Today = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// Printed returns what a table prints, and holds that no line moves a cursor or ends in spaces.
func Printed(t *testing.T, table func(*page.Page)) string {
	t.Helper()
	var out bytes.Buffer
	p := page.New(&out, 0)
	table(p)
	require.NoError(t, p.Flush())
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\u202e")
	return out.String()
}
