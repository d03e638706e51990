package placements

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// add makes a change that adds a slice to what is reserved in r1: it is not to happen twice. wanted is the spec.
func add(quota string) func(*schedulerv1alpha1.NamespacePlacement) error {
	return func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Spec.NamespaceUID, np.Spec.Quota = "1", schedulingtest.Cores(quota)
		if np.ResourceVersion == "" {
			return nil
		}
		for _, p := range np.Status.Placements {
			if p.Cluster == "r1" {
				return errors.New("r1 holds something already")
			}
		}
		np.Status.Placements = append(np.Status.Placements, schedulerv1alpha1.ClusterPlacement{Cluster: "r1", Slices: 1})
		return nil
	}
}

func TestStoreChange(t *testing.T) {
	t.Parallel()
	existing := builders.Placement("tenant", "web").UID("1").NamespaceUID("1").Quota("cpu", "1").Obj()
	kind := schedulerv1alpha1.GroupVersion.WithResource("namespaceplacements").GroupResource()
	timeout := apierrors.NewTimeoutError("etcd is slow", 1)
	broken := errors.New("connection reset by peer")
	conflict := apierrors.NewConflict(kind, "web", nil)
	forbidden := apierrors.NewForbidden(kind, "web", nil)
	on := func(n int, happens bool, err error) func(int) (bool, error) {
		return func(i int) (bool, error) {
			if i == n {
				return happens, err
			}
			return true, nil
		}
	}
	always := func(err error) func(int) (bool, error) { return func(int) (bool, error) { return false, err } }
	for name, tc := range map[string]struct {
		exists     bool
		quota      string
		fail       func(int) (bool, error)
		meanwhile  func(context.Context, client.Client) error
		wantWrites []string
		wantError  string
	}{
		"made":                              {quota: "1", wantWrites: []string{"create", "status"}},
		"status alone":                      {exists: true, quota: "1", wantWrites: []string{"status"}},
		"spec and status":                   {exists: true, quota: "2", wantWrites: []string{"spec", "status"}},
		"making it timed out, and happened": {quota: "1", fail: on(0, true, timeout), wantWrites: []string{"create", "status"}},
		"making it timed out":               {quota: "1", fail: on(0, false, timeout), wantWrites: []string{"create", "create", "status"}},
		"the spec's connection broke, and it happened":   {exists: true, quota: "2", fail: on(0, true, broken), wantWrites: []string{"spec", "status"}},
		"the spec's connection broke":                    {exists: true, quota: "2", fail: on(0, false, broken), wantWrites: []string{"spec", "spec", "status"}},
		"the status's connection broke, and it happened": {exists: true, quota: "1", fail: on(0, true, broken), wantWrites: []string{"status"}},
		"the status's connection broke":                  {exists: true, quota: "1", fail: on(0, false, broken), wantWrites: []string{"status", "status"}},
		"the status timed out, and happened":             {exists: true, quota: "2", fail: on(1, true, timeout), wantWrites: []string{"spec", "status"}},
		"a conflict":                                     {exists: true, quota: "1", fail: on(0, false, conflict), wantWrites: []string{"status", "status"}},
		"conflicts without an end":                       {exists: true, quota: "1", fail: always(conflict), wantWrites: []string{"status", "status", "status", "status", "status", "status"}, wantError: "Operation cannot be fulfilled"},
		"timeouts without an end":                        {exists: true, quota: "1", fail: always(timeout), wantWrites: []string{"status", "status", "status", "status", "status", "status"}, wantError: "etcd is slow"},
		"it is forbidden":                                {exists: true, quota: "1", fail: on(0, false, forbidden), wantWrites: []string{"status"}, wantError: "forbidden"},
		"a spec that is forbidden":                       {quota: "1", fail: on(0, false, forbidden), wantWrites: []string{"create"}, wantError: "forbidden"},
		"somebody else was quicker": {
			exists: true, quota: "1", wantWrites: []string{"status"}, wantError: "r1 holds something already",
			meanwhile: func(ctx context.Context, c client.Client) error {
				np := &schedulerv1alpha1.NamespacePlacement{}
				if err := c.Get(ctx, schedulingtest.WebKey, np); err != nil {
					return err
				}
				np.Status.Placements = []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Slices: 7}}
				return c.Status().Update(ctx, np)
			},
		},
		"something else was written meanwhile": {
			exists: true, quota: "1", wantWrites: []string{"status", "status"},
			meanwhile: func(ctx context.Context, c client.Client) error {
				np := &schedulerv1alpha1.NamespacePlacement{}
				if err := c.Get(ctx, schedulingtest.WebKey, np); err != nil {
					return err
				}
				np.Status.Clusters = "r7=1"
				return c.Status().Update(ctx, np)
			},
		},
		"it was deleted meanwhile": {
			exists: true, quota: "1", wantWrites: []string{"status", "create", "status"},
			meanwhile: func(ctx context.Context, c client.Client) error { return c.Delete(ctx, existing.DeepCopy()) },
		},
		"it was made meanwhile": {
			quota: "2", wantWrites: []string{"create", "spec", "status"},
			meanwhile: func(ctx context.Context, c client.Client) error { return c.Create(ctx, existing.DeepCopy()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects []client.Object
			if tc.exists {
				objects = append(objects, existing.DeepCopy())
			}
			server := schedulingtest.NewStoredPlacements(t, objects...)
			store := NewStore(server, server)
			server.Fail = tc.fail
			if tc.meanwhile != nil {
				server.Meanwhile = func() {
					written := server.Writes
					server.Meanwhile, server.Writes = nil, append([]string(nil), "meanwhile") // not number 0 any more
					require.NoError(t, tc.meanwhile(t.Context(), server))
					server.Writes = written
				}
			}
			np, err := store.Change(t.Context(), schedulingtest.WebKey, add(tc.quota))
			require.Equal(t, tc.wantWrites, server.Writes)
			if tc.wantError != "" {
				require.ErrorContains(t, err, tc.wantError)
				return
			}
			require.NoError(t, err)
			stored, err := store.GetLive(t.Context(), schedulingtest.WebKey)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(stored, np))
			require.Len(t, stored.Status.Placements, 1)
			require.True(t, stored.Spec.Quota.Cpu().Equal(resource.MustParse(tc.quota)))
		})
	}
}

