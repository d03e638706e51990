package volumehome_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/volumehome"
)

// holding is a Node where the namespace holds so much storage, "" for none that is counted.
func holding(name, storage string) *corev1.Node {
	return node(name, func(node *corev1.Node) {
		if storage != "" {
			node.Status.Allocatable[slicepod.Resource(corev1.ResourceStorage, "web")] = resource.MustParse(storage)
		}
	})
}

// sized is a claim of class fast that requests so much.
func sized(name, size, home string) *corev1.PersistentVolumeClaim {
	made := claim(name, "fast", home, "")
	made.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return made
}

// rooms runs the plugin over nodes, with claims.
func rooms(t *testing.T, nodes []*corev1.Node, claims ...*corev1.PersistentVolumeClaim) (*plugintest.Framework, *fake.Clientset) {
	t.Helper()
	api := fake.NewClientset(class("fast", "r1", "r2", "r3"))
	for _, claim := range claims {
		require.NoError(t, api.Tracker().Add(claim))
	}
	factory := informers.NewSharedInformerFactory(api, 0)
	f := plugintest.NewFramework(t, volumehome.Name, volumehome.New(volumehome.NewState()), nodes, runtime.WithInformerFactory(factory), runtime.WithClientSet(api))
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return f, api
}

func TestRoomForClaims(t *testing.T) {
	t.Parallel()
	grown := sized("grown", "1Gi", "r1")
	grown.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}
	other := sized("other", "9Gi", "r1")
	other.Namespace = "db"
	const full = volumehome.ErrReasonNoStorage
	for name, tc := range map[string]struct {
		nodes  []*corev1.Node
		claims []*corev1.PersistentVolumeClaim
		pod    *corev1.Pod
		// want are the refusals by super cluster, wantAll is that of PreFilter.
		want    map[string]string
		wantAll string
	}{
		"no quota names storage": {
			nodes: []*corev1.Node{holding("r1", ""), holding("r2", "")}, claims: []*corev1.PersistentVolumeClaim{sized("new", "100Gi", "")}, pod: podOf("new"),
		},
		"room in both": {
			nodes: []*corev1.Node{holding("r1", "5Gi"), holding("r2", "5Gi")}, claims: []*corev1.PersistentVolumeClaim{sized("new", "5Gi", "")}, pod: podOf("new"),
		},
		"room beside others": {
			nodes:  []*corev1.Node{holding("r1", "5Gi"), holding("r2", "5Gi")},
			claims: []*corev1.PersistentVolumeClaim{sized("new", "2Gi", ""), grown, sized("small", "3Gi", "r2"), other}, pod: podOf("new"),
			want: map[string]string{"r1": full},
		},
		"two claims": {
			nodes:  []*corev1.Node{holding("r1", "5Gi"), holding("r2", "3Gi")},
			claims: []*corev1.PersistentVolumeClaim{sized("a", "2Gi", ""), sized("b", "2Gi", "")}, pod: podOf("a", "b"), want: map[string]string{"r2": full},
		},
		"one claim twice": {
			nodes:  []*corev1.Node{holding("r1", "2Gi"), holding("r2", "2Gi")},
			claims: []*corev1.PersistentVolumeClaim{sized("a", "2Gi", "")}, pod: podOf("a", "a"),
		},
		"beside one with a home": {
			nodes:  []*corev1.Node{holding("r1", "3Gi"), holding("r2", "5Gi")},
			claims: []*corev1.PersistentVolumeClaim{sized("a", "2Gi", ""), sized("b", "2Gi", "r1")}, pod: podOf("a", "b"),
			want: map[string]string{"r1": full, "r2": volumehome.ErrReasonElsewhere + "claim b is in r1"},
		},
		"more is used than is held": {
			nodes:  []*corev1.Node{holding("r1", "1Gi"), holding("r2", "1Gi")},
			claims: []*corev1.PersistentVolumeClaim{sized("new", "1Gi", ""), grown}, pod: podOf("new"), want: map[string]string{"r1": full},
		},
		"all have a home": {
			nodes: []*corev1.Node{holding("r1", "1Gi"), holding("r2", "1Gi")}, claims: []*corev1.PersistentVolumeClaim{grown}, pod: podOf("grown"),
			want: map[string]string{"r2": volumehome.ErrReasonElsewhere + "claim grown is in r1"},
		},
		"one that is too large": {
			nodes: []*corev1.Node{holding("r1", "5Gi"), holding("r2", "4Gi")}, claims: []*corev1.PersistentVolumeClaim{sized("large", "6Gi", "")}, pod: podOf("large"),
			wantAll: "claim large requests 6Gi, and the namespace holds at most 5Gi of storage in one super cluster: larger slices, or storage in annotation scheduler.tenancy.x-k8s.io/slice of the namespace, make larger pieces",
		},
		"two that are too large together": {
			nodes:  []*corev1.Node{holding("r1", "5Gi"), holding("r2", "0")},
			claims: []*corev1.PersistentVolumeClaim{sized("a", "3Gi", ""), sized("b", "3Gi", "")}, pod: podOf("a", "b"),
			wantAll: "the pod's 2 claims without a super cluster request 6Gi together, and the namespace holds at most 5Gi of storage in one super cluster: larger slices, or storage in annotation scheduler.tenancy.x-k8s.io/slice of the namespace, make larger pieces",
		},
		"monstrous ones": {
			nodes:  []*corev1.Node{holding("r1", "5Gi"), holding("r2", "5Gi")},
			claims: []*corev1.PersistentVolumeClaim{sized("a", "1e40", ""), sized("b", "1e40", "")}, pod: podOf("a", "b"),
			wantAll: "the pod's 2 claims without a super cluster request 8Pi together, and the namespace holds at most 5Gi of storage in one super cluster: larger slices, or storage in annotation scheduler.tenancy.x-k8s.io/slice of the namespace, make larger pieces",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := rooms(t, tc.nodes, tc.claims...)
			got, status := f.Filter(t.Context(), tc.pod)
			if tc.wantAll != "" {
				require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
				require.Equal(t, tc.wantAll, status.Message())
				return
			}
			require.True(t, status.IsSuccess(), status.Message())
			want := map[string]string{"r1": tc.want["r1"], "r2": tc.want["r2"]}
			require.Equal(t, want, got)
		})
	}
}

