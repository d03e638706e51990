package pods_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// side is an API server with at most one pod. It records what is deleted there, as "<UID> <precondition>".
type side struct {
	live    *corev1.Pod
	readErr error
	// other is whether another control plane answers.
	other   bool
	deleted []string
}

// client returns a client of a control plane that is known by uid.
func (s *side) client(uid types.UID) client.WithWatch {
	if s.other {
		uid = "another"
	}
	builder := kindtest.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if s.readErr != nil {
				return s.readErr
			}
			return c.Get(ctx, key, object, options...)
		},
		Delete: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			all := &client.DeleteOptions{}
			all.ApplyOptions(options)
			s.deleted = append(s.deleted, string(object.GetUID())+" "+string(*all.Preconditions.UID))
			return nil
		},
	})
	if s.live != nil {
		builder = builder.WithObjects(s.live).WithStatusSubresource(s.live)
	}
	return kindtest.Answering(builder.Build(), uid)
}

func assignedTo(superCluster string) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: superCluster}
	}
}

// TestDeletionsAreProven lets caches show one thing and API servers another: nothing is deleted but what both agree on.
func TestDeletionsAreProven(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name string
		// tenant and super are what the caches show.
		tenant, super *corev1.Pod
		// inTenant and inSuper are what the API servers have.
		inTenant, inSuper side
		// seen is the tenant's pod as its informer showed it last, nil if it did not.
		seen *corev1.Pod
		// wantSuper and wantTenant are the deletions there.
		wantSuper, wantTenant []string
		wantWait              bool
		wantErr               error
	}{
		{name: "an orphan", super: kindtest.ProofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"}},
		{
			name: "an orphan whose name has another pod", super: kindtest.ProofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: kindtest.ProofPod("other", assignedTo("r1"))},
		},
		{
			name: "an orphan whose pod was assigned elsewhere", super: kindtest.ProofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: kindtest.ProofPod("uid", assignedTo("r2"))},
		},
		{
			name: "a pod that the tenant's cache does not show yet", super: kindtest.ProofSuperPod("uid"), wantWait: true,
			inTenant: side{live: kindtest.ProofPod("uid", assignedTo("r1"))},
		},
		{
			name: "a pod that runs here and has lost its label", super: kindtest.ProofSuperPod("uid"),
			inTenant: side{live: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"))},
		},
		{
			name: "a pod that is only pinned here and has lost its label", super: kindtest.ProofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: kindtest.ProofPod("uid", kindtest.OnNode("r1.n1"))},
		},
		{name: "an orphan of which another control plane says so", super: kindtest.ProofSuperPod("uid"), inTenant: side{other: true}, wantWait: true},
		{
			name: "an orphan whose name has another pod in another control plane", super: kindtest.ProofSuperPod("uid"), wantWait: true,
			inTenant: side{other: true, live: kindtest.ProofPod("other", assignedTo("r1"))},
		},
		{name: "an orphan of a tenant that does not answer", super: kindtest.ProofSuperPod("uid"), inTenant: side{readErr: broken}, wantErr: broken},
		{
			name: "an orphan whose pod was seen being deleted", super: kindtest.ProofSuperPod("uid"), inTenant: side{readErr: broken}, wantSuper: []string{"super-uid super-uid"},
			seen: kindtest.ProofPod("uid", kindtest.Terminating(0)),
		},
		{
			name: "an orphan whose pod was seen, and not its deletion", super: kindtest.ProofSuperPod("uid"), inTenant: side{readErr: broken}, wantErr: broken,
			seen: kindtest.ProofPod("uid"),
		},
		{
			name: "an orphan, where another pod of that name was seen being deleted", super: kindtest.ProofSuperPod("uid"), inTenant: side{readErr: broken}, wantErr: broken,
			seen: kindtest.ProofPod("other", kindtest.Terminating(0)),
		},
		{
			name: "a pod that was replaced", tenant: kindtest.ProofPod("new"), super: kindtest.ProofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: kindtest.ProofPod("new", assignedTo("r1"))},
		},
		{
			name: "a pod whose replacement the tenant's cache does not show yet", tenant: kindtest.ProofPod("old"), super: kindtest.ProofSuperPod("uid"), wantWait: true,
			inTenant: side{live: kindtest.ProofPod("uid", assignedTo("r1"))},
		},
		{
			name: "a pod bound elsewhere", tenant: kindtest.ProofPod("uid", kindtest.Bound("r2.n1")), super: kindtest.ProofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{readErr: broken},
		},

		{name: "a pod that was lost", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), wantTenant: []string{"uid uid"}},
		{
			name: "a pod that was lost, and another has its name", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), wantTenant: []string{"uid uid"},
			inSuper: side{live: kindtest.ProofSuperPod("other")},
		},
		{name: "a pod of which another super cluster says that it was lost", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), inSuper: side{other: true}, wantWait: true},
		{name: "a pod that the tenant deletes, of which another super cluster says that it does not run", tenant: kindtest.ProofPod("uid", kindtest.Terminating(30)), inSuper: side{other: true}, wantWait: true},
		{
			name: "a pod that the super cluster's cache does not show yet", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), wantWait: true,
			inSuper: side{live: kindtest.ProofSuperPod("uid")},
		},
		{
			name: "a pod that may be lost", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), wantErr: broken, inSuper: side{readErr: broken},
		},
		{name: "a pod that the tenant deletes", tenant: kindtest.ProofPod("uid", kindtest.Terminating(30)), wantTenant: []string{"uid uid"}},
		{
			name: "a pod that the tenant deletes and that may run", tenant: kindtest.ProofPod("uid", kindtest.Terminating(30)), wantWait: true,
			inSuper: side{live: kindtest.ProofSuperPod("uid")},
		},
		{
			name: "a pod that the tenant deletes, of a super cluster that does not answer", tenant: kindtest.ProofPod("uid", kindtest.Terminating(30)), wantErr: broken,
			inSuper: side{readErr: broken},
		},
		{
			name: "a pod that has moved", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n2")), wantTenant: []string{"uid uid"},
			inSuper: side{readErr: broken},
		},

		{
			name: "a name that an orphan has", tenant: kindtest.ProofPod("uid"), inSuper: side{live: kindtest.ProofSuperPod("old")}, wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: kindtest.ProofPod("uid", assignedTo("r1"))},
		},
		{
			name: "a name that the super pod of a replacement has", tenant: kindtest.ProofPod("uid"), inSuper: side{live: kindtest.ProofSuperPod("new")}, wantWait: true,
			inTenant: side{live: kindtest.ProofPod("new", assignedTo("r1"))},
		},
		{name: "a name that its own super pod has", tenant: kindtest.ProofPod("uid"), inSuper: side{live: kindtest.ProofSuperPod("uid")}},
		{name: "a name that its own super pod has, on a node", tenant: kindtest.ProofPod("uid"), inSuper: side{live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"))}},
		{
			name: "a name that another tenant has", tenant: kindtest.ProofPod("uid"),
			inSuper: side{live: func() *corev1.Pod {
				pod := kindtest.ProofSuperPod("uid")
				kindtest.OwnedBy(kindtest.ForeignOwners("uid")["another VirtualCluster"])(pod)
				return pod
			}()},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.Tenant.Client, p.Env.Super = tc.inTenant.client(kindtest.TenantUID), tc.inSuper.client(kindtest.SuperUID)
			p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web"}}}
			if tc.tenant != nil {
				p.TenantCache[kind.Pod] = []client.Object{tc.tenant}
			}
			if tc.super != nil {
				p.SuperCache[kind.Pod] = []client.Object{tc.super}
			}
			if tc.seen != nil {
				p.Env.Changed(kind.Change{Kind: kind.Pod, Side: kind.TenantSide, Tenant: kindtest.ClusterKey, Old: tc.seen})
			}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
			wait := &engine.WaitError{}
			require.Equal(t, tc.wantWait, errors.As(err, &wait), "%v", err)
			if !tc.wantWait {
				require.ErrorIs(t, err, tc.wantErr)
			}
			require.Empty(t, cmp.Diff(tc.wantSuper, tc.inSuper.deleted))
			require.Empty(t, cmp.Diff(tc.wantTenant, tc.inTenant.deleted))
		})
	}
}

