package scheduling

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/podscheduler"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestParts: each concern is one part's, together they are all, and a part's queue takes no other.
func TestParts(t *testing.T) {
	t.Parallel()
	concerns := map[Part][]dispatch.Concern{}
	for _, part := range []Part{PartAll, PartPlacements, PartPods} {
		api := builders.Clientset()
		stored := schedulingtest.NewStoredPlacements(t, builders.Placement("tenant", "web").Obj())
		chosen := podscheduler.NewChoices()
		if part == PartPlacements {
			chosen = nil
		}
		factory := podscheduler.NewInformers(t.Context(), api, view.NewNodeSource(), chosen, nil, func(err error) { t.Error(err) })
		tenantsOf := &Tenants{Part: part, Client: stored, Store: placements.NewStore(stored, stored), Usage: &schedulingtest.Measured{}, Dispatcher: dispatch.New(false)}
		c := newTenantController(tenantsOf, &tenants.Tenant{Key: "tenant", Policy: &policy.Ref{}}, api, factory, view.NewNodeSource(), chosen, events.NewFakeRecorder(10), func(error) {})
		concerns[part] = slices.Sorted(maps.Keys(c.reconcile))

		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[dispatch.Request]())
		require.NoError(t, c.watch(t.Context(), queue))
		c.dispatcher.Placement(dispatch.PlacementChange{Current: builders.Placement("tenant", "db").Obj()})
		require.NotZero(t, queue.Len())
		for range queue.Len() {
			item, _ := queue.Get()
			require.Contains(t, concerns[part], item.Concern)
		}
		queue.ShutDown()
	}
	require.Empty(t, cmp.Diff([]dispatch.Concern{dispatch.ConcernClaim, dispatch.ConcernClaimHome, dispatch.ConcernClaimRelease, dispatch.ConcernNodes, dispatch.ConcernPod}, concerns[PartPods]))
	require.Empty(t, cmp.Diff(concerns[PartAll], slices.Sorted(slices.Values(append(slices.Clone(concerns[PartPlacements]), concerns[PartPods]...)))))
}

// TestFence: all that is sent to a tenant passes the transport of the one who leads its shard.
func TestFence(t *testing.T) {
	t.Parallel()
	var requests, passed atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	podConfig, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	require.NoError(t, err)
	stored := schedulingtest.NewStoredPlacements(t)
	tenantsOf := &Tenants{
		Part: PartPods, Client: stored, Store: placements.NewStore(stored, stored), Dispatcher: dispatch.New(false), PodConfig: podConfig,
		Fence: func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				passed.Add(1)
				return next.RoundTrip(r)
			})
		},
	}
	tenant := &tenants.Tenant{Key: "tenant", UID: "uid", Policy: &policy.Ref{}, Config: &rest.Config{Host: server.URL}}
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	ended := make(chan error, 1)
	go func() { ended <- tenantsOf.Engage(ctx, tenant, func() { t.Error("it has read nothing") }) }()
	schedulertest.Soon(t, func() bool { return requests.Load() > 0 })
	cancel()
	require.NoError(t, <-ended)
	require.GreaterOrEqual(t, passed.Load(), requests.Load())
}

// TestEngageWithoutTheCRD: a control plane that serves no PodGroups, and takes long for its other lists, is not given
// up.
func TestEngageWithoutTheCRD(t *testing.T) {
	t.Parallel()
	const patience = 100 * time.Millisecond
	var asked atomic.Int32
	slow := time.After(5 * patience)
	listed := make(chan struct{})
	go func() {
		<-slow
		close(listed)
	}()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case path.Base(r.URL.Path) == "podgroups":
			asked.Add(1)
			w.WriteHeader(http.StatusNotFound)
			return
		case r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
			return
		}
		select {
		case <-listed:
			_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1"}}`))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	podConfig, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	require.NoError(t, err)
	stored := schedulingtest.NewStoredPlacements(t)
	tenantsOf := &Tenants{Part: PartPods, Client: stored, Store: placements.NewStore(stored, stored), Dispatcher: dispatch.New(false), PodConfig: podConfig, patience: patience}
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	ready, ended := make(chan struct{}), make(chan error, 1)
	tenant := &tenants.Tenant{Key: "tenant", UID: "uid", Policy: &policy.Ref{}, Config: &rest.Config{Host: server.URL}}
	go func() { ended <- tenantsOf.Engage(ctx, tenant, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err, "the tenant is given up")
	}
	require.NotZero(t, asked.Load())
	cancel()
	require.NoError(t, <-ended)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
