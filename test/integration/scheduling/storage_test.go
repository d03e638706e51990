package scheduling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// storageQuota sets the namespace's ResourceQuota to 600m and 600Mi with so much storage.
func (w *world) storageQuota(t *testing.T, namespace, storage string) {
	t.Helper()
	w.setQuota(t, builders.Quota(namespace, "quota", "cpu", "600m", "memory", "600Mi", "requests.storage", storage))
}

// storageIn returns what a namespace has reserved of storage in a super cluster, and what of it leaves.
func (w *world) storageIn(t *testing.T, namespace, cluster string) (reserved, leaving string) {
	t.Helper()
	reserved, leaving = "0", "0"
	np := w.placement(t, namespace)
	for i := range np.Status.Placements {
		if p := &np.Status.Placements[i]; p.Cluster == cluster {
			reserved = p.Reserved.Storage().String()
			if p.Leaving != nil {
				leaving = p.Leaving.Reserved.Storage().String()
			}
		}
	}
	return reserved, leaving
}

func (w *world) wantStorage(t *testing.T, namespace, cluster, reserved, leaving string) {
	t.Helper()
	require.Eventually(t, func() bool {
		is, leaves := w.storageIn(t, namespace, cluster)
		return is == reserved && leaves == leaving
	}, patience, tick, "storage of %s in %s: want %s, of which %s leaves", namespace, cluster, reserved, leaving)
}

// holdsStorage writes the quota of a super namespace with so much storage, as a syncer does.
func (w *world) holdsStorage(t *testing.T, cluster, namespace, storage string) {
	t.Helper()
	quota := w.superQuota(t, cluster, namespace, "300m", "300Mi")
	await.Change(t, w.supers[cluster], quota, func(quota *corev1.ResourceQuota) {
		quota.Annotations[schedulerv1alpha1.AnnotationHoldsStorage] = "true"
		quota.Annotations[schedulerv1alpha1.AnnotationDecision] = placement.Decision(w.placement(t, namespace), cluster)
		quota.Spec.Hard[corev1.ResourceRequestsStorage] = builders.Resources("storage", storage)["storage"]
	})
}

// remove deletes a claim, and plays the controllers that take finalizers off it.
func (w *world) remove(t *testing.T, from client.Client, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	require.NoError(t, from.Delete(t.Context(), claim))
	require.NoError(t, from.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// TestStorage follows a quota of 10Gi over two super clusters: claims go where the namespace has room for them, and
// those for which there is none are told why; what claims use is not released when the quota is lowered, and is when
// they are deleted.
func TestStorage(t *testing.T) {
	w := shared
	w.allowClaims(t)
	w.run(t)
	const namespace, class = "storage", "roomy"
	w.storageClass(t, class, storagev1.VolumeBindingWaitForFirstConsumer, "r1", "r2")
	w.storageClass(t, "roomy-at-once", storagev1.VolumeBindingImmediate, "r1", "r2")
	w.namespace(t, namespace, `{"cpu":"300m","memory":"300Mi"}`)
	w.storageQuota(t, namespace, "10Gi")
	w.wantShown(t, namespace, `{"r1":1,"r2":1}`)
	w.wantStorage(t, namespace, "r1", "5Gi", "0")
	w.wantStorage(t, namespace, "r2", "5Gi", "0")
	says := func(message string) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
			return scheduled != nil && strings.Contains(scheduled.Message, message)
		}
	}

	// Claims are placed by room.
	first, second := w.claim(t, namespace, "first", class, sized("3Gi")), w.claim(t, namespace, "second", class, sized("3Gi"))
	w.pod(t, namespace, "first", using("first"))
	here := w.wantHome(t, first)
	w.pod(t, namespace, "second", using("second"))
	there := w.wantHome(t, second)
	require.NotEqual(t, here, there)
	third := w.claim(t, namespace, "third", class, sized("3Gi"))
	waits := w.pod(t, namespace, "third", using("third"))
	w.wantPod(t, waits, "that there is too little storage", says("2 had too little storage of the namespace left for the pod's claims"))
	w.claim(t, namespace, "large", class, sized("6Gi"))
	w.wantPod(t, w.pod(t, namespace, "large", using("large")), "that its claim is too large",
		says("claim large requests 6Gi, and the namespace holds at most 5Gi of storage in one super cluster: larger slices, or storage in annotation scheduler.tenancy.x-k8s.io/slice"))
	w.claim(t, namespace, "at-once", "roomy-at-once", sized("3Gi"))
	w.wantEvent(t, "PersistentVolumeClaim", namespace+"/at-once", "TooLittleStorage")

	// A claim that goes makes room.
	atOnce := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "at-once"}}
	for _, claim := range []*corev1.PersistentVolumeClaim{atOnce, second} {
		w.remove(t, w.tenant, claim)
	}
	found := w.wantHome(t, third)
	require.Equal(t, there, found)
	w.wantPod(t, waits, "where the room is", in(there))

	// The quota is lowered: what claims use stays, wherever the syncers are.
	super := w.superClaim(t, here, namespace)
	await.Change(t, w.supers[here], super, func(claim *corev1.PersistentVolumeClaim) {
		claim.Status.Capacity = builders.Resources("storage", "3Gi")
	}, "status")
	w.holdsStorage(t, here, namespace, "5Gi")
	w.holdsStorage(t, there, namespace, "5Gi")
	w.storageQuota(t, namespace, "1Gi")
	w.wantStorage(t, namespace, there, "5Gi", "5Gi")
	w.wantStorage(t, namespace, here, "5Gi", "4Gi")
	w.holdsStorage(t, here, namespace, "1Gi")
	w.holdsStorage(t, there, namespace, "0")
	w.wantStorage(t, namespace, there, "0", "0")
	w.wantStorage(t, namespace, here, "3Gi", "2Gi")
	w.remove(t, w.supers[here], super)
	w.wantStorage(t, namespace, here, "1Gi", "0")
}
