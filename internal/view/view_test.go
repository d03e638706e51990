package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/test/builders"
)

func TestTenantPodKeepsWhatAPodRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(name string, list corev1.ResourceList) corev1.Container {
		return corev1.Container{Name: name, Image: "image", Resources: corev1.ResourceRequirements{Requests: list}}
	}
	sidecar := container("sidecar", builders.Resources("cpu", "50m"))
	sidecar.RestartPolicy = &always
	tests := map[string]struct {
		spec corev1.PodSpec
		want slice.Amounts
	}{
		"nothing":              {spec: corev1.PodSpec{Containers: []corev1.Container{container("a", nil)}}, want: slice.Amounts{}},
		"sum of containers":    {spec: corev1.PodSpec{Containers: []corev1.Container{container("a", builders.Resources("cpu", "100m", "memory", "1Mi")), container("b", builders.Resources("cpu", "0.5"))}}, want: slice.Amounts{"cpu": 600, "memory": 1 << 20}},
		"larger init":          {spec: corev1.PodSpec{InitContainers: []corev1.Container{container("i", builders.Resources("cpu", "2"))}, Containers: []corev1.Container{container("a", builders.Resources("cpu", "100m"))}}, want: slice.Amounts{"cpu": 2000}},
		"sidecar and overhead": {spec: corev1.PodSpec{Overhead: builders.Resources("cpu", "10m"), InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container("a", builders.Resources("cpu", "100m"))}}, want: slice.Amounts{"cpu": 160}},
		"extended resource":    {spec: corev1.PodSpec{Containers: []corev1.Container{container("a", builders.Resources("nvidia.com/gpu", "3"))}}, want: slice.Amounts{"nvidia.com/gpu": 3}},
		"pod level":            {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: builders.Resources("cpu", "1")}, Containers: []corev1.Container{container("a", nil)}}, want: slice.Amounts{"cpu": 1000}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod"}, Spec: tc.spec}
			projected, err := TenantPod(pod)
			require.NoError(t, err)
			if diff := cmp.Diff(tc.want, Used(projected.(*corev1.Pod))); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTenantPodLeavesOutWhatSuperClustersJudge(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "pod", Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{"note": "long", schedulerv1alpha1.AnnotationSuperCluster: "r1"},
		},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"disk": "ssd"}, Affinity: &corev1.Affinity{}, SchedulerName: "s",
			Volumes:    []corev1.Volume{{Name: "v"}},
			Containers: []corev1.Container{{Name: "a", Image: "image", Env: []corev1.EnvVar{{Name: "SECRET"}}}},
		},
	}
	projected, err := TenantPod(pod)
	require.NoError(t, err)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "pod", Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{AnnotationBoundNode: "", schedulerv1alpha1.AnnotationSuperCluster: "r1"},
		},
		Spec: corev1.PodSpec{
			NodeName: "r1", SchedulerName: "s", Containers: []corev1.Container{{Name: "a"}},
			Tolerations: []corev1.Toleration{{Key: schedulerv1alpha1.TaintProvider, Operator: corev1.TolerationOpExists}},
		},
	}
	if diff := cmp.Diff(want, projected); diff != "" {
		t.Errorf("projection (-want +got):\n%s", diff)
	}
}

func TestSuperCluster(t *testing.T) {
	for _, tc := range []struct{ nodeName, annotation, want string }{
		{"", "", ""},
		{"", "r1", "r1"},
		{"r2.node-1", "r1", "r2"},
		{"r2.node.example.org", "", "r2"},
		{"node", "r1", "node"},
	} {
		if got := SuperCluster(tc.nodeName, tc.annotation); got != tc.want {
			t.Errorf("node %q, annotation %q: want %q, got %q", tc.nodeName, tc.annotation, tc.want, got)
		}
	}
}

func namespacePlacement(quota, size string, held ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	return &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web", UID: "uid"},
		Spec:       schedulerv1alpha1.NamespacePlacementSpec{Slice: builders.Resources("cpu", size), Quota: builders.Resources("cpu", quota)},
		Status:     schedulerv1alpha1.NamespacePlacementStatus{Placements: held},
	}
}

func TestSlices(t *testing.T) {
	held := builders.HeldSlices("r1", 2, "cpu", "200m")
	var got []string
	for _, object := range Slices(namespacePlacement("450m", "100m", held)) {
		pod := object.(*corev1.Pod)
		got = append(got, strings.Join([]string{
			pod.Name, pod.Spec.NodeName, pod.Spec.Containers[0].Resources.Requests.Cpu().String(),
			pod.Annotations[slicepod.AnnotationGangSize], pod.Annotations[slicepod.AnnotationGangTotal],
			pod.Annotations[slicepod.AnnotationHeld],
		}, " "))
	}
	want := []string{
		"web.held.r1 r1 200m   ",
		`web.slice.0000  100m 3 cpu=250 r1=2`,
		`web.slice.0001  100m 3 cpu=250 r1=2`,
		`web.slice.0002  50m 3 cpu=250 r1=2`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func TestGangNamesADecision(t *testing.T) {
	base := namespacePlacement("200m", "100m")
	same := base.DeepCopy()
	same.ResourceVersion = "7"
	same.Status.Conditions = []metav1.Condition{{Type: "Placed"}}
	require.Equal(t, Gang(base), Gang(same), "what a decision does not rest on")
	for name, change := range map[string]func(*schedulerv1alpha1.NamespacePlacement){
		"quota": func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Quota = builders.Resources("cpu", "300m") },
		"slice": func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Slice = builders.Resources("cpu", "50m") },
		"uid":   func(np *schedulerv1alpha1.NamespacePlacement) { np.UID = "other" },
		"placements": func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Placements = []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1"}}
		},
	} {
		changed := base.DeepCopy()
		change(changed)
		require.NotEqual(t, Gang(base), Gang(changed), name)
	}
}

func BenchmarkTenantPod(b *testing.B) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: builders.Requests("cpu", "1", "memory", "1Gi")}}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := TenantPod(pod.DeepCopy()); err != nil {
			b.Fatal(err)
		}
	}
}
