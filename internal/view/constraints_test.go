package view

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
)

// TestExcess: each cycle compares what a pod demands with all nodes and pods, so a pod that demands more than is read
// says so, and none of it is in the view. Whatever a tenant can make long counts.
func TestExcess(t *testing.T) {
	t.Parallel()
	const fits, tooLong = 60 * 1024, 70 * 1024
	long := func(size int) string { return strings.Repeat("x", size) }
	for name, spec := range map[string]func(size int) corev1.PodSpec{
		"tolerations": func(size int) corev1.PodSpec {
			return corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "a", Value: long(size / 2)}, {Key: "b", Value: long(size / 2)}}}
		},
		"node selector": func(size int) corev1.PodSpec {
			return corev1.PodSpec{NodeSelector: map[string]string{"a": long(size)}}
		},
		"affinity": func(size int) corev1.PodSpec {
			return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpIn, Values: []string{long(size)}}},
				}}},
			}}}
		},
		"topology spread": func(size int) corev1.PodSpec {
			return corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: metav1.SetAsLabelSelector(map[string]string{"a": long(size)}),
			}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project := func(size int) *corev1.Pod {
				projected, err := TenantPod(&corev1.Pod{Spec: spec(size)})
				require.NoError(t, err)
				return projected.(*corev1.Pod)
			}
			require.Empty(t, project(fits).Annotations[nodegroups.AnnotationExcess])
			excess := project(tooLong)
			require.Contains(t, excess.Annotations[nodegroups.AnnotationExcess], "bytes: at most 65536 are read")
			require.Empty(t, excess.Spec.NodeSelector)
			require.Nil(t, excess.Spec.Affinity)
			require.Empty(t, excess.Spec.TopologySpreadConstraints)
		})
	}
}

// TestProjectionIsBounded: what the view holds of a Pod of at most 1.5 MB takes at most 12 MiB to make, whatever the
// Pod has many of, and whether it waits or runs.
func TestProjectionIsBounded(t *testing.T) { //nolint:paralleltest // It measures what is allocated.
	selecting := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for name, tc := range map[string]struct {
		change func(pod *corev1.Pod)
		excess string
	}{
		"tolerations": {excess: "tolerations and topology spread take", change: func(pod *corev1.Pod) {
			for i := range 25_000 {
				pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprint("node.kubernetes.io/not-ready", i), Operator: corev1.TolerationOpExists})
			}
		}},
		"labels": {excess: "it has 30000 labels: at most 128 go down", change: func(pod *corev1.Pod) {
			pod.Labels = map[string]string{}
			for i := range 30_000 {
				pod.Labels[fmt.Sprint("a/l", i)] = ""
			}
		}},
		"topology keys and terms of node affinity": {excess: "100 topology keys and 5000 terms of node affinity", change: func(pod *corev1.Pod) {
			required := &corev1.NodeSelector{}
			for range 5_000 {
				required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "k"}}})
			}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
			for i := range 100 {
				pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
					TopologyKey: fmt.Sprint("t", i), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selecting,
				})
			}
		}},
		"resource names of a sidecar, in all that start after it": {excess: "more than 64 different ones", change: func(pod *corev1.Pod) {
			pod.Spec.InitContainers = make([]corev1.Container, 1_000)
			pod.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers[0].Resources.Requests = resourcesNamed(10_000)
		}},
		"resource names of the status of a sidecar": {excess: "more than 64 different ones", change: func(pod *corev1.Pod) {
			pod.Spec.InitContainers = make([]corev1.Container, 1_000)
			pod.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{AllocatedResources: resourcesNamed(10_000)}}
		}},
		"resources of the status": {excess: "it has 20000 resource names", change: func(pod *corev1.Pod) {
			pod.Status.AllocatedResources = resourcesNamed(10_000)
			pod.Status.Resources = &corev1.ResourceRequirements{Requests: resourcesNamed(10_000)}
		}},
		"statuses of containers": {excess: "it has 15000 containers and 15000 statuses of them", change: func(pod *corev1.Pod) {
			for i := range 15_000 {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i)})
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint("s", i)})
			}
		}},
		"containers": {change: func(pod *corev1.Pod) {
			for i := range 7_500 {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: builders.Requests("cpu", "1m")})
			}
		}},
	} {
		for _, node := range []string{"", "r1.n1"} {
			t.Run(name+" "+node, func(t *testing.T) { //nolint:paralleltest // As above.
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web"}, Spec: corev1.PodSpec{NodeName: node}}
				tc.change(pod)
				require.LessOrEqual(t, pod.Size(), 1_500_000)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				projected, err := TenantPod(pod)
				require.NoError(t, err)
				Used(pod)
				runtime.ReadMemStats(&after)
				require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(12<<20))
				t.Logf("%.1f MiB", float64(after.TotalAlloc-before.TotalAlloc)/(1<<20))
				of := projected.(*corev1.Pod)
				require.Contains(t, of.Annotations[nodegroups.AnnotationExcess], tc.excess)
				require.LessOrEqual(t, len(of.Spec.Tolerations), policy.MaxTolerations+1)
			})
		}
	}
}

func resourcesNamed(n int) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := range n {
		resources[corev1.ResourceName(fmt.Sprint("a.b/x", i))] = resource.MustParse("1")
	}
	return resources
}
