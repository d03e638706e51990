package slicepack_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/slicepack"
)

func node(name, cpu string) *corev1.Node {
	return st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{"cpu": cpu, "memory": "1Ti"}).Obj()
}

func sliceOf(size, held, name string) *corev1.Pod {
	return st.MakePod().Name(name).UID(name).Req(map[corev1.ResourceName]string{"cpu": "1"}).
		Annotation(slicepod.AnnotationGang, "a").Annotation(slicepod.AnnotationGangSize, size).Annotation(slicepod.AnnotationHeld, held).Obj()
}

// noCommitter is for gangs that only reserve.
type noCommitter struct{}

func (noCommitter) Commit(context.Context, string, []namespacegang.Assignment) error { return nil }

func TestScore(t *testing.T) {
	t.Parallel()
	nodes := []*corev1.Node{node("r1", "0"), node("r2", "2"), node("r3", "4"), node("r4", "100")}
	for name, tc := range map[string]struct {
		size, held string
		assigned   []string
		want       map[string]int64
		wantErr    string
	}{
		"all that hold the rest are equal": {size: "2", want: map[string]int64{"r1": 0, "r2": 99, "r3": 99, "r4": 99}},
		"a part of it":                     {size: "8", want: map[string]int64{"r1": 0, "r2": 24, "r3": 49, "r4": 99}},
		"one that is used comes first":     {size: "8", held: "r2=1,r9=1", want: map[string]int64{"r1": 0, "r2": 100, "r3": 49, "r4": 99}},
		"one that was used does not":       {size: "1", held: "r1=0", want: map[string]int64{"r1": 0, "r2": 99, "r3": 99, "r4": 99}},
		"this decision counts":             {size: "6", assigned: []string{"r1", "r1"}, want: map[string]int64{"r1": 100, "r2": 49, "r3": 99, "r4": 99}},
		"no number":                        {size: "1", held: "r1", wantErr: "is not a number"},
		"no size":                          {size: "0", wantErr: "is not a number above zero"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gangs := namespacegang.NewState()
			f := plugintest.NewFramework(t, slicepack.Name, slicepack.New(gangs), nodes)
			gang, err := namespacegang.New(noCommitter{}, gangs)(t.Context(), &config.NamespaceGangArgs{PermitWaitingTimeSeconds: 30}, f)
			require.NoError(t, err)
			for i, cluster := range tc.assigned {
				status := gang.(fwk.ReservePlugin).Reserve(t.Context(), nil, sliceOf(tc.size, "", fmt.Sprint(i)), cluster)
				require.True(t, status.IsSuccess())
			}
			got, status := f.Score(t.Context(), sliceOf(tc.size, tc.held, "next"))
			if tc.wantErr != "" {
				require.Equal(t, fwk.Error, status.Code())
				require.Contains(t, status.Message(), tc.wantErr)
				return
			}
			require.True(t, status.IsSuccess(), status.Message())
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}
