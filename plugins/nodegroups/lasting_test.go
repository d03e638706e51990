package nodegroups_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	internal "github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/nodegroups"
)

// TestWhatLastsIsNotOld: a plugin that has judged many pods before, while others came, went and changed, says of each
// what one says that begins with it.
func TestWhatLastsIsNotOld(t *testing.T) {
	handle := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), nil)
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it is to be the same every time
		var objects []*corev1.Node
		nodes := map[string]*framework.NodeInfo{}
		for _, name := range []string{"r1", "r2"} {
			node := withGroups(`{"groups":[{"nodes":2,"labels":{"zone":"` + name + `a"}},{"nodes":1,"labels":{"zone":"` + name + `b"}}]}`)
			node.Name = name
			objects = append(objects, node)
			nodes[name] = framework.NewNodeInfo()
			nodes[name].SetNode(node)
		}
		begin := func() *nodegroups.NodeGroups {
			plugin, err := nodegroups.New(nil)(t.Context(), nil, handle)
			require.NoError(t, err)
			return plugin.(*nodegroups.NodeGroups)
		}
		old := begin()
		refused := 0
		for step := range 300 {
			on := nodes[objects[random.IntN(2)].Name]
			switch pods := on.GetPods(); {
			case random.IntN(3) == 0 && len(pods) > 0:
				require.NoError(t, on.RemovePod(klog.Background(), pods[random.IntN(len(pods))].GetPod()))
			default:
				on.AddPod(randomPod(random, step))
			}
			wanted := randomPod(random, 1000+step)
			judge := func(pl *nodegroups.NodeGroups) (said []string) {
				infos, state := []fwk.NodeInfo{nodes["r1"], nodes["r2"]}, framework.NewCycleState()
				_, status := pl.PreFilter(t.Context(), state, wanted, infos)
				require.True(t, status.IsSuccess(), status.Message())
				for _, node := range infos {
					message := pl.Filter(t.Context(), state, wanted, node).Message()
					said = append(said, message)
					if message != "" {
						refused++
					}
				}
				return said
			}
			require.Equal(t, judge(begin()), judge(old), "seed %d, step %d", seed, step)
		}
		require.Greater(t, refused, 20)
	}
}

// randomPod is one of two apps, which may avoid an app, or spread.
func randomPod(random *rand.Rand, number int) *corev1.Pod {
	app := fmt.Sprint("app-", random.IntN(2))
	pod := st.MakePod().Namespace("web").Name(fmt.Sprint(number)).UID(fmt.Sprint(number)).Label("app", app).Obj()
	if random.IntN(2) == 0 {
		pod.Annotations = map[string]string{internal.AnnotationBoundNode: fmt.Sprint("n", random.IntN(3))}
	}
	if random.IntN(2) == 0 {
		pod.Spec.Affinity = avoiding(app)
	}
	if random.IntN(2) == 0 {
		selectors := []*metav1.LabelSelector{metav1.SetAsLabelSelector(map[string]string{"app": app}), nil, {}}
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selectors[random.IntN(3)],
		}}
	}
	return pod
}
