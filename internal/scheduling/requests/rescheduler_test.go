package requests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestTenantsTakeTurnsAtBeingPlacedAnew: one tenant has removed the placements of all its namespaces, and is served
// once before another that does so later.
func TestTenantsTakeTurnsAtBeingPlacedAnew(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Now())
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	var objects []client.Object
	waits := func(tenant, name string) reconcile.Request {
		np := builders.Placement(tenant, name).UID(types.UID(tenant+name)).Slice("cpu", "1").Quota("cpu", "1").Held("r1", 1, "cpu", "1").Obj()
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: now.Now()})
		var refused string
		np.Status, refused = placement.Ask(np, "", time.Minute, now.Now())
		require.Empty(t, refused)
		require.True(t, placement.IsToBeChosen(np))
		objects = append(objects, np)
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(np)}
	}
	var many []reconcile.Request
	for i := range 10 {
		many = append(many, waits("many", fmt.Sprintf("ns%d", i)))
	}
	few := waits("few", "web")
	meta := schedulingtest.NewMetaCluster(t, objects...).Client
	nodes := []*corev1.Node{builders.VirtualNode("r1", "cpu", "100").Obj()}
	rescheduler := &Rescheduler{Store: placements.NewStore(meta, meta), Reader: schedulingtest.PoolReader{Reader: meta, Nodes: nodes}, Config: cfg, Clock: now}
	queue := newRescheduleQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	for _, request := range many {
		queue.Add(request)
	}
	var served []reconcile.Request
	for range 3 {
		request, _ := queue.Get()
		if len(served) == 0 {
			queue.Add(few) // while one of the other tenant's is looked for
		}
		_, err := rescheduler.Reconcile(schedulertest.Context(t), request)
		require.NoError(t, err)
		queue.Done(request)
		served = append(served, request)
		np := &schedulerv1alpha1.NamespacePlacement{}
		require.NoError(t, meta.Get(t.Context(), request.NamespacedName, np))
		require.False(t, placement.IsToBeChosen(np))
	}
	require.Equal(t, []reconcile.Request{many[0], few, many[1]}, served)
}
