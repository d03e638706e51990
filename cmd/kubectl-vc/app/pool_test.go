package app

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/test/builders"
)

var update = flag.Bool("update", false, "write the golden files")

// wantGolden compares what is printed with a file of testdata: go test ./cmd/kubectl-vc/app -update writes them.
func wantGolden(t *testing.T, name, got string) {
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

// superNode returns the virtual Node of a super cluster, which change may change.
func superNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	node := builders.VirtualNode(name, "cpu", "100", "memory", "400Gi", "pods", "1000").Obj()
	node.UID, node.Status.NodeInfo.KubeletVersion = "first", "v1.37.2"
	for _, f := range change {
		f(node)
	}
	return node
}

// says returns a change that sets a condition.
func says(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		condition := corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message}
		if found := nodeCondition(node, kind); found != nil {
			*found = condition
			return
		}
		node.Status.Conditions = append(node.Status.Conditions, condition)
	}
}

// tainted returns a change that adds a taint.
func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

var (
	drains     = tainted("maintenance", corev1.TaintEffectNoExecute)
	silent     = says(corev1.NodeReady, corev1.ConditionUnknown, superclusters.ReasonSuperClusterUnreachable, "no route to host")
	isLeft     = says(schedulerv1alpha1.NodeDrained, corev1.ConditionTrue, superclusters.ReasonDrained, "No namespace is placed here")
	isNotLeft  = says(schedulerv1alpha1.NodeDrained, corev1.ConditionFalse, superclusters.ReasonDraining, "Namespaces that are still placed here: 2")
	hasVolumes = says(schedulerv1alpha1.NodeDrained, corev1.ConditionFalse, superclusters.ReasonVolumesStay, "kept for their volumes: 1")
)

// leaving lets all that a namespace has in its first super cluster leave.
func leaving(np *schedulerv1alpha1.NamespacePlacement, reason schedulerv1alpha1.LeavingReason, missing ...string) *schedulerv1alpha1.NamespacePlacement {
	part := &np.Status.Placements[0]
	part.Slices, part.Leaving = 0, &schedulerv1alpha1.Leaving{Reserved: part.Reserved, Reason: reason, Since: metav1.NewTime(time.Unix(0, 0).UTC())}
	np.Status.Displaced = &schedulerv1alpha1.Displaced{Resources: builders.Resources(missing...)}
	return np
}

func placedIs(np *schedulerv1alpha1.NamespacePlacement, status metav1.ConditionStatus, reason, message string) *schedulerv1alpha1.NamespacePlacement {
	np.Status.Conditions = append(np.Status.Conditions, metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced, Status: status, Reason: reason, Message: message})
	return np
}

const acmeRoot, betaRoot = "tenants-1a2b3c-acme", "tenants-4d5e6f-beta"

// placementsOf returns those of two tenants and of one that is gone.
func placementsOf() []*schedulerv1alpha1.NamespacePlacement {
	quota := []string{"cpu", "4", "memory", "8Gi", "pods", "40"}
	web := builders.Placement(acmeRoot, "web").Slice("cpu", "2", "memory", "4Gi", "pods", "20").Quota(quota...).
		Held("r1", 1, "cpu", "2", "memory", "4Gi", "pods", "20").Held("r2", 1, "cpu", "2", "memory", "4Gi", "pods", "20").Obj()
	batch := builders.Placement(acmeRoot, "batch").Slice("cpu", "1500m", "memory", "1536Mi").Quota("cpu", "15", "memory", "15Gi").Obj()
	data := builders.Placement(betaRoot, "data").Slice(quota...).Quota(quota...).Held("r2", 1, quota...).Held("r1", 1, quota...).Obj()
	stuck := builders.Placement(betaRoot, "stuck").Slice("cpu", "60", "memory", "8Gi").Quota("cpu", "60", "memory", "8Gi").Held("r2", 1, "cpu", "60", "memory", "8Gi").Obj()
	lost := builders.Placement("gone", "old").Slice(quota...).Quota(quota...).Held("r4", 1, quota...).Obj()
	strange := builders.Placement("gone", "strange").Slice(quota...).Quota(quota...).Held("r9", 1, quota...).Obj()
	return []*schedulerv1alpha1.NamespacePlacement{
		leaving(lost, schedulerv1alpha1.LeavingLost), strange,
		placedIs(batch, metav1.ConditionFalse, schedulerv1alpha1.ReasonUnschedulable,
			"0/5 super clusters are available: 2 have too little free for the namespace: cpu, 1 is cordoned, 1 is drained, 1 does not answer\x1b[2J\u202e."),
		placedIs(web, metav1.ConditionTrue, schedulerv1alpha1.ReasonPlaced, "2 of 2 slices"),
		leaving(data, schedulerv1alpha1.LeavingDrained),
		placedIs(leaving(stuck, schedulerv1alpha1.LeavingDrained, "cpu", "60", "memory", "8Gi"), metav1.ConditionFalse, schedulerv1alpha1.ReasonUnschedulable,
			"0/5 super clusters are available: 5 have too little free for the namespace: cpu"),
	}
}

