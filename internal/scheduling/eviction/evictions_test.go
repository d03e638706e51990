package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// runningPod returns a pod of namespace web, as the tenant has it, that runs on node n1 of r1 and began an hour ago.
func runningPod(name string, requests ...string) *corev1.Pod {
	pod := builders.Pod("web", name, requests...).Node("r1.n1").Obj()
	pod.CreationTimestamp = metav1.NewTime(schedulingtest.EvictionNow.Add(-time.Hour))
	pod.Status.Phase = corev1.PodRunning
	builders.Bind(pod)
	return pod
}

// withPod changes a pod.
func withPod(pod *corev1.Pod, changes ...func(*corev1.Pod)) *corev1.Pod {
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func onNode(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = name }
}

func ofPriority(priority int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Priority = &priority }
}

func agedBy(d time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(schedulingtest.EvictionNow.Add(-d)) }
}

// unbound takes the condition off a pod that a Binding left.
func unbound(pod *corev1.Pod) { pod.Status.Conditions = nil }

func ended(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }

// endingIn makes a pod terminate whose grace period ends after left.
func endingIn(left time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(schedulingtest.EvictionNow.Add(left)))
	}
}

// inView returns pods as the tenant's informer holds them.
func inView(t *testing.T, pods ...*corev1.Pod) (projected []*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		object, err := view.TenantPod(pod.DeepCopy())
		require.NoError(t, err)
		projected = append(projected, object.(*corev1.Pod))
	}
	return projected
}

// leavingR1 is an eviction of that much from r1.
func leavingR1(pairs ...string) placement.Eviction {
	return placement.Eviction{Cluster: "r1", Excess: slice.Of(builders.Resources(pairs...)), Reason: schedulerv1alpha1.LeavingDrained}
}

