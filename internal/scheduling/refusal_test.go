package scheduling

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metafake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/view"
)

// metaCluster is a manager whose cache is never behind.
type metaCluster struct {
	ctrl.Manager
	client client.Client
}

func newMetaCluster(t *testing.T, objects ...client.Object) metaCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	return metaCluster{client: metafake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&schedulerv1alpha1.NamespacePlacement{}).Build()}
}

func (m metaCluster) GetClient() client.Client    { return m.client }
func (m metaCluster) GetAPIReader() client.Reader { return m.client }

// TestRefusalOfAChangedWish refuses one wish of a namespace after another, in the same words.
func TestRefusalOfAChangedWish(t *testing.T) {
	t.Parallel()
	const message = "0/2 nodes are available: 2 super cluster(s) had no node large enough."
	np := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web", UID: "1", Generation: 1},
		Spec: schedulerv1alpha1.NamespacePlacementSpec{
			Slice: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
			Quota: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
		},
	}
	metaCluster := newMetaCluster(t, np)
	scheduler := &NamespaceScheduler{Manager: metaCluster, slices: view.NewPodSource()}
	key := client.ObjectKeyFromObject(np)
	for i, cpu := range []string{"8", "16"} {
		generation := int64(i + 1)
		require.NoError(t, metaCluster.client.Get(t.Context(), key, np))
		np.Generation, np.Spec.Quota = generation, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		require.NoError(t, metaCluster.client.Update(t.Context(), np))
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now()})
		require.NoError(t, metaCluster.client.Status().Update(t.Context(), np))
		placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		require.Equal(t, schedulerv1alpha1.ReasonPending, placed.Reason, "a changed wish was not looked at yet")

		for _, slice := range view.Slices(np) {
			scheduler.failed(t.Context(), slice.(*corev1.Pod), fwk.NewStatus(fwk.Unschedulable, message))
		}
		require.NoError(t, metaCluster.client.Get(t.Context(), key, np))
		placed = meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		require.Equal(t, schedulerv1alpha1.ReasonUnschedulable, placed.Reason, "quota %s", cpu)
		require.Equal(t, message, placed.Message)
		require.Equal(t, generation, placed.ObservedGeneration)
	}
}

// TestRefusalsWithOtherFigures: what is free changes with each decision about others, and a namespace that waits is not written each time.
func TestRefusalsWithOtherFigures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		np := &schedulerv1alpha1.NamespacePlacement{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web", UID: "1", Generation: 1},
			Spec:       schedulerv1alpha1.NamespacePlacementSpec{Slice: one, Quota: one},
		}
		metaCluster := newMetaCluster(t, np)
		scheduler := &NamespaceScheduler{Manager: metaCluster, slices: view.NewPodSource()}
		slice := view.Slices(np)[0].(*corev1.Pod)
		told := func(message string) string {
			scheduler.failed(t.Context(), slice, fwk.NewStatus(fwk.Unschedulable, message))
			require.NoError(t, metaCluster.client.Get(t.Context(), client.ObjectKeyFromObject(np), np))
			return meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced).Message
		}
		require.Equal(t, "900m is free", told("900m is free"))
		require.Equal(t, "900m is free", told("800m is free"))
		<-time.After(refusalPeriod)
		require.Equal(t, "700m is free", told("700m is free"))
	})
}
