package slicespread_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/slicespread"
)

func nodes() []*corev1.Node {
	return []*corev1.Node{st.MakeNode().Name("r1").Obj(), st.MakeNode().Name("r2").Obj(), st.MakeNode().Name("r3").Obj()}
}

func sliceOf(gang, held, name string) *corev1.Pod {
	return st.MakePod().Name(name).UID(gang+"/"+name).
		Annotation(slicepod.AnnotationGang, gang).Annotation(slicepod.AnnotationHeld, held).Obj()
}

// noCommitter is for gangs that only reserve.
type noCommitter struct{}

func (noCommitter) Commit(context.Context, string, []namespacegang.Assignment) error { return nil }

// reserve does what kube-scheduler does with a slice that found a cluster.
func reserve(t *testing.T, gangs *namespacegang.State) fwk.ReservePlugin {
	plugin, err := namespacegang.New(noCommitter{}, gangs)(t.Context(), &config.NamespaceGangArgs{PermitWaitingTimeSeconds: 30}, plugintest.NewFramework(t, slicespread.Name, slicespread.New(gangs), nil))
	require.NoError(t, err)
	return plugin.(fwk.ReservePlugin)
}

func TestScore(t *testing.T) {
	type reserved map[string][]string // clusters of slices, by gang
	tests := map[string]struct {
		held     string
		reserved reserved
		want     map[string]int64
		wantErr  string
	}{
		"nothing yet":                  {want: map[string]int64{"r1": 100, "r2": 100, "r3": 100}},
		"one slice is one point":       {held: "r1=1,r2=2", want: map[string]int64{"r1": 99, "r2": 98, "r3": 100}},
		"only differences count":       {held: "r1=500,r2=501,r3=503", want: map[string]int64{"r1": 100, "r2": 99, "r3": 97}},
		"a hundred more are zero":      {held: "r1=99,r2=100", want: map[string]int64{"r1": 1, "r2": 0, "r3": 100}},
		"beyond a hundred all is zero": {held: "r1=101,r2=2147483647", want: map[string]int64{"r1": 0, "r2": 0, "r3": 100}},
		"a cluster that is no candidate does not count": {
			held: "r1=1,r2=1,r3=2,r9=70", want: map[string]int64{"r1": 100, "r2": 100, "r3": 99},
		},
		"a decision in the making counts": {
			reserved: reserved{"a": {"r1", "r1", "r2"}}, want: map[string]int64{"r1": 98, "r2": 99, "r3": 100},
		},
		"another namespace's does not": {
			reserved: reserved{"b": {"r1", "r1", "r2"}}, want: map[string]int64{"r1": 100, "r2": 100, "r3": 100},
		},
		"held and reserved add up": {
			held: "r1=2,r2=1", reserved: reserved{"a": {"r2", "r3"}}, want: map[string]int64{"r1": 99, "r2": 99, "r3": 100},
		},
		"no number":         {held: "r1", wantErr: "is not a number"},
		"a negative number": {held: "r1=-5", wantErr: `"-5" of "r1" is not a number from zero on`},
		"a fraction":        {held: "r1=1.5", wantErr: "is not a number"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gangs := namespacegang.NewState()
			for gang, clusters := range tc.reserved {
				for i, cluster := range clusters {
					require.True(t, reserve(t, gangs).Reserve(t.Context(), nil, sliceOf(gang, "", fmt.Sprint(i)), cluster).IsSuccess())
				}
			}
			f := plugintest.NewFramework(t, slicespread.Name, slicespread.New(gangs), nodes())
			got, status := f.Score(t.Context(), sliceOf("a", tc.held, "next"))
			if tc.wantErr != "" {
				require.Equal(t, fwk.Error, status.Code())
				require.Contains(t, status.Message(), tc.wantErr)
				return
			}
			require.True(t, status.IsSuccess(), status.Message())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScoreForgetsWhatWasReleased(t *testing.T) {
	gangs := namespacegang.NewState()
	plugin := reserve(t, gangs)
	f := plugintest.NewFramework(t, slicespread.Name, slicespread.New(gangs), nodes())
	released, next := sliceOf("a", "", "released"), sliceOf("a", "", "next")
	for _, step := range []struct {
		do   func()
		want int64
	}{
		{func() { plugin.Reserve(t.Context(), nil, released, "r1") }, 99},
		{func() { plugin.Unreserve(t.Context(), nil, released, "r1") }, 100},
	} {
		step.do()
		got, status := f.Score(t.Context(), next)
		require.True(t, status.IsSuccess(), status.Message())
		require.Equal(t, step.want, got["r1"])
	}
}

func TestScoreWithoutPreScore(t *testing.T) {
	f := plugintest.NewFramework(t, slicespread.Name, slicespread.New(namespacegang.NewState()), nodes())
	_, status := f.ScoreIn(t.Context(), framework.NewCycleState(), st.MakePod().Obj())
	require.Equal(t, fwk.Error, status.Code())
	require.ErrorIs(t, status.AsError(), fwk.ErrNotFound)
}
