package stores

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/etcdtest"
)

const root = "default-abc123-acme"

// bed is a meta cluster with the root namespace of one VirtualCluster, and an external store. What goes through a whole
// reconcile is tested in package provision.
type bed struct {
	t      *testing.T
	client client.Client
	clock  *testingclock.FakePassiveClock
	stores *Stores
	shared *etcdtest.Shared
	// dials is how often the external store was connected to, and dialed is called when it is, nil for nothing.
	dials  int
	dialed func()
	// as returns the external store as it answers, nil for as it is.
	as func() SharedEtcd
	// changes are made to the root namespace when it is read: the fake has none that is being deleted without
	// finalizer.
	changes []func(*corev1.Namespace)
}

func newBed(t *testing.T) *bed {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s)))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: root, Annotations: map[string]string{
		tenancyv1alpha1.AnnotationRootNamespace: "true", tenancyv1alpha1.AnnotationVirtualClusterUID: "uid",
	}}}
	authority, err := pki.NewAuthority("etcd")
	require.NoError(t, err)
	pair, err := authority.Pair()
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "external"}, Type: controlplane.ExternalSecretType, Data: secrets.DataOf(pair)}
	secret.Data["ca.crt"] = authority.Certificate()
	b := &bed{t: t, clock: testingclock.NewFakePassiveClock(time.Now()), shared: etcdtest.NewShared("a")}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(namespace, secret).Build()
	reader := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, o, options...)
			if namespace, is := o.(*corev1.Namespace); is {
				for _, change := range b.changes {
					change(namespace)
				}
			}
			return err
		},
	})
	b.client = c
	b.stores = New(Options{
		Client: c, Reader: reader, Clock: b.clock, Manager: "vc-manager", Validity: time.Hour, Workers: 1,
		DialShared: func(endpoints []string, _ *tls.Config) (SharedEtcd, error) {
			b.shared.Endpoints = endpoints
			b.dials++
			if b.dialed != nil {
				b.dialed()
			}
			if b.as != nil {
				return b.as(), nil
			}
			return b.shared, nil
		},
	})
	return b
}

// plane returns a control plane that is to have the external store.
func (b *bed) plane() *controlplane.ControlPlane {
	plane := &controlplane.ControlPlane{
		Namespace: root, Tenant: &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, Version: &tenancyv1alpha1.ClusterVersion{}, Trusted: map[string]string{},
	}
	plane.Version.Spec.ExternalEtcd = &tenancyv1alpha1.ExternalEtcd{Endpoints: []string{"https://b:2379", "https://a:2379"}, SecretName: "external"}
	return plane
}

// make makes the store of a control plane, and returns what it waits for.
func (b *bed) make(plane *controlplane.ControlPlane) tenancy.Reason {
	b.t.Helper()
	record, err := b.stores.Record(b.t.Context(), root)
	require.NoError(b.t, err)
	store, err := b.stores.Open(b.t.Context(), plane, record, "")
	require.NoError(b.t, err)
	why, err := store.Make(b.t.Context())
	require.NoError(b.t, err)
	return why
}

// told returns ConfigMap etcd.
func (b *bed) told() *corev1.ConfigMap {
	b.t.Helper()
	told := &corev1.ConfigMap{}
	require.NoError(b.t, b.client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.Etcd}, told))
	return told
}

func (b *bed) update(object client.Object) {
	b.t.Helper()
	require.NoError(b.t, b.client.Update(b.t.Context(), object))
}

func (b *bed) delete(object client.Object) {
	b.t.Helper()
	require.NoError(b.t, b.client.Delete(b.t.Context(), object))
}

// later lets time pass.
func (b *bed) later(by time.Duration) { b.clock.SetTime(b.clock.Now().Add(by)) }
