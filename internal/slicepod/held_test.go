package slicepod_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

func standingFor(text string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{slicepod.AnnotationSlices: text}}}
}

func TestRuns(t *testing.T) {
	t.Parallel()
	held := []slice.Run{{Size: slice.Amounts{"cpu": 2000, "nvidia.com/gpu": 1}, Count: 3}, {Size: slice.Amounts{"cpu": 500}, Count: 1}}
	require.Equal(t, "3*cpu=2000,nvidia.com%2Fgpu=1;1*cpu=500", slicepod.EncodeRuns(held))
	slices := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: slicepod.Requests(slice.Amounts{"cpu": 500, "pods": 5}),
	}}}}}
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		want    []slice.Run
		wantErr string
	}{
		{name: "those that it holds", pod: standingFor(slicepod.EncodeRuns(held)), want: held},
		{name: "it holds none", pod: standingFor("")},
		{name: "a slice", pod: slices, want: []slice.Run{{Size: slice.Amounts{"cpu": 500, "pods": 5}, Count: 1}}},
		{name: "no number", pod: standingFor("*cpu=1"), wantErr: `"" is not a number`},
		{name: "none of a size", pod: standingFor("0*cpu=1"), wantErr: `"0" is not a number`},
		{name: "beyond any pool", pod: standingFor("4294967297*cpu=1"), wantErr: "is not a number above zero"},
		{name: "a negative size", pod: standingFor("1*cpu=-1"), wantErr: "is not a number from zero on"},
		{name: "a separator too many", pod: standingFor("1*cpu=1;"), wantErr: "is not a number above zero"},
		{name: "endless", pod: standingFor(strings.Repeat("1*cpu=1;", 1<<17)), wantErr: "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := slicepod.Runs(tc.pod)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
	require.Equal(t, "4294967296*cpu=1", slicepod.EncodeRuns([]slice.Run{{Size: slice.Amounts{"cpu": 1}, Count: slice.MaxAmount}}))
}

func FuzzRuns(f *testing.F) {
	f.Add("3*cpu=2000,nvidia.com%2Fgpu=1;1*cpu=500")
	f.Add(";*=")
	f.Fuzz(func(t *testing.T, text string) {
		runs, err := slicepod.Runs(standingFor(text))
		if err != nil {
			return
		}
		again, err := slicepod.Runs(standingFor(slicepod.EncodeRuns(runs)))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(runs, again))
	})
}
