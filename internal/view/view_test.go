package view

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
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
		"nothing":              {spec: corev1.PodSpec{Containers: []corev1.Container{container("a", nil)}}, want: slice.Amounts{"pods": 1}},
		"sum of containers":    {spec: corev1.PodSpec{Containers: []corev1.Container{container("a", builders.Resources("cpu", "100m", "memory", "1Mi")), container("b", builders.Resources("cpu", "0.5"))}}, want: slice.Amounts{"cpu": 600, "memory": 1 << 20, "pods": 1}},
		"larger init":          {spec: corev1.PodSpec{InitContainers: []corev1.Container{container("i", builders.Resources("cpu", "2"))}, Containers: []corev1.Container{container("a", builders.Resources("cpu", "100m"))}}, want: slice.Amounts{"cpu": 2000, "pods": 1}},
		"sidecar and overhead": {spec: corev1.PodSpec{Overhead: builders.Resources("cpu", "10m"), InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container("a", builders.Resources("cpu", "100m"))}}, want: slice.Amounts{"cpu": 160, "pods": 1}},
		"extended resource":    {spec: corev1.PodSpec{Containers: []corev1.Container{container("a", builders.Resources("nvidia.com/gpu", "3"))}}, want: slice.Amounts{"nvidia.com/gpu": 3, "pods": 1}},
		"pod level":            {spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: builders.Resources("cpu", "1")}, Containers: []corev1.Container{container("a", nil)}}, want: slice.Amounts{"cpu": 1000, "pods": 1}},
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

// TestTenantPodCountsAsKubeSchedulerDoes makes random pods: the view counts of them what kube-scheduler counts of the
// pods themselves, and one of the resource pods.
func TestTenantPodCountsAsKubeSchedulerDoes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 12))
	list := func(names ...corev1.ResourceName) corev1.ResourceList {
		amounts := slice.Amounts{}
		for _, name := range names {
			if random.IntN(2) == 0 {
				amounts[name] = random.Int64N(4) * 100
			}
		}
		return amounts.List()
	}
	any := func() corev1.ResourceList {
		return list("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu")
	}
	always := corev1.ContainerRestartPolicyAlways
	for range 2_000 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod"}}
		resizes := random.IntN(2) == 0
		of := func(name string, policy *corev1.ContainerRestartPolicy) corev1.Container {
			made := corev1.Container{Name: name, RestartPolicy: policy, Resources: corev1.ResourceRequirements{Requests: any()}}
			return made
		}
		statusOf := func(name string) corev1.ContainerStatus {
			return corev1.ContainerStatus{
				Name: name, AllocatedResources: list("cpu", "memory"), Resources: &corev1.ResourceRequirements{Requests: list("cpu", "memory")},
			}
		}
		for i := range random.IntN(3) {
			name, policy := fmt.Sprint("init-", i), []*corev1.ContainerRestartPolicy{nil, &always}[random.IntN(2)]
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, of(name, policy))
			if resizes {
				pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, statusOf(name))
			}
		}
		for i := range 1 + random.IntN(3) {
			name := fmt.Sprint("c-", i)
			pod.Spec.Containers = append(pod.Spec.Containers, of(name, nil))
			if resizes {
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, statusOf(name))
			}
		}
		if random.IntN(3) == 0 {
			pod.Spec.Overhead = any()
		}
		if random.IntN(3) == 0 {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "memory", "hugepages-2Mi").DeepCopy()}
			maps.DeleteFunc(pod.Spec.Resources.Requests, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
			if resizes { // as kubelets of 1.36 write it; of other pods it is what their containers' statuses add up to
				pod.Status.AllocatedResources, pod.Status.Resources = list("cpu", "memory"), &corev1.ResourceRequirements{Requests: list("cpu", "memory")}
			}
		}
		if resizes && random.IntN(4) == 0 {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
		}
		original := pod.DeepCopy()
		info, err := framework.NewPodInfo(original)
		require.NoError(t, err)
		counted := info.CalculateResource().Resource
		want := slice.Amounts{"cpu": counted.GetMilliCPU(), "memory": counted.GetMemory(), "ephemeral-storage": counted.GetEphemeralStorage(), "pods": 1}
		for name, amount := range counted.GetScalarResources() {
			want[name] = amount
		}
		projected, err := TenantPod(pod)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want.Minus(nil), Used(projected.(*corev1.Pod)).Minus(nil)), "%+v", original)
	}
}