func poolOf() *simulation.Pool {
	gpu := func(node *corev1.Node) { node.Status.Allocatable["nvidia.com/gpu"] = builders.Resources("x", "8")["x"] }
	return &simulation.Pool{Placements: placementsOf(), Nodes: []*corev1.Node{
		superNode("r1", gpu), superNode("r2", drains, isNotLeft), superNode("r3", cordoned, drains, isLeft), superNode("r4", silent),
		superNode("r5", tainted("example.com/gpu", corev1.TaintEffectNoSchedule), func(node *corev1.Node) {
			node.Status.Allocatable = builders.Resources("cpu", "15890m", "memory", "64379560Ki")
		}),
	}}
}

func tenantsOf() []tenancyv1alpha1.VirtualCluster {
	acme := tenant(func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Status.ClusterNamespace, vc.Spec.PolicyName = acmeRoot, "standard"
		vc.Status.Endpoint = "https://acme.example.com:6443"
		vc.CreationTimestamp = metav1.NewTime(today.Add(-50 * time.Hour))
		vc.Status.CertificatesExpire = ptr.To(metav1.NewTime(today.Add(200 * 24 * time.Hour)))
	}, is("Ready"), isNot("UpToDate", "Progressing", "API servers: 1 of 2 are of v1.37.2"), isNot("APIServerReady", "Progressing", "1 of 2 pods is Ready: kube-apiserver-7d8f9c6b5-x2x4z waits for a node with cpu, and has waited for ten minutes"))
	beta := tenant(func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Name, vc.Status.ClusterNamespace, vc.Status.Version, vc.Spec.ClusterVersionName = "beta", betaRoot, "", ""
		vc.CreationTimestamp = metav1.NewTime(today.Add(-5 * time.Minute))
	}, is("Ready"))
	return []tenancyv1alpha1.VirtualCluster{*beta, *acme}
}

var today = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// printed returns what a table prints, and holds that no line moves a cursor or ends in spaces.
func printed(t *testing.T, table func(*simulation.Page)) string {
	t.Helper()
	var out bytes.Buffer
	page := simulation.NewPage(&out)
	table(page)
	require.NoError(t, page.Flush())
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\u202e")
	return out.String()
}

// TestPool: rows of super clusters, who has what in each, and what a program reads of them.
func TestPool(t *testing.T) {
	t.Parallel()
	all := survey(poolOf(), rootsOf(tenantsOf()))
	wantGolden(t, "pool.table", printed(t, func(page *simulation.Page) { printPool(page, all, false) }))
	wantGolden(t, "pool.wide", printed(t, func(page *simulation.Page) { printPool(page, all, true) }))
	for i := range all {
		wantGolden(t, "pool."+all[i].Name, printed(t, func(page *simulation.Page) { printSuperCluster(page, &all[i]) }))
	}
	for _, format := range []output{outputJSON, outputYAML, outputName} {
		var out bytes.Buffer
		c := &cli{IOStreams: genericiooptions.IOStreams{Out: &out}}
		require.NoError(t, c.show(format, poolReport{SuperClusters: all[1:2]}, nodeNames(all), nil))
		wantGolden(t, "pool."+string(format), out.String())
	}
	for i, one := range withoutHoldings(all) {
		require.Empty(t, one.Holdings)
		require.Len(t, all[i].Holdings, one.Namespaces)
	}
}

