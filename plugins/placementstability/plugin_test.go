package placementstability_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/placementstability"
)

func nodes() []*corev1.Node {
	return []*corev1.Node{st.MakeNode().Name("r1").Obj(), st.MakeNode().Name("r2").Obj(), st.MakeNode().Name("r3").Obj()}
}

func TestScore(t *testing.T) {
	tests := map[string]struct {
		held    string
		want    map[string]int64
		wantErr string
	}{
		"nothing held: skipped":            {held: ""},
		"one used":                         {held: "r2=1", want: map[string]int64{"r1": 0, "r2": 100, "r3": 0}},
		"two used, however much":           {held: "r1=1,r3=900", want: map[string]int64{"r1": 100, "r2": 0, "r3": 100}},
		"used in a cluster that is gone":   {held: "r9=1", want: map[string]int64{"r1": 0, "r2": 0, "r3": 0}},
		"listed without a slice":           {held: "r1=0", want: map[string]int64{"r1": 0, "r2": 0, "r3": 0}},
		"no number":                        {held: "r1=", wantErr: "is not a number"},
		"another type":                     {held: `["r1"]`, wantErr: "is not a number"},
		"a negative number":                {held: "r1=-1", wantErr: `"-1" of "r1" is not a number from zero on`},
		"a number that no cluster reaches": {held: "r1=99999999999", wantErr: "is not a number"},
		"a cluster without a name":         {held: "=1", wantErr: "names nothing"},
		"too long to read":                 {held: strings.Repeat("r", 1<<19) + "=1", wantErr: "longer than"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, placementstability.Name, placementstability.New, nodes())
			got, status := f.Score(t.Context(), st.MakePod().Annotation(slicepod.AnnotationHeld, tc.held).Obj())
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

func TestScoreWithoutPreScore(t *testing.T) {
	f := plugintest.NewFramework(t, placementstability.Name, placementstability.New, nodes())
	_, status := f.ScoreIn(t.Context(), framework.NewCycleState(), st.MakePod().Obj())
	require.Equal(t, fwk.Error, status.Code())
	require.ErrorIs(t, status.AsError(), fwk.ErrNotFound)
}
