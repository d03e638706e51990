package volumehome_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/volumehome"
	"github.com/superpool/superpool/test/builders"
)

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	made := st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{slicepod.Resource(corev1.ResourcePods, "web"): "10"}).Obj()
	for _, do := range change {
		do(made)
	}
	return made
}

func claim(name, class, home, volume string) *corev1.PersistentVolumeClaim {
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class), VolumeName: volume},
	}
	if home != "" {
		made.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: home}
	}
	return made
}

// restored returns a claim that is to be restored from snapshot s.
func restored(name, home string) *corev1.PersistentVolumeClaim {
	made := claim(name, "fast", home, "")
	made.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"}
	return made
}

// failed returns a claim without a home that super clusters did not make, the first of them first.
func failed(name, class string, superClusters ...string) *corev1.PersistentVolumeClaim {
	made := claim(name, class, "", "")
	var failures failedchoice.Failures
	for i, id := range superClusters {
		failures = failures.Plus(id, failedchoice.Quota, time.Now().Add(time.Duration(i-len(superClusters))*time.Second))
	}
	made.Annotations = map[string]string{schedulerv1alpha1.AnnotationFailedSuperClusters: failures.String()}
	return made
}

func class(name string, offering ...string) *storagev1.StorageClass {
	made := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for _, id := range offering {
		made.Annotations["offered-by.tenancy.x-k8s.io/"+id] = "x"
	}
	return made
}

// framework runs the plugin over Nodes r1, r2 and r3, of which r3 is drained, with claims and classes.
func newFramework(t *testing.T) (*plugintest.Framework, *fake.Clientset) {
	t.Helper()
	api := builders.Clientset(
		claim("new", "fast", "", ""), claim("few", "few", "", ""), claim("chosen1", "fast", "r1", ""), claim("bound2", "fast", "r1", "r2.pv"),
		claim("own", "fast", "r1", "own"), claim("drained", "fast", "r3", ""), claim("gone", "fast", "r9", ""), claim("classless", "", "", ""),
		claim("unknown", "unknown", "", ""), claim("unoffered", "unoffered", "", ""), claim("p-v", "fast", "r2", ""), claim("elsewhere", "fast", "r4", ""),
		restored("restored", ""), restored("homed", "r2"),
		failed("failed1", "fast", "r1"), failed("failed2", "fast", "r2"), failed("failed-few", "few", "r2"), failed("failed-all", "fast", "r1", "r2", "r3"),
		class("fast", "r1", "r2", "r3"), class("few", "r2"), class("unoffered"),
	)
	factory := informers.NewSharedInformerFactory(api, 0)
	drained := func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: "drain", Effect: corev1.TaintEffectNoSchedule}}
	}
	f := plugintest.NewFramework(t, volumehome.Name, volumehome.New(volumehome.NewState()), []*corev1.Node{node("r1"), node("r2"), node("r3", drained), node("r4", func(node *corev1.Node) { node.Status.Allocatable = nil })},
		runtime.WithInformerFactory(factory), runtime.WithClientSet(api))
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	return f, api
}

func podOf(claims ...string) *corev1.Pod {
	pod := st.MakePod().Namespace("web").Name("p").UID("pod").Obj()
	for _, name := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	return pod
}