// TestNotPlaced lets the cache show that a pod's namespace holds nothing here. A tenant is warned only when that is so.
func TestNotPlaced(t *testing.T) {
	t.Parallel()
	placed := assign.Assignment{State: assign.Placed, UID: "ns-uid", Reserved: builders.Resources("pods", "1")}
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name     string
		assigned kindtest.Assigned
		want     bool
		wantErr  error
	}{
		{name: "it holds nothing", want: true},
		{name: "it holds Services only", want: true, assigned: kindtest.Assigned{
			Cached: assign.Assignment{State: assign.ServicesOnly, UID: "ns-uid"}, Live: assign.Assignment{State: assign.ServicesOnly, UID: "ns-uid"},
		}},
		{name: "all that it holds leaves", want: true, assigned: kindtest.Assigned{
			Cached: assign.Assignment{State: assign.Placed, UID: "ns-uid"}, Live: assign.Assignment{State: assign.Placed, UID: "ns-uid"},
		}},
		{name: "one of that name did", want: true, assigned: kindtest.Assigned{Cached: assign.Assignment{State: assign.Placed, UID: "old"}}},
		{name: "the cache is behind", assigned: kindtest.Assigned{Live: placed}},
		{name: "nobody answers", assigned: kindtest.Assigned{LiveErr: broken}, wantErr: broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				t.Error("the super pod was created")
				return nil
			}})
			p.Env.Assignments = tc.assigned
			p.TenantCache[kind.Pod] = []client.Object{kindtest.ProofPod("uid")}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
			require.ErrorIs(t, err, tc.wantErr)
			require.Equal(t, tc.want, len(p.Events.Events) == 1)
			if tc.want {
				require.Contains(t, <-p.Events.Events, "NotPlaced")
			}
		})
	}
}