// TestStoreChangesNothing: what is as it should be is not written, and what does not exist is not made for the sake of
// its status.
func TestStoreChangesNothing(t *testing.T) {
	t.Parallel()
	server := schedulingtest.NewStoredPlacements(t)
	store := NewStore(server, server)
	np, err := store.Change(t.Context(), schedulingtest.WebKey, func(np *schedulerv1alpha1.NamespacePlacement) error {
		require.Equal(t, schedulingtest.WebKey, client.ObjectKeyFromObject(np))
		np.Status.Clusters = "r1=1"
		return nil
	})
	require.NoError(t, err)
	require.Nil(t, np)
	first, err := store.Change(t.Context(), schedulingtest.WebKey, add("1"))
	require.NoError(t, err)
	server.Writes = nil
	second, err := store.Change(t.Context(), schedulingtest.WebKey, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Spec.Quota = schedulingtest.Cores("1000m")
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(first, second))
	require.Empty(t, server.Writes)
	_, err = store.Change(t.Context(), schedulingtest.WebKey, func(*schedulerv1alpha1.NamespacePlacement) error { return context.Canceled })
	require.Equal(t, context.Canceled, err, "an error of the change is the caller's own")
}

// TestStoreReadsItsOwnWrites changes an object over and over while the cache stands still.
func TestStoreReadsItsOwnWrites(t *testing.T) {
	t.Parallel()
	server := schedulingtest.NewStoredPlacements(t, builders.Placement("tenant", "web").UID("1").Obj())
	cache := schedulingtest.Freeze(t, server)
	store := NewStore(cache, server)
	count := func(i int) func(np *schedulerv1alpha1.NamespacePlacement) error {
		return func(np *schedulerv1alpha1.NamespacePlacement) error {
			require.Equal(t, int32(i), np.Status.Slices)
			np.Status.Slices++
			return nil
		}
	}
	for i := range 3 {
		_, err := store.Change(t.Context(), schedulingtest.WebKey, count(i))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"status", "status", "status"}, server.Writes, "no conflict")

	other, err := store.GetLive(t.Context(), schedulingtest.WebKey)
	require.NoError(t, err)
	other.Status.Slices = 10
	require.NoError(t, server.Status().Update(t.Context(), other))
	np, err := store.Change(t.Context(), schedulingtest.WebKey, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status.Slices++
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, int32(11), np.Status.Slices, "on top of what another one wrote")

	for i, seen := range []*schedulerv1alpha1.NamespacePlacement{other, np} {
		cache.Known[schedulingtest.WebKey] = seen
		np, err = store.Get(t.Context(), schedulingtest.WebKey)
		require.NoError(t, err)
		require.Equal(t, int32(11), np.Status.Slices, "step %d", i)
	}
	require.Empty(t, store.written)
}

