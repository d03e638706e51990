package usage

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/test/builders"
)

// TestPodRecordOfCopiedMarks: a pod with the marks of a tenant's namespace takes nothing of that namespace elsewhere.
func TestPodRecordOfCopiedMarks(t *testing.T) {
	t.Parallel()
	owner := builders.Owner("vc", "web", "u")
	for at, foreign := range map[string]bool{"vc-web": false, metav1.NamespaceDefault: true, "vc-db": true} {
		require.Equal(t, foreign, recordOf(builders.Owned(builders.Pod(at, "p").Obj(), owner)).isForeign(), at)
	}
}

// TestContainersThatAreAddedCount: a super pod takes what it requests, with the containers that admission in the super
// cluster added.
func TestContainersThatAreAddedCount(t *testing.T) {
	t.Parallel()
	pod := builders.Pod("sp-web", "p").Node("n1").Obj()
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: builders.Requests("cpu", "1")}}
	proxy := corev1.Container{Name: "proxy", Resources: builders.Requests("cpu", "500m", "memory", "1Mi")}
	pod.Spec.Containers = append(pod.Spec.Containers, proxy)
	got := map[corev1.ResourceName]int64{}
	for _, taken := range recordOf(pod).taken {
		got[taken.resource] = taken.amount
	}
	require.Equal(t, map[corev1.ResourceName]int64{"cpu": 1500, "memory": 1 << 20, "pods": 1}, got)
}
