package plugins_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/imagelocality"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	pluginargs "github.com/superpool/superpool/apis/config"
	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/nodegroups"
	"github.com/superpool/superpool/plugins/nodenameorder"
	"github.com/superpool/superpool/plugins/placementstability"
	"github.com/superpool/superpool/plugins/slicespread"
)

// The benchmarks of one extension point run our plugins and those of kube-scheduler over the same nodes, so that
// `benchstat -col /plugin` puts them side by side. One operation is the work for one slice or pod and all super
// clusters.

// bench is a namespace view with its plugins.
type bench struct {
	*plugintest.Framework
	b        *testing.B
	registry frameworkruntime.Registry
	// next is a slice in the queue whose gang has so many others reserved.
	next *corev1.Pod
}

// committer accepts every decision.
type committer struct{}

func (committer) Commit(context.Context, string, []namespacegang.Assignment) error { return nil }

func newBench(b *testing.B, clusters, slices int) *bench {
	b.Helper()
	nodes := make([]*corev1.Node, clusters)
	held := make([]string, 0, clusters)
	for i := range nodes {
		name := fmt.Sprintf("r%03d", i)
		nodes[i] = st.MakeNode().Name(name).
			Annotation(schedulerv1alpha1.AnnotationNodeGroups, `{"groups":[{"nodes":9,"shapes":[{"cpu":"4","memory":"16Gi"},{"cpu":"8","memory":"32Gi"},{"cpu":"16","memory":"64Gi"}]}]}`).
			Capacity(map[corev1.ResourceName]string{
				"cpu": "1000", "memory": "4Ti", "pods": "2147483647",
				"cpu" + slicepod.ResourceSuffix + "/tenant":    "1000",
				"memory" + slicepod.ResourceSuffix + "/tenant": "1000",
			}).
			Images(map[string]int64{"image": 100 << 20}).Obj()
		if i%2 == 0 {
			held = append(held, name+"=1")
		}
	}
	s := &bench{b: b, registry: plugins.Registry(plugins.Options{Committer: committer{}})}
	require.NoError(b, s.registry.Register(noderesources.Name, func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		resources := []config.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
		args := &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{Type: config.LeastAllocated, Resources: resources}}
		return noderesources.NewFit(ctx, args, handle, feature.Features{EnableInPlacePodVerticalScaling: true})
	}))
	require.NoError(b, s.registry.Register(imagelocality.Name, imagelocality.New))
	s.Framework = plugintest.NewStandaloneFramework(b, namespacegang.Name, s.registry[namespacegang.Name], nil, nodes)
	gang := s.gang(slices + 1)
	for i, pod := range gang[1:] {
		require.True(b, s.RunReservePluginsReserve(b.Context(), framework.NewCycleState(), pod, nodes[i%clusters].Name).IsSuccess())
	}
	s.next = gang[0]
	s.next.Annotations[slicepod.AnnotationHeld] = strings.Join(held, ",")
	return s
}

func (s *bench) gang(size int) []*corev1.Pod {
	pods := make([]*corev1.Pod, size)
	for i := range pods {
		name := fmt.Sprintf("web.slice.%04d", i)
		pods[i] = st.MakePod().Namespace("tenant").Name(name).UID(name).
			Annotation(slicepod.AnnotationGang, "tenant/web@1").
			Annotation(slicepod.AnnotationGangSize, fmt.Sprint(size)).
			Annotation(slicepod.AnnotationGangTotal, "cpu=1000,memory=1073741824").
			Containers([]corev1.Container{st.MakeContainer().Name("slice").Image("image").
				ResourceRequests(map[corev1.ResourceName]string{"cpu": "100m", "memory": "100Mi"}).Obj()}).Obj()
	}
	return pods
}

func (s *bench) plugin(name string) fwk.Plugin {
	var args runtime.Object
	if name == namespacegang.Name {
		args = &pluginargs.NamespaceGangArgs{PermitWaitingTimeSeconds: 30}
	}
	plugin, err := s.registry[name](s.b.Context(), args, s)
	require.NoError(s.b, err)
	return plugin
}

// run runs a sub-benchmark for each size that matters to the plugin: super clusters, and slices of the gang that are
// reserved.
func run(b *testing.B, name string, operation func(b *testing.B, s *bench)) {
	slices := []int{0}
	if name == namespacegang.Name || name == slicespread.Name {
		slices = []int{0, 10, 1000}
	}
	for _, clusters := range []int{10, 100} {
		for _, reserved := range slices {
			title := fmt.Sprintf("plugin=%s/clusters=%d", name, clusters)
			if len(slices) > 1 {
				title += fmt.Sprintf("/slices=%d", reserved)
			}
			b.Run(title, func(b *testing.B) {
				s := newBench(b, clusters, reserved)
				b.ReportAllocs()
				operation(b, s)
			})
		}
	}
}

