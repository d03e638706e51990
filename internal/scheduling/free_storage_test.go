package scheduling

import (
	"fmt"
	"maps"
	"slices"
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
	"github.com/superpool/superpool/internal/freestorage"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
)

// noStorage is that of super clusters that say nothing of theirs.
func noStorage() shownStorage {
	return shownStorage{all: newFreeStorage(), shows: func(string) bool { return true }}
}

// say makes storage that of super clusters which say this, and of no others.
func say(storage *freeStorage, free map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(storage.sizes())) {
		if _, there := free[name]; !there {
			storage.remove(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(free)) {
		storage.set(name, free[name])
	}
}

// TestFreeStorage: every tenant is told what changes, and of what goes that it has no bound any more.
func TestFreeStorage(t *testing.T) {
	t.Parallel()
	storage := newFreeStorage()
	var told []string
	tell := func(what string, object any) {
		capacity := object.(*storagev1.CSIStorageCapacity)
		size := capacity.Capacity.String()
		if capacity.Capacity.Value() > 1<<60 {
			size = "any"
		}
		told = append(told, what+" "+capacity.Namespace+"/"+capacity.Name+" "+size)
	}
	say(storage, map[string]string{"r1": `{"fast":"10Gi"}`})
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { tell("add", object) }, DeleteFunc: func(object any) { tell("delete", object) },
		UpdateFunc: func(_, object any) { tell("update", object) },
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
		{map[string]string{"r2": `{"fast":"0"}`}, []string{"delete r1/fast any"}},
		{map[string]string{"r2": ""}, []string{"update r2/fast any", "delete r2/fast any"}},
		{map[string]string{"r2": ""}, nil},
	} {
		say(storage, step.free)
		require.Equal(t, step.want, told)
		told = nil
	}
	require.Empty(t, storage.drivers.List())
	require.Empty(t, storage.capacities.List())
	require.Equal(t, map[string]freestorage.Sizes{"r2": nil}, storage.sizes())
	require.Empty(t, storage.classes)
}

// TestStorageOfVirtualNodes: what is known is what the virtual Nodes say last.
func TestStorageOfVirtualNodes(t *testing.T) {
	t.Parallel()
	d := newDispatcher()
	for _, step := range []struct {
		free string
		gone bool
		want map[string]freestorage.Sizes
	}{
		{free: "", want: map[string]freestorage.Sizes{"r1": nil}},
		{free: `{"fast":"1Ki"}`, want: map[string]freestorage.Sizes{"r1": {"fast": 1024}}},
		{free: `{"fast":"2Ki"}`, want: map[string]freestorage.Sizes{"r1": {"fast": 2048}}},
		{free: `{"fast":"2Ki"}`, gone: true, want: map[string]freestorage.Sizes{}},
	} {
		d.node(builders.VirtualNode("r1").Annotation(schedulerv1alpha1.AnnotationFreeStorage, step.free).Obj(), step.gone)
		require.Equal(t, step.want, d.storage.sizes())
	}
	require.Empty(t, d.storage.capacities.List())
}

// TestHiddenStorage: what changes of classes that a policy does not show is not told to its tenant.
func TestHiddenStorage(t *testing.T) {
	t.Parallel()
	storage := shownStorage{all: newFreeStorage(), shows: func(class string) bool { return class == "fast" }}
	say(storage.all, map[string]string{"r1": `{"fast":"10Gi","hidden":"10Gi"}`})
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
		say(storage.all, map[string]string{"r1": step.free})
		require.Equal(t, step.want, told)
		told = nil
	}
}

// manyStorages returns what lets one of so many super clusters, of 16 classes each, say something else of its storage.
func manyStorages(superClusters int) (next func()) {
	storage := newFreeStorage()
	says := func(size int64) string {
		sizes := freestorage.Sizes{}
		for i := range 16 {
			sizes[fmt.Sprintf("class-%02d", i)] = size + int64(i)
		}
		return sizes.Encode()
	}
	for i := range superClusters {
		storage.set(fmt.Sprintf("r%04d", i), says(1<<30))
	}
	texts, turn := []string{says(2 << 30), says(3 << 30)}, 0
	return func() {
		storage.set("r0000", texts[turn])
		turn = 1 - turn
	}
}

// TestStorageOfOneAmongMany: what one super cluster says is read alone, and costs as much among many as among few.
func TestStorageOfOneAmongMany(t *testing.T) { //nolint:paralleltest // it counts allocations
	objects := map[int]float64{}
	for _, superClusters := range []int{10, 100} {
		objects[superClusters] = testing.AllocsPerRun(10, manyStorages(superClusters))
	}
	require.Less(t, objects[100], 2*objects[10])
}

// BenchmarkFreeStorage lets one of so many super clusters say something else of its 16 classes.
func BenchmarkFreeStorage(b *testing.B) {
	for _, superClusters := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("superclusters=%d", superClusters), func(b *testing.B) {
			next := manyStorages(superClusters)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
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
			say(c.storage.all, map[string]string{"r1": `{"fast":"10Gi","hidden":"0"}`, "r2": `{"fast":"20Gi","hidden":"0"}`})
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
		say(c.storage.all, map[string]string{"r1": `{"fast":"200Gi"}`, "r2": `{"fast":"20Gi"}`})
		c.wantIn("web", "much", "r1")
		// So they do when nothing is known any more.
		uses("most", "fast", "1Ti")
		c.wantRefused("web", "most", "0/2 super clusters are available: 2 have not enough free storage")
		say(c.storage.all, map[string]string{"r1": "", "r2": ""})
		require.Eventually(t, func() bool { return c.get("web", "most").Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "" }, patience, 5*time.Millisecond)
	})
}
