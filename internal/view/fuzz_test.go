package view_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	intree "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/test/builders"
)

// judge is a kube-scheduler that filters nodes.
type judge struct {
	framework.Framework
	snapshot *cache.Snapshot
}

func newJudge(tb testing.TB, nodes []*corev1.Node, filters ...string) *judge {
	tb.Helper()
	metrics.Register()
	// Decoded, a profile has its plugins' arguments.
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: judge\n" +
		"  plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: " + strings.Join(filters, "}, {name: ") + "}]}}\n"
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	require.NoError(tb, err)
	registry := intree.NewInTreeRegistry()
	require.NoError(tb, registry.Merge(plugins.Registry(plugins.Options{})))
	snapshot := cache.NewSnapshot(nil, nodes)
	profile := &object.(*config.KubeSchedulerConfiguration).Profiles[0]
	f, err := frameworkruntime.NewFramework(tb.Context(), registry, profile, frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(builders.Clientset(), 0)))
	require.NoError(tb, err)
	return &judge{f, snapshot}
}

// feasible returns the names of the nodes that take a pod.
func (j *judge) feasible(tb testing.TB, pod *corev1.Pod) sets.Set[string] {
	tb.Helper()
	state, names := framework.NewCycleState(), sets.New[string]()
	left, status, _ := j.RunPreFilterPlugins(tb.Context(), state, pod)
	if !status.IsSuccess() {
		require.True(tb, status.IsRejected(), status.Message())
		return names
	}
	infos, err := j.snapshot.NodeInfos().List()
	require.NoError(tb, err)
	for _, info := range infos {
		if name := info.Node().Name; left.AllNodes() || left.NodeNames.Has(name) {
			if j.RunFilterPlugins(tb.Context(), state, pod, info).IsSuccess() {
				names.Insert(name)
			}
		}
	}
	return names
}

// pickOne returns one of choices.
func pickOne[T any](random *rand.Rand, choices ...T) T { return choices[random.IntN(len(choices))] }

func randomTaints(random *rand.Rand) (taints []corev1.Taint) {
	if random.IntN(3) == 0 {
		taints = append(taints, corev1.Taint{
			Key: pickOne(random, "dedicated", "gpu"), Value: pickOne(random, "", "a"),
			Effect: pickOne(random, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
		})
	}
	return taints
}

// randomNode is a node of a super cluster as a tenant would see all of it.
func randomNode(random *rand.Rand, superCluster string, i int) *corev1.Node {
	name := tenancy.NodeName(superCluster, fmt.Sprintf("n%d", i))
	node := builders.Node(name, "cpu", pickOne(random, "1", "2", "4"), "memory", pickOne(random, "2Gi", "8Gi"), "pods", "110").Obj()
	node.Labels = map[string]string{
		corev1.LabelHostname: name, tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: superCluster,
		"zone": pickOne(random, "a", "b", "c"),
	}
	if random.IntN(2) == 0 {
		node.Labels["gen"] = fmt.Sprint(random.IntN(4))
	}
	node.Spec.Taints = randomTaints(random)
	if random.IntN(6) == 0 {
		node.Spec.Unschedulable = true
	}
	return node
}

func randomRequirement(random *rand.Rand) corev1.NodeSelectorRequirement {
	requirement := corev1.NodeSelectorRequirement{
		Key: pickOne(random, "zone", "gen", "gen", "none", corev1.LabelHostname, tenancyv1alpha1.LabelSuperClusterID),
		Operator: pickOne(random, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
			corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt),
	}
	value := func() string { return pickOne(random, "a", "b", "1", "2", "r1", "r2", "r1.n0", "r2.n1", "r3.n9", "n0") }
	switch requirement.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		for range 1 + random.IntN(2) {
			requirement.Values = append(requirement.Values, value())
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		requirement.Values = []string{fmt.Sprint(random.IntN(4))}
	}
	return requirement
}

func randomPod(random *rand.Rand) *corev1.Pod {
	pod := builders.Pod("web", "pod", "cpu", pickOne(random, "100m", "1", "2", "3", "5"), "memory", pickOne(random, "1Gi", "4Gi")).Obj()
	if random.IntN(3) == 0 {
		pod.Spec.NodeSelector = map[string]string{pickOne(random, "zone", "gen", corev1.LabelHostname): pickOne(random, "a", "b", "1", "r1.n0", "r2.n3")}
	}
	if random.IntN(2) == 0 {
		terms := make([]corev1.NodeSelectorTerm, 1+random.IntN(2))
		for i := range terms {
			for range random.IntN(3) {
				terms[i].MatchExpressions = append(terms[i].MatchExpressions, randomRequirement(random))
			}
			if random.IntN(4) == 0 {
				terms[i].MatchFields = []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: pickOne(random, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn),
					Values: []string{pickOne(random, "r1.n0", "r2.n1", "r3.n9", "n0")},
				}}
			}
		}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	for range random.IntN(3) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key:      pickOne(random, "dedicated", "gpu", corev1.TaintNodeUnschedulable),
			Operator: pickOne(random, corev1.TolerationOpExists, corev1.TolerationOpEqual),
			Effect:   pickOne(random, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
		})
		if toleration := &pod.Spec.Tolerations[len(pod.Spec.Tolerations)-1]; toleration.Operator == corev1.TolerationOpEqual {
			toleration.Value = pickOne(random, "", "a")
		}
	}
	return pod
}

