package volumehome_test

import (
	"fmt"
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

	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/volumehome"
	"github.com/superpool/superpool/test/builders"
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
	api := builders.Clientset(class("fast", "r1", "r2", "r3"))
	for _, claim := range claims {
		require.NoError(t, api.Tracker().Add(claim))
	}
	factory := informers.NewSharedInformerFactory(api, 0)
	f := plugintest.NewFramework(t, volumehome.Name, volumehome.New(volumehome.NewState()), nodes, runtime.WithInformerFactory(factory), runtime.WithClientSet(api))
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	return f, api
}

func TestRoomForClaims(t *testing.T) {
	t.Parallel()
	grown := sized("grown", "1Gi", "r1")
	grown.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}
	other := sized("other", "9Gi", "r1")
	other.Namespace = "db"
	besideMany := []*corev1.PersistentVolumeClaim{sized("new", "2Gi", "")}
	for i := range 1025 {
		besideMany = append(besideMany, sized(fmt.Sprintf("monstrous-%d", i), "1e40", "r1"))
	}
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
		"room beside more than 64 bits count": {
			nodes:  []*corev1.Node{holding("r1", "5Gi"), holding("r2", "5Gi")},
			claims: besideMany, pod: podOf("new"), want: map[string]string{"r1": full},
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

// reserve runs a pod's cycle up to Reserve in r1.
func reserve(t *testing.T, f *plugintest.Framework, pod *corev1.Pod) *framework.CycleState {
	t.Helper()
	state := framework.NewCycleState()
	_, status, _ := f.RunPreFilterPlugins(t.Context(), state, pod)
	require.True(t, status.IsSuccess(), status.Message())
	require.True(t, f.RunReservePluginsReserve(t.Context(), state, pod, "r1").IsSuccess())
	return state
}

// fits reports whether r1 takes a pod.
func fits(t *testing.T, f *plugintest.Framework, pod *corev1.Pod) bool {
	t.Helper()
	got, status := f.Filter(t.Context(), pod)
	require.True(t, status.IsSuccess(), status.Message())
	return got["r1"] == ""
}

// waitForClaim waits until the informer shows a claim as it should be.
func waitForClaim(t *testing.T, f *plugintest.Framework, name string, isSo func(*corev1.PersistentVolumeClaim) bool) {
	t.Helper()
	claims := f.SharedInformerFactory().Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims("web")
	require.Eventually(t, func() bool {
		known, err := claims.Get(name)
		return err == nil && isSo(known)
	}, 10*time.Second, 10*time.Millisecond)
}

// show writes a claim, with the resourceVersion that the fake API server would not give it, and waits until the
// informer shows it.
func show(t *testing.T, f *plugintest.Framework, api *fake.Clientset, claim *corev1.PersistentVolumeClaim, version string) {
	t.Helper()
	claim.ResourceVersion = version
	_, err := api.CoreV1().PersistentVolumeClaims("web").Update(t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(t, err)
	waitForClaim(t, f, claim.Name, func(known *corev1.PersistentVolumeClaim) bool { return known.ResourceVersion == version })
}

func hasHome(claim *corev1.PersistentVolumeClaim) bool { return claimhome.Of(claim) != "" }

// TestTheLastRoomIsGivenOnce: what a pod was reserved counts before the informer shows it, and no more when the pod is
// not bound after all.
func TestTheLastRoomIsGivenOnce(t *testing.T) {
	t.Parallel()
	first, second, third := podOf("a"), podOf("b"), podOf("a")
	first.UID, second.UID, third.UID = "first", "second", "third"
	f, api := rooms(t, []*corev1.Node{holding("r1", "5Gi")}, sized("a", "3Gi", ""), sized("b", "3Gi", ""))
	require.True(t, fits(t, f, second))
	state := reserve(t, f, first)
	require.False(t, fits(t, f, second), "the first pod is about to take the room")
	require.True(t, fits(t, f, third), "its claim has it already")
	thirds := reserve(t, f, third)
	f.RunReservePluginsUnreserve(t.Context(), state, first, "r1")
	f.RunReservePluginsUnreserve(t.Context(), state, first, "r1")
	require.False(t, fits(t, f, second), "the third pod brings the claim still")
	f.RunReservePluginsUnreserve(t.Context(), thirds, third, "r1")
	require.True(t, fits(t, f, second))

	state = reserve(t, f, first)
	require.True(t, f.RunPreBindPlugins(t.Context(), state, first, "r1").IsSuccess())
	waitForClaim(t, f, "a", hasHome)
	require.False(t, fits(t, f, second), "the claim has its home")
	require.NoError(t, api.CoreV1().PersistentVolumeClaims("web").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return fits(t, f, second) }, 10*time.Second, 10*time.Millisecond)
}

// TestAHomeThatIsTakenBackFreesItsRoom: a claim whose home the syncer took back is judged as any other, whether or not
// another pod was reserved in between.
func TestAHomeThatIsTakenBackFreesItsRoom(t *testing.T) {
	t.Parallel()
	first, second := podOf("a"), podOf("b")
	first.UID, second.UID = "first", "second"
	f, api := rooms(t, []*corev1.Node{holding("r1", "5Gi")}, sized("a", "3Gi", ""), sized("b", "3Gi", ""))
	require.True(t, f.RunPreBindPlugins(t.Context(), reserve(t, f, first), first, "r1").IsSuccess())
	waitForClaim(t, f, "a", hasHome)
	show(t, f, api, sized("a", "3Gi", ""), "9")
	require.True(t, fits(t, f, second), "the first pod's claim takes no room there")

	show(t, f, api, sized("b", "3Gi", "r1"), "10")
	require.False(t, fits(t, f, first), "another claim has taken the room meanwhile")
}

// TestRoomIsKeptWhileAClaimChanges: a pod may wait long between Reserve and PreBind, and PreBind writes the claim as it
// is then.
func TestRoomIsKeptWhileAClaimChanges(t *testing.T) {
	t.Parallel()
	first, second := podOf("a"), podOf("b")
	first.UID, second.UID = "first", "second"
	f, api := rooms(t, []*corev1.Node{holding("r1", "5Gi")}, sized("a", "3Gi", ""), sized("b", "3Gi", ""))
	state := reserve(t, f, first)
	show(t, f, api, sized("a", "3Gi", ""), "8")
	require.False(t, fits(t, f, second), "the first pod waits for PreBind")
	require.True(t, f.RunPreBindPlugins(t.Context(), state, first, "r1").IsSuccess())
	waitForClaim(t, f, "a", hasHome)
	require.False(t, fits(t, f, second))
	show(t, f, api, sized("a", "3Gi", ""), "9")
	require.True(t, fits(t, f, second), "the home was taken back")
}

// foreign is no state of the plugin.
type foreign struct{}

func (foreign) Clone() fwk.StateData { return foreign{} }

// TestStateOfAnother: a cycle whose state is not the plugin's fails, and the scheduler goes on.
func TestStateOfAnother(t *testing.T) {
	t.Parallel()
	f, _ := rooms(t, []*corev1.Node{holding("r1", "5Gi")}, sized("a", "3Gi", ""))
	state := framework.NewCycleState()
	require.True(t, f.RunReservePluginsReserve(t.Context(), state, podOf("a"), "r1").IsSuccess(), "PreFilter skipped the pod")
	require.ErrorIs(t, f.RunFilterPlugins(t.Context(), state, podOf("a"), f.Nodes[0]).AsError(), fwk.ErrNotFound)
	state.Write("PreFilter"+volumehome.Name, foreign{})
	require.ErrorContains(t, f.RunFilterPlugins(t.Context(), state, podOf("a"), f.Nodes[0]).AsError(), "foreign")
	require.ErrorContains(t, f.RunReservePluginsReserve(t.Context(), state, podOf("a"), "r1").AsError(), "foreign")
	f.RunReservePluginsUnreserve(t.Context(), state, podOf("a"), "r1")
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
