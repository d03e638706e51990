package kinds_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenancy"
)

// TestServicesOnly: how long a super namespace stays that is there for Services alone.
func TestServicesOnly(t *testing.T) {
	t.Parallel()
	service := serviceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	elsewhere := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey, Name: "other"},
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
			p := newPool(t, interceptor.Funcs{})
			scheme := runtime.NewScheme()
			require.NoError(t, clientgoscheme.AddToScheme(scheme))
			require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
			meta := func(holds bool) client.Client {
				builder := fake.NewClientBuilder().WithScheme(scheme)
				if holds {
					builder.WithObjects(elsewhere.DeepCopy())
				}
				return builder.Build()
			}
			p.assigns(meta(tc.holds), meta(tc.holdsLive))
			p.namespace.GetAnnotations()["tenancy.x-k8s.io/services-only"] = "true"
			if tc.services {
				p.tenantCache[kinds.KindService] = []client.Object{service}
			}
			if tc.servicesLive {
				require.NoError(t, p.tenant.Client.Create(t.Context(), service.DeepCopy()))
			}
			require.NoError(t, p.superClient.Create(t.Context(), p.namespace))
			require.NoError(t, p.superClient.Create(t.Context(), p.quota))
			if tc.disconnected {
				p.env.Tenant = func(string) *kinds.Tenant { return nil }
			}
			_, err := p.kind(kinds.KindNamespace).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kinds.KindNamespace, Name: "web"}, 0)
			require.Equal(t, tc.wantWait, err != nil, "%v", err)
			err = p.superClient.Get(t.Context(), client.ObjectKey{Name: p.namespace.GetName()}, &corev1.Namespace{})
			require.Equal(t, tc.wantStays, err == nil, "%v", err)
		})
	}
}

// TestNamespaceThatLeaves keeps Services, and nothing else.
func TestNamespaceThatLeaves(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{})
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	meta := fake.NewClientBuilder().WithScheme(scheme).Build()
	p.assigns(meta, meta)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "password"}}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "foreign"}}
	tenancy.SetOwner(secret, ownerOf("secret-uid"))
	for _, object := range []client.Object{p.namespace, p.quota, secret, foreign} {
		require.NoError(t, p.superClient.Create(t.Context(), object))
	}
	p.tenantCache[kinds.KindService] = []client.Object{serviceAt("web", "front", "10.97.0.7")}
	p.superCache[kinds.KindSecret] = []client.Object{secret, foreign}
	key := engine.Key{Tenant: clusterKey, Kind: kinds.KindNamespace, Name: "web"}

	p.tenantCache[kinds.KindPod] = []client.Object{tenantPod(nil)}
	_, err := p.kind(kinds.KindNamespace).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.NoError(t, p.superClient.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}), "a pod is assigned here")

	p.tenantCache[kinds.KindPod] = nil
	_, err = p.kind(kinds.KindNamespace).Reconcile(t.Context(), key, 0)
	require.ErrorContains(t, err, "waiting for the deletion of the objects in namespace")
	require.Error(t, p.superClient.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}))
	require.NoError(t, p.superClient.Get(t.Context(), client.ObjectKeyFromObject(foreign), &corev1.Secret{}), "it is not ours")

	p.superCache[kinds.KindSecret] = []client.Object{foreign}
	_, err = p.kind(kinds.KindNamespace).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	got := &corev1.Namespace{}
	require.NoError(t, p.superClient.Get(t.Context(), client.ObjectKeyFromObject(p.namespace), got))
	require.True(t, kinds.ServicesOnly(got))
}
