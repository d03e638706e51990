package app

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestMetricsOfManagerAndSchedulersAreServedTogether(t *testing.T) {
	mergeMetrics()
	metrics.Register()
	families, err := ctrlmetrics.Registry.Gather()
	require.NoError(t, err)
	count := map[string]int{}
	for _, family := range families {
		count[family.GetName()]++
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds", "scheduler_pod_scheduling_attempts"} {
		require.Equal(t, 1, count[name], name)
	}
}
