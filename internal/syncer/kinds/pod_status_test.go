package kinds_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// statuses returns one of each container: those whose names begin with "+" are ready.
func statuses(names ...string) []corev1.ContainerStatus {
	return kindtest.List(len(names), func(i int) corev1.ContainerStatus {
		if names[i][0] == '+' {
			return corev1.ContainerStatus{Name: names[i][1:], Ready: true}
		}
		return corev1.ContainerStatus{Name: names[i]}
	})
}

// TestContainersOfTheSuperCluster: what a webhook below adds to a pod is no container of the tenant's, in READY, exit
// codes or messages.
func TestContainersOfTheSuperCluster(t *testing.T) {
	t.Parallel()
	tenantPod := kindtest.PodWith("r1.n1", corev1.PodStatus{})
	tenantPod.Spec.InitContainers, tenantPod.Spec.Containers = kindtest.Containers("setup", "side"), kindtest.Containers("b", "a")
	tenantPod.Spec.EphemeralContainers = kindtest.Ephemeral("debug")
	tenantPod.Spec.InitContainers[1].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	const added = "a container that the super cluster added is not ready"
	for _, tc := range []struct {
		name string
		// init and main are the statuses of the super pod.
		init, main []corev1.ContainerStatus
		reason     string
		message    string
		want       string
	}{
		{name: "nothing is added", init: statuses("+setup", "+side"), main: statuses("+a", "b"), message: "containers with unready status: [b]", want: "containers with unready status: [b]"},
		{name: "what is added is ready", init: statuses("+proxy-init", "+setup", "+side"), main: statuses("+a", "b", "+proxy"), message: "containers with unready status: [b]", want: "containers with unready status: [b]"},
		{name: "what is added is not ready", init: statuses("+setup", "+side"), main: statuses("+a", "+b", "proxy"), message: "containers with unready status: [proxy]", want: added},
		{name: "nor is the tenant's", init: statuses("+setup", "side"), main: statuses("+a", "b", "proxy"), message: "containers with unready status: [side b proxy]", want: "containers with unready status: [side b], and " + added},
		{name: "nothing is known of what is added", init: statuses("+setup", "+side"), main: statuses("+a", "+b"), message: "containers with unknown status: [proxy]", want: added},
		{name: "what is added begins", init: statuses("proxy-init", "setup", "side"), reason: "ContainersNotInitialized", message: "containers with incomplete status: [proxy-init setup side]", want: "containers with unready status: [setup side], and " + added},
		{name: "something else", init: statuses("+setup", "+side"), main: statuses("+a", "+b", "proxy"), reason: "PodFailed", message: "m", want: "m"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			superPod := tenantPod.DeepCopy()
			superPod.Spec.NodeName = "n1"
			superPod.Spec.InitContainers = append(kindtest.Containers("proxy-init"), superPod.Spec.InitContainers...)
			superPod.Spec.Containers = append(superPod.Spec.Containers, kindtest.Containers("proxy")...)
			if tc.name == "nothing is added" {
				superPod.Spec.InitContainers, superPod.Spec.Containers = tenantPod.Spec.InitContainers, tenantPod.Spec.Containers
			}
			reason := tc.reason
			if reason == "" {
				reason = "ContainersNotReady"
			}
			superPod.Status = corev1.PodStatus{
				InitContainerStatuses: tc.init, ContainerStatuses: tc.main, EphemeralContainerStatuses: statuses("debug", "operator"),
				Conditions: []corev1.PodCondition{
					{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: reason, Message: tc.message},
					{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: tc.message},
				},
			}
			untouched := superPod.DeepCopy()
			got, ok := podspec.TenantPodStatus(tenantPod, superPod, "r1", time.Unix(300, 0))
			require.True(t, ok)
			require.Empty(t, cmp.Diff(untouched, superPod), "it lies in a cache")
			namesOf := func(statuses []corev1.ContainerStatus) (names []string) {
				for i := range statuses {
					names = append(names, statuses[i].Name)
				}
				return names
			}
			require.Equal(t, []string{"setup", "side"}, namesOf(got.InitContainerStatuses))
			require.Equal(t, []string{"debug"}, namesOf(got.EphemeralContainerStatuses))
			if tc.main != nil {
				require.Equal(t, []string{"a", "b"}, namesOf(got.ContainerStatuses))
			}
			for _, condition := range got.Conditions {
				require.Equal(t, corev1.ConditionFalse, condition.Status)
				require.Equal(t, tc.want, condition.Message)
			}
		})
	}
}

