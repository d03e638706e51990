package namespaces_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestSuperNamespace(t *testing.T) {
	t.Parallel()
	tenantNamespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "web", UID: "ns-uid",
		Labels:      map[string]string{"team": "a", "kubernetes.io/metadata.name": "web", "pod-security.kubernetes.io/enforce": "privileged"},
		Annotations: map[string]string{"scheduler.tenancy.x-k8s.io/slice": "{}"},
	}}
	got := &corev1.Namespace{}
	namespaces.SuperNamespace(tenantNamespace, got, kindtest.OwnerOf("ns-uid"), nil, "baseline")
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: kindtest.ClusterKey + "-web",
		Labels: map[string]string{
			"label.tenancy.x-k8s.io/team": "a", tenancy.LabelKey("kubernetes.io/metadata.name"): "web",
			tenancy.LabelKey("pod-security.kubernetes.io/enforce"): "privileged", "pod-security.kubernetes.io/enforce": "baseline",
		},
	}}
	tenancy.SetOwner(want, kindtest.OwnerOf("ns-uid"))
	require.Empty(t, cmp.Diff(want, got))
}

// TestServicesOnly: how long a super namespace stays that is there for Services alone.
func TestServicesOnly(t *testing.T) {
	t.Parallel()
	service := kindtest.ServiceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	elsewhere := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey, Name: "other"},
		Status:     schedulerv1alpha1.NamespacePlacementStatus{Placements: []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1"}}},
	}
	for _, tc := range []struct {
		name string
		// holds: whether the tenant holds another namespace here, as the cache knows and as it is.
		holds, holdsLive bool
		// services: whether the namespace has Services.
		services, servicesLive bool
		disconnected           bool
		wantStays, wantWait    bool
	}{
		{name: "it has Services", holds: true, holdsLive: true, services: true, servicesLive: true, wantStays: true},
		{name: "it has none", holds: true, holdsLive: true},
		{name: "it has one that the cache does not know yet", holds: true, holdsLive: true, servicesLive: true, wantStays: true, wantWait: true},
		{name: "nothing else is here", servicesLive: true},
		{name: "something else is here that the cache does not know yet", holdsLive: true, servicesLive: true, wantStays: true, wantWait: true},
		{name: "the tenant cannot be asked", holds: true, holdsLive: true, disconnected: true, wantStays: true},
		{name: "the tenant is gone", disconnected: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			scheme := runtime.NewScheme()
			require.NoError(t, clientgoscheme.AddToScheme(scheme))
			require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
			meta := func(holds bool) client.WithWatch {
				builder := builders.Client(scheme)
				if holds {
					builder.WithObjects(elsewhere.DeepCopy())
				}
				return builder.Build()
			}
			p.Assigns(meta(tc.holds), meta(tc.holdsLive))
			p.Namespace.GetAnnotations()["tenancy.x-k8s.io/services-only"] = "true"
			if tc.services {
				p.TenantCache[kind.Service] = []client.Object{service}
			}
			if tc.servicesLive {
				require.NoError(t, p.Tenant.Client.Create(t.Context(), service.DeepCopy()))
			}
			require.NoError(t, p.SuperClient.Create(t.Context(), p.Namespace))
			require.NoError(t, p.SuperClient.Create(t.Context(), p.Quota))
			if tc.disconnected {
				p.Env.Tenant = func(string) *kind.Tenant { return nil }
			}
			_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}, 0)
			require.Equal(t, tc.wantWait, err != nil, "%v", err)
			err = p.SuperClient.Get(t.Context(), client.ObjectKey{Name: p.Namespace.GetName()}, &corev1.Namespace{})
			require.Equal(t, tc.wantStays, err == nil, "%v", err)
		})
	}
}

