package namespacescheduler

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestNamespaceSchedulerAnswersRequests runs the scheduler and its sink: slices of a request go where the tenant wants
// them, and one that does not fit there refuses all of it, though another super cluster has room.
func TestNamespaceSchedulerAnswersRequests(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	np := builders.Placement("tenant", "web").UID("web").Slice("cpu", "1").Quota("cpu", "4").Held("r1", 4, "cpu", "4").Obj()
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now()})
	api := schedulingtest.NewMetaCluster(t, np).Client
	store := placements.NewStore(api, api)
	nodes := view.NewNodeSource()
	for id, cores := range map[string]string{"r1": "4", "r2": "2", "r3": "8"} {
		nodes.Set(id, builders.VirtualNode(id, "cpu", cores).Obj())
	}
	cordoned := builders.VirtualNode("r0", "cpu", "4").Obj()
	cordoned.Spec.Unschedulable = true
	nodes.Set("r0", cordoned)
	one := freenodes.Class{Nodes: 1, Free: slice.Amounts{"cpu": 1000}}
	small := freenodes.Class{Nodes: 8, Free: slice.Amounts{"cpu": 500}}
	for id, free := range map[string][]freenodes.Class{"r4": {small}, "r5": {one, small}} {
		pieces := builders.VirtualNode(id, "cpu", "4").Obj()
		pieces.Annotations = map[string]string{schedulerv1alpha1.AnnotationFreeShapes: freenodes.Encode(free)}
		nodes.Set(id, pieces)
	}
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	scheduler := &Scheduler{Informers: schedulingtest.NewInformers(ctx, api, nodes), Cached: api, Live: api, Store: store, Config: cfg}
	done := make(chan error, 1)
	go func() { done <- scheduler.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	ask := func(annotation string) *schedulerv1alpha1.NamespacePlacement {
		t.Helper()
		_, err := store.Change(ctx, client.ObjectKeyFromObject(np), func(np *schedulerv1alpha1.NamespacePlacement) error {
			var refused string
			np.Status.LastRequested = nil
			np.Status, refused = placement.Ask(np, annotation, time.Minute, time.Now())
			require.Empty(t, refused)
			return nil
		})
		require.NoError(t, err)
		answered := &schedulerv1alpha1.NamespacePlacement{}
		require.Eventually(t, func() bool {
			require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(np), answered))
			return answered.Status.Requested.State != schedulerv1alpha1.RequestWaiting
		}, schedulertest.Patience, 5*time.Millisecond, "the request is answered")
		return answered
	}
	answered := ask(`{"r1":1,"r2":3}`)
	require.Equal(t, "super cluster r2: has too little free cpu", answered.Status.Requested.Message)
	require.Equal(t, `{"r1":4}`, placement.Encode(answered.Status.Placements))
	answered = ask(`{"r1":1,"r9":3}`)
	require.Equal(t, "super cluster r9: it is not in the pool", answered.Status.Requested.Message)
	answered = ask(`{"r0":1,"r2":1,"r3":1,"r9":1}`)
	require.Equal(t, "super cluster r0: cordoned", answered.Status.Requested.Message, "the first that refuses says why")
	answered = ask(`{"r1":1,"r2":2,"r4":1}`)
	require.Equal(t, "super cluster r4: had no node with 1 cpu free", answered.Status.Requested.Message)
	answered = ask(`{"r1":1,"r5":3}`)
	require.Equal(t, "super cluster r5: had no node left, beside the slices placed there, with 1 cpu free", answered.Status.Requested.Message)
	answered = ask(`{"r1":1,"r2":2,"r3":1}`)
	require.Equal(t, schedulerv1alpha1.RequestGranted, answered.Status.Requested.State)
	require.Equal(t, `{"r1":1,"r2":2,"r3":1}`, placement.Encode(answered.Status.Placements))
}
