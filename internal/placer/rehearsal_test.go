package placer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// wanting is a namespace that wants so many thousandths of a core in slices of 100m, and holds some.
func wanting(tenant string, cpu string, held ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement(tenant, "web").UID(types.UID(tenant)).Slice("cpu", "100m").Quota("cpu", cpu).Placements(held...).Obj()
	return np
}

func rehearse(t *testing.T, r *Rehearsal) map[string]string {
	t.Helper()
	r.Config = defaultConfig(t)
	outcomes, err := r.Run(schedulertest.Context(t))
	require.NoError(t, err)
	require.Len(t, outcomes, len(r.Placements))
	got := map[string]string{}
	for i, outcome := range outcomes {
		require.Equal(t, r.Placements[i].Namespace, outcome.Placement.Namespace)
		got[outcome.Placement.Namespace] = placement.Encode(outcome.Placement.Status.Placements)
		if !outcome.Why.IsZero() {
			got[outcome.Placement.Namespace] += outcome.Why.Message
		}
	}
	return got
}

func TestRehearsal(t *testing.T) {
	nodes := []*corev1.Node{virtualNode("r1", "400m", "8Gi"), virtualNode("r2", "250m", "8Gi")}
	held := builders.HeldSlices("r1", 2, "cpu", "200m")
	placed := wanting("a-placed", "200m", held)
	before := placed.DeepCopy()
	got := rehearse(t, &Rehearsal{Nodes: nodes, Placements: []*schedulerv1alpha1.NamespacePlacement{
		wanting("e-nothing", "0"), placed, wanting("b-fits", "200m"), wanting("c-not", "300m"), wanting("d-after", "100m"),
	}})
	require.Empty(t, cmp.Diff(map[string]string{
		"a-placed": `{"r1":2}`, "b-fits": `{"r1":1,"r2":1}`, "d-after": `{"r2":1}`, "e-nothing": "",
		"c-not": "0/2 super clusters are available: 2 together have too little free for the namespace: 300m cpu",
	}, got))
	require.Empty(t, cmp.Diff(before, placed), "what is handed in is not changed")
}

// TestRehearsalIsTheSameTwice has namespaces that are refused after slices of theirs were held, beside others of the
// same tenants that then fit.
func TestRehearsalIsTheSameTwice(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 10 {
		nodes = append(nodes, virtualNode(fmt.Sprintf("r%d", i), "290m", "8Gi"))
	}
	var placements []*schedulerv1alpha1.NamespacePlacement
	for i := range 30 {
		np := wanting(fmt.Sprintf("tenant-%d", i%3), fmt.Sprintf("%dm", 100*(1+i%4)))
		np.Name = fmt.Sprintf("ns-%02d", i)
		np.UID = types.UID(np.Name)
		if i == 7 {
			np.Spec.Slice, np.Spec.Quota = builders.Resources("cpu", "200m"), builders.Resources("cpu", "2200m") // 11 slices, and 10 fit
		}
		placements = append(placements, np)
	}
	run := func(t *testing.T) string {
		outcomes, err := (&Rehearsal{Config: defaultConfig(t), Nodes: nodes, Placements: placements}).Run(schedulertest.Context(t))
		require.NoError(t, err)
		text := ""
		reserved := slice.Amounts{}
		for _, outcome := range outcomes {
			text += outcome.Placement.Name + placement.Encode(outcome.Placement.Status.Placements) + outcome.Why.Message + "\n"
			reserved = reserved.Plus(placement.Reserved(outcome.Placement.Status.Placements))
		}
		require.EqualValues(t, 2000, reserved["cpu"], "nothing is lost to those that are refused")
		return text
	}
	want := run(t)
	require.Contains(t, want, "ns-070/10 super clusters are available")
	for range 4 {
		schedulertest.Bubble(t, func(t *testing.T) {
			start := time.Now()
			require.Empty(t, cmp.Diff(want, run(t)))
			require.Less(t, time.Since(start), time.Second, "no backoff is waited for")
		})
	}
}

func TestRehearsalOfOne(t *testing.T) {
	waiting := wanting("waits", "100m")
	got := rehearse(t, &Rehearsal{
		Nodes:      []*corev1.Node{virtualNode("r1", "400m", "8Gi")},
		Placements: []*schedulerv1alpha1.NamespacePlacement{waiting, wanting("asked", "400m")},
		Tried:      func(np *schedulerv1alpha1.NamespacePlacement) bool { return np.Namespace == "asked" },
	})
	require.Equal(t, map[string]string{"waits": "", "asked": `{"r1":4}`}, got)
}

// TestRehearsalOfARequest: when a request is refused, what the quota has grown by is tried.
func TestRehearsalOfARequest(t *testing.T) {
	nodes := []*corev1.Node{virtualNode("r1", "200m", "8Gi"), virtualNode("r2", "100m", "8Gi")}
	for name, tc := range map[string]struct{ cpu, request, want string }{
		"granted":                       {cpu: "300m", request: `{"r1":2,"r2":1}`, want: `{"r1":2,"r2":1}`},
		"refused, and growth fits":      {cpu: "300m", request: `{"r2":3}`, want: `{"r1":2,"r2":1}`},
		"refused, and nothing lacks":    {cpu: "200m", request: `{"r2":2}`, want: `{"r1":2}super cluster r2: has too little free cpu`},
		"refused, and so is growth":     {cpu: "400m", request: `{"r2":4}`, want: `{"r1":2}0/2 super clusters are available: 2 together have too little free for the namespace: 200m cpu`},
		"refused: there is no such one": {cpu: "300m", request: `{"r9":3}`, want: `{"r1":2,"r2":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			np := wanting("asks", tc.cpu, builders.HeldSlices("r1", 2, "cpu", "200m"))
			next, refused := placement.Ask(np, tc.request, time.Minute, time.Now())
			require.Empty(t, refused)
			np.Status = next
			require.Equal(t, map[string]string{"asks": tc.want}, rehearse(t, &Rehearsal{Nodes: nodes, Placements: []*schedulerv1alpha1.NamespacePlacement{np}}))
		})
	}
}

// TestRehearsalLeavesNothingInMetrics: kube-scheduler's metrics are those of the process, in which the leader's own
// Placer works.
func TestRehearsalLeavesNothingInMetrics(t *testing.T) {
	pending := func() map[string]float64 {
		families, err := legacyregistry.DefaultGatherer.Gather()
		require.NoError(t, err)
		values := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if family.GetName() == "scheduler_pending_pods" {
					values[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
				}
			}
		}
		return values
	}
	whole := &Rehearsal{
		Nodes: []*corev1.Node{virtualNode("r1", "400m", "8Gi")},
		Placements: []*schedulerv1alpha1.NamespacePlacement{
			wanting("fits", "200m"), wanting("not", "500m"), wanting("neither", "300m"), wanting("held", "100m", builders.HeldSlices("r1", 1, "cpu", "100m")),
		},
	}
	rehearse(t, whole)
	before := pending()
	require.Contains(t, before, "unschedulable")
	for range 10 {
		rehearse(t, whole)
	}
	require.Empty(t, cmp.Diff(before, pending()))

	ended := &Rehearsal{Config: defaultConfig(t), Nodes: whole.Nodes, Placements: whole.Placements}
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	cancel()
	_, err := ended.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, cmp.Diff(before, pending()))
}