// TestNamespaceThatLeaves keeps Services, and nothing else.
func TestNamespaceThatLeaves(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	meta := builders.Client(kindtest.PlacementScheme(t)).WithObjects(
		builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r2", 1).Obj(),
	).Build()
	p.Assigns(meta, meta)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "password"}}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "foreign"}}
	tenancy.SetOwner(secret, kindtest.OwnerOf("secret-uid"))
	for _, object := range []client.Object{p.Namespace, p.Quota, secret, foreign} {
		require.NoError(t, p.SuperClient.Create(t.Context(), object))
	}
	p.TenantCache[kind.Service] = []client.Object{kindtest.ServiceAt("web", "front", "10.97.0.7")}
	p.SuperCache[kind.Secret] = []client.Object{secret, foreign}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}

	p.TenantCache[kind.Pod] = []client.Object{kindtest.TenantPod(nil)}
	_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}), "a pod is assigned here")

	p.TenantCache[kind.Pod] = nil
	_, err = p.Kind(kind.Namespace).Reconcile(t.Context(), key, 0)
	require.ErrorContains(t, err, "waiting for the deletion of the objects in namespace")
	require.Error(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}))
	require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(foreign), &corev1.Secret{}), "it is not ours")

	p.SuperCache[kind.Secret], p.SuperCache[kind.Isolation] = []client.Object{foreign}, nil
	p.Env.SuperCache = kindtest.Unfilled{Cache: p.SuperCache, Of: kind.Secret}
	_, err = p.Kind(kind.Namespace).Reconcile(t.Context(), key, 0)
	require.ErrorContains(t, err, "waiting for the cache of the super cluster's secrets", "whether any is left is not known")

	p.Env.SuperCache = p.SuperCache
	_, err = p.Kind(kind.Namespace).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	got := &corev1.Namespace{}
	require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(p.Namespace), got))
	require.True(t, kind.ServicesOnly(got))
}

// TestNamespaceThatComesBack is placed here again while it is being cleared: what is created for that stays.
func TestNamespaceThatComesBack(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	secret := func(name string) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: name}}
		tenancy.SetOwner(secret, kindtest.OwnerOf(types.UID(name+"-uid")))
		require.NoError(t, p.SuperClient.Create(t.Context(), secret))
		return secret
	}
	elsewhere := builders.Client(kindtest.PlacementScheme(t)).WithObjects(
		builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r2", 1).Obj(),
	).Build()
	live := interceptor.NewClient(elsewhere, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, object, options...)
			if len(p.SuperCache[kind.Secret]) == 1 {
				p.SuperCache[kind.Secret] = append(p.SuperCache[kind.Secret], secret("new"))
			}
			return err
		},
	})
	p.Assigns(elsewhere, live)
	require.NoError(t, p.SuperClient.Create(t.Context(), p.Namespace))
	p.TenantCache[kind.Service] = []client.Object{kindtest.ServiceAt("web", "front", "10.97.0.7")}
	p.SuperCache[kind.Secret] = []client.Object{secret("old")}
	_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}, 0)
	require.ErrorContains(t, err, "waiting for the deletion of the objects in namespace")
	var left corev1.SecretList
	require.NoError(t, p.SuperClient.List(t.Context(), &left))
	require.Len(t, left.Items, 1)
	require.Equal(t, "new", left.Items[0].Name)
}

