package text

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestBrief: figures have one decimal at most, and are rounded down.
func TestBrief(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   corev1.ResourceName
		amount int64
		want   string
	}{
		{name: "cpu", amount: 0, want: "0"},
		{name: "cpu", amount: 500, want: "500m"},
		{name: "cpu", amount: 1000, want: "1"},
		{name: "cpu", amount: 1590, want: "1.5"},
		{name: "cpu", amount: 123_900, want: "123"},
		{name: "memory", amount: 1023, want: "1023"},
		{name: "memory", amount: 1536 << 20, want: "1.5Gi"},
		{name: "memory", amount: 64379560 << 10, want: "61.3Gi"},
		{name: "memory", amount: 1 << 53, want: "8Pi"},
		{name: "memory", amount: 1<<63 - 1, want: "7.9Ei"},
		{name: "pods", amount: 1500, want: "1500"},
		{name: "nvidia.com/gpu", amount: 2, want: "2"},
	} {
		require.Equal(t, test.want, Brief(test.name, test.amount), "%s %d", test.name, test.amount)
	}
}
