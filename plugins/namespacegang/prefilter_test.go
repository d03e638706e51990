package namespacegang

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/test/builders"
)

// TestAmountOf reads each resource where kube-scheduler counts it.
func TestAmountOf(t *testing.T) {
	t.Parallel()
	counted := framework.NewResource(builders.Resources(
		"cpu", "4", "memory", "1Gi", "ephemeral-storage", "2Gi", "hugepages-2Mi", "8Mi", "nvidia.com/gpu", "3", "pods", "7",
		string(slicepod.ResourcePods), "20"))
	for _, tc := range []struct {
		name     string
		resource corev1.ResourceName
		want     int64
	}{
		{name: "cpu is counted in thousandths", resource: "cpu", want: 4000},
		{name: "memory in bytes", resource: "memory", want: 1 << 30},
		{name: "ephemeral storage in bytes", resource: "ephemeral-storage", want: 2 << 30},
		{name: "huge pages in bytes", resource: "hugepages-2Mi", want: 8 << 20},
		{name: "devices one by one", resource: "nvidia.com/gpu", want: 3},
		{name: "pods that slices may hold one by one", resource: "pods", want: 20},
		{name: "what no node has", resource: "example.com/x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, AmountOf(counted, tc.resource))
		})
	}
}