// TestNamespaceWithoutPlacement lets the NamespacePlacement of a namespace that was placed here be missing, as after
// the meta cluster was restored, or be deleted: the super namespace goes only when the namespace is gone, or the
// VirtualCluster is being deleted.
func TestNamespaceWithoutPlacement(t *testing.T) {
	t.Parallel()
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "vc", UID: "vc-uid"}}
	ended := vc.DeepCopy()
	ended.DeletionTimestamp, ended.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"scheduler.tenancy.x-k8s.io/placements"}
	deleted := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1).Obj()
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{schedulerv1alpha1.FinalizerUsage}
	for _, tc := range []struct {
		name string
		// meta are the objects of the meta cluster besides.
		meta []client.Object
		// inCache and live are the UIDs of the tenant's namespace; "" for none.
		inCache, live types.UID
		// other is whether another control plane answers for the tenant's.
		other, disconnected bool
		wantStays, wantWait bool
	}{
		{name: "it is there", meta: []client.Object{vc}, inCache: "ns-uid", live: "ns-uid", wantStays: true},
		{name: "it is there, and its NamespacePlacement is being deleted", meta: []client.Object{vc, deleted}, inCache: "ns-uid", live: "ns-uid", wantStays: true},
		{name: "it is there, and the cache does not show it", meta: []client.Object{vc}, live: "ns-uid", wantStays: true, wantWait: true},
		{name: "it is gone", meta: []client.Object{vc}},
		{name: "it is gone, and its NamespacePlacement is being deleted", meta: []client.Object{vc, deleted}},
		{name: "another one has its name", meta: []client.Object{vc}, inCache: "another", live: "another"},
		{name: "another control plane does not have it", meta: []client.Object{vc}, other: true, wantStays: true, wantWait: true},
		{name: "the tenant cannot be asked", meta: []client.Object{vc}, disconnected: true, wantStays: true, wantWait: true},
		{name: "the VirtualCluster is missing", disconnected: true, wantStays: true, wantWait: true},
		{name: "the VirtualCluster is being deleted", meta: []client.Object{ended}, disconnected: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			meta := builders.Client(kindtest.PlacementScheme(t)).WithObjects(tc.meta...).Build()
			p.Assigns(meta, meta)
			require.NoError(t, p.SuperClient.Create(t.Context(), p.Namespace))
			named := func(uid types.UID) []client.Object {
				if uid == "" {
					return nil
				}
				return []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid}}}
			}
			p.TenantCache[kind.Namespace] = named(tc.inCache)
			answers := kindtest.TenantUID
			if tc.other {
				answers = "another"
			}
			p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(named(tc.live)...).Build(), answers)
			if tc.disconnected {
				p.Env.Tenant = func(string) *kind.Tenant { return nil }
			}
			_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}, 0)
			wait := &engine.WaitError{}
			require.Equal(t, tc.wantWait, errors.As(err, &wait), "%v", err)
			require.Equal(t, tc.wantWait, err != nil, "%v", err)
			err = p.SuperClient.Get(t.Context(), client.ObjectKey{Name: p.Namespace.GetName()}, &corev1.Namespace{})
			require.Equal(t, tc.wantStays, err == nil, "%v", err)
		})
	}
}

