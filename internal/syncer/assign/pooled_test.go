package assign_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/test/builders"
)

const tenant = "acme-123456-vc"

// sides shows what a case says of namespace web, and of the tenant's other super namespaces.
type sides struct {
	content                     assign.Content
	others                      []assign.SuperNamespace
	pods, services, servicesNow assign.Answer
	servicesErr                 error
	// asked counts the live reads.
	asked int
}

func (s *sides) Content(string, string) assign.Content          { return s.content }
func (s *sides) SuperNamespaces(string) []assign.SuperNamespace { return s.others }
func (s *sides) NamespaceUID(string, string) types.UID          { return "cached-uid" }
func (s *sides) Pods(string, string) assign.Answer              { return s.pods }
func (s *sides) Services(string, string) assign.Answer          { return s.services }
func (s *sides) LiveServices(context.Context, string, string) (assign.Answer, error) {
	s.asked++
	return s.servicesNow, s.servicesErr
}

func placement(name string, clusters ...string) client.Object {
	object := builders.Placement(tenant, name).NamespaceUID("placed-uid")
	for _, cluster := range clusters {
		object.Held(cluster, 1, "cpu", "2")
	}
	return object.Obj()
}

// metaWith returns a meta cluster that counts what is read of it.
func metaWith(t *testing.T, reads *int, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			*reads++
			return inner.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			*reads++
			return inner.List(ctx, list, options...)
		},
	}).Build()
}

// TestPooled asks the caches, and then for proof, which costs requests only where it may lead to a deletion.
func TestPooled(t *testing.T) {
	t.Parallel()
	here := assign.Assignment{State: assign.Placed, UID: "placed-uid", Reserved: builders.Resources("cpu", "2")}
	is := func(state assign.State) assign.Assignment { return assign.Assignment{State: state, UID: "cached-uid"} }
	for _, tc := range []struct {
		name         string
		cached, live []client.Object
		sides        sides
		want         assign.Assignment
		wantLive     assign.Assignment
		// wantReads are the requests of Confirm to the meta cluster, wantAsked those to the tenant.
		wantReads, wantAsked int
	}{
		{
			name: "it is placed here", want: here, wantLive: here, wantReads: 1,
			cached: []client.Object{placement("web", "r2", "r1")}, live: []client.Object{placement("web", "r1")},
		},
		{name: "the cache is behind", want: is(assign.None), wantLive: here, wantReads: 1, live: []client.Object{placement("web", "r1")}},
		{name: "it is placed elsewhere", want: is(assign.None), wantLive: is(assign.None), wantReads: 1, live: []client.Object{placement("web", "r2")}},
		{
			name: "it is placed elsewhere and has Services", sides: sides{content: assign.Services, services: assign.Yes},
			want: is(assign.ServicesOnly), wantLive: is(assign.ServicesOnly), wantReads: 1,
		},
		{
			name: "its Services are gone", sides: sides{content: assign.Services, services: assign.No, servicesNow: assign.No},
			cached: []client.Object{placement("db", "r1")}, live: []client.Object{placement("db", "r1")},
			want: is(assign.None), wantLive: is(assign.None), wantReads: 2, wantAsked: 1,
		},
		{
			name: "it has a Service that the cache does not show", sides: sides{content: assign.Services, services: assign.No, servicesNow: assign.Yes},
			live: []client.Object{placement("db", "r1")}, want: is(assign.None), wantLive: is(assign.ServicesOnly), wantReads: 2, wantAsked: 1,
		},
		{
			name: "nobody is here to call its Services", sides: sides{content: assign.Services, services: assign.No, servicesNow: assign.Yes},
			want: is(assign.None), wantLive: is(assign.None), wantReads: 2,
		},
		{
			name: "the tenant is not connected", sides: sides{content: assign.Services},
			cached: []client.Object{placement("db", "r1")}, live: []client.Object{placement("db", "r1")},
			want: is(assign.Unknown), wantLive: is(assign.Unknown), wantReads: 2, wantAsked: 1,
		},
		{
			name: "another one is still to be cleared", wantReads: 1, wantAsked: 1,
			sides: sides{content: assign.Services, others: []assign.SuperNamespace{
				{Namespace: "web", Content: assign.Everything}, {Namespace: "db", Content: assign.Everything},
			}},
			cached: []client.Object{placement("db", "r2")}, want: is(assign.Unknown), wantLive: is(assign.Unknown),
		},
		{
			name: "others are no reason", wantReads: 2,
			sides: sides{content: assign.Services, others: []assign.SuperNamespace{
				{Namespace: "web", Content: assign.Everything},
				{Namespace: "served", Content: assign.Services},
				{Namespace: "gone", Content: assign.Everything},
				{Namespace: "goes", Content: assign.Everything, Terminating: true},
			}},
			cached: []client.Object{placement("goes", "r2"), placement("served", "r2")}, want: is(assign.None), wantLive: is(assign.None),
		},
		{
			name: "its pods are still here", sides: sides{content: assign.Everything, pods: assign.Yes, services: assign.No},
			cached: []client.Object{placement("web", "r2")}, live: []client.Object{placement("web", "r2")},
			want: is(assign.Leaving), wantLive: is(assign.Leaving), wantReads: 2,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cachedReads, reads := 0, 0
			p := &assign.Pooled{SuperCluster: "r1", Meta: metaWith(t, &cachedReads, tc.cached...), Live: metaWith(t, &reads, tc.live...), Sides: &tc.sides}
			got, err := p.Of(t.Context(), tenant, "web")
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Zero(t, reads, "Of asks caches only")
			require.Zero(t, tc.sides.asked, "Of asks caches only")

			got, err = p.Confirm(t.Context(), tenant, "web")
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.wantLive, got))
			require.Equal(t, []int{tc.wantReads, tc.wantAsked}, []int{reads, tc.sides.asked})
		})
	}
}

