package view_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // defaults and conversions of kube-apiserver
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
)

// stored returns a pod as kube-apiserver would store it, by its own defaults and validation, or what it says
// against it.
func stored(tb testing.TB, created *corev1.Pod) (*corev1.Pod, field.ErrorList) {
	tb.Helper()
	defaulted := created.DeepCopy()
	legacyscheme.Scheme.Default(defaulted)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(defaulted, internal, nil); err != nil {
		return nil, field.ErrorList{field.Invalid(field.NewPath("spec"), nil, err.Error())}
	}
	podutil.DropDisabledPodFields(internal, nil)
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	options.ResourceIsPod = true
	if errs := validation.ValidatePodCreate(internal, options); len(errs) > 0 {
		return nil, errs
	}
	result := &corev1.Pod{}
	require.NoError(tb, legacyscheme.Scheme.Convert(internal, result, nil))
	return result, nil
}

// acceptedOf returns the pod with most of a spec that kube-apiserver accepts: fields that it complains about are left
// out. It returns nil if that leaves nothing.
func acceptedOf(tb testing.TB, spec *corev1.PodSpec) *corev1.Pod {
	tb.Helper()
	created := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod", UID: "1"}}
	created.Spec = corev1.PodSpec{
		NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations, TopologySpreadConstraints: spec.TopologySpreadConstraints,
		Overhead: spec.Overhead, Resources: spec.Resources, SchedulerName: spec.SchedulerName, NodeName: spec.NodeName,
		SchedulingGates: spec.SchedulingGates, PreemptionPolicy: spec.PreemptionPolicy, OS: spec.OS, Volumes: spec.Volumes, HostNetwork: spec.HostNetwork,
		Containers: spec.Containers, InitContainers: spec.InitContainers, TerminationGracePeriodSeconds: spec.TerminationGracePeriodSeconds,
	}
	for range 8 {
		accepted, errs := stored(tb, created)
		if len(errs) == 0 {
			return accepted
		}
		for _, err := range errs {
			leaveOut(&created.Spec, err.Field)
		}
	}
	return nil
}

// leaveOut removes the part of a spec that a path of an error is about.
func leaveOut(spec *corev1.PodSpec, path string) {
	path = strings.TrimPrefix(path, "spec.")
	has := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
	affinity := ptr.Deref(spec.Affinity, corev1.Affinity{})
	switch {
	case has("affinity.nodeAffinity"):
		affinity.NodeAffinity = nil
		spec.Affinity = &affinity
	case has("affinity.podAffinity"):
		affinity.PodAffinity = nil
		spec.Affinity = &affinity
	case has("affinity.podAntiAffinity"):
		affinity.PodAntiAffinity = nil
		spec.Affinity = &affinity
	case has("nodeSelector"):
		spec.NodeSelector = nil
	case has("tolerations"):
		spec.Tolerations = nil
	case has("topologySpreadConstraints"):
		spec.TopologySpreadConstraints = nil
	case has("overhead"):
		spec.Overhead = nil
	case has("resources"):
		spec.Resources = nil
	case has("initContainers"):
		spec.InitContainers = nil
	case has("containers"):
		spec.Containers = []corev1.Container{{Name: "main", Image: "image"}}
	case has("volumes"):
		spec.Volumes = nil
	default: // what has no bearing on the rest
		spec.SchedulerName, spec.NodeName, spec.SchedulingGates, spec.PreemptionPolicy, spec.OS = "", "", nil, nil, nil
		spec.HostNetwork, spec.TerminationGracePeriodSeconds = false, nil
	}
}

// acceptedPool is a pool of three super clusters: its nodes as a tenant would see all of them, and its virtual Nodes.
func acceptedPool() (union, virtual []*corev1.Node) {
	random := rand.New(rand.NewPCG(16, 3))
	for _, superCluster := range []string{"r1", "r2", "r3"} {
		var nodes []nodegroups.Node
		for i := range 4 {
			node := randomNode(random, superCluster, i)
			union = append(union, node)
			labels := map[string]string{"zone": node.Labels["zone"]}
			if gen, has := node.Labels["gen"]; has {
				labels["gen"] = gen
			}
			nodes = append(nodes, nodegroups.Node{Labels: labels, Taints: nodegroups.TaintsOf(node), Allocatable: slice.Of(node.Status.Allocatable)})
		}
		virtual = append(virtual, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: superCluster,
			Labels: map[string]string{
				schedulerv1alpha1.LabelVirtualNode: superCluster, tenancyv1alpha1.LabelSuperClusterID: superCluster,
			},
			Annotations: map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(nodegroups.Of(nodes))},
		}})
	}
	return union, virtual
}