func TestTenantPodLeavesOutWhatSuperClustersJudge(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "pod", Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{"note": "long", schedulerv1alpha1.AnnotationSuperCluster: "r1"},
		},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"disk": "ssd"}, HostNetwork: true, SchedulerName: "s",
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
			NodeName: "r1", NodeSelector: map[string]string{"disk": "ssd"}, SchedulerName: "s",
			Tolerations: []corev1.Toleration{{Key: schedulerv1alpha1.TaintProvider, Operator: corev1.TolerationOpExists}},
			Overhead:    builders.Resources("pods.slice.tenancy.kubernetes.io/web", "1"),
		},
	}
	if diff := cmp.Diff(want, projected); diff != "" {
		t.Errorf("projection (-want +got):\n%s", diff)
	}
}

// TestTenantPods: a super cluster that the pod scheduler did not choose is one that the pod asks for.
func TestTenantPods(t *testing.T) {
	never := corev1.PreemptNever
	for name, tc := range map[string]struct {
		annotation, nodeName string
		// pinned is whether the tenant wrote nodeName itself.
		pinned bool
		// byTenant is whether no syncer has bound it.
		byTenant       bool
		want, wantAsks string
		wantPreemption *corev1.PreemptionPolicy
	}{
		"none":                     {},
		"chosen":                   {annotation: "r1", want: "r1"},
		"not chosen":               {annotation: "r2", wantPreemption: &never},
		"bound by the tenant":      {annotation: "r2", nodeName: "r2.node-1", byTenant: true, wantPreemption: &never},
		"bound where it was sent":  {annotation: "r2", nodeName: "r1.node-1", byTenant: true, want: "r1", wantAsks: "r1"},
		"bound":                    {annotation: "r1", nodeName: "r1.node-1", want: "r1"},
		"bound, and changed later": {annotation: "r2", nodeName: "r1.node-1", want: "r1"},
		"pinned, and chosen":       {annotation: "r2", nodeName: "r1.node-1", pinned: true, want: "r1", wantAsks: "r1"},
		"pinned, and not chosen":   {nodeName: "r2.node-1", pinned: true, wantAsks: "r2", wantPreemption: &never},
		"pinned to no Node":        {nodeName: "node-1", pinned: true, want: "node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Spec: corev1.PodSpec{NodeName: tc.nodeName}}
			if tc.annotation != "" {
				pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: tc.annotation}
			}
			if tc.nodeName != "" && !tc.pinned {
				builders.Bind(pod)
			}
			if tc.byTenant {
				delete(pod.Annotations, tenancyv1alpha1.AnnotationBoundBy)
			}
			if tc.wantAsks == "" {
				tc.wantAsks = tc.annotation
			}
			projected, err := TenantPods(func(pod *corev1.Pod, superCluster string) bool { return pod.UID == "1" && superCluster == "r1" })(pod)
			require.NoError(t, err)
			got := projected.(*corev1.Pod)
			require.Equal(t, tc.want, got.Spec.NodeName)
			require.Equal(t, tc.wantPreemption, got.Spec.PreemptionPolicy)
			require.Equal(t, tc.wantAsks, got.Annotations[schedulerv1alpha1.AnnotationSuperCluster])
		})
	}
}