// TestNotPlacedCosts lets a tenant whose Services cannot be listed have pods in a namespace that left this super
// cluster: each look at one reads its NamespacePlacement and nothing else, and the tenant is warned.
func TestNotPlacedCosts(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	var reads []string
	db := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey, Name: "db"},
		Status:     schedulerv1alpha1.NamespacePlacementStatus{Placements: []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Slices: 1}}},
	}
	live := builders.Client(scheme).WithObjects(db).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			reads = append(reads, "get "+key.Name)
			return inner.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			reads = append(reads, "list")
			return inner.List(ctx, list, options...)
		},
	}).Build()
	p.Assigns(builders.Client(scheme).Build(), live)
	p.Tenant.Client = kindtest.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("connection refused")
		},
	}).Build()
	p.TenantCache[kind.Pod] = []client.Object{kindtest.ProofPod("uid")}
	key, room := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, p.Tenant.Recorder
	p.Tenant.Recorder = kindtest.FullRecorder{}
	_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"get web"}, reads)
	p.Tenant.Recorder = room
	_, err = p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Len(t, p.Events.Events, 1, "it is said once there is room")
	require.Contains(t, <-p.Events.Events, "SuperClusterNotPlaced")

	reads = nil
	for range 3 { // patrol looks at it each minute
		_, err = p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
		require.NoError(t, err)
	}
	require.Empty(t, reads, "the tenant was warned")

	waited := 0
	for i := range 1000 { // that many pods cost what one tenant may have read, and the others wait
		pod := kindtest.ProofPod(types.UID(fmt.Sprint(i)))
		p.TenantCache[kind.Pod] = []client.Object{pod}
		_, err = p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
		select {
		case <-p.Events.Events:
		default:
		}
		if err != nil {
			require.ErrorContains(t, err, "the turn of the tenant for a live read")
			waited++
		}
	}
	require.Less(t, len(reads), 600)
	require.Equal(t, 1000, len(reads)+waited)
}

