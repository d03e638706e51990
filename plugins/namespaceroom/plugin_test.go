package namespaceroom_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/namespaceroom"
)

// holding returns a Node of the pod view where a namespace holds cpu and memory.
func holding(name, namespace, cpu, memory string) *corev1.Node {
	return st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{
		slicepod.Resource(corev1.ResourceCPU, namespace): cpu, slicepod.Resource(corev1.ResourceMemory, namespace): memory,
	}).Obj()
}

func TestScore(t *testing.T) {
	both := []config.ResourceWeight{{Name: corev1.ResourceCPU, Weight: 1}, {Name: corev1.ResourceMemory, Weight: 1}}
	pod := st.MakePod().Namespace("web").Name("p").Req(map[corev1.ResourceName]string{
		slicepod.Resource(corev1.ResourceCPU, "web"): "100", slicepod.Resource(corev1.ResourceMemory, "web"): "100",
	}).Obj()
	nodes := []*corev1.Node{
		holding("large", "web", "1000", "400"), holding("full", "web", "100", "100"), holding("lopsided", "web", "1000", "0"), holding("other", "api", "1000", "1000"),
	}
	for name, tc := range map[string]struct {
		args config.NamespaceRoomArgs
		want map[string]int64
	}{
		"spread":   {config.NamespaceRoomArgs{Strategy: config.RoomSpread, Resources: both}, map[string]int64{"large": 82, "full": 0, "lopsided": 90, "other": 0}},
		"pack":     {config.NamespaceRoomArgs{Strategy: config.RoomPack, Resources: both}, map[string]int64{"large": 17, "full": 100, "lopsided": 9, "other": 0}},
		"one":      {config.NamespaceRoomArgs{Strategy: config.RoomSpread, Resources: both[:1]}, map[string]int64{"large": 90, "full": 0, "lopsided": 90, "other": 0}},
		"weighted": {config.NamespaceRoomArgs{Strategy: config.RoomSpread, Resources: []config.ResourceWeight{both[0], {Name: corev1.ResourceMemory, Weight: 2}}}, map[string]int64{"large": 80, "full": 0, "lopsided": 90, "other": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, namespaceroom.Name, func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
				return namespaceroom.New(ctx, &tc.args, handle)
			}, nodes)
			got, status := f.Score(t.Context(), pod)
			require.True(t, status.IsSuccess(), status.Message())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNew(t *testing.T) {
	_, err := namespaceroom.New(t.Context(), nil, nil)
	require.EqualError(t, err, "args are of type <nil>, want *NamespaceRoomArgs")
	_, err = namespaceroom.New(t.Context(), &config.NamespaceRoomArgs{}, nil)
	require.ErrorContains(t, err, "strategy: Unsupported value")
}
