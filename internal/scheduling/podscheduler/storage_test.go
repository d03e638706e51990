package podscheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// noStorage is that of super clusters that say nothing of theirs.
func noStorage() ShownStorage {
	return ShownStorage{All: dispatch.NewFreeStorage(), Shows: func(string) bool { return true }}
}

// TestHiddenStorage: what changes of classes that a policy does not show is not told to its tenant.
func TestHiddenStorage(t *testing.T) {
	t.Parallel()
	storage := ShownStorage{All: dispatch.NewFreeStorage(), Shows: func(class string) bool { return class == "fast" }}
	setFree(storage.All, map[string]string{"r1": `{"fast":"10Gi","hidden":"10Gi"}`})
	factory := informers.NewSharedInformerFactory(builders.Clientset(), 0)
	projectVolumes(t.Context(), factory, factory, storage, func(err error) { t.Error(err) })
	capacities := factory.Storage().V1().CSIStorageCapacities().Informer()
	var told []string
	tell := func(object any) { told = append(told, object.(*storagev1.CSIStorageCapacity).StorageClassName) }
	_, err := capacities.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, object any) { tell(object) }})
	require.NoError(t, err)
	capacities.RunWithContext(t.Context())
	for _, step := range []struct {
		free string
		want []string
	}{
		{`{"fast":"10Gi","hidden":"10Gi"}`, []string{"fast"}},
		{`{"fast":"10Gi","hidden":"20Gi"}`, nil},
		{`{"fast":"20Gi","hidden":"20Gi"}`, []string{"fast"}},
		{`{"fast":"20Gi","hidden":"20Gi","more":"1Gi"}`, nil},
		{`{"fast":"20Gi"}`, nil},
	} {
		setFree(storage.All, map[string]string{"r1": step.free})
		require.Equal(t, step.want, told)
		told = nil
	}
}

// TestPodsOfFreeStorage lets the pods of a tenant use claims of a class of which super clusters say what is free.
func TestPodsOfFreeStorage(t *testing.T) {
	t.Parallel()
	schedulertest.Bubble(t, func(t *testing.T) {
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
			setFree(c.storage.All, map[string]string{"r1": `{"fast":"10Gi","hidden":"0"}`, "r2": `{"fast":"20Gi","hidden":"0"}`})
		})
		for _, name := range []string{"r1", "r2"} {
			c.cluster(name)
			c.place("web", name, "5")
		}
		for _, name := range []string{"fast", "hidden"} {
			class := schedulingtest.StorageClassOf(storagev1.VolumeBindingWaitForFirstConsumer, "r1", "r2")
			class.Name = name
			_, err := c.api.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		uses := func(name, class, size string) {
			claim := schedulingtest.HomelessClaim(name, func(claim *corev1.PersistentVolumeClaim) {
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
		setFree(c.storage.All, map[string]string{"r1": `{"fast":"200Gi"}`, "r2": `{"fast":"20Gi"}`})
		c.wantIn("web", "much", "r1")
		// So they do when nothing is known any more.
		uses("most", "fast", "1Ti")
		c.wantRefused("web", "most", "0/2 super clusters are available: 2 have not enough free storage")
		setFree(c.storage.All, map[string]string{"r1": "", "r2": ""})
		require.Eventually(t, func() bool { return c.get("web", "most").Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "" }, patience, 5*time.Millisecond)
	})
}

// setFree sets what super clusters say of their storage.
func setFree(storage *dispatch.FreeStorage, free map[string]string) {
	for superCluster, text := range free {
		storage.Set(superCluster, text)
	}
}
