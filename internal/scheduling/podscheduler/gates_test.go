package podscheduler

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
)

// TestPodSchedulerOfAnOlderControlPlane: a scheduler waits for every kind that it watches, so a tenant whose Kubernetes
// does not serve resource.k8s.io/v1, which came with 1.34, would never be ready.
func TestPodSchedulerOfAnOlderControlPlane(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		for _, action := range newTenant(t).api.Actions() {
			require.NotEqual(t, "resource.k8s.io", action.GetResource().Group, action.GetResource().String())
		}
	})
}
