package example_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/plugins/example"
	"github.com/superpool/superpool/plugins/internal/plugintest"
)

// withArgs is a factory that gets args in the place of those of a profile.
func withArgs(args runtime.Object) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return example.New(ctx, args, handle)
	}
}

var gold = withArgs(&example.ExampleArgs{Label: "tier.example.com/gold"})

func TestArgs(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: p\n" +
		"  plugins: {multiPoint: {enabled: [{name: Example}]}}\n"
	for _, tc := range []struct {
		name, text, want, wantErr string
	}{
		{name: "no pluginConfig", want: example.DefaultLabel},
		{name: "empty args", text: "  pluginConfig: [{name: Example, args: {}}]\n", want: example.DefaultLabel},
		{name: "a label", text: "  pluginConfig: [{name: Example, args: {label: gold}}]\n", want: "gold"},
		{name: "an unknown field", text: "  pluginConfig: [{name: Example, args: {labels: gold}}]\n", wantErr: "unknown field"},
		{name: "another type", text: "  pluginConfig: [{name: Example, args: {label: 1}}]\n", wantErr: "cannot unmarshal"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(head+tc.text), nil, nil)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			for _, c := range object.(*config.KubeSchedulerConfiguration).Profiles[0].PluginConfig {
				if c.Name == example.Name {
					require.Equal(t, tc.want, c.Args.(*example.ExampleArgs).Label)
					return
				}
			}
			t.Fatal("the profile has no args for the plugin")
		})
	}
}

func TestNew(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    runtime.Object
		wantErr string
	}{
		{name: "valid", args: &example.ExampleArgs{Label: "a/b"}},
		{name: "no label", args: &example.ExampleArgs{}, wantErr: "label"},
		{name: "no key of a label", args: &example.ExampleArgs{Label: "a b"}, wantErr: `label "a b"`},
		{name: "none", wantErr: "want *ExampleArgs"},
		{name: "of another plugin", args: &config.NodeAffinityArgs{}, wantErr: "want *ExampleArgs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := example.New(t.Context(), tc.args, nil)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestFilter(t *testing.T) {
	nodes := []*corev1.Node{
		st.MakeNode().Name("r1").Label("tier.example.com/gold", "").Obj(), st.MakeNode().Name("r2").Label("tier.example.com/silver", "").Obj(),
	}
	f := plugintest.NewFramework(t, example.Name, gold, nodes)
	got, status := f.Filter(t.Context(), st.MakePod().Obj())
	require.True(t, status.IsSuccess(), status.Message())
	require.Empty(t, cmp.Diff(map[string]string{"r1": "", "r2": example.ErrReasonNoLabel}, got))
}

func TestHints(t *testing.T) {
	labelled, other := st.MakeNode().Name("r1").Label("tier.example.com/gold", "").Obj(), st.MakeNode().Name("r1").Obj()
	f := plugintest.NewFramework(t, example.Name, gold, nil)
	for name, tc := range map[string]struct {
		action        fwk.ActionType
		before, after any
		want          plugintest.Hint
	}{
		"a cluster with the label came":    {fwk.Add, nil, labelled, plugintest.Queues},
		"a cluster without it came":        {fwk.Add, nil, other, plugintest.Skips},
		"a cluster was labelled":           {fwk.UpdateNodeLabel, other, labelled, plugintest.Queues},
		"an object of another kind":        {fwk.Add, nil, &corev1.Pod{}, plugintest.Queues},
		"a capacity changed: not our case": {fwk.UpdateNodeAllocatable, other, labelled, plugintest.Sleeps},
	} {
		t.Run(name, func(t *testing.T) {
			event := fwk.ClusterEvent{Resource: fwk.Node, ActionType: tc.action}
			require.Equal(t, tc.want, f.Hint(t, example.Name, event, st.MakePod().Obj(), tc.before, tc.after))
		})
	}
}
