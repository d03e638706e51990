package syncer_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/virtualclusters"
	"github.com/superpool/superpool/test/await"
)

// TestMissingVirtualCluster: what a tenant has in a super cluster runs on while the meta cluster lacks its
// VirtualCluster, as one does that was restored from an older backup, whoever starts again meanwhile. The operator is
// told. Once the VirtualCluster is back its deletion takes all.
func TestMissingVirtualCluster(t *testing.T) {
	w := newWorld(t, needs{own: true})
	w.allowClaims(t)
	serves := w.following(t, &sessions{})
	placement := w.place(t, "web", "r1")
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: w.vcName}}
	await.Change(t, w.meta, vc, func(vc *tenancyv1alpha1.VirtualCluster) {
		controllerutil.AddFinalizer(vc, virtualclusters.FinalizerPlacements) // plays vc-scheduler
	})

	r := w.startSyncerWith(t, w.superConfig, serves)
	closes(t, r.ready, "the tenant's caches are synced")
	create(t, w.tenant, newPod("web", "runs"))
	superPod := w.runIn(t, "web", "runs", "n1")
	appears(t, w.tenant, "web", "runs", &corev1.Pod{}, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	create(t, w.tenant, newClaim("web", "data", "r1"))
	superClaim := appears(t, w.super, w.superName("web"), "data", &corev1.PersistentVolumeClaim{}, nil)
	provision(t, w.super, superClaim, "pvc-0")
	appears(t, w.tenant, "", "r1.pvc-0", &corev1.PersistentVolume{}, nil)
	r.stop()
	newer := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, w.metaPlane.Backup(t.Context(), newer))

	r = w.startSyncerWith(t, w.superConfig, serves)
	closes(t, r.ready, "the tenant's caches are synced")
	stay := func() {
		t.Helper()
		patrols(t, r.numbers)
		for _, object := range []client.Object{
			superPod, superClaim, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-0"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.superName("web")}},
		} {
			require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(object), object))
			require.Nil(t, object.GetDeletionTimestamp(), "%T", object)
		}
	}
	await.Change(t, w.meta, vc, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Finalizers = nil }) // as one that was never there
	require.NoError(t, w.meta.Delete(t.Context(), vc))
	w.toldOperator(t, "r1", "VirtualClusterMissing")
	stay()
	require.NoError(t, w.meta.Delete(t.Context(), placement))
	stay()
	r.stop()
	r = w.startSyncerWith(t, w.superConfig, serves)
	stay()
	r.stop()

	require.NoError(t, w.metaPlane.Restore(t.Context(), newer))
	r = w.startSyncerWith(t, w.superConfig, serves)
	closes(t, r.ready, "the tenant's caches are synced")
	stay()
	require.NoError(t, w.meta.Delete(t.Context(), vc))
	require.NoError(t, w.meta.Delete(t.Context(), placement)) // as vc-scheduler does
	release(t, w.super, w.superName("web"), "")
	vanishes(t, w.super, "", w.superName("web"), &corev1.Namespace{})
}

// toldOperator waits until the meta cluster has an Event with a reason about a virtual Node.
func (w *world) toldOperator(t *testing.T, node, reason string) {
	t.Helper()
	eventually(t, func() error {
		var events corev1.EventList
		if err := w.meta.List(t.Context(), &events); err != nil {
			return err
		}
		for i := range events.Items {
			if event := &events.Items[i]; event.Reason == reason && event.InvolvedObject.Kind == "Node" && event.InvolvedObject.Name == node {
				return nil
			}
		}
		return fmt.Errorf("no Event %s about node %s among %d", reason, node, len(events.Items))
	})
}
