package kinds_test

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
	builder := newClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
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
	return answering(builder.Build(), uid)
}

// proofPod returns the pod p of the tenant, and proofSuperPod the super pod of the tenant's pod with a UID.
func proofPod(uid types.UID, changes ...func(pod *corev1.Pod)) *corev1.Pod {
	pod := stepPod(uid, changes...)
	pod.Namespace = "web"
	return pod
}

func proofSuperPod(uid types.UID, changes ...func(pod *corev1.Pod)) *corev1.Pod {
	pod := stepPod("super-uid", append(changes, ownedBy(ownerOf(uid)))...)
	pod.Namespace = clusterKey + "-web"
	return pod
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
		// wantSuper and wantTenant are the deletions there.
		wantSuper, wantTenant []string
		wantWait              bool
		wantErr               error
	}{
		{name: "an orphan", super: proofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"}},
		{
			name: "an orphan whose name has another pod", super: proofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: proofPod("other", assignedTo("r1"))},
		},
		{
			name: "an orphan whose pod was assigned elsewhere", super: proofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: proofPod("uid", assignedTo("r2"))},
		},
		{
			name: "a pod that the tenant's cache does not show yet", super: proofSuperPod("uid"), wantWait: true,
			inTenant: side{live: proofPod("uid", assignedTo("r1"))},
		},
		{
			name: "a pod that runs here and has lost its label", super: proofSuperPod("uid"),
			inTenant: side{live: proofPod("uid", bound("r1.n1"))},
		},
		{
			name: "a pod that is only pinned here and has lost its label", super: proofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: proofPod("uid", onNode("r1.n1"))},
		},
		{name: "an orphan of which another control plane says so", super: proofSuperPod("uid"), inTenant: side{other: true}, wantWait: true},
		{
			name: "an orphan whose name has another pod in another control plane", super: proofSuperPod("uid"), wantWait: true,
			inTenant: side{other: true, live: proofPod("other", assignedTo("r1"))},
		},
		{name: "an orphan of a tenant that does not answer", super: proofSuperPod("uid"), inTenant: side{readErr: broken}, wantErr: broken},
		{
			name: "a pod that was replaced", tenant: proofPod("new"), super: proofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: proofPod("new", assignedTo("r1"))},
		},
		{
			name: "a pod whose replacement the tenant's cache does not show yet", tenant: proofPod("old"), super: proofSuperPod("uid"), wantWait: true,
			inTenant: side{live: proofPod("uid", assignedTo("r1"))},
		},
		{
			name: "a pod bound elsewhere", tenant: proofPod("uid", bound("r2.n1")), super: proofSuperPod("uid"), wantSuper: []string{"super-uid super-uid"},
			inTenant: side{readErr: broken},
		},

		{name: "a pod that was lost", tenant: proofPod("uid", bound("r1.n1")), wantTenant: []string{"uid uid"}},
		{
			name: "a pod that was lost, and another has its name", tenant: proofPod("uid", bound("r1.n1")), wantTenant: []string{"uid uid"},
			inSuper: side{live: proofSuperPod("other")},
		},
		{name: "a pod of which another super cluster says that it was lost", tenant: proofPod("uid", bound("r1.n1")), inSuper: side{other: true}, wantWait: true},
		{name: "a pod that the tenant deletes, of which another super cluster says that it does not run", tenant: proofPod("uid", terminating(30)), inSuper: side{other: true}, wantWait: true},
		{
			name: "a pod that the super cluster's cache does not show yet", tenant: proofPod("uid", bound("r1.n1")), wantWait: true,
			inSuper: side{live: proofSuperPod("uid")},
		},
		{
			name: "a pod that may be lost", tenant: proofPod("uid", bound("r1.n1")), wantErr: broken, inSuper: side{readErr: broken},
		},
		{name: "a pod that the tenant deletes", tenant: proofPod("uid", terminating(30)), wantTenant: []string{"uid uid"}},
		{
			name: "a pod that the tenant deletes and that may run", tenant: proofPod("uid", terminating(30)), wantWait: true,
			inSuper: side{live: proofSuperPod("uid")},
		},
		{
			name: "a pod that the tenant deletes, of a super cluster that does not answer", tenant: proofPod("uid", terminating(30)), wantErr: broken,
			inSuper: side{readErr: broken},
		},
		{
			name: "a pod that has moved", tenant: proofPod("uid", bound("r1.n1")), super: proofSuperPod("uid", onNode("n2")), wantTenant: []string{"uid uid"},
			inSuper: side{readErr: broken},
		},

		{
			name: "a name that an orphan has", tenant: proofPod("uid"), inSuper: side{live: proofSuperPod("old")}, wantSuper: []string{"super-uid super-uid"},
			inTenant: side{live: proofPod("uid", assignedTo("r1"))},
		},
		{
			name: "a name that the super pod of a replacement has", tenant: proofPod("uid"), inSuper: side{live: proofSuperPod("new")}, wantWait: true,
			inTenant: side{live: proofPod("new", assignedTo("r1"))},
		},
		{name: "a name that its own super pod has", tenant: proofPod("uid"), inSuper: side{live: proofSuperPod("uid")}},
		{name: "a name that its own super pod has, on a node", tenant: proofPod("uid"), inSuper: side{live: proofSuperPod("uid", onNode("n1"))}},
		{
			name: "a name that another tenant has", tenant: proofPod("uid"),
			inSuper: side{live: func() *corev1.Pod {
				pod := proofSuperPod("uid")
				ownedBy(foreignOwners("uid")["another VirtualCluster"])(pod)
				return pod
			}()},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{})
			p.placed(t)
			p.tenant.Client, p.env.Super = tc.inTenant.client(tenantUID), tc.inSuper.client(superUID)
			p.superCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web"}}}
			if tc.tenant != nil {
				p.tenantCache[kind.Pod] = []client.Object{tc.tenant}
			}
			if tc.super != nil {
				p.superCache[kind.Pod] = []client.Object{tc.super}
			}
			_, err := p.kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
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

