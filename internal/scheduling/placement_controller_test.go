package scheduling

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
)

// TestPlacementsRestored shows placements on namespaces as the informer has them. A tenant is told that it changed something only when it did.
func TestPlacementsRestored(t *testing.T) {
	t.Parallel()
	np := &schedulerv1alpha1.NamespacePlacement{Status: schedulerv1alpha1.NamespacePlacementStatus{Placements: []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Slices: 1}}}}
	placed := placement.Encode(np.Status.Placements)
	for name, tc := range map[string]struct {
		// shown is what was written last, nil for nothing.
		shown *string
		got   string
		// behind says that the namespace has changed since the informer saw it.
		behind    bool
		wantEvent bool
	}{
		"first":                        {},
		"as it was written":            {shown: &placed, got: placed},
		"the tenant wrote something":   {shown: &placed, got: `{"r2":1}`, wantEvent: true},
		"the tenant removed it":        {shown: &placed, wantEvent: true},
		"our own write is not yet met": {shown: &placed, behind: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{schedulerv1alpha1.AnnotationPlacements: tc.got}}}
			api := fake.NewClientset(namespace)
			if tc.behind {
				api.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), "web", nil)
				})
			}
			recorder := events.NewFakeRecorder(1)
			controller := &placementController{
				api: api, recorder: recorder, pods: informers.NewSharedInformerFactory(api, 0).Core().V1().Pods().Lister(), shown: map[string]string{},
			}
			if tc.shown != nil {
				controller.shown["web"] = *tc.shown
			}
			err := controller.show(t.Context(), namespace, np)
			require.Equal(t, tc.behind, apierrors.IsConflict(err), "%v", err)
			require.Equal(t, tc.wantEvent, len(recorder.Events) == 1)
			if !tc.behind {
				require.Equal(t, placed, controller.shown["web"])
			}
		})
	}
}