// FuzzAcceptedPodSpec: any spec that a tenant's API server accepts is projected without a panic, and judged over the
// virtual Nodes as kube-scheduler's own filters judge it over the nodes of all super clusters: never a wrong no, and
// never a super cluster without a node for it, but where the pod names nodes, which only the super scheduler knows.
func FuzzAcceptedPodSpec(f *testing.F) {
	random := rand.New(rand.NewPCG(16, 4))
	for range 200 {
		data, err := randomSpec(random).Marshal()
		require.NoError(f, err)
		f.Add(data)
	}
	union, virtual := acceptedPool()
	kubeScheduler := newJudge(f, union, "NodeUnschedulable", "NodeAffinity", "TaintToleration", "NodeResourcesFit", "InterPodAffinity", "PodTopologySpread")
	ours := newJudge(f, virtual, "NodeGroups", "InterPodAffinity")
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec corev1.PodSpec
		if spec.Unmarshal(data) != nil {
			return
		}
		accepted := acceptedOf(t, &spec)
		if accepted == nil {
			return
		}
		object, err := view.TenantPod(accepted.DeepCopy())
		require.NoError(t, err)
		projected := object.(*corev1.Pod)
		require.LessOrEqual(t, projected.Size(), 2*accepted.Size()+4096, "the view is no larger than the pod")
		got := ours.feasible(t, projected)
		ours.score(t, projected)
		if excess := projected.Annotations[nodegroups.AnnotationExcess]; excess != "" || accepted.Spec.NodeName != "" {
			return
		}
		if requestsTooMuchToCount(accepted) {
			return
		}
		want := sets.New[string]()
		for node := range kubeScheduler.feasible(t, accepted) {
			superCluster, _ := tenancy.NodeSuperCluster(node)
			want.Insert(superCluster)
		}
		require.Empty(t, want.Difference(got), "never a wrong no: %s", &accepted.Spec)
		if !namesNodes(accepted) {
			require.Empty(t, got.Difference(want), "never without a node: %s", &accepted.Spec)
		}
	})
}

// requestsTooMuchToCount reports whether a pod requests more than an int64 counts, of CPU in thousandths.
// kube-scheduler takes that for nothing, and we take it for what no node has.
func requestsTooMuchToCount(pod *corev1.Pod) bool {
	for name, request := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		most := int64(math.MaxInt64)
		if name == corev1.ResourceCPU {
			most /= 1000
		}
		if request.CmpInt64(most) > 0 {
			return true
		}
	}
	return false
}

// score runs what scores a pod.
func (j *judge) score(tb testing.TB, pod *corev1.Pod) {
	tb.Helper()
	state := framework.NewCycleState()
	if _, status, _ := j.RunPreFilterPlugins(tb.Context(), state, pod); !status.IsSuccess() {
		return
	}
	infos, err := j.snapshot.NodeInfos().List()
	require.NoError(tb, err)
	if j.RunPreScorePlugins(tb.Context(), state, pod, infos).IsSuccess() {
		_, status := j.RunScorePlugins(tb.Context(), state, pod, infos)
		require.True(tb, status.IsSuccess(), status.Message())
	}
}

// randomSpec is randomPod with demands on other pods, too.
func randomSpec(random *rand.Rand) *corev1.PodSpec {
	spec := &randomPod(random).Spec
	selector := func() *metav1.LabelSelector {
		return pickOne(random, nil, &metav1.LabelSelector{}, metav1.SetAsLabelSelector(map[string]string{"app": "a"}))
	}
	term := func() corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: selector(), TopologyKey: pickOne(random, "zone", "gen", corev1.LabelHostname, "none")}
	}
	if random.IntN(3) == 0 {
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1 + random.Int32N(3), TopologyKey: pickOne(random, "zone", "gen", corev1.LabelHostname, "none"), LabelSelector: selector(),
			WhenUnsatisfiable:  pickOne(random, corev1.DoNotSchedule, corev1.ScheduleAnyway),
			NodeAffinityPolicy: pickOne(random, nil, ptr.To(corev1.NodeInclusionPolicyIgnore), ptr.To(corev1.NodeInclusionPolicyHonor)),
			NodeTaintsPolicy:   pickOne(random, nil, ptr.To(corev1.NodeInclusionPolicyIgnore), ptr.To(corev1.NodeInclusionPolicyHonor)),
		}}
		if spec.TopologySpreadConstraints[0].WhenUnsatisfiable == corev1.DoNotSchedule && random.IntN(3) == 0 {
			spec.TopologySpreadConstraints[0].MinDomains = ptr.To(1 + random.Int32N(5))
		}
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if random.IntN(3) == 0 {
		spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}
	}
	if random.IntN(4) == 0 {
		spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}
	}
	if random.IntN(3) == 0 {
		spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 5, PodAffinityTerm: term()}}}
	}
	return spec
}
