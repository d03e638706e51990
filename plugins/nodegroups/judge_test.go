package nodegroups

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/nodegroups"
)

// TestKeyOfExcess: a pod that demands more than is read, and one that demands nothing, do not demand the same.
func TestKeyOfExcess(t *testing.T) {
	t.Parallel()
	plain, excess := &corev1.Pod{}, &corev1.Pod{}
	metav1.SetMetaDataAnnotation(&excess.ObjectMeta, nodegroups.AnnotationExcess, "nodeAffinity")
	require.NotEqual(t, DemandOf(plain).Key(), DemandOf(excess).Key())
	require.Equal(t, DemandOf(excess).Key(), DemandOf(excess.DeepCopy()).Key())
}