// TestTimeOfReady: a Ready that rests on a gate has the time when the tenant's pod changed, for minReadySeconds.
func TestTimeOfReady(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }
	superPod := kindtest.PodWith("n1", corev1.PodStatus{})
	tenantPod := kindtest.PodWith("r1.n1", corev1.PodStatus{}, "gate")
	var before *corev1.PodStatus
	for _, tc := range []struct {
		name string
		now  time.Time
		// ready is that of the super pod, since is when it became so.
		ready corev1.ConditionStatus
		since int64
		gate  corev1.ConditionStatus
		want  corev1.ConditionStatus
		// wantTime is that of Ready in the tenant.
		wantTime int64
	}{
		{name: "it begins", now: time.Unix(100, 0), ready: corev1.ConditionFalse, since: 99, want: corev1.ConditionFalse, wantTime: 100},
		{name: "its containers are ready", now: time.Unix(110, 0), ready: corev1.ConditionTrue, since: 110, want: corev1.ConditionFalse, wantTime: 100},
		{name: "nothing happens", now: time.Unix(120, 0), ready: corev1.ConditionTrue, since: 110, want: corev1.ConditionFalse, wantTime: 100},
		{name: "the gate opens", now: time.Unix(148, 999), ready: corev1.ConditionTrue, since: 110, gate: corev1.ConditionTrue, want: corev1.ConditionTrue, wantTime: 148},
		{name: "and stays", now: time.Unix(160, 0), ready: corev1.ConditionTrue, since: 110, gate: corev1.ConditionTrue, want: corev1.ConditionTrue, wantTime: 148},
		{name: "a container stops", now: time.Unix(170, 0), ready: corev1.ConditionFalse, since: 175, gate: corev1.ConditionTrue, want: corev1.ConditionFalse, wantTime: 170},
		{name: "the clock goes back", now: time.Unix(165, 0), ready: corev1.ConditionFalse, since: 175, gate: corev1.ConditionTrue, want: corev1.ConditionFalse, wantTime: 165},
		{name: "and on", now: time.Unix(166, 0), ready: corev1.ConditionFalse, since: 175, gate: corev1.ConditionTrue, want: corev1.ConditionFalse, wantTime: 165},
	} {
		superPod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: tc.ready, LastTransitionTime: at(tc.since)}}
		if before != nil {
			tenantPod.Status = *before
		}
		tenantPod.Status.Conditions = append(tenantPod.Status.Conditions, kindtest.Condition("gate", tc.gate, ""))
		got, ok := podspec.TenantPodStatus(tenantPod, superPod, "r1", tc.now)
		require.True(t, ok)
		ready := got.Conditions[0]
		require.Equal(t, corev1.PodReady, ready.Type)
		require.Equal(t, tc.want, ready.Status, tc.name)
		require.Equal(t, at(tc.wantTime), ready.LastTransitionTime, tc.name)
		got.Conditions = got.Conditions[:1]
		before = got
	}

	open := kindtest.PodWith("r1.n1", corev1.PodStatus{})
	got, ok := podspec.TenantPodStatus(open, superPod, "r1", time.Unix(400, 0))
	require.True(t, ok)
	require.Equal(t, at(175), got.Conditions[0].LastTransitionTime, "without gates it is the super pod's")
}
