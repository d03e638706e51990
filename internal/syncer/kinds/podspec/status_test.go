package podspec_test

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

func TestTenantPodStatus(t *testing.T) {
	t.Parallel()
	earlier := metav1.Unix(100, 0)
	for _, tc := range []struct {
		name          string
		tenant, super *corev1.Pod
		// want is nil when the status stays.
		want *corev1.PodStatus
	}{
		{
			name:   "nothing is known yet",
			tenant: kindtest.PodWith("", corev1.PodStatus{Phase: corev1.PodPending}),
			super:  kindtest.PodWith("", corev1.PodStatus{Phase: corev1.PodPending}),
		},
		{
			name:   "the super cluster finds no node",
			tenant: kindtest.PodWith("", corev1.PodStatus{Phase: corev1.PodPending}),
			super: kindtest.PodWith("", corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."},
			}}),
			want: &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "super cluster r1: no node takes the pod now: too little cpu is free"},
			}},
		},
		{
			name: "the time of the transition stays",
			tenant: kindtest.PodWith("", corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "before", LastTransitionTime: earlier, ObservedGeneration: 3},
			}}),
			super: kindtest.PodWith("", corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "now", LastTransitionTime: metav1.Unix(200, 0), ObservedGeneration: 1},
			}}),
			want: &corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "super cluster r1: no node takes the pod now; its operator can read why", LastTransitionTime: earlier, ObservedGeneration: 3},
			}},
		},
		{
			name: "a pod that runs",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{
				Phase: corev1.PodPending, QOSClass: corev1.PodQOSGuaranteed, ObservedGeneration: 2, StartTime: &metav1.Time{},
				Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "tenant"), kindtest.Condition(corev1.PodResizePending, corev1.ConditionTrue, "stale"), kindtest.Condition(corev1.AllContainersRestarting, corev1.ConditionTrue, "stale")},
			}),
			super: kindtest.PodWith("n1", corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", NominatedNodeName: "n2", QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 7,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, ObservedGeneration: 7}, kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "super"),
				},
			}),
			want: &corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", QOSClass: corev1.PodQOSGuaranteed, ObservedGeneration: 2,
				Conditions: []corev1.PodCondition{
					kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, ""), kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "tenant"),
				},
			},
		},
		{
			name:   "names of the super cluster",
			tenant: kindtest.PodNamed("web", "tenant-uid", kindtest.PodWith("r1.n1", corev1.PodStatus{})),
			super: kindtest.PodNamed("vc-web", "super-uid", kindtest.PodWith("n1", corev1.PodStatus{
				Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodReady, corev1.ConditionFalse, "back-off of p_vc-web(super-uid)")},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Message: "back-off 10s restarting failed container=c pod=p_vc-web(super-uid)"},
				}}},
			})),
			want: &corev1.PodStatus{
				Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodReady, corev1.ConditionFalse, "back-off of p_web(tenant-uid)")},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Message: "back-off 10s restarting failed container=c pod=p_web(tenant-uid)"},
				}}},
			},
		},
		{
			name: "what others than kubelets say in the tenant stays",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{
				kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by the tenant"), kindtest.Condition("example.com/checked", corev1.ConditionTrue, ""),
			}}),
			super: kindtest.PodWith("n1", corev1.PodStatus{Phase: corev1.PodFailed}),
			want: &corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{
				kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by the tenant"), kindtest.Condition("example.com/checked", corev1.ConditionTrue, ""),
			}},
		},
		{
			name:   "unless the super cluster says it too",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionFalse, "before")}}),
			super:  kindtest.PodWith("n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by a kubelet")}}),
			want:   &corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by a kubelet")}},
		},
		{
			name:   "a readiness gate that is not True bounds Ready",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition("gate", corev1.ConditionFalse, "mine")}}, "gate"),
			super: kindtest.PodWith("n1", corev1.PodStatus{Conditions: []corev1.PodCondition{
				kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, ""), kindtest.Condition("gate", corev1.ConditionTrue, "not mine"),
			}}),
			want: &corev1.PodStatus{Conditions: []corev1.PodCondition{
				{
					Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "readiness gate gate is not True",
					LastTransitionTime: metav1.Unix(300, 0),
				},
				kindtest.Condition("gate", corev1.ConditionFalse, "mine"),
			}},
		},
		{
			name:   "a readiness gate that is True",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition("gate", corev1.ConditionTrue, "")}}, "gate"),
			super:  kindtest.PodWith("n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, "")}}),
			want: &corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(300, 0)}, kindtest.Condition("gate", corev1.ConditionTrue, ""),
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			untouched := []*corev1.Pod{tc.tenant.DeepCopy(), tc.super.DeepCopy()}
			got, changes := podspec.TenantPodStatus(tc.tenant, tc.super, "r1", time.Unix(300, 0))
			require.Equal(t, tc.want != nil, changes)
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Empty(t, cmp.Diff(untouched, []*corev1.Pod{tc.tenant, tc.super}), "the pods lie in caches")
		})
	}
}

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
