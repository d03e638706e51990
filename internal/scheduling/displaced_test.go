package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/eviction"
	"github.com/superpool/superpool/internal/scheduling/namespacescheduler"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestAQuotaBeyondThePoolHoldsUpNoDrain: a tenant that asks for more than the pool has is moved nevertheless. The real
// placer places what leaves, and refuses the rest.
func TestAQuotaBeyondThePoolHoldsUpNoDrain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	np := builders.Placement("tenant", "web").UID("web").Slice("cpu", "1").Quota("cpu", "100").Held("r1", 2, "cpu", "2").Obj()
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: now})
	api := schedulingtest.NewMetaCluster(t, np).Client
	store := placements.NewStore(api, api)
	usage := &schedulingtest.Measured{}
	usage.Set("r1", "web", placement.Use{Requests: slice.Of(schedulingtest.Cores("2")), Hard: slice.Of(schedulingtest.Cores("2"))})
	evacuator := &eviction.Evacuator{Store: store, Usage: usage, LostToleration: time.Minute, Clock: testingclock.NewFakePassiveClock(now)}
	look := func() {
		t.Helper()
		_, err := evacuator.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(np)})
		require.NoError(t, err)
		require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(np), np))
	}
	nodes := view.NewNodeSource()
	for _, id := range []string{"r1", "r2"} {
		node := builders.VirtualNode(id, "cpu", "4").Obj()
		if id == "r1" {
			schedulingtest.Drained(node)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		evacuator.SetNode(node)
		nodes.Set(id, node)
	}
	look()
	require.Equal(t, schedulerv1alpha1.LeavingDrained, np.Status.Placements[0].Leaving.Reason)

	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	scheduler := &namespacescheduler.Scheduler{Informers: schedulingtest.NewInformers(ctx, api, nodes), Cached: api, Live: api, Store: store, Config: cfg}
	done := make(chan error, 1)
	go func() { done <- scheduler.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	refused := func() bool {
		require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(np), np))
		placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		return placement.Encode(np.Status.Placements) == `{"r2":2}` && placed.Reason == schedulerv1alpha1.ReasonUnschedulable
	}
	require.Eventually(t, refused, schedulertest.Patience, 5*time.Millisecond, "what leaves is placed, and the rest is refused")
	_, evict, _ := placement.Next(np, placement.Facts{Now: now, Used: usage.Usage(ctx, client.ObjectKeyFromObject(np), []string{"r1", "r2"})})
	require.Equal(t, []placement.Eviction{{Cluster: "r1", Excess: slice.Of(schedulingtest.Cores("2")), Reason: schedulerv1alpha1.LeavingDrained}}, evict)

	usage.Set("r1", "web", placement.Use{Decision: placement.Decision(np, "r1")})
	look()
	require.Equal(t, `{"r2":2}`, placement.Encode(np.Status.Placements))
	require.Len(t, np.Status.Placements, 1, "r1 is empty")
	require.Equal(t, "cpu=98", placement.Lacking(np).String())
}
