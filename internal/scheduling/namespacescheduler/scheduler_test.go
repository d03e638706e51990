package namespacescheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestNamespaceScheduler runs the scheduler over real informers and an API server in memory.
func TestNamespaceScheduler(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	// decided is np once its reconciler has written its status.
	decided := func(np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now()})
		return np
	}
	np := decided(schedulingtest.PlacementAsking("2"))
	api := schedulingtest.NewMetaCluster(t, np).Client
	nodes := view.NewNodeSource()
	node := func(name string) *corev1.Node {
		return builders.VirtualNode(name, "cpu", "1").Obj()
	}
	first := node("r1")
	nodes.Set("r1", first)
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	scheduler := &Scheduler{Informers: schedulingtest.NewInformers(ctx, api, nodes), Cached: api, Live: api, Store: placements.NewStore(api, api), Config: cfg}
	require.True(t, scheduler.NeedLeaderElection())
	done := make(chan error, 1)
	go func() { done <- scheduler.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	eventually := func(good func(*schedulerv1alpha1.NamespacePlacement) bool, message string) {
		t.Helper()
		require.Eventually(t, func() bool {
			require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(np), np))
			return good(np)
		}, schedulertest.Patience, 5*time.Millisecond, message)
	}
	eventually(func(np *schedulerv1alpha1.NamespacePlacement) bool {
		placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		return placed != nil && placed.Reason == schedulerv1alpha1.ReasonUnschedulable
	}, "one super cluster has too little")
	require.NotContains(t, first.Status.Allocatable, corev1.ResourcePods, "an object of the informer is not changed")

	nodes.Set("r2", node("r2"))
	eventually(func(np *schedulerv1alpha1.NamespacePlacement) bool {
		return placement.Encode(np.Status.Placements) == `{"r1":1,"r2":1}`
	}, "two have enough")

	// What is deleted is reserved no more.
	require.NoError(t, api.Delete(ctx, np))
	np = schedulingtest.PlacementAsking("2")
	np.Name, np.UID = "next", "2"
	require.NoError(t, api.Create(ctx, np))
	require.NoError(t, api.Status().Update(ctx, decided(np)))
	eventually(func(np *schedulerv1alpha1.NamespacePlacement) bool {
		return placement.Encode(np.Status.Placements) == `{"r1":1,"r2":1}`
	}, "the next namespace has the same")
}

// TestNamespaceSchedulerWithoutInformers: what the manager's cache cannot give ends the scheduler, and so the program.
func TestNamespaceSchedulerWithoutInformers(t *testing.T) {
	t.Parallel()
	api := schedulingtest.NewMetaCluster(t).Client
	scheduler := &Scheduler{Informers: failingInformers{}, Cached: api, Live: api, Store: placements.NewStore(api, api)}
	require.ErrorContains(t, scheduler.Start(schedulertest.Context(t)), "watching NamespacePlacements: getting an informer: no such kind")
}

type failingInformers struct{ ctrlcache.Informers }

func (failingInformers) GetInformer(context.Context, client.Object, ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	return nil, errors.New("no such kind")
}