// assigned answers from a cache and live.
type assigned struct {
	assign.Assignments
	cached, live assign.Assignment
	liveErr      error
}

func (a assigned) Of(context.Context, string, string) (assign.Assignment, error) {
	return a.cached, nil
}

func (a assigned) Held(context.Context, string) (corev1.ResourceList, error) {
	return a.cached.Reserved, nil
}

func (a assigned) ConfirmPlaced(context.Context, string, string) (assign.Assignment, error) {
	return a.live, a.liveErr
}

// TestNotPlaced lets the cache show that a pod's namespace holds nothing here. A tenant is warned only when that is so.
func TestNotPlaced(t *testing.T) {
	t.Parallel()
	placed := assign.Assignment{State: assign.Placed, UID: "ns-uid", Reserved: builders.Resources("pods", "1")}
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name     string
		assigned assigned
		want     bool
		wantErr  error
	}{
		{name: "it holds nothing", want: true},
		{name: "it holds Services only", want: true, assigned: assigned{
			cached: assign.Assignment{State: assign.ServicesOnly, UID: "ns-uid"}, live: assign.Assignment{State: assign.ServicesOnly, UID: "ns-uid"},
		}},
		{name: "all that it holds leaves", want: true, assigned: assigned{
			cached: assign.Assignment{State: assign.Placed, UID: "ns-uid"}, live: assign.Assignment{State: assign.Placed, UID: "ns-uid"},
		}},
		{name: "one of that name did", want: true, assigned: assigned{cached: assign.Assignment{State: assign.Placed, UID: "old"}}},
		{name: "the cache is behind", assigned: assigned{live: placed}},
		{name: "nobody answers", assigned: assigned{liveErr: broken}, wantErr: broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				t.Error("the super pod was created")
				return nil
			}})
			p.env.Assignments = tc.assigned
			p.tenantCache[kind.Pod] = []client.Object{proofPod("uid")}
			_, err := p.kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
			require.ErrorIs(t, err, tc.wantErr)
			require.Equal(t, tc.want, len(p.events.Events) == 1)
			if tc.want {
				require.Contains(t, <-p.events.Events, "NotPlaced")
			}
		})
	}
}