// TestQuotaAnswers: a quota is written upon a live read of the NamespacePlacement, and says which decision of
// vc-scheduler it answers.
func TestQuotaAnswers(t *testing.T) {
	t.Parallel()
	// placed is placed here with so many cores, of which one leaves if there is a decision.
	placed := func(uid types.UID, cores, decision string) client.Object {
		np := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID(uid).Held("r1", 1, "cpu", cores).Obj()
		if decision != "" {
			np.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reserved: builders.Resources("cpu", "1"), Decision: decision}
		}
		return np
	}
	for _, tc := range []struct {
		name string
		// cached and live are the NamespacePlacement. There is no live one where nothing may be read.
		cached, live client.Object
		// quota is the decision that the quota answers, which allows 2 cores; nil: there is none.
		quota *string
		// stale is whether the quota has changed since the cache has read it.
		stale    bool
		want     []string
		wantWait bool
	}{
		{name: "a new one has no room at first", cached: placed("ns-uid", "2", ""), live: placed("ns-uid", "2", ""), want: []string{"create 0", "update 2"}},
		{name: "a new one answers", cached: placed("ns-uid", "2", "d1"), live: placed("ns-uid", "2", "d1"), want: []string{"create 0", "update 1 d1"}},
		{name: "it is as it should be", cached: placed("ns-uid", "2", ""), quota: ptr.To("")},
		{name: "it keeps the last answer", cached: placed("ns-uid", "2", ""), quota: ptr.To("d1")},
		{name: "a part leaves", cached: placed("ns-uid", "2", "d1"), live: placed("ns-uid", "2", "d1"), quota: ptr.To(""), want: []string{"update 1 d1"}},
		{name: "it was written by an earlier version", cached: placed("ns-uid", "3", "d1"), live: placed("ns-uid", "3", "d1"), quota: ptr.To(""), want: []string{"update 2 d1"}},
		{name: "more leaves", cached: placed("ns-uid", "3", "d2"), live: placed("ns-uid", "3", "d2"), quota: ptr.To("d1"), want: []string{"update 2 d2"}},
		{name: "the cache is behind", cached: placed("ns-uid", "3", ""), live: placed("ns-uid", "2", "d1"), quota: ptr.To(""), want: []string{"update 1 d1"}},
		{name: "it is not placed here any more", cached: placed("ns-uid", "3", ""), quota: ptr.To(""), wantWait: true},
		{name: "another namespace is", cached: placed("ns-uid", "3", ""), live: placed("another", "3", ""), quota: ptr.To(""), wantWait: true},
		{name: "somebody else was faster", cached: placed("ns-uid", "3", ""), live: placed("ns-uid", "3", ""), quota: ptr.To(""), stale: true, wantWait: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var wrote []string
			record := func(operation string, object client.Object, err error) error {
				if quota, ok := object.(*corev1.ResourceQuota); ok && err == nil {
					text := fmt.Sprintf("%s %s %s", operation, ptr.To(quota.Spec.Hard["requests.cpu"]), quota.Annotations[schedulerv1alpha1.AnnotationDecision])
					wrote = append(wrote, strings.TrimSpace(text))
				}
				return err
			}
			p := kindtest.NewPool(t, interceptor.Funcs{
				Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
					return record("create", object, to.Create(ctx, object, options...))
				},
				Update: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.UpdateOption) error {
					return record("update", object, to.Update(ctx, object, options...))
				},
			})
			meta := func(np client.Object) client.WithWatch {
				builder := builders.Client(kindtest.PlacementScheme(t))
				if np != nil {
					builder.WithObjects(np)
				}
				return builder.Build()
			}
			p.Assigns(meta(tc.cached), meta(tc.live))
			reconciler, key := p.Kind(kind.Namespace), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}
			superNamespace := &corev1.Namespace{}
			namespaces.SuperNamespace(p.TenantCache[kind.Namespace][0].(*corev1.Namespace), superNamespace, kindtest.OwnerOf("ns-uid"), &kind.Rules{}, "baseline")
			p.SuperCache[kind.Namespace], p.SuperCache[kind.Quota] = []client.Object{superNamespace}, nil
			if tc.quota != nil {
				quota := &corev1.ResourceQuota{}
				namespaces.SuperQuota(quota, kindtest.OwnerOf("ns-uid"), namespaces.Held{Pods: builders.Resources("cpu", "2")}, nil, &p.Tenant.Policy.Get().Spec().Limits)
				if *tc.quota != "" {
					quota.Annotations[schedulerv1alpha1.AnnotationDecision] = *tc.quota
				}
				require.NoError(t, p.SuperClient.Create(t.Context(), quota))
				p.SuperCache[kind.Quota] = []client.Object{quota.DeepCopy()}
				if tc.stale {
					require.NoError(t, p.SuperClient.Update(t.Context(), quota))
				}
				wrote = nil
			}
			_, err := reconciler.Reconcile(t.Context(), key, 0)
			wait := &engine.WaitError{}
			require.Equal(t, tc.wantWait, errors.As(err, &wait), "%v", err)
			require.Equal(t, tc.wantWait, err != nil, "%v", err)
			require.Equal(t, tc.want, wrote)
		})
	}
}

// TestLastAnswer: the quota of a super namespace answers that the NamespacePlacement is deleted before it goes.
func TestLastAnswer(t *testing.T) {
	t.Parallel()
	var wrote []string
	p := kindtest.NewPool(t, interceptor.Funcs{
		Update: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			wrote = append(wrote, "update "+object.GetAnnotations()[schedulerv1alpha1.AnnotationDecision])
			return to.Update(ctx, object, options...)
		},
		Delete: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			wrote = append(wrote, "delete "+object.GetName())
			return to.Delete(ctx, object, options...)
		},
	})
	deleted := builders.Placement(kindtest.ClusterKey, "web").UID("np-uid").NamespaceUID("ns-uid").Held("r1", 1).Obj()
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{schedulerv1alpha1.FinalizerUsage}
	meta := builders.Client(kindtest.PlacementScheme(t)).WithObjects(deleted).Build()
	p.Assigns(meta, meta)
	for _, object := range []client.Object{p.Namespace, p.Quota} {
		require.NoError(t, p.SuperClient.Create(t.Context(), object))
	}
	p.TenantCache[kind.Namespace] = nil
	reconciler, key := p.Kind(kind.Namespace), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}
	stored := p.Quota
	stale := stored.DeepCopyObject().(client.Object)
	require.NoError(t, p.SuperClient.Update(t.Context(), stored))
	wrote = nil
	p.SuperCache[kind.Quota] = []client.Object{stale}
	_, err := reconciler.Reconcile(t.Context(), key, 0)
	wait := &engine.WaitError{}
	require.ErrorAs(t, err, &wait)
	require.Equal(t, []string{"update np-uid"}, wrote, "the cache is behind, and nothing is deleted")

	p.SuperCache[kind.Quota], wrote = []client.Object{stored}, nil
	_, err = reconciler.Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"update np-uid", "delete " + kindtest.ClusterKey + "-web"}, wrote)
}