// TestTheLastRoomIsGivenOnce: what a pod was reserved counts before the informer shows it, and no more when the pod is
// not bound after all.
func TestTheLastRoomIsGivenOnce(t *testing.T) {
	t.Parallel()
	first, second, third := podOf("a"), podOf("b"), podOf("a")
	first.UID, second.UID, third.UID = "first", "second", "third"
	f, api := rooms(t, []*corev1.Node{holding("r1", "5Gi")}, sized("a", "3Gi", ""), sized("b", "3Gi", ""))
	reserve := func(pod *corev1.Pod) *framework.CycleState {
		t.Helper()
		state := framework.NewCycleState()
		_, status, _ := f.RunPreFilterPlugins(t.Context(), state, pod)
		require.True(t, status.IsSuccess(), status.Message())
		require.True(t, f.RunReservePluginsReserve(t.Context(), state, pod, "r1").IsSuccess())
		return state
	}
	fits := func(pod *corev1.Pod) bool {
		t.Helper()
		got, status := f.Filter(t.Context(), pod)
		require.True(t, status.IsSuccess(), status.Message())
		return got["r1"] == ""
	}
	require.True(t, fits(second))
	state := reserve(first)
	require.False(t, fits(second), "the first pod is about to take the room")
	require.True(t, fits(third), "its claim has it already")
	thirds := reserve(third)
	f.RunReservePluginsUnreserve(t.Context(), thirds, third, "r1")
	require.False(t, fits(second), "the first pod has it still")
	f.RunReservePluginsUnreserve(t.Context(), state, first, "r1")
	f.RunReservePluginsUnreserve(t.Context(), state, first, "r1")
	require.True(t, fits(second))

	state = reserve(first)
	require.True(t, f.RunPreBindPlugins(t.Context(), state, first, "r1").IsSuccess())
	require.Eventually(t, func() bool {
		known, err := f.SharedInformerFactory().Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims("web").Get("a")
		return err == nil && len(known.Annotations) > 0
	}, 10*time.Second, 10*time.Millisecond)
	require.False(t, fits(second), "the claim has its home")
	require.NoError(t, api.CoreV1().PersistentVolumeClaims("web").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return fits(second) }, 10*time.Second, 10*time.Millisecond)
}

func TestHintsOfRoom(t *testing.T) {
	t.Parallel()
	f, _ := rooms(t, nil)
	smaller := sized("other", "1Gi", "r1")
	foreign := sized("other", "2Gi", "r1")
	foreign.Namespace = "db"
	unbound := podOf("other")
	unbound.Spec.Volumes = nil
	for name, tc := range map[string]struct {
		resource      fwk.EventResource
		action        fwk.ActionType
		before, after any
		want          plugintest.Hint
	}{
		"a claim goes":                   {fwk.PersistentVolumeClaim, fwk.Delete, sized("other", "2Gi", "r1"), nil, plugintest.Queues},
		"a claim shrinks":                {fwk.PersistentVolumeClaim, fwk.Update, sized("other", "2Gi", "r1"), smaller, plugintest.Queues},
		"a claim grows":                  {fwk.PersistentVolumeClaim, fwk.Update, smaller, sized("other", "2Gi", "r1"), plugintest.Skips},
		"a claim that was nowhere goes":  {fwk.PersistentVolumeClaim, fwk.Delete, sized("other", "2Gi", ""), nil, plugintest.Skips},
		"a claim gets a home":            {fwk.PersistentVolumeClaim, fwk.Update, sized("other", "2Gi", ""), sized("other", "2Gi", "r1"), plugintest.Skips},
		"a claim is elsewhere now":       {fwk.PersistentVolumeClaim, fwk.Update, sized("other", "2Gi", "r1"), sized("other", "2Gi", "r2"), plugintest.Queues},
		"one of another namespace goes":  {fwk.PersistentVolumeClaim, fwk.Delete, foreign, nil, plugintest.Skips},
		"the namespace holds more":       {fwk.Node, fwk.UpdateNodeAllocatable, holding("r1", "1Gi"), holding("r1", "2Gi"), plugintest.Queues},
		"a pod with claims is not bound": {fwk.Pod, fwk.Delete, podOf("other"), nil, plugintest.Queues},
		"a pod without claims goes":      {fwk.Pod, fwk.Delete, unbound, nil, plugintest.Skips},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, f.Hint(t, volumehome.Name, fwk.ClusterEvent{Resource: tc.resource, ActionType: tc.action}, podOf("new"), tc.before, tc.after))
		})
	}
}
