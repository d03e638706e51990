package kinds_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
)

// toldRecorder is a kind.Recorder with room for every Event.
type toldRecorder struct{ *record.FakeRecorder }

func (r toldRecorder) Event(object runtime.Object, eventType, reason, message string) bool {
	r.FakeRecorder.Event(object, eventType, reason, message)
	return true
}

// fullRecorder is a kind.Recorder without room.
type fullRecorder struct{}

func (fullRecorder) Event(runtime.Object, string, string, string) bool { return false }

// pool is an Env over caches that the tests fill, and fake clients. The tenant's namespace web is ready, and not placed
// here. Its pods are isolated.
type pool struct {
	env                     *kind.Env
	tenant                  *kind.Tenant
	tenantCache, superCache cache
	events                  *record.FakeRecorder
	superClient             client.WithWatch
	namespace, quota        client.Object
}

func newPool(t testing.TB, super interceptor.Funcs) *pool {
	t.Helper()
	p := &pool{
		events:    record.NewFakeRecorder(100),
		namespace: builders.Owned(builders.Namespace(clusterKey+"-web"), ownerOf("ns-uid")),
		quota:     builders.Owned(builders.Quota(clusterKey+"-web", "superpool"), ownerOf("ns-uid")),
	}
	p.tenantCache = cache{kind.Namespace: {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "ns-uid"}}}}
	p.superCache = cache{kind.Namespace: {p.namespace}, kind.Quota: {p.quota}, kind.Isolation: {isolationFloor()}}
	p.superClient = answering(newClientBuilder().WithInterceptorFuncs(super).Build(), superUID)
	p.tenant = &kind.Tenant{
		Tenant: &tenants.Tenant{
			Key: clusterKey, VirtualCluster: types.NamespacedName{Namespace: "acme", Name: "vc"}, UID: "vc-uid", ControlPlaneUID: tenantUID,
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")},
		},
		Cache: p.tenantCache, Recorder: toldRecorder{p.events}, Client: answering(newClientBuilder().Build(), tenantUID),
	}
	metrics, err := engine.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	p.env = &kind.Env{
		Declared: kinds.Specs(), ID: "r1", SuperUID: superUID, Super: p.superClient, SuperCache: p.superCache, Metrics: metrics, Clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0)),
		Tenant: func(string) *kind.Tenant { return p.tenant }, Tenants: func() []*kind.Tenant { return []*kind.Tenant{p.tenant} },
		Resync: func([]engine.Key) {},
	}
	kinds.SetCustom(p.env, nil)
	p.assigns(builders.Client(placementScheme(t)).Build(), nil)
	return p
}

// The UIDs by which control planes are known.
const superUID, tenantUID, metaUID types.UID = "super-cluster", "tenant", "meta"

// answering lets to say that it is the control plane with that UID.
func answering(to client.WithWatch, uid types.UID) client.WithWatch {
	return interceptor.NewClient(to, interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if namespace, ok := object.(*corev1.Namespace); ok && name.Name == metav1.NamespaceSystem {
				namespace.UID = uid
				return nil
			}
			return to.Get(ctx, name, object, options...)
		},
	})
}

// newClientBuilder returns a builder of a fake client with a scheme of its own: the client registers in it what it sees
// unstructured, while those of other tests read theirs.
func newClientBuilder() *fake.ClientBuilder {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	return builders.Client(scheme)
}

func placementScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(schedulerv1alpha1.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme)))
	return scheme
}

// placed lets the tenant's namespace web be placed here, with room for pods.
func (p *pool) placed(t testing.TB) {
	t.Helper()
	meta := builders.Client(placementScheme(t)).WithObjects(
		builders.Placement(clusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1, "cpu", "10", "memory", "10Gi", "pods", "100").Obj(),
	).Build()
	p.assigns(meta, meta)
}