// TestNotPlacedCosts lets a tenant whose Services cannot be listed have pods in a namespace that left this super
// cluster: each look at one reads its NamespacePlacement and nothing else, and the tenant is warned.
func TestNotPlacedCosts(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{})
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	var reads []string
	db := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey, Name: "db"},
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
	p.assigns(builders.Client(scheme).Build(), live)
	p.tenant.Client = newClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("connection refused")
		},
	}).Build()
	p.tenantCache[kind.Pod] = []client.Object{proofPod("uid")}
	key, room := engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, p.tenant.Recorder
	p.tenant.Recorder = fullRecorder{}
	_, err := p.kind(kind.Pod).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"get web"}, reads)
	p.tenant.Recorder = room
	_, err = p.kind(kind.Pod).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Len(t, p.events.Events, 1, "it is said once there is room")
	require.Contains(t, <-p.events.Events, "SuperClusterNotPlaced")

	reads = nil
	for range 3 { // patrol looks at it each minute
		_, err = p.kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
		require.NoError(t, err)
	}
	require.Empty(t, reads, "the tenant was warned")

	waited := 0
	for i := range 1000 { // that many pods cost what one tenant may have read, and the others wait
		pod := proofPod(types.UID(fmt.Sprint(i)))
		p.tenantCache[kind.Pod] = []client.Object{pod}
		_, err = p.kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
		select {
		case <-p.events.Events:
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
		between func(p *pool, reconcile func())
		want    int64
	}{
		{name: "it stays", between: func(*pool, func()) {}, want: 10},
		{name: "it is gone for a while", between: func(p *pool, reconcile func()) {
			pods := p.tenantCache[kind.Pod]
			p.tenantCache[kind.Pod] = nil
			reconcile()
			p.tenantCache[kind.Pod] = pods
		}, want: 30},
		{name: "neither is there for a while", between: func(p *pool, reconcile func()) {
			pods, superPods := p.tenantCache[kind.Pod], p.superCache[kind.Pod]
			p.tenantCache[kind.Pod], p.superCache[kind.Pod] = nil, nil
			reconcile()
			p.tenantCache[kind.Pod], p.superCache[kind.Pod] = pods, superPods
		}, want: 30},
		{name: "another one has its name", between: func(p *pool, _ func()) {
			p.tenantCache[kind.Pod] = []client.Object{proofPod("again", terminating(30))}
			p.superCache[kind.Pod] = []client.Object{proofSuperPod("again")}
		}, want: 30},
		{name: "the tenant is disconnected for a while", between: func(p *pool, _ func()) { p.env.Forget(clusterKey) }, want: 30},
		{name: "another tenant is", between: func(p *pool, _ func()) { p.env.Forget("another") }, want: 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			refuse, got := true, int64(0)
			p := newPool(t, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				if refuse {
					return apierrors.NewTooManyRequests("later", 1)
				}
				got = ptr.Deref((&client.DeleteOptions{}).ApplyOptions(options).GracePeriodSeconds, 0)
				return nil
			}})
			clock := testingclock.NewFakePassiveClock(p.env.Clock.Now())
			p.env.Clock = clock
			p.tenantCache[kind.Pod] = []client.Object{proofPod("uid", terminating(30))}
			p.superCache[kind.Pod] = []client.Object{proofSuperPod("uid")}
			reconciler := p.kind(kind.Pod)
			key := engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: p.tenantCache[kind.Pod][0].GetName()}
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