func TestFilter(t *testing.T) {
	t.Parallel()
	ephemeral := podOf()
	ephemeral.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	tolerating := podOf("drained")
	tolerating.Spec.Tolerations = []corev1.Toleration{{Key: "drain", Operator: corev1.TolerationOpExists}}
	const out = volumehome.ErrReasonFailed
	notFew := volumehome.ErrReasonNotOffered + "few"
	at := func(home string) string { return volumehome.ErrReasonElsewhere + home }
	for name, tc := range map[string]struct {
		pod *corev1.Pod
		// want are the refusals by super cluster, wantAll is that of PreFilter.
		want    map[string]string
		wantAll string
	}{
		"no claims":                        {pod: podOf()},
		"a new claim":                      {pod: podOf("new"), want: map[string]string{"r4": volumehome.ErrReasonNotOffered + "fast"}},
		"a class that one offers":          {pod: podOf("new", "few"), want: map[string]string{"r1": notFew, "r3": notFew, "r4": volumehome.ErrReasonNotOffered + "fast"}},
		"a home that was chosen":           {pod: podOf("chosen1", "new"), want: map[string]string{"r2": at("claim chosen1 is in r1"), "r3": at("claim chosen1 is in r1"), "r4": at("claim chosen1 is in r1")}},
		"a bound claim":                    {pod: podOf("bound2"), want: map[string]string{"r1": at("claim bound2 is in r2"), "r3": at("claim bound2 is in r2"), "r4": at("claim bound2 is in r2")}},
		"an ephemeral volume":              {pod: ephemeral, want: map[string]string{"r1": at("claim p-v is in r2"), "r3": at("claim p-v is in r2"), "r4": at("claim p-v is in r2")}},
		"two homes":                        {pod: podOf("new", "chosen1", "bound2"), wantAll: "the pod's claims are in several super clusters: claim chosen1 is in r1, claim bound2 is in r2"},
		"a claim that one did not make":    {pod: podOf("failed1"), want: map[string]string{"r1": out, "r4": volumehome.ErrReasonNotOffered + "fast"}},
		"claims that two did not make":     {pod: podOf("failed1", "failed2"), want: map[string]string{"r1": out, "r2": out, "r4": volumehome.ErrReasonNotOffered + "fast"}},
		"one that all did not make":        {pod: podOf("failed-all"), want: map[string]string{"r2": out, "r3": out, "r4": volumehome.ErrReasonNotOffered + "fast"}},
		"one that no other offers":         {pod: podOf("failed-few"), want: map[string]string{"r1": notFew, "r3": notFew, "r4": notFew}},
		"one beside another's home":        {pod: podOf("failed1", "chosen1"), want: map[string]string{"r2": at("claim chosen1 is in r1"), "r3": at("claim chosen1 is in r1"), "r4": at("claim chosen1 is in r1")}},
		"no such claim":                    {pod: podOf("nobody"), wantAll: "claim nobody does not exist"},
		"a volume of the tenant's":         {pod: podOf("own"), wantAll: "claim own is bound to volume own, which is in no super cluster"},
		"without a class":                  {pod: podOf("classless"), wantAll: "claim classless has no StorageClass"},
		"an unknown class":                 {pod: podOf("unknown"), wantAll: "StorageClass unknown of claim unknown does not exist"},
		"a class that nobody offers":       {pod: podOf("unoffered"), wantAll: "no super cluster offers StorageClass unoffered of claim unoffered"},
		"a snapshot in no super cluster":   {pod: podOf("new", "restored"), wantAll: "claim restored is to be restored from VolumeSnapshot s, which is in no super cluster yet"},
		"the home of a snapshot":           {pod: podOf("new", "homed"), want: map[string]string{"r1": at("claim homed is in r2"), "r3": at("claim homed is in r2"), "r4": at("claim homed is in r2")}},
		"a drained home":                   {pod: podOf("drained"), wantAll: "claim drained is in super cluster r3, which takes no new pods: a volume does not move"},
		"a drained home that is tolerated": {pod: tolerating, want: map[string]string{"r1": at("claim drained is in r3"), "r2": at("claim drained is in r3"), "r4": at("claim drained is in r3")}},
		"a home without the namespace":     {pod: podOf("gone"), wantAll: "claim gone is in super cluster r9, where the namespace holds nothing: a volume does not move"},
		"a home of other namespaces":       {pod: podOf("elsewhere"), wantAll: "claim elsewhere is in super cluster r4, where the namespace holds nothing: a volume does not move"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := newFramework(t)
			got, status := f.Filter(t.Context(), tc.pod)
			if tc.wantAll != "" {
				require.Equal(t, fwk.UnschedulableAndUnresolvable, status.Code())
				require.Equal(t, tc.wantAll, status.Message())
				return
			}
			require.True(t, status.IsSuccess() || status.IsSkip(), status.Message())
			for name, message := range got {
				if message == "" {
					delete(got, name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && len(tc.want)+len(got) > 0 {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPreBind: claims without a home get that of the pod, as the plugin has seen them; others are not written.
func TestPreBind(t *testing.T) {
	t.Parallel()
	f, api := newFramework(t)
	patches := func() (all []string) {
		for _, action := range api.Actions() {
			if patch, ok := action.(clienttesting.PatchAction); ok {
				all = append(all, patch.GetName()+" "+string(patch.GetPatch()))
			}
		}
		return all
	}
	state := framework.NewCycleState()
	require.True(t, f.RunPreBindPlugins(t.Context(), state, podOf(), "r1").IsSuccess())
	require.Empty(t, patches())
	require.True(t, f.RunPreBindPlugins(t.Context(), state, podOf("chosen1", "new"), "r1").IsSuccess())
	require.Equal(t, []string{
		`new {"metadata":{"annotations":{"scheduler.tenancy.x-k8s.io/superCluster":"r1"},"resourceVersion":"7","uid":"uid-new"}}`,
	}, patches())
	status := f.RunPreBindPlugins(t.Context(), state, podOf("bound2"), "r1")
	require.Contains(t, status.Message(), "claim bound2 is in r2")
	require.Len(t, patches(), 1)
	require.ErrorContains(t, f.RunPreBindPlugins(t.Context(), state, podOf("nobody"), "r1").AsError(), "reading claim nobody")
}

func TestHint(t *testing.T) {
	t.Parallel()
	f, _ := newFramework(t)
	for name, tc := range map[string]struct {
		action        fwk.ActionType
		before, after any
		want          plugintest.Hint
	}{
		"its claim":         {fwk.Add, nil, claim("new", "fast", "", ""), plugintest.Queues},
		"its claim is gone": {fwk.Delete, claim("new", "fast", "", ""), nil, plugintest.Queues},
		"another claim":     {fwk.Add, nil, claim("other", "fast", "", ""), plugintest.Skips},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, f.Hint(t, volumehome.Name, fwk.ClusterEvent{Resource: fwk.PersistentVolumeClaim, ActionType: tc.action}, podOf("new"), tc.before, tc.after))
		})
	}
}