// TestConfirmPlaced lets a tenant have many pods in a namespace that is not placed here: each costs one read, whatever
// else the tenant holds, and none of the tenant.
func TestConfirmPlaced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		live []client.Object
		want assign.Assignment
	}{
		{name: "it is placed here", live: []client.Object{placement("web", "r2", "r1")}, want: assign.Assignment{
			State: assign.Placed, UID: "placed-uid", Reserved: builders.Resources("cpu", "2"),
		}},
		{name: "it is placed elsewhere", live: []client.Object{placement("web", "r2"), placement("db", "r1")}},
		{name: "it is placed nowhere", live: []client.Object{placement("db", "r1")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cachedReads, reads := 0, 0
			// Pods of it are still here, and Services may be: what Confirm asks for.
			left := &sides{content: assign.Everything, pods: assign.Yes, services: assign.No, servicesErr: errors.New("the tenant is away")}
			p := &assign.Pooled{SuperCluster: "r1", Meta: metaWith(t, &cachedReads), Live: metaWith(t, &reads, tc.live...), Sides: left}
			for range 10 {
				got, err := p.ConfirmPlaced(t.Context(), tenant, "web")
				require.NoError(t, err)
				require.Empty(t, cmp.Diff(tc.want, got))
			}
			require.Equal(t, []int{10, 0, 0}, []int{reads, cachedReads, left.asked})
		})
	}
}

// TestPooledNamespaces names what is to be watched of a tenant.
func TestPooledNamespaces(t *testing.T) {
	t.Parallel()
	reads := 0
	p := &assign.Pooled{
		SuperCluster: "r1",
		Meta:         metaWith(t, &reads, placement("web", "r1"), placement("elsewhere", "r2"), placement("api", "r2", "r1")),
		Sides: &sides{others: []assign.SuperNamespace{
			{Namespace: "web", Content: assign.Everything},
			{Namespace: "leaves", Content: assign.Everything},
			{Namespace: "served", Content: assign.Services},
			{Namespace: "goes", Content: assign.Everything, Terminating: true},
		}},
	}
	got, err := p.Namespaces(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, []string{"api", "goes", "leaves", "web"}, got)
	require.Equal(t, "scheduler.tenancy.x-k8s.io/superCluster=r1", p.PodSelector())
}

// TestPooledErrors lets no request that fails look like an absence.
func TestPooledErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("the meta cluster is away")
	failing := func(get, list error) client.Reader {
		return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if get == nil {
					object.SetName("other")
				}
				return get
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return list },
		}).Build()
	}
	for _, tc := range []struct {
		name      string
		get, list error
	}{
		{name: "of one", get: broken},
		{name: "of all", list: broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			reader := failing(tc.get, tc.list)
			p := &assign.Pooled{SuperCluster: "r1", Meta: reader, Live: reader, Sides: &sides{content: assign.Services}}
			for _, ask := range []func(context.Context, string, string) (assign.Assignment, error){p.Of, p.Confirm} {
				got, err := ask(t.Context(), tenant, "web")
				require.ErrorIs(t, err, broken)
				require.Equal(t, assign.Unknown, got.State)
			}
			got, err := p.ConfirmPlaced(t.Context(), tenant, "web")
			require.ErrorIs(t, err, tc.get)
			require.Equal(t, assign.Unknown, got.State)
		})
	}
}
