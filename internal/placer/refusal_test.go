package placer

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/plugins/namespacegang"
)

func TestRefusalOf(t *testing.T) {
	t.Parallel()
	rejected := func(plugin string, reasons ...string) *fwk.Status {
		return fwk.NewStatus(fwk.Unschedulable, reasons...).WithPlugin(plugin)
	}
	unfit := func(nodes int, preFilter string, absent *fwk.Status, explicit map[string]*fwk.Status) *fwk.Status {
		diagnosis := framework.Diagnosis{PreFilterMsg: preFilter, NodeToStatus: framework.NewNodeToStatus(explicit, absent)}
		err := &framework.FitError{Pod: &corev1.Pod{}, NumAllNodes: nodes, Diagnosis: diagnosis}
		return fwk.NewStatus(fwk.Unschedulable).WithError(err)
	}
	unresolvable := fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	for name, tc := range map[string]struct {
		status  *fwk.Status
		want    Refusal
		refused bool
	}{
		"success":        {status: nil},
		"an error":       {status: fwk.AsStatus(errors.New("the write was lost"))},
		"released":       {status: rejected(namespacegang.Name, namespacegang.ErrReasonReleased)},
		"no clusters":    {status: fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(scheduler.ErrNoNodesAvailable), want: Refusal{Message: scheduler.ErrNoNodesAvailable.Error()}, refused: true},
		"by one plugin":  {status: rejected("P", "no"), want: Refusal{Message: "no"}, refused: true},
		"without reason": {status: unfit(2, "", unresolvable, nil), want: Refusal{Message: "0/2 nodes are available:"}, refused: true},
		"by a PreFilter": {
			status:  unfit(2, "too large", rejected("Gang", "too large"), nil),
			want:    Refusal{Message: "0/2 nodes are available: too large.", Clusters: []ClusterReason{{Plugin: "Gang", Reason: "too large"}}},
			refused: true,
		},
		"by Filters": {
			status: unfit(3, "", unresolvable, map[string]*fwk.Status{
				"r2": rejected("Taints", "tainted"), "r3": rejected("Fit", "no memory", "no cpu"), "r1": rejected("Fit", "no cpu"),
			}),
			want: Refusal{
				Message: "0/3 nodes are available: 1 no memory, 1 tainted, 2 no cpu.",
				Clusters: []ClusterReason{
					{"r1", "Fit", "no cpu"}, {"r2", "Taints", "tainted"}, {"r3", "Fit", "no memory"}, {"r3", "Fit", "no cpu"},
				},
			},
			refused: true,
		},
		"by a Filter, and a PreFilter that left one": {
			status: unfit(3, "", rejected("Affinity", "elsewhere"), map[string]*fwk.Status{"r2": rejected("Fit", "no cpu")}),
			want: Refusal{
				Message:  "0/3 nodes are available: 1 no cpu, 2 elsewhere.",
				Clusters: []ClusterReason{{"", "Affinity", "elsewhere"}, {"r2", "Fit", "no cpu"}},
			},
			refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, refused := refusalOf(tc.status)
			require.Equal(t, tc.refused, refused)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}