// TestTerminatingSuperNamespace lets the deletion of a super namespace hang, as with a pod on a node that has died: the
// tenant is told once why nothing of its namespace is synced.
func TestTerminatingSuperNamespace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// placed is whether the namespace is placed here, uid its UID in the tenant.
		placed bool
		uid    types.UID
		since  time.Duration
		want   bool
	}{
		{name: "of a namespace that is placed here again", placed: true, uid: "ns-uid", since: 2 * time.Minute, want: true},
		{name: "of a namespace of that name, whose placement has to wait", uid: "again", since: 2 * time.Minute, want: true},
		{name: "of a namespace that left", uid: "ns-uid", since: 2 * time.Minute},
		{name: "of a namespace that is gone", since: 2 * time.Minute},
		{name: "for as long as it takes", placed: true, uid: "ns-uid", since: 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			if tc.placed {
				p.Placed(t)
			}
			p.TenantCache[kind.Namespace] = nil
			if tc.uid != "" {
				p.TenantCache[kind.Namespace] = []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: tc.uid}}}
			}
			began := metav1.NewTime(p.Env.Clock.Now().Add(-tc.since))
			p.Namespace.SetDeletionTimestamp(&began)
			for range 2 {
				_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}, 0)
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, len(p.Events.Events) == 1)
			if tc.want {
				require.Contains(t, <-p.Events.Events, "Warning SuperNamespaceTerminating Super cluster r1 deletes what an earlier placement of this namespace has left there since 1970-01-12T")
			}
		})
	}
}

// TestOrphansAreProven lets another control plane answer for the tenant's, in which nothing is: no copy of an object
// goes.
func TestOrphansAreProven(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		p := kindtest.NewPool(t, interceptor.Funcs{})
		if other {
			p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().Build(), "another")
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "password"}}
		tenancy.SetOwner(secret, kindtest.OwnerOf("secret-uid"))
		require.NoError(t, p.SuperClient.Create(t.Context(), secret))
		p.SuperCache[kind.Secret] = []client.Object{secret}
		_, err := p.Kind(kind.Secret).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Secret, Namespace: "web", Name: "password"}, 0)
		wait := &engine.WaitError{}
		require.Equal(t, other, errors.As(err, &wait), "%v", err)
		err = p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{})
		require.Equal(t, other, err == nil, "%v", err)
	}
}

