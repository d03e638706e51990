package scheduling

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// TestForecastsByKubectl asks about a pool that works, and orders moves in it, with the rights that the helps of the verbs name.
func TestForecastsByKubectl(t *testing.T) {
	w := shared
	w.run(t)
	o := w.operator(t)
	w.placeIn(t, "r1", "fuller", "50", "10Gi")
	w.namespace(t, "spread", `{"cpu":"10","memory":"1Gi"}`)
	w.quota(t, "spread", "20", "2Gi")
	w.wantShown(t, "spread", `{"r1":1,"r2":1}`)
	w.namespace(t, "toolarge", `{"cpu":"95","memory":"1Gi"}`)
	w.quota(t, "toolarge", "95", "1Gi")
	w.wantCondition(t, "toolarge", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonUnschedulable)
	w.pod(t, "spread", "fast", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"disk": "fast"} })
	versions := func() map[string]string {
		found := map[string]string{}
		for _, name := range []string{"fuller", "spread", "toolarge"} {
			found[name] = w.placement(t, name).ResourceVersion
		}
		return found
	}
	before := versions()

	for _, tc := range []struct {
		name string
		args string
		code int
		want []string
	}{
		{name: "explain what is placed", args: "explain spread --tenant tenant", want: []string{"r1", "r2", "Nothing is missing"}},
		{name: "explain what waits", args: "explain toolarge -n " + w.key, code: 3, want: []string{"r1", "r2", "larger than any free piece: the largest is cpu=", "It is number 1 of 1"}},
		{name: "explain what is not there", args: "explain nothing -n " + w.key, code: 1, want: []string{"there is no NamespacePlacement " + w.key + "/nothing: "}},
		{name: "explain to nobody", args: "explain spread -t nobody", code: 1, want: []string{`"nobody" not found in namespace default`}},
		{name: "explain a pod of the tenant", args: "explain spread -t tenant --pod-name fast", want: []string{"may run in no super cluster", "r1: no node with disk=fast, where the namespace has 1 slices"}},
		{name: "explain a pod that is not there", args: "explain spread -t tenant --pod-name slow", code: 1, want: []string{`pods "slow" not found`}},
		{name: "simulate", args: "simulate --drain r1", code: 3, want: []string{"fuller", "spread", "toolarge"}},
		{name: "simulate what is not there", args: "simulate --drain r3", code: 1, want: []string{"--drain: there is no super cluster r3"}},
		{name: "rebalance", args: "rebalance --dry-run", want: []string{"spread"}},
		{name: "rebalance, as the API server sees it", args: "rebalance --dry-run=server", want: []string{"spread", "1 move ordered (server dry run)"}},
		{name: "complete namespaces", args: "__complete explain --tenant tenant s", want: []string{"fuller", "spread", "toolarge"}},
		{name: "complete tenants", args: "__complete explain spread --tenant t", want: []string{"tenant"}},
		{name: "complete super clusters", args: "__complete simulate --drain r", want: []string{"r1", "r2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			printed, said, code := o.vc(t, strings.Fields(tc.args)...)
			require.Equal(t, tc.code, code, printed+said)
			for _, want := range tc.want {
				require.Contains(t, printed+said, want)
			}
		})
	}
	require.Empty(t, cmp.Diff(before, versions()), "nobody has written")

	printed, said, code := o.vc(t, "rebalance")
	require.Zero(t, code, printed+said)
	w.wantShown(t, "spread", `{"r1":2}`)
	w.wantEvent(t, "ResourceQuota", "spread/quota", "Moving")
	w.superQuota(t, "r2", "spread", "0", "0") // the syncer's answer: without it vc-scheduler waits for ten seconds
	w.wantShown(t, "toolarge", `{"r2":1}`)    // what the piece was for
}