// namesNodes reports whether a pod asks for nodes by name, which only the super scheduler can answer.
func namesNodes(pod *corev1.Pod) bool {
	return strings.Contains(pod.Spec.String(), corev1.LabelHostname) || strings.Contains(pod.Spec.String(), metav1.ObjectNameField)
}

// TestViewJudgesAsKubeSchedulerDoes puts random pods before kube-scheduler's own plugins over the nodes of all super
// clusters, and before NodeGroups over the virtual Nodes: a super cluster is taken where one of its nodes is. Of a pod
// that names nodes more may be taken, and where labels were left out; never fewer.
func TestViewJudgesAsKubeSchedulerDoes(t *testing.T) {
	t.Parallel()
	const pools, podsEach = 60, 60
	random := rand.New(rand.NewPCG(16, 1))
	taken, refused, more := 0, 0, 0
	for range pools {
		var union, virtual []*corev1.Node
		dropped := random.IntN(4) == 0
		for _, superCluster := range []string{"r1", "r2", "r3"} {
			var nodes []nodegroups.Node
			for i := range 1 + random.IntN(5) {
				node := randomNode(random, superCluster, i)
				union = append(union, node)
				labels := map[string]string{"zone": node.Labels["zone"]}
				if gen, has := node.Labels["gen"]; has {
					labels["gen"] = gen
				}
				nodes = append(nodes, nodegroups.Node{Labels: labels, Taints: nodegroups.TaintsOf(node), Allocatable: slice.Of(node.Status.Allocatable)})
			}
			groups := nodegroups.Of(nodes)
			if dropped {
				groups = withoutLabel(groups, "zone")
			}
			virtual = append(virtual, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: superCluster, Annotations: map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(groups)},
			}})
		}
		kubeScheduler := newJudge(t, union, "NodeUnschedulable", "NodeAffinity", "TaintToleration", "NodeResourcesFit")
		ours := newJudge(t, virtual, "NodeGroups")
		for range podsEach {
			pod := randomPod(random)
			want := sets.New[string]()
			for node := range kubeScheduler.feasible(t, pod) {
				superCluster, _ := tenancy.NodeSuperCluster(node)
				want.Insert(superCluster)
			}
			projected, err := view.TenantPod(pod.DeepCopy())
			require.NoError(t, err)
			got := ours.feasible(t, projected.(*corev1.Pod))
			require.Empty(t, want.Difference(got), "never a wrong no: %s", &pod.Spec)
			if !dropped && !namesNodes(pod) {
				require.Empty(t, got.Difference(want), "never without a node: %s", &pod.Spec)
			}
			taken, refused, more = taken+want.Len(), refused+3-got.Len(), more+got.Difference(want).Len()
		}
	}
	require.Greater(t, taken, 500)
	require.Greater(t, refused, 500)
	require.NotZero(t, more)
}

// withoutLabel leaves a label out of groups.
func withoutLabel(groups nodegroups.Groups, key string) nodegroups.Groups {
	groups.Dropped = []string{key}
	delete(groups.Labels, key)
	for _, group := range groups.Groups {
		delete(group.Labels, key)
	}
	return groups
}

// FuzzTenantPod: any spec is projected and judged without a panic.
func FuzzTenantPod(f *testing.F) {
	random := rand.New(rand.NewPCG(16, 2))
	for range 50 {
		pod := randomPod(random)
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
		if pod.Spec.Affinity != nil {
			pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}
		}
		data, err := pod.Spec.Marshal()
		require.NoError(f, err)
		f.Add(data)
	}
	groups := nodegroups.Of([]nodegroups.Node{
		{Labels: map[string]string{"zone": "a"}, Allocatable: slice.Amounts{"cpu": 4000}}, {Labels: map[string]string{"zone": "b"}, Allocatable: slice.Amounts{"cpu": 4000}},
	})
	var virtual []*corev1.Node
	for _, name := range []string{"r1", "r2"} {
		virtual = append(virtual, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{schedulerv1alpha1.LabelVirtualNode: name},
			Annotations: map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(groups)},
		}})
	}
	ours := newJudge(f, virtual, "NodeGroups", "InterPodAffinity")
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod"}}
		if pod.Spec.Unmarshal(data) != nil {
			return
		}
		projected, err := view.TenantPod(pod)
		require.NoError(t, err)
		state := framework.NewCycleState()
		if _, status, _ := ours.RunPreFilterPlugins(t.Context(), state, projected.(*corev1.Pod)); status.IsSuccess() {
			infos, err := ours.snapshot.NodeInfos().List()
			require.NoError(t, err)
			for _, info := range infos {
				ours.RunFilterPlugins(t.Context(), state, projected.(*corev1.Pod), info)
			}
			ours.RunPreScorePlugins(t.Context(), state, projected.(*corev1.Pod), infos)
		}
	})
}
