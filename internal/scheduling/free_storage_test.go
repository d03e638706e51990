package scheduling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
)

// noStorage is that of super clusters that say nothing of theirs.
func noStorage() shownStorage {
	return shownStorage{all: newFreeStorage(), shows: func(string) bool { return true }}
}

// saying returns virtual Nodes that say what is free.
func saying(free map[string]string) map[string]*corev1.Node {
	nodes := map[string]*corev1.Node{}
	for name, text := range free {
		nodes[name] = st.MakeNode().Name(name).Annotation(schedulerv1alpha1.AnnotationFreeStorage, text).Obj()
	}
	return nodes
}

// TestFreeStorage: every tenant is told what changes, and of what goes that it has no bound any more.
func TestFreeStorage(t *testing.T) {
	t.Parallel()
	storage := newFreeStorage()
	var told []string
	say := func(what string, object any) {
		capacity := object.(*storagev1.CSIStorageCapacity)
		size := capacity.Capacity.String()
		if capacity.Capacity.Value() > 1<<60 {
			size = "any"
		}
		told = append(told, what+" "+capacity.Namespace+"/"+capacity.Name+" "+size)
	}
	storage.set(saying(map[string]string{"r1": `{"fast":"10Gi"}`}))
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { say("add", object) }, DeleteFunc: func(object any) { say("delete", object) },
		UpdateFunc: func(_, object any) { say("update", object) },
	}
	storage.subscribe(t.Context(), handler)
	for _, step := range []struct {
		free map[string]string
		want []string
	}{
		{map[string]string{"r1": `{"fast":"10Gi"}`}, []string{"add r1/fast 10Gi"}},
		{map[string]string{"r1": `{"fast":"10Gi"}`, "r2": ""}, []string{"add r2/fast any"}},
		{map[string]string{"r1": `{"fast":"20Gi"}`, "r2": ""}, []string{"update r1/fast 20Gi"}},
		{map[string]string{"r1": `{"fast":"20Gi"}`, "r2": `{"fast":"0"}`}, []string{"update r2/fast 0"}},
		{map[string]string{"r1": "", "r2": `{"fast":"0"}`}, []string{"update r1/fast any"}},
		{map[string]string{"r2": `{"fast":"0"}`}, []string{"update r1/fast any", "delete r1/fast any"}},
		{map[string]string{"r2": ""}, []string{"update r2/fast any", "delete r2/fast any"}},
		{map[string]string{"r2": ""}, nil},
	} {
		storage.set(saying(step.free))
		if step.want != nil && step.want[0] == "update r1/fast any" && len(step.want) == 2 {
			step.want = step.want[1:] // it had no bound before
		}
		require.Equal(t, step.want, told)
		told = nil
	}
	require.Empty(t, storage.drivers.List())
	require.Empty(t, storage.capacities.List())
}

// TestPodsOfFreeStorage lets the pods of a tenant use claims of a class of which super clusters say what is free.
func TestPodsOfFreeStorage(t *testing.T) {
	t.Parallel()
	shows := func(classes ...string) *policy.Policy {
		spec := policy.Default().Spec().DeepCopy()
		spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim")
		spec.Pods.StorageClasses = classes
		changed, err := policy.New("volumes", spec)
		require.NoError(t, err)
		return changed
	}
	c := newTenantWith(t, func(c *tenantControlPlane) {
		c.policy.Set(shows("fast"))
		c.storage.all.set(saying(map[string]string{"r1": `{"fast":"10Gi","hidden":"0"}`, "r2": `{"fast":"20Gi","hidden":"0"}`}))
	})
	for _, name := range []string{"r1", "r2"} {
		c.cluster(name)
		c.place("web", name, "5")
	}
	for _, name := range []string{"fast", "hidden"} {
		class := storageClassOf(storagev1.VolumeBindingWaitForFirstConsumer, "r1", "r2")
		class.Name = name
		_, err := c.api.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	uses := func(name, class, size string) {
		claim := homelessClaim(name, func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.StorageClassName = ptr.To(class)
			claim.Spec.Resources.Requests = builders.Resources("storage", size)
		})
		_, err := c.api.CoreV1().PersistentVolumeClaims("web").Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
		c.create("web", name, "1", func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}}
		})
	}
	uses("some", "fast", "15Gi")
	c.wantIn("web", "some", "r2")
	uses("much", "fast", "100Gi")
	c.wantRefused("web", "much", "0/2 super clusters are available: 2 have not enough free storage")
	uses("unseen", "hidden", "100Gi")
	c.wantIn("web", "unseen", "r1")

	// More is free: VolumeBinding's hints queue the pod.
	c.storage.all.set(saying(map[string]string{"r1": `{"fast":"200Gi"}`, "r2": `{"fast":"20Gi"}`}))
	c.wantIn("web", "much", "r1")
	// So they do when nothing is known any more.
	uses("most", "fast", "1Ti")
	c.wantRefused("web", "most", "0/2 super clusters are available: 2 have not enough free storage")
	c.storage.all.set(saying(map[string]string{"r1": "", "r2": ""}))
	require.Eventually(t, func() bool { return c.get("web", "most").Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "" }, patience, 5*time.Millisecond)
}
