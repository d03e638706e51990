package podscheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

// TestBudgetIsGivenBack connects twice with one budget: the second connection begins with all of it.
func TestBudgetIsGivenBack(t *testing.T) {
	t.Parallel()
	bounds := tenantclient.New(&policy.Ref{})
	api := builders.Clientset(builders.Pod("web", "a").Obj(), builders.Pod("web", "b").Obj(), builders.Namespace("web"))
	for range 2 {
		stop := make(chan struct{})
		factory := NewInformers(t.Context(), api, view.NewNodeSource(), NewChoices(), bounds, func(err error) { t.Error(err) })
		factory.Core().V1().Namespaces().Informer()
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		require.Eventually(t, func() bool { objects, _ := bounds.Kept(); return objects == 3 }, patience, time.Millisecond)
		close(stop)
		factory.Shutdown()
		objects, bytes := bounds.Kept()
		require.Zero(t, objects)
		require.Zero(t, bytes)
	}
}