// assigns lets NamespacePlacements be read from meta, and live; nil: nothing is read live.
func (p *pool) assigns(meta, live client.WithWatch) {
	if live == nil {
		live = builders.Client(runtime.NewScheme()).Build()
	}
	known := &proof.ControlPlane{Name: "the meta cluster", Reader: answering(live, metaUID), UID: metaUID}
	p.env.Assignments = &assign.Pooled{SuperCluster: p.env.ID, Meta: meta, Live: known, Sides: namespaces.Sides(p.env)}
}

func (p *pool) kind(name string) engine.Kind {
	for _, kind := range p.env.Reconcilers() {
		if kind.Name() == name {
			return kind
		}
	}
	return nil
}

// TestAddressThatIsTaken lets an API server refuse a Service for its address, as it does when the Service itself has it
// already.
func TestAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "front", field.ErrorList{
		field.Invalid(field.NewPath("spec", "clusterIPs"), []string{"10.97.0.7"}, "provided IP is already allocated"),
	})
	tenantService := serviceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	tenantService.UID = "service-uid"
	key := engine.Key{Tenant: clusterKey, Kind: kind.Service, Namespace: "web", Name: "front"}
	for _, tc := range []struct {
		name string
		// mine: whether the Service is there.
		mine      bool
		wantEvent string
	}{
		{name: "by itself", mine: true},
		{
			name: "by another",
			wantEvent: "Warning FailedCreate Super cluster r1: cluster IP 10.97.0.7 is not available: the super cluster's --service-cluster-ip-range must contain it, " +
				"and no other Service may have it",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if tc.mine {
					object.SetUID("super-uid")
					if err := to.Create(ctx, object, options...); err != nil {
						return err
					}
				}
				return taken
			}})
			p.tenantCache[kind.Service] = []client.Object{tenantService}
			_, err := p.kind(kind.Service).Reconcile(t.Context(), key, 0)
			require.Equal(t, tc.mine, err == nil, "%v", err)
			if tc.wantEvent == "" {
				require.Empty(t, p.events.Events)
				return
			}
			require.Equal(t, tc.wantEvent, <-p.events.Events)
		})
	}
}

// TestNameThatIsAnothers: another owner's super object stands, and nothing is remembered of the tenant's that is gone.
func TestNameThatIsAnothers(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return errors.New("another's is deleted")
	}})
	tenantService := serviceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	tenantService.UID = "service-uid"
	superService := serviceAt(clusterKey+"-web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	p.tenantCache[kind.Service] = []client.Object{tenantService}
	p.superCache[kind.Service] = []client.Object{superService}
	key := engine.Key{Tenant: clusterKey, Kind: kind.Service, Namespace: "web", Name: "front"}
	service := p.kind(kind.Service)

	_, err := service.Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Equal(t, "Warning Conflict Super cluster r1 has a service of that name with another owner", <-p.events.Events)
	require.True(t, p.env.IsRefused(key, tenantService))

	p.tenantCache[kind.Service] = nil
	_, err = service.Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.False(t, p.env.IsRefused(key, tenantService))
	require.False(t, p.env.Said(key, tenantService, kind.ReasonConflict))
}

// TestTokenSecret lets a tenant have a token of a service account in a Secret, as for a program that cannot renew its
// own.
func TestTokenSecret(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{})
	p.placed(t)
	p.tenantCache[kind.Secret] = []client.Object{&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "ci-token", UID: "secret-uid", Annotations: map[string]string{corev1.ServiceAccountNameKey: "ci", corev1.ServiceAccountUIDKey: "ci-uid"},
		},
		Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("of the tenant")},
	}}
	_, err := p.kind(kind.Secret).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kind.Secret, Namespace: "web", Name: "ci-token"}, 0)
	require.NoError(t, err)
	got := &corev1.Secret{}
	require.NoError(t, p.superClient.Get(t.Context(), types.NamespacedName{Namespace: clusterKey + "-web", Name: "ci-token"}, got))
	require.Equal(t, corev1.SecretTypeOpaque, got.Type)
	require.Equal(t, "of the tenant", string(got.Data[corev1.ServiceAccountTokenKey]))
	require.NotContains(t, got.Annotations, corev1.ServiceAccountNameKey, "the super cluster's controllers would look for it")
}