func TestStoreDelete(t *testing.T) {
	t.Parallel()
	server := schedulingtest.NewStoredPlacements(t)
	store := NewStore(server, server)
	np, err := store.Change(t.Context(), schedulingtest.WebKey, add("1"))
	require.NoError(t, err)
	older := np.DeepCopy()
	older.ResourceVersion = "1"
	require.True(t, apierrors.IsConflict(errors.Unwrap(store.Delete(t.Context(), older))), "it has changed since")
	require.NoError(t, store.Delete(t.Context(), np))
	require.NoError(t, store.Delete(t.Context(), np), "it is gone")
	gone, err := store.Get(t.Context(), schedulingtest.WebKey)
	require.NoError(t, err)
	require.Nil(t, gone)
}

// TestAmbiguousAnswers names the errors after which nobody knows whether a write happened.
func TestAmbiguousAnswers(t *testing.T) {
	t.Parallel()
	kind := schedulerv1alpha1.GroupVersion.WithResource("namespaceplacements").GroupResource()
	for _, err := range []error{
		errors.New("EOF"), apierrors.NewTimeoutError("", 0), apierrors.NewServerTimeout(kind, "update", 0), apierrors.NewInternalError(errors.New("etcd")),
		apierrors.NewServiceUnavailable("shutting down"), fmt.Errorf("updating: %w", context.DeadlineExceeded),
	} {
		require.True(t, IsAmbiguous(err), "%v", err)
	}
	for _, err := range []error{
		apierrors.NewConflict(kind, "web", nil), apierrors.NewForbidden(kind, "web", nil), apierrors.NewNotFound(kind, "web"),
		apierrors.NewInvalid(schedulerv1alpha1.GroupVersion.WithKind("NamespacePlacement").GroupKind(), "web", nil), apierrors.NewTooManyRequestsError("later"),
	} {
		require.False(t, IsAmbiguous(err), "%v", err)
	}
}

// TestStoreInDoubt: a write whose answer was lost gave capacity away. Whatever comes between it and the look at what is
// stored, the caller must not take it for lost: the scheduler would give that capacity to another namespace.
func TestStoreInDoubt(t *testing.T) {
	t.Parallel()
	existing := builders.Placement("tenant", "web").UID("1").NamespaceUID("1").Quota("cpu", "1").Obj()
	publish := func(t *testing.T, c client.Client) {
		t.Helper()
		np := &schedulerv1alpha1.NamespacePlacement{}
		require.NoError(t, c.Get(t.Context(), schedulingtest.WebKey, np))
		np.Status.Published = ptr.To("{}")
		require.NoError(t, c.Status().Update(t.Context(), np))
	}
	for name, tc := range map[string]struct {
		// late is whether the write happens only after the first live read.
		late bool
		// followed is whether another write comes before the first live read.
		followed bool
		// unread is how many live reads fail.
		unread     int
		wantWrites []string
	}{
		"it happened":                          {wantWrites: []string{"status"}},
		"it happened, and another one follows": {followed: true, wantWrites: []string{"status", "status"}},
		"it happens after the live read":       {late: true, wantWrites: []string{"status", "status"}},
		"the API server is away for a while":   {unread: 8, wantWrites: []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := schedulingtest.NewStoredPlacements(t, existing.DeepCopy())
				reads := 0
				var land func()
				live := interceptor.NewClient(server, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if reads++; reads <= tc.unread {
						return errors.New("connection refused")
					}
					if tc.followed && reads == 1 {
						publish(t, c)
					}
					err := c.Get(ctx, key, object, options...)
					if land != nil {
						land()
						land = nil
					}
					return err
				}})
				server.Fail = func(n int) (bool, error) {
					if n > 0 {
						return true, nil
					}
					if tc.late {
						land = func() {
							np := &schedulerv1alpha1.NamespacePlacement{}
							require.NoError(t, server.Get(t.Context(), schedulingtest.WebKey, np))
							require.NoError(t, add("1")(np))
							server.Writes = append(server.Writes[:0:0], "status") // the first one, which lands now
							require.NoError(t, server.WithWatch.Status().Update(t.Context(), np))
							server.Writes = server.Writes[:1]
						}
					}
					return !tc.late, errors.New("connection reset by peer")
				}
				np, err := NewStore(schedulingtest.Freeze(t, server), live).Change(t.Context(), schedulingtest.WebKey, add("1"))
				require.NoError(t, err)
				require.Len(t, np.Status.Placements, 1)
				require.Equal(t, tc.wantWrites, server.Writes)
			})
		})
	}
}