func BenchmarkPreFilter(b *testing.B) {
	for _, name := range []string{namespacegang.Name, namespaceplacement.Name, nodegroups.Name, noderesources.Name} {
		run(b, name, func(b *testing.B, s *bench) {
			plugin := s.plugin(name).(fwk.PreFilterPlugin)
			for b.Loop() {
				if _, status := plugin.PreFilter(b.Context(), framework.NewCycleState(), s.next, s.Nodes); !status.IsSuccess() {
					b.Fatal(status.Message())
				}
			}
		})
	}
}

// BenchmarkKeepRoom is BenchmarkPreFilter of NamespaceGang where the pool is to survive the loss of a super cluster.
func BenchmarkKeepRoom(b *testing.B) {
	run(b, namespacegang.Name, func(b *testing.B, s *bench) {
		made, err := s.registry[namespacegang.Name](b.Context(), &pluginargs.NamespaceGangArgs{PermitWaitingTimeSeconds: 30, TolerateLosses: 1}, s)
		require.NoError(b, err)
		for b.Loop() {
			if _, status := made.(fwk.PreFilterPlugin).PreFilter(b.Context(), framework.NewCycleState(), s.next, s.Nodes); !status.IsSuccess() {
				b.Fatal(status.Message())
			}
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	for _, name := range []string{nodegroups.Name, noderesources.Name} {
		run(b, name, func(b *testing.B, s *bench) {
			plugin := s.plugin(name)
			state := framework.NewCycleState()
			_, status := plugin.(fwk.PreFilterPlugin).PreFilter(b.Context(), state, s.next, s.Nodes)
			require.True(b, status.IsSuccess(), status.Message())
			for b.Loop() {
				for _, node := range s.Nodes {
					if status := plugin.(fwk.FilterPlugin).Filter(b.Context(), state, s.next, node); !status.IsSuccess() {
						b.Fatal(status.Message())
					}
				}
			}
		})
	}
}

func BenchmarkScore(b *testing.B) {
	for _, name := range []string{slicespread.Name, placementstability.Name, nodenameorder.Name, noderesources.Name, imagelocality.Name} {
		run(b, name, func(b *testing.B, s *bench) {
			plugin := s.plugin(name).(fwk.ScorePlugin)
			for b.Loop() {
				if err := s.score(plugin); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// score runs PreScore, Score and NormalizeScore as far as the plugin has them.
func (s *bench) score(plugin fwk.ScorePlugin) error {
	ctx, state := s.b.Context(), framework.NewCycleState()
	if pre, ok := plugin.(fwk.PreScorePlugin); ok {
		if status := pre.PreScore(ctx, state, s.next, s.Nodes); !status.IsSuccess() {
			return status.AsError()
		}
	}
	scores := make(fwk.NodeScoreList, len(s.Nodes))
	for i, node := range s.Nodes {
		score, status := plugin.Score(ctx, state, s.next, node)
		if !status.IsSuccess() {
			return status.AsError()
		}
		scores[i] = fwk.NodeScore{Name: node.Node().Name, Score: score}
	}
	if extensions := plugin.ScoreExtensions(); extensions != nil {
		return extensions.NormalizeScore(ctx, state, s.next, scores).AsError()
	}
	return nil
}

// permit runs Permit, and lets the slice wait if it is to, as kube-scheduler does.
func (s *bench) permit(state fwk.CycleState, slice *corev1.Pod, node string) *fwk.Status {
	waits, status := s.RunPermitPlugins(s.b.Context(), state, slice, node)
	if status.IsWait() {
		s.AddWaitingPod(slice, waits)
	}
	return status
}

// BenchmarkGang reserves, permits and binds all slices of a namespace; where they go is given.
func BenchmarkGang(b *testing.B) {
	for _, slices := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("slices=%d", slices), func(b *testing.B) {
			s := newBench(b, 1, 0)
			gang := s.gang(slices)
			state := framework.NewCycleState()
			b.ReportAllocs()
			for b.Loop() {
				for _, pod := range gang {
					s.RunReservePluginsReserve(b.Context(), state, pod, "r000")
					if status := s.permit(state, pod, "r000"); !status.IsWait() && !status.IsSuccess() {
						b.Fatal(status.Message())
					}
				}
				for _, pod := range gang {
					s.WaitOnPermit(b.Context(), pod)
					if status := s.RunBindPlugins(b.Context(), state, pod, "r000"); !status.IsSuccess() {
						b.Fatal(status.Message())
					}
				}
			}
		})
	}
}