// TestManySuperNamespaces lets a tenant have many namespaces with a Service each, before the cache of the super cluster
// shows any super namespace, and then removes one. Those for Services leave room for those that are placed.
func TestManySuperNamespaces(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Namespaces = 1 }))
	p.TenantCache[kind.Namespace], p.SuperCache[kind.Namespace], p.SuperCache[kind.Quota] = nil, nil, nil
	builder := builders.Client(kindtest.PlacementScheme(t))
	const services, placed = 4, 2
	name := func(i int) string { return fmt.Sprint("n", i) }
	for i := range services + placed {
		uid := types.UID("uid-" + name(i))
		p.TenantCache[kind.Namespace] = append(p.TenantCache[kind.Namespace], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(i), UID: uid}})
		p.TenantCache[kind.Service] = append(p.TenantCache[kind.Service], kindtest.ServiceAt(name(i), "front", "10.97.0.7"))
		held := "r2"
		if i >= services {
			held = "r1"
		}
		builder.WithObjects(builders.Placement(kindtest.ClusterKey, name(i)).NamespaceUID(uid).Held(held, 1).Obj())
	}
	meta := builder.Build()
	p.Assigns(meta, meta)
	reconciler := p.Kind(kind.Namespace)
	reconcile := func(i int) {
		t.Helper()
		_, err := reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: name(i)}, 0)
		require.NoError(t, err)
	}
	there := func() []corev1.Namespace {
		t.Helper()
		list := &corev1.NamespaceList{}
		require.NoError(t, p.SuperClient.List(t.Context(), list))
		return list.Items
	}
	for i := range services {
		reconcile(i)
	}
	require.Len(t, there(), 2)
	require.Len(t, p.Events.Events, 2)
	require.Contains(t, <-p.Events.Events, "TenantLimit Super cluster r1: 2 namespaces of at most 2 exist (limits.namespaces of TenantPolicy small)")

	// The quotas in them are none.
	for _, made := range there() {
		quota := builders.Owned(builders.Quota(made.Name, "superpool"), kindtest.OwnerOf("uid"))
		p.Env.Changed(kind.Change{Kind: kind.Namespace, Side: kind.SuperSide, Current: &made})
		p.Env.Changed(kind.Change{Kind: kind.Quota, Side: kind.SuperSide, Current: quota})
	}
	reconcile(services)
	reconcile(services + 1)
	require.Len(t, there(), 3, "one that is placed has room still")
	<-p.Events.Events
	require.Contains(t, <-p.Events.Events, "3 namespaces of at most 3 exist")

	gone := there()[0]
	waiting := 0
	for _, key := range p.Env.Changed(kind.Change{Kind: kind.Namespace, Side: kind.SuperSide, Old: &gone}) {
		if key.Kind == kind.Namespace && tenancy.SuperNamespace(kindtest.ClusterKey, key.Name) != gone.Name {
			waiting++
		}
	}
	require.Equal(t, 1, waiting)
}

// TestNamespaceThatGrows: a change of a super namespace counts as its creation does, and what Superpool sets in it is
// written all the same.
func TestNamespaceThatGrows(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "namespaces", Count: 10, Bytes: resource.MustParse("4Ki")}}
	}))
	p.SuperCache[kind.Namespace], p.SuperCache[kind.Quota] = nil, nil
	reconcile := func(labels map[string]string) *corev1.Namespace {
		t.Helper()
		p.TenantCache[kind.Namespace] = []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "ns-uid", Labels: labels}}}
		_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}, 0)
		require.NoError(t, err)
		made := &corev1.Namespace{}
		require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Name: kindtest.ClusterKey + "-web"}, made))
		var before client.Object
		if shown := p.SuperCache[kind.Namespace]; len(shown) > 0 {
			before = shown[0]
		}
		p.Env.Changed(kind.Change{Kind: kind.Namespace, Side: kind.SuperSide, Old: before, Current: made})
		p.SuperCache[kind.Namespace] = []client.Object{made}
		return made
	}
	require.Equal(t, "a", reconcile(map[string]string{"team": "a"}).Labels["label.tenancy.x-k8s.io/team"])
	require.Empty(t, p.Told())
	for range 2 {
		made := reconcile(kindtest.ManyLabels(100))
		require.Len(t, made.Labels, len(reconcile(map[string]string{"team": "a"}).Labels), "they stay")
	}
	reconcile(kindtest.ManyLabels(100))
	events := p.Told()
	require.NotEmpty(t, events)
	require.Regexp(t, `^Warning TenantLimit Super cluster r1: namespaces of \d+ bytes exist, this one adds \d+, and at most 4096 are allowed \(limits.namespaces of TenantPolicy small\)$`, events[0])
	made := p.SuperCache[kind.Namespace][0].(*corev1.Namespace)
	made.Annotations["tenancy.x-k8s.io/services-only"] = "true"
	require.False(t, kind.ServicesOnly(reconcile(kindtest.ManyLabels(100))), "what is ours is written")
	reconcile(kindtest.ManyLabels(100))
	p.Told()
	reconcile(kindtest.ManyLabels(100))
	require.Empty(t, p.Told(), "it is told once")
	require.Equal(t, "b", reconcile(map[string]string{"team": "b"}).Labels["label.tenancy.x-k8s.io/team"])
}

