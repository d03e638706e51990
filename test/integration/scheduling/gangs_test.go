package scheduling

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// TestGangs: the members of a PodGroup go to one super cluster, all that it needs or none, across restarts of
// vc-scheduler: one while members are missing, one after choices of some were written, with room for all and without.
func TestGangs(t *testing.T) {
	w := shared
	stop := w.run(t)
	const namespace = "gangs"
	w.namespace(t, namespace, `{"cpu":"300m","memory":"300Mi"}`)
	w.quota(t, namespace, "600m", "600Mi")
	w.wantShown(t, namespace, `{"r1":1,"r2":1}`)
	group := func(name string) {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(3)}}}
		object.SetAPIVersion("scheduling.x-k8s.io/v1alpha1")
		object.SetKind("PodGroup")
		object.SetNamespace(namespace)
		object.SetName(name)
		require.NoError(t, w.tenant.Create(t.Context(), object))
		t.Cleanup(func() { require.NoError(t, w.tenant.Delete(context.WithoutCancel(t.Context()), object)) })
	}
	member := func(group string, i int, change ...func(*corev1.Pod)) *corev1.Pod {
		return w.pod(t, namespace, fmt.Sprintf("%s-%d", group, i), append(change, func(pod *corev1.Pod) {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels["scheduling.x-k8s.io/pod-group"] = group
			pod.Spec.SchedulerName = "gang"
		})...)
	}
	says := func(message string) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
			return scheduled != nil && scheduled.Message == message
		}
	}
	nowhere := func(pod *corev1.Pod) bool {
		return pod.Labels[schedulerv1alpha1.LabelSuperCluster] == "" && pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == ""
	}
	chosen := func(superCluster string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: superCluster}
			pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: superCluster}
		}
	}

	group("mpi")
	first, second := member("mpi", 1), member("mpi", 2)
	w.wantPod(t, second, "the number of members", says("0/2 super clusters are available: gang mpi: 2 of 3 members are here"))
	require.True(t, nowhere(first))
	stop()
	third := member("mpi", 3)
	stop = w.run(t)
	w.wantPod(t, first, "a super cluster", func(pod *corev1.Pod) bool { return in("r1")(pod) || in("r2")(pod) })
	where := first.Labels[schedulerv1alpha1.LabelSuperCluster]
	for _, pod := range []*corev1.Pod{second, third} {
		w.wantPod(t, pod, "the super cluster of the others", in(where))
	}

	// What a process leaves that ends in the midst: one choice, one member that asks, one without either.
	other := map[string]string{"r1": "r2", "r2": "r1"}[where]
	stop()
	group("half")
	half := []*corev1.Pod{member("half", 1, chosen(other)), member("half", 2, chosen(other)), member("half", 3)}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+schedulerv1alpha1.LabelSuperCluster+`":null}}}`))
	require.NoError(t, w.tenant.Patch(t.Context(), half[1], patch))
	stop = w.run(t)
	for _, pod := range half {
		w.wantPod(t, pod, "the super cluster that was chosen", in(other))
	}

	stop()
	group("late")
	late := []*corev1.Pod{member("late", 1, chosen(other)), member("late", 2, chosen(other)), member("late", 3)}
	w.run(t)
	w.wantPod(t, late[2], "why it waits", func(pod *corev1.Pod) bool {
		_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return scheduled != nil && strings.HasPrefix(scheduled.Message, "0/2 super clusters are available: 1 holds no room of namespace gangs")
	})
	require.True(t, nowhere(late[2]))
	for _, pod := range late[:2] {
		w.wantPod(t, pod, "what the process before chose, for it may run there", in(other))
	}
	for _, pod := range append(half, first, second, third) {
		require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	for _, pod := range late {
		w.wantPod(t, pod, "the super cluster of the others, once there is room", in(other))
	}
}

// podGroupCRD returns the file of the CRD of PodGroups.
func podGroupCRD(schedulerPlugins string) string {
	return filepath.Join(schedulerPlugins, "config", "crd", "bases", "scheduling.x-k8s.io_podgroups.yaml")
}