// TestStatusOfSuperClusters: what STATUS says, by conditions and taints.
func TestStatusOfSuperClusters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node *corev1.Node
		lost bool
		want string
	}{
		"no virtual Node":            {want: "Missing"},
		"it works":                   {node: superNode("r1"), want: "Ready"},
		"no condition yet":           {node: superNode("r1", func(node *corev1.Node) { node.Status.Conditions = nil }), want: "NotReady"},
		"cordoned":                   {node: superNode("r1", cordoned), want: "Ready,cordoned"},
		"draining, not seen":         {node: superNode("r1", drains), want: "Ready,draining"},
		"draining":                   {node: superNode("r1", drains, isNotLeft), want: "Ready,draining"},
		"drained":                    {node: superNode("r1", cordoned, drains, isLeft), want: "Ready,cordoned,Drained"},
		"drained by another taint":   {node: superNode("r1", tainted("example.com/x", corev1.TaintEffectNoExecute), isLeft), want: "Ready,Drained"},
		"drained no more, not seen":  {node: superNode("r1", isLeft), want: "Ready"},
		"its Cluster was deleted":    {node: superNode("r1", says(corev1.NodeReady, corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved, ""), isNotLeft), want: "NotReady,draining"},
		"silent":                     {node: superNode("r1", silent), want: "NotReady"},
		"lost":                       {node: superNode("r1", silent), lost: true, want: "NotReady,lost"},
		"lost, and answers again":    {node: superNode("r1"), lost: true, want: "Ready"},
		"its machines are off":       {node: superNode("r1", silent, tainted(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)), want: "NotReady,lost"},
		"an operator's taint":        {node: superNode("r1", tainted("example.com/gpu", corev1.TaintEffectNoSchedule)), want: "Ready,tainted"},
		"a taint of Kubernetes":      {node: superNode("r1", tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), want: "Ready"},
		"it is too old":              {node: superNode("r1", says(schedulerv1alpha1.NodeVersionSkew, corev1.ConditionTrue, "", ""), tainted(schedulerv1alpha1.TaintVersionSkew, corev1.TaintEffectNoSchedule)), want: "Ready,VersionSkew"},
		"more is reserved than held": {node: superNode("r1", says(schedulerv1alpha1.NodeOvercommitted, corev1.ConditionTrue, "", "")), want: "Ready,Overcommitted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, strings.Join(statusOf(test.node, test.lost), ","))
		})
	}
}

// TestWhyItStays: what is to leave a super cluster says what it waits for.
func TestWhyItStays(t *testing.T) {
	t.Parallel()
	held := func() *schedulerv1alpha1.NamespacePlacement {
		return builders.Placement("a", "b").Slice("cpu", "1").Quota("cpu", "1").Held("r1", 1, "cpu", "1").Obj()
	}
	waits := func(reason schedulerv1alpha1.LeavingReason) *schedulerv1alpha1.NamespacePlacement {
		return leaving(held(), reason, "cpu", "1")
	}
	both := placedIs(leaving(builders.Placement("a", "b").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 1, "cpu", "1").Held("r2", 1, "cpu", "2").Obj(),
		schedulerv1alpha1.LeavingShrunk, "cpu", "1"), metav1.ConditionFalse, "Unschedulable", "too little")
	both.Status.Placements[1].Leaving = &schedulerv1alpha1.Leaving{Reserved: builders.Resources("cpu", "2"), Reason: schedulerv1alpha1.LeavingDrained}
	gives := leaving(held(), schedulerv1alpha1.LeavingPreempted, "cpu", "1")
	gives.Status.Placements[0].Leaving.For = "c/d"
	for name, test := range map[string]struct {
		np   *schedulerv1alpha1.NamespacePlacement
		node *corev1.Node
		want string
	}{
		"no room":                {np: placedIs(waits(schedulerv1alpha1.LeavingDrained), metav1.ConditionFalse, "Unschedulable", "too little"), node: superNode("r1"), want: "it waits for room elsewhere: too little"},
		"no room, and no word":   {np: waits(schedulerv1alpha1.LeavingMoved), node: superNode("r1"), want: "it waits for room elsewhere"},
		"its pods run":           {np: leaving(held(), schedulerv1alpha1.LeavingDrained), node: superNode("r1", drains, isNotLeft), want: "it waits until its pods there have ended"},
		"its volumes are there":  {np: leaving(held(), schedulerv1alpha1.LeavingDrained), node: superNode("r1", drains, hasVolumes), want: "its volumes do not move: its tenant is to delete claims and snapshots"},
		"nobody answers":         {np: leaving(held(), schedulerv1alpha1.LeavingLost), node: superNode("r1", silent), want: "the super cluster does not show what is free there"},
		"the Node is not known":  {np: leaving(held(), schedulerv1alpha1.LeavingDrained), want: "it waits until nothing there uses it"},
		"more than is wanted":    {np: both, node: superNode("r1"), want: "it waits until its pods there have ended"},
		"others are to have it":  {np: gives, node: superNode("r1"), want: "it gives way to c/d when its pods there have ended"},
		"a paused tenant has it": {np: waits(schedulerv1alpha1.LeavingPaused), node: superNode("r1"), want: "it waits until its pods there have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, whyItStays(test.np, test.np.Status.Placements[0].Leaving, test.node))
		})
	}
}