// TestEndings lets the super cluster refuse the deletion of a super pod: its tenant's pod has been ending since then,
// until it is known no more.
func TestEndings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// between happens before the super cluster takes the deletion, 20 seconds later.
		between func(p *kindtest.Pool, reconcile func())
		want    int64
	}{
		{name: "it stays", between: func(*kindtest.Pool, func()) {}, want: 10},
		{name: "it is gone for a while", between: func(p *kindtest.Pool, reconcile func()) {
			pods := p.TenantCache[kind.Pod]
			p.TenantCache[kind.Pod] = nil
			reconcile()
			p.TenantCache[kind.Pod] = pods
		}, want: 30},
		{name: "neither is there for a while", between: func(p *kindtest.Pool, reconcile func()) {
			pods, superPods := p.TenantCache[kind.Pod], p.SuperCache[kind.Pod]
			p.TenantCache[kind.Pod], p.SuperCache[kind.Pod] = nil, nil
			reconcile()
			p.TenantCache[kind.Pod], p.SuperCache[kind.Pod] = pods, superPods
		}, want: 30},
		{name: "another one has its name", between: func(p *kindtest.Pool, _ func()) {
			p.TenantCache[kind.Pod] = []client.Object{kindtest.ProofPod("again", kindtest.Terminating(30))}
			p.SuperCache[kind.Pod] = []client.Object{kindtest.ProofSuperPod("again")}
		}, want: 30},
		{name: "the tenant is disconnected for a while", between: func(p *kindtest.Pool, _ func()) { p.Env.Forget(kindtest.ClusterKey) }, want: 30},
		{name: "another tenant is", between: func(p *kindtest.Pool, _ func()) { p.Env.Forget("another") }, want: 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			refuse, got := true, int64(0)
			p := kindtest.NewPool(t, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				if refuse {
					return apierrors.NewTooManyRequests("later", 1)
				}
				got = ptr.Deref((&client.DeleteOptions{}).ApplyOptions(options).GracePeriodSeconds, 0)
				return nil
			}})
			clock := testingclock.NewFakePassiveClock(p.Env.Clock.Now())
			p.Env.Clock = clock
			p.TenantCache[kind.Pod] = []client.Object{kindtest.ProofPod("uid", kindtest.Terminating(30))}
			p.SuperCache[kind.Pod] = []client.Object{kindtest.ProofSuperPod("uid")}
			reconciler := p.Kind(kind.Pod)
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: p.TenantCache[kind.Pod][0].GetName()}
			reconcile := func() { _, _ = reconciler.Reconcile(t.Context(), key, 0) }
			reconcile()
			tc.between(p, reconcile)
			clock.SetTime(clock.Now().Add(20 * time.Second))
			refuse = false
			reconcile()
			require.Equal(t, tc.want, got)
		})
	}
}

// TestDeletionIsSeen: that a tenant deletes a pod was seen proves the deletion of its super pod as long as that is there,
// and nothing is remembered of pods without one.
func TestDeletionIsSeen(t *testing.T) {
	t.Parallel()
	pod, deleted, superPod := kindtest.ProofPod("uid"), kindtest.ProofPod("uid", kindtest.Terminating(0)), kindtest.ProofSuperPod("uid")
	tenantSide := func(old, current client.Object) kind.Change {
		return kind.Change{Kind: kind.Pod, Side: kind.TenantSide, Tenant: kindtest.ClusterKey, Old: old, Current: current}
	}
	for _, tc := range []struct {
		name string
		// between happens after the deletion was seen.
		between func(p *kindtest.Pool)
		proven  bool
	}{
		{name: "nothing happens", between: func(*kindtest.Pool) {}, proven: true},
		{name: "another tenant is disconnected", between: func(p *kindtest.Pool) { p.Env.Forget("another") }, proven: true},
		{name: "the tenant is disconnected", between: func(p *kindtest.Pool) { p.Env.Forget(kindtest.ClusterKey) }},
		{name: "its control plane is restored", between: func(p *kindtest.Pool) { p.Env.Changed(tenantSide(nil, pod)) }},
		{name: "the super pod is gone, and comes back", between: func(p *kindtest.Pool) {
			p.Env.Changed(kind.Change{Kind: kind.Pod, Side: kind.SuperSide, Old: superPod})
		}},
		{name: "another pod of that name is seen", between: func(p *kindtest.Pool) {
			p.Env.Changed(tenantSide(nil, kindtest.ProofPod("other", kindtest.Terminating(0))))
		}, proven: true},
		{name: "it was seen before there was a super pod", between: func(p *kindtest.Pool) {
			p.Env.Forget(kindtest.ClusterKey)
			p.SuperCache[kind.Pod] = nil
			p.Env.Changed(tenantSide(pod, deleted))
			p.SuperCache[kind.Pod] = []client.Object{superPod}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			tenant, super := side{readErr: errors.New("connection refused")}, side{}
			p.Tenant.Client, p.Env.Super = tenant.client(kindtest.TenantUID), super.client(kindtest.SuperUID)
			p.SuperCache[kind.Pod] = []client.Object{superPod}
			p.Env.Changed(tenantSide(pod, deleted))
			tc.between(p)
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
			if tc.proven {
				require.NoError(t, err)
				require.Equal(t, []string{"super-uid super-uid"}, super.deleted)
				return
			}
			require.ErrorIs(t, err, tenant.readErr)
			require.Empty(t, super.deleted)
		})
	}
}