func TestChooseEvictions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		pods          []*corev1.Pod
		excess        []string
		want          []string
		wantUncovered bool
		wantAgain     time.Duration
	}{
		{name: "nothing"},
		{name: "no pods", excess: []string{"cpu", "1"}, wantUncovered: true},
		{
			name: "all that is used: all pods, those without requests too", excess: []string{"cpu", "1", "pods", "3"},
			pods: []*corev1.Pod{runningPod("a", "cpu", "500m"), runningPod("b", "cpu", "500m"), runningPod("c")},
			want: []string{"a", "b", "c"},
		},
		{
			name: "all, lowest priority first, then youngest, then by name", excess: []string{"cpu", "9", "pods", "9"}, wantUncovered: true,
			pods: []*corev1.Pod{
				runningPod("a"), runningPod("b"), withPod(runningPod("high"), ofPriority(10)), withPod(runningPod("low"), ofPriority(-10)),
				withPod(runningPod("young"), agedBy(time.Minute)),
			},
			want: []string{"low", "young", "a", "b", "high"},
		},
		{
			name: "a part: the lowest priority", excess: []string{"cpu", "1"},
			pods: []*corev1.Pod{withPod(runningPod("high", "cpu", "1"), ofPriority(10)), runningPod("low", "cpu", "1")},
			want: []string{"low"},
		},
		{
			name: "a part: the youngest", excess: []string{"cpu", "1"},
			pods: []*corev1.Pod{runningPod("old", "cpu", "1"), withPod(runningPod("young", "cpu", "1"), agedBy(time.Minute))},
			want: []string{"young"},
		},
		{
			name: "a part: those that are not needed are spared", excess: []string{"cpu", "2"},
			pods: []*corev1.Pod{
				withPod(runningPod("small", "cpu", "500m"), ofPriority(-1)), runningPod("large", "cpu", "2"), withPod(runningPod("high", "cpu", "2"), ofPriority(1)),
			},
			want: []string{"large"},
		},
		{
			name: "a part: those that do not help stay", excess: []string{"memory", "1Gi"},
			pods: []*corev1.Pod{withPod(runningPod("a", "cpu", "1"), ofPriority(-1)), runningPod("b", "cpu", "1", "memory", "1Gi")},
			want: []string{"b"},
		},
		{
			name: "a part of several resources", excess: []string{"cpu", "1", "memory", "1Gi"},
			pods: []*corev1.Pod{runningPod("a", "cpu", "1"), runningPod("b", "memory", "1Gi"), runningPod("c", "cpu", "1", "memory", "1Gi")},
			want: []string{"a", "b"},
		},
		{
			name: "a part in pods", excess: []string{"pods", "1"},
			pods: []*corev1.Pod{runningPod("a"), runningPod("b", "cpu", "1")},
			want: []string{"a"},
		},
		{
			name: "pods that terminate are leaving", excess: []string{"cpu", "2"}, wantAgain: 90 * time.Second,
			pods: []*corev1.Pod{
				withPod(runningPod("leaves", "cpu", "1"), endingIn(30*time.Second)), withPod(runningPod("late", "cpu", "1"), endingIn(time.Hour)),
				runningPod("a", "cpu", "1"),
			},
		},
		{
			name: "a part of it leaves", excess: []string{"cpu", "2"}, wantAgain: time.Second,
			pods: []*corev1.Pod{
				withPod(runningPod("leaves", "cpu", "1"), endingIn(-59*time.Second)), runningPod("a", "cpu", "1"), runningPod("b", "cpu", "1"),
			},
			want: []string{"a"},
		},
		{
			name: "a pod that a finalizer holds for long is not leaving, and is not evicted again", excess: []string{"cpu", "2"}, wantUncovered: true,
			pods: []*corev1.Pod{withPod(runningPod("held", "cpu", "1"), endingIn(-time.Minute)), runningPod("a", "cpu", "1")},
			want: []string{"a"},
		},
		{
			name: "other pods are not concerned", excess: []string{"cpu", "9", "pods", "9"}, wantUncovered: true,
			pods: []*corev1.Pod{
				withPod(runningPod("elsewhere", "cpu", "1"), onNode("r2.n1")), withPod(runningPod("waits", "cpu", "1"), onNode("")),
				withPod(runningPod("ended", "cpu", "1"), ended), withPod(runningPod("named", "cpu", "1"), onNode("r1")),
				withPod(runningPod("chosen", "cpu", "1"), onNode(""), func(pod *corev1.Pod) {
					pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"}
				}),
				withPod(runningPod("lies", "cpu", "1"), func(pod *corev1.Pod) {
					pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r2"}
				}),
			},
			want: []string{"lies", "named"},
		},
		{
			name: "pods whose tenant says that they are not bound are of the super cluster of their node", excess: []string{"cpu", "9", "pods", "9"}, wantUncovered: true,
			pods: []*corev1.Pod{
				withPod(runningPod("reset", "cpu", "1"), unbound), withPod(runningPod("elsewhere", "cpu", "1"), unbound, onNode("r2.n1")),
				withPod(runningPod("lies", "cpu", "1"), unbound, func(pod *corev1.Pod) {
					pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r2"}
				}),
				withPod(runningPod("leaves", "cpu", "1"), unbound, endingIn(30*time.Second)),
			},
			want: []string{"lies", "reset"}, wantAgain: 90 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			eviction := leavingR1(tc.excess...)
			pods := inView(t, tc.pods...)
			got := chooseEvictions(pods, &eviction, schedulingtest.EvictionNow)
			var names []string
			for _, pod := range got.pods {
				names = append(names, pod.Name)
			}
			require.Equal(t, tc.want, names)
			require.Equal(t, tc.wantUncovered, !got.covered)
			require.Equal(t, tc.wantAgain, got.again)
			require.Equal(t, inView(t, tc.pods...), pods, "the informer's pods are not changed")
		})
	}
}

func BenchmarkChooseEvictions(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 10_000 {
		object, _ := view.TenantPod(runningPod(fmt.Sprint(i), "cpu", "100m", "memory", "100Mi"))
		pods = append(pods, object.(*corev1.Pod))
	}
	eviction := leavingR1("cpu", "500")
	for b.Loop() {
		chooseEvictions(pods, &eviction, schedulingtest.EvictionNow)
	}
}