// TestIsLabeled: where nobody knows what was chosen, it is what label and annotation name.
func TestIsLabeled(t *testing.T) {
	for name, tc := range map[string]struct{ annotation, label, want string }{
		"none":             {},
		"chosen":           {annotation: "r1", label: "r1", want: "r1"},
		"asked for":        {annotation: "r1"},
		"another is asked": {annotation: "r2", label: "r1"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{schedulerv1alpha1.AnnotationSuperCluster: tc.annotation},
				Labels:      map[string]string{schedulerv1alpha1.LabelSuperCluster: tc.label},
			}}
			projected, err := TenantPods(IsLabeled)(pod)
			require.NoError(t, err)
			require.Equal(t, tc.want, projected.(*corev1.Pod).Spec.NodeName)
		})
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
	held, odd := builders.HeldSlices("r1", 2, "cpu", "200m"), builders.HeldSlices("r2", 2, "cpu", "150m")
	var got []string
	for _, object := range Slices(namespacePlacement("600m", "100m", held, odd)) {
		pod := object.(*corev1.Pod)
		got = append(got, strings.Join([]string{
			pod.Name, pod.Spec.NodeName, pod.Spec.Containers[0].Resources.Requests.Cpu().String(),
			pod.Annotations[slicepod.AnnotationGangSize], pod.Annotations[slicepod.AnnotationGangTotal],
			pod.Annotations[slicepod.AnnotationHeld], pod.Annotations[slicepod.AnnotationSlices],
		}, " "))
	}
	want := []string{
		"web.held.r1 r1 200m    2*cpu=100",
		"web.held.r2 r2 150m    1*cpu=100;1*cpu=50",
		"web.slice.0000  100m 3 cpu=250 r1=2,r2=2 ",
		"web.slice.0001  100m 3 cpu=250 r1=2,r2=2 ",
		"web.slice.0002  50m 3 cpu=250 r1=2,r2=2 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// TestSlicesThatReplace say so, and what has been replaced does, for which room is kept or not.
func TestSlicesThatReplace(t *testing.T) {
	t.Parallel()
	leaving := func(reason schedulerv1alpha1.LeavingReason) schedulerv1alpha1.ClusterPlacement {
		part := builders.HeldSlices("r1", 0, "cpu", "200m")
		part.Leaving = &schedulerv1alpha1.Leaving{Reserved: part.Reserved, Reason: reason}
		return part
	}
	displaced := func(cpu string) *schedulerv1alpha1.Displaced {
		return &schedulerv1alpha1.Displaced{Resources: builders.Resources("cpu", cpu)}
	}
	spreads := &schedulerv1alpha1.ClusterChoice{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}}
	for name, tc := range map[string]struct {
		np     *schedulerv1alpha1.NamespacePlacement
		change func(*schedulerv1alpha1.NamespacePlacement)
		want   []string
	}{
		"new":   {np: namespacePlacement("100m", "100m"), want: []string{"web.slice.0000"}},
		"grows": {np: namespacePlacement("200m", "100m", builders.HeldSlices("r1", 1, "cpu", "100m")), want: []string{"web.held.r1", "web.slice.0000"}},
		"lost": {
			np: namespacePlacement("200m", "100m", leaving(schedulerv1alpha1.LeavingLost)), want: []string{"web.held.r1", "web.slice.0000 replaces", "web.slice.0001 replaces"},
			change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Displaced = displaced("200m") },
		},
		"gives way": {
			np: namespacePlacement("200m", "100m", leaving(schedulerv1alpha1.LeavingPreempted)), want: []string{"web.held.r1", "web.slice.0000", "web.slice.0001"},
			change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Displaced = displaced("200m") },
		},
		"drained, and elsewhere, and grows": {
			np:   namespacePlacement("300m", "100m", leaving(schedulerv1alpha1.LeavingDrained), builders.HeldSlices("r2", 2, "cpu", "200m")),
			want: []string{"web.held.r1 replaced", "web.held.r2", "web.slice.0000"}, change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Displaced = displaced("0") },
		},
		"elsewhere, and spreads": {
			np:   namespacePlacement("200m", "100m", leaving(schedulerv1alpha1.LeavingLost), builders.HeldSlices("r2", 2, "cpu", "200m")),
			want: []string{"web.held.r1 replaced", "web.held-0000.r2", "web.held-0001.r2"},
			change: func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Status.Displaced, np.Spec.ClusterChoice = displaced("0"), spreads
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.change != nil {
				tc.change(tc.np)
			}
			var got []string
			for _, object := range Slices(tc.np) {
				pod, text := object.(*corev1.Pod), object.GetName()
				if slicepod.Replaces(pod) {
					text += " replaces"
				}
				if slicepod.IsReplaced(pod) {
					text += " replaced"
				}
				got = append(got, text)
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestSlicesOfARequest go where the tenant wants them.
func TestSlicesOfARequest(t *testing.T) {
	np := namespacePlacement("300m", "100m", builders.HeldSlices("r1", 3, "cpu", "300m"))
	np.Status.Requested = &schedulerv1alpha1.RequestedPlacements{
		State:      schedulerv1alpha1.RequestWaiting,
		Placements: []schedulerv1alpha1.ClusterPlacement{builders.HeldSlices("r2", 2, "cpu", "200m"), builders.HeldSlices("r3", 1, "cpu", "100m")},
	}
	show := func(objects []client.Object) (got []string) {
		for _, object := range objects {
			pod := object.(*corev1.Pod)
			got = append(got, strings.TrimSpace(pod.Name+" "+slicepod.PinOf(pod)))
			if slicepod.GangName(pod) != "" {
				gang, err := slicepod.Decode(pod)
				require.NoError(t, err)
				require.Equal(t, int64(3), gang.Size)
			}
		}
		return got
	}
	require.Equal(t, []string{"web.held.r1", "web.slice.0000 r2", "web.slice.0001 r2", "web.slice.0002 r3"}, show(Slices(np)))
	require.Equal(t, []string{"web.held.r1", "web.slice.0000 r2"}, show(projectSlices(np, 0, 1)))

	np.Status.Requested.State = schedulerv1alpha1.RequestRefused
	require.Equal(t, []string{"web.held.r1"}, show(Slices(np)))
}

func TestGangNamesADecision(t *testing.T) {
	base := namespacePlacement("200m", "100m")
	same := base.DeepCopy()
	same.ResourceVersion = "7"
	same.Status.Conditions = []metav1.Condition{{Type: "Placed"}}
	require.Equal(t, Gang(base), Gang(same), "what a decision does not rest on")
	for name, change := range map[string]func(*schedulerv1alpha1.NamespacePlacement){
		"quota":     func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Quota = builders.Resources("cpu", "300m") },
		"slice":     func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Slice = builders.Resources("cpu", "50m") },
		"displaced": func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Displaced = &schedulerv1alpha1.Displaced{} },
		"requested": func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Requested = &schedulerv1alpha1.RequestedPlacements{Annotation: "x"}
		},
		"uid": func(np *schedulerv1alpha1.NamespacePlacement) { np.UID = "other" },
		"a spec that has changed and changed back": func(np *schedulerv1alpha1.NamespacePlacement) { np.Generation += 2 },
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