// TestEndIsSeen: the end of a super pod that this process has deleted for the tenant proves the removal of its pod.
func TestEndIsSeen(t *testing.T) {
	t.Parallel()
	ends := func(grace int64, changes ...func(*corev1.Pod)) *corev1.Pod {
		return kindtest.ProofSuperPod("uid", append(changes, kindtest.Terminating(grace))...)
	}
	update := func(current *corev1.Pod) kind.Change {
		return kind.Change{Kind: kind.Pod, Side: kind.SuperSide, Old: ends(30), Current: current}
	}
	gone := func(last *corev1.Pod) kind.Change {
		return kind.Change{Kind: kind.Pod, Side: kind.SuperSide, Old: last}
	}
	for _, tc := range []struct {
		name string
		// before and behind are shown before and after this process deletes the super pod.
		before, behind []kind.Change
		// undone lets the process not delete it, and again be what the tenant's cache shows afterwards, if not nil.
		undone bool
		again  *corev1.Pod
		proven bool
	}{
		{name: "its grace period is 0, and it is gone", behind: []kind.Change{update(ends(0)), gone(ends(0))}, proven: true},
		{name: "only the last of it is shown", behind: []kind.Change{gone(ends(0))}, proven: true},
		{name: "it is gone before its grace period is over", behind: []kind.Change{update(ends(30)), gone(ends(30))}},
		{name: "it was never being deleted", behind: []kind.Change{gone(kindtest.ProofSuperPod("uid"))}},
		{name: "it waits for a finalizer", behind: []kind.Change{update(ends(0, func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/kept"} }))}},
		{name: "another super pod of that name ended", behind: []kind.Change{gone(ends(0, func(pod *corev1.Pod) { pod.UID = "before" }))}},
		{name: "it ended before this process deleted any", undone: true, before: []kind.Change{update(ends(0)), gone(ends(0))}},
		{name: "another pod has its name", behind: []kind.Change{gone(ends(0))}, again: kindtest.ProofPod("again", kindtest.Terminating(30))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			tenant, super, silent := side{}, side{}, side{readErr: errors.New("connection refused")}
			p.Tenant.Client, p.Env.Super = tenant.client(kindtest.TenantUID), super.client(kindtest.SuperUID)
			reconcile := func() error {
				_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
				return err
			}
			p.TenantCache[kind.Pod] = []client.Object{kindtest.ProofPod("uid", kindtest.Terminating(30))}
			for _, change := range tc.before {
				p.Env.Changed(change)
			}
			if !tc.undone {
				p.SuperCache[kind.Pod] = []client.Object{kindtest.ProofSuperPod("uid")}
				require.NoError(t, reconcile())
				require.Equal(t, []string{"super-uid super-uid"}, super.deleted)
			}
			for _, change := range tc.behind {
				p.Env.Changed(change)
			}
			p.SuperCache[kind.Pod], p.Env.Super = nil, silent.client(kindtest.SuperUID)
			if tc.again != nil {
				p.TenantCache[kind.Pod] = []client.Object{tc.again}
			}
			err := reconcile()
			if tc.proven {
				require.NoError(t, err)
				require.Equal(t, []string{"uid uid"}, tenant.deleted)
				return
			}
			require.ErrorIs(t, err, silent.readErr)
			require.Empty(t, tenant.deleted)
		})
	}
}