// TestRefusedNamespaces: what a super cluster refuses of a namespace is told there, once.
func TestRefusedNamespaces(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, operation string
		refused         client.Object
		kind, want      string
	}{
		{name: "the namespace", operation: "create", refused: &corev1.Namespace{}, kind: kind.Namespace, want: "FailedCreate"},
		{name: "its change", operation: "update", refused: &corev1.Namespace{}, kind: kind.Namespace, want: "FailedUpdate"},
		{name: "its quota", operation: "create", refused: &corev1.ResourceQuota{}, kind: kind.Namespace, want: "FailedCreate"},
		{name: "the isolation of its pods", operation: "create", refused: &networkingv1.NetworkPolicy{}, kind: kind.Isolation, want: "FailedCreate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			refuse := func(operation string, object client.Object) error {
				if operation == tc.operation && fmt.Sprintf("%T", object) == fmt.Sprintf("%T", tc.refused) {
					return apierrors.NewForbidden(corev1.Resource("things"), kindtest.ClusterKey+"-web", errors.New("webhook of the operator"))
				}
				return nil
			}
			p := kindtest.NewPool(t, interceptor.Funcs{
				Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if err := refuse("create", object); err != nil {
						return err
					}
					return to.Create(ctx, object, options...)
				},
				Update: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.UpdateOption) error {
					if err := refuse("update", object); err != nil {
						return err
					}
					return to.Update(ctx, object, options...)
				},
			})
			p.Placed(t)
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}
			switch {
			case tc.kind == kind.Isolation:
				key, p.Tenant.Policy = kindtest.IsolationKey, &policy.Ref{}
			case tc.want == "FailedCreate" && fmt.Sprintf("%T", tc.refused) == "*v1.Namespace":
				p.SuperCache[kind.Namespace] = nil
			default:
				made := &corev1.Namespace{}
				namespaces.SuperNamespace(p.TenantCache[kind.Namespace][0].(*corev1.Namespace), made, kindtest.OwnerOf("ns-uid"), &kind.Rules{}, "baseline")
				if tc.operation == "update" {
					made.Labels[tenancy.LabelKey("gone")] = "x"
				}
				p.SuperCache[kind.Namespace] = []client.Object{made}
			}
			if tc.kind != kind.Isolation {
				p.SuperCache[kind.Quota] = nil
			}
			reconciler := p.Kind(tc.kind)
			for range 3 {
				_, err := reconciler.Reconcile(t.Context(), key, 0)
				require.Error(t, err)
			}
			told := p.Told()
			require.Len(t, told, 1)
			require.Contains(t, told[0], tc.want)
			require.Contains(t, told[0], `"web" is forbidden: webhook of the operator`, "in the tenant's words")
		})
	}
}

// TestNamespaceEnqueuesWhatItHolds: a tenant's API server may say at any rate that a namespace is gone and back. Each
// time costs one key, whatever the namespace holds, and the reconcile enqueues what is in it when it finds another
// namespace on either side, or one in another state.
func TestNamespaceEnqueuesWhatItHolds(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	const pods, all = 1000, 2000 // each with its tokens
	for i := range pods {
		p.TenantCache[kind.Pod] = append(p.TenantCache[kind.Pod], builders.Pod("web", fmt.Sprintf("p%d", i)).Obj())
	}
	web, key := p.TenantCache[kind.Namespace][0], engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}
	for _, change := range []kind.Change{{Old: web}, {Current: web}} {
		change.Kind, change.Tenant = kind.Namespace, kindtest.ClusterKey
		keys := p.Env.Changed(change)
		require.Contains(t, keys, key)
		require.Less(t, len(keys), 5)
	}
	resynced := 0
	p.Env.Resync = func(keys []engine.Key) { resynced += len(keys) }
	superNamespace := p.Namespace.(*corev1.Namespace) //nolint:forcetypeassert // newPool makes one
	for _, step := range []struct {
		name   string
		change func()
		want   int
	}{
		{name: "it is found", change: func() {}, want: all},
		{name: "nothing has changed", change: func() {}},
		{name: "it has another label", change: func() { superNamespace.Labels["more"] = "true" }},
		{name: "the tenant says that it is gone", change: func() { p.TenantCache[kind.Namespace] = nil }, want: all},
		{name: "it is back", change: func() { p.TenantCache[kind.Namespace] = []client.Object{web} }, want: all},
		{name: "it is another one", change: func() { p.TenantCache[kind.Namespace] = []client.Object{builders.Namespace("web")} }, want: all},
		{name: "it is for Services alone", change: func() { metav1.SetMetaDataAnnotation(&superNamespace.ObjectMeta, kind.AnnotationServicesOnly, "true") }, want: all},
		{name: "its Pod Security Standard is another one", change: func() { superNamespace.Labels["pod-security.kubernetes.io/enforce"] = "baseline" }, want: all},
		{name: "it is deleted in the super cluster", change: func() { superNamespace.DeletionTimestamp = &metav1.Time{Time: p.Env.Clock.Now()} }, want: all},
		{name: "it is gone there", change: func() { p.SuperCache[kind.Namespace] = nil }, want: all},
		{name: "the tenant is forgotten", change: func() { p.Env.Forget(kindtest.ClusterKey) }, want: all},
	} {
		step.change()
		resynced = 0
		_, _ = p.Kind(kind.Namespace).Reconcile(t.Context(), key, 0) // whatever else it finds to do, or to wait for
		require.Equal(t, step.want, resynced, step.name)
	}
}