// TestSlicesThatSpread: kube-scheduler counts Pods, so each slice that stays is one where slices are to spread. What
// leaves does not count.
func TestSlicesThatSpread(t *testing.T) {
	t.Parallel()
	leaving := builders.HeldSlices("r2", 1, "cpu", "500m")
	leaving.Leaving = &schedulerv1alpha1.Leaving{Reserved: builders.Resources("cpu", "300m"), Reason: schedulerv1alpha1.LeavingDrained}
	np := builders.Placement("tenant", "web").UID("uid").Slice("cpu", "200m").Quota("cpu", "700m").
		Placements(builders.HeldSlices("r1", 2, "cpu", "300m"), leaving).Obj()
	describe := func() (lines []string) {
		uids := map[types.UID]bool{}
		for _, object := range Slices(np) {
			pod := object.(*corev1.Pod)
			require.False(t, uids[pod.UID], "%s is there twice", pod.UID)
			uids[pod.UID] = true
			lines = append(lines, fmt.Sprintf("%s %s %s %t", strings.TrimPrefix(pod.Name, "web."), pod.Spec.NodeName, slicepod.AmountsOf(pod), len(pod.Labels) > 0))
		}
		return lines
	}
	require.Empty(t, cmp.Diff([]string{
		"held.r1 r1 cpu=300m false", "held.r2 r2 cpu=500m false", "slice.0000  cpu=200m false",
	}, describe()))
	np.Spec.ClusterChoice = &schedulerv1alpha1.ClusterChoice{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}}
	require.Empty(t, cmp.Diff([]string{
		"held-0000.r1 r1 cpu=200m true", "held-0001.r1 r1 cpu=100m true", "held-0000.r2 r2 cpu=200m true", "held.r2 r2 cpu=300m false", "slice.0000  cpu=200m true",
	}, describe()))

	np.Spec.Slice = builders.Resources("cpu", "1m") // its slices were larger when it was placed
	np.Status.Placements[0].Reserved = builders.Resources("cpu", "5")
	sum := slice.Amounts{}
	for _, object := range heldPods(np) {
		sum = sum.Plus(slicepod.AmountsOf(object.(*corev1.Pod)))
	}
	require.Equal(t, slice.Amounts{"cpu": 5500}, sum)
	require.Len(t, heldPods(np), 102, "a hundred slices, and the rest of each super cluster")
}

// TestNominatedSlices: each slice is nominated for where it is to go, in whatever order super clusters and slices of
// other sizes come.
func TestNominatedSlices(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nominated map[string]string
		want      []string
	}{
		"the last one is smaller, and goes first": {nominated: map[string]string{"r1": "500m", "r2": "2"}, want: []string{"r2", "r2", "r1"}},
		"the last one goes last":                  {nominated: map[string]string{"r1": "2", "r2": "500m"}, want: []string{"r1", "r1", "r2"}},
		"with another":                            {nominated: map[string]string{"r1": "1500m", "r2": "1"}, want: []string{"r1", "r2", "r1"}},
		"nowhere":                                 {want: []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "2500m").Obj()
			granted := map[string]slice.Amounts{}
			for id, cpu := range tc.nominated {
				granted[id] = slice.Of(builders.Resources("cpu", cpu))
			}
			np.Status.Nominated = placement.Nominate(granted, time.Unix(1_000_000, 0))
			var got []string
			for _, pod := range Slices(np) {
				got = append(got, pod.(*corev1.Pod).Status.NominatedNodeName)
			}
			require.Equal(t, tc.want, got)
		})
	}
}
