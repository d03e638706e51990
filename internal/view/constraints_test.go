package view

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/nodegroups"
)

// TestExcess: each cycle compares what a pod demands with all nodes and pods, so a pod that demands more than is read
// says so, and none of it is in the view. Whatever a tenant can make long counts.
func TestExcess(t *testing.T) {
	t.Parallel()
	const fits, tooLong = 60 * 1024, 70 * 1024
	long := func(size int) string { return strings.Repeat("x", size) }
	for name, spec := range map[string]func(size int) corev1.PodSpec{
		"tolerations": func(size int) corev1.PodSpec {
			return corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "a", Value: long(size / 2)}, {Key: "b", Value: long(size / 2)}}}
		},
		"node selector": func(size int) corev1.PodSpec {
			return corev1.PodSpec{NodeSelector: map[string]string{"a": long(size)}}
		},
		"affinity": func(size int) corev1.PodSpec {
			return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpIn, Values: []string{long(size)}}},
				}}},
			}}}
		},
		"topology spread": func(size int) corev1.PodSpec {
			return corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: metav1.SetAsLabelSelector(map[string]string{"a": long(size)}),
			}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project := func(size int) *corev1.Pod {
				projected, err := TenantPod(&corev1.Pod{Spec: spec(size)})
				require.NoError(t, err)
				return projected.(*corev1.Pod)
			}
			require.Empty(t, project(fits).Annotations[nodegroups.AnnotationExcess])
			excess := project(tooLong)
			require.Contains(t, excess.Annotations[nodegroups.AnnotationExcess], "bytes: at most 65536 are read")
			require.Empty(t, excess.Spec.NodeSelector)
			require.Nil(t, excess.Spec.Affinity)
			require.Empty(t, excess.Spec.TopologySpreadConstraints)
		})
	}
}