// TestNamespacesAreCountedFirst: of one with more labels or annotations than go down none is made, and one that has
// more later keeps those that it has below.
func TestNamespacesAreCountedFirst(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(namespace *corev1.Namespace)
		want   string
	}{
		"labels": {
			func(namespace *corev1.Namespace) { namespace.Labels = kindtest.ManyLabels(6_000) }, "it has 6001 labels: at most 128 go down",
		},
		"long labels": {
			func(namespace *corev1.Namespace) {
				namespace.Labels = map[string]string{"a": strings.Repeat("x", 40_000)}
			},
			"its labels take 40001 bytes: at most 32768 go down",
		},
		"annotations": {
			func(namespace *corev1.Namespace) {
				namespace.Annotations = map[string]string{"a": strings.Repeat("x", 300_000)}
			},
			"its annotations take 300001 bytes: at most 262144 go down",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.Tenant.Policy = &policy.Ref{}
			reconciler := p.Kind(kind.Namespace)
			reconcile := func() *corev1.Namespace {
				t.Helper()
				_, err := reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}, 0)
				require.NoError(t, err)
				stored := &corev1.Namespace{}
				err = p.SuperClient.Get(t.Context(), client.ObjectKey{Name: kindtest.ClusterKey + "-web"}, stored)
				require.NoError(t, client.IgnoreNotFound(err))
				return stored
			}
			change := func(change func(namespace *corev1.Namespace)) {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "ns-uid"}}
				change(namespace)
				p.TenantCache[kind.Namespace] = []client.Object{namespace}
			}
			p.SuperCache[kind.Namespace], p.SuperCache[kind.Quota] = nil, nil
			change(tc.change)
			require.Empty(t, reconcile().Name)
			require.Equal(t, []string{"Warning TenantLimit Super cluster r1: " + tc.want}, p.Told())

			change(func(namespace *corev1.Namespace) { namespace.Labels = map[string]string{"team": "a"} })
			made := reconcile()
			require.Equal(t, "a", made.Labels["label.tenancy.x-k8s.io/team"])
			p.SuperCache[kind.Namespace] = []client.Object{made}
			reconcile()
			require.Empty(t, p.Told())

			change(tc.change)
			delete(made.Labels, "pod-security.kubernetes.io/enforce")
			made.Annotations["tenancy.x-k8s.io/services-only"] = "true"
			kept := reconcile()
			require.Equal(t, "a", kept.Labels["label.tenancy.x-k8s.io/team"])
			require.Len(t, kept.Labels, len(made.Labels))
			require.False(t, kind.ServicesOnly(kept), "what is ours is written")
			p.SuperCache[kind.Namespace] = []client.Object{kept}
			reconcile()
			require.Equal(t, []string{"Warning TenantLimit Super cluster r1: " + tc.want}, p.Told(), "it is told once")
		})
	}
}
