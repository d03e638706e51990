package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/view"
)

func TestRepairFor(t *testing.T) {
	const key = schedulerv1alpha1.AnnotationSuperCluster
	scheduled := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}}
	tests := map[string]struct {
		annotation, label, nodeName string
		status                      corev1.PodStatus
		wantSuperCluster            *string
		wantReason                  string
	}{
		"new":                              {},
		"chosen":                           {annotation: "r1", label: "r1"},
		"bound":                            {annotation: "r1", label: "r1", nodeName: "r1.node-1", status: scheduled},
		"chose for itself what it holds":   {annotation: "r1", wantSuperCluster: ptr.To("r1")},
		"chose what it does not hold":      {annotation: "r9", label: "r9", wantSuperCluster: ptr.To(""), wantReason: reasonSuperClusterNotPlaced},
		"label alone":                      {label: "r1", wantSuperCluster: ptr.To(""), wantReason: reasonSuperClusterNotPlaced},
		"label changed before the Binding": {annotation: "r1", label: "r2", wantSuperCluster: ptr.To("r1")},
		"moved after the Binding":          {annotation: "r2", label: "r2", nodeName: "r1.node-1", status: scheduled, wantSuperCluster: ptr.To("r1"), wantReason: reasonSuperClusterRestored},
		"label lost after the Binding":     {annotation: "r1", nodeName: "r1.node-1", status: scheduled, wantSuperCluster: ptr.To("r1"), wantReason: reasonSuperClusterRestored},
		"created with a node name":         {nodeName: "r1.node-1", wantReason: reasonNodeNameRefused},
		"created with a foreign node name": {annotation: "r1", label: "r1", nodeName: "node-1", wantReason: reasonNodeNameRefused},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{NodeName: tc.nodeName}, Status: tc.status}
			if tc.annotation != "" {
				pod.Annotations = map[string]string{key: tc.annotation}
			}
			if tc.label != "" {
				pod.Labels = map[string]string{key: tc.label}
			}
			projected, err := view.TenantPod(pod)
			if err != nil {
				t.Fatal(err)
			}
			got := repairFor(projected.(*corev1.Pod), func(superCluster string) bool { return superCluster == "r1" })
			if diff := cmp.Diff(tc.wantSuperCluster, got.superCluster); diff != "" {
				t.Errorf("super cluster (-want +got):\n%s", diff)
			}
			if got.event.Reason != tc.wantReason {
				t.Errorf("reason: want %q, got %q", tc.wantReason, got.event.Reason)
			}
		})
	}
}
