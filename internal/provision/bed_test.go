package provision

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/provision/stores"
	"github.com/superpool/superpool/test/builders/etcdtest"
)

const root = "default-abc123-acme"

// bed is a meta cluster with one VirtualCluster, and a Reconciler whose writes are counted.
type bed struct {
	t          *testing.T
	store      *etcdtest.Own
	reconciler *Reconciler
	clock      *testingclock.FakePassiveClock
	writes     int
	// recorded is how often it was read which store there is.
	recorded int
	// tenant is the tenant's API server, and asked how many connections to it are open.
	tenant *kubefake.Clientset
	asked  int
	// refuses is what the meta cluster finds invalid where it is asked before, "" for nothing: the name of an object.
	refuses string
	// live is whether what is read is not from the cache, and ahead changes a VirtualCluster that is: the cache is
	// behind.
	live  bool
	ahead func(*tenancyv1alpha1.VirtualClusterSpec)
	// fails is what the meta cluster answers to whatever is applied, nil where it takes it.
	fails error
	// shared returns the external store at some URLs.
	shared func(endpoints []string) (stores.SharedEtcd, error)
}

func newBed(t *testing.T, change func(*tenancyv1alpha1.VirtualCluster), more ...client.Object) *bed {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s)))
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "acme", UID: "uid"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: root, Annotations: map[string]string{
		tenancyv1alpha1.AnnotationRootNamespace: "true", tenancyv1alpha1.AnnotationVirtualClusterUID: "uid",
	}}}
	vc.Spec.ClusterVersionName, vc.Status.ClusterNamespace = "v1.37", root
	if change != nil {
		change(vc)
	}
	version := &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "v1.37"}}
	version.Spec.KubernetesVersion = "v1.37.2"
	for _, component := range []*tenancyv1alpha1.ComponentTemplate{&version.Spec.Etcd, &version.Spec.APIServer, &version.Spec.ControllerManager} {
		component.Image, component.Replicas = "of v1.37.2", 1
	}
	b := &bed{t: t, store: &etcdtest.Own{}, tenant: kubefake.NewClientset(), clock: testingclock.NewFakePassiveClock(time.Now())}
	count := func() { b.writes++ }
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(append(more, namespace, vc, version)...).WithStatusSubresource(vc, &appsv1.StatefulSet{}, &appsv1.Deployment{}, &batchv1.Job{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				count()
				if job, is := o.(*batchv1.Job); is {
					job.CreationTimestamp = metav1.NewTime(b.clock.Now())
				}
				return c.Create(ctx, o, options...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
				count()
				return c.Update(ctx, o, options...)
			},
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				if len((&client.ApplyOptions{}).ApplyOptions(options).DryRun) > 0 {
					if o.(applied).GetName() == b.refuses {
						return apierrors.NewInvalid(schema.GroupKind{Kind: o.(applied).GetKind()}, b.refuses, nil)
					}
					return nil
				}
				if b.fails != nil {
					return b.fails
				}
				count()
				if o.(applied).GetKind() == "NetworkPolicy" {
					return replaced(ctx, c, o)
				}
				if err := c.Apply(ctx, o, options...); err != nil {
					return err
				}
				if o.(applied).GetKind() == "Service" {
					return addressed(ctx, c, o.(applied).GetName())
				}
				return changed(ctx, c, o.(applied))
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				err := c.Get(ctx, key, o, options...)
				if set, is := o.(*appsv1.StatefulSet); is && err == nil && !controlplane.IsManaged(set) && !b.live {
					*set = appsv1.StatefulSet{}
					return apierrors.NewNotFound(appsv1.Resource("statefulsets"), key.Name) // as a cache of vc-manager's objects
				}
				return err
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				count()
				return c.SubResource(name).Patch(ctx, o, patch, options...)
			},
		}).Build()
	reader := interceptor.NewClient(c, interceptor.Funcs{Get: b.read})
	b.reconciler = &Reconciler{Client: c, Reader: reader, Clock: b.clock, Validity: 30 * 24 * time.Hour, exposing: make(chan struct{}, concurrentExposed)}
	b.reconciler.Stores = b.stores(2)
	b.reconciler.DialTenant = func(config *rest.Config) (kubernetes.Interface, func(), error) {
		require.Equal(t, "https://kube-apiserver."+root+".svc:6443", config.Host)
		require.NotEmpty(t, config.CAData)
		b.asked++
		return b.tenant, func() { b.asked-- }, nil
	}
	b.reconciler.LookUp = func(context.Context, string) ([]netip.Addr, error) { return nil, &net.DNSError{IsNotFound: true} }
	return b
}

// stores keeps stores with so many workers.
func (b *bed) stores(workers int) *stores.Stores {
	return stores.New(stores.Options{
		Client: b.reconciler.Client, Reader: b.reconciler.Reader, Clock: b.clock, Manager: "vc-manager", Validity: b.reconciler.Validity, Workers: workers,
		DialEtcd: func(addresses map[string]etcd.Address, config *tls.Config) (stores.EtcdClient, error) {
			require.NotEmpty(b.t, config.Certificates)
			require.Contains(b.t, addresses, "etcd-0")
			b.store.Addresses = addresses
			return b.store, nil
		},
		DialShared: func(endpoints []string, config *tls.Config) (stores.SharedEtcd, error) {
			require.Len(b.t, config.Certificates, 1)
			return b.shared(endpoints)
		},
	})
}

// busy has all that stores do in turns be done for other tenants, until what it returns is called.
func (b *bed) busy() (free func()) {
	before := b.reconciler.Stores
	b.reconciler.Stores = b.stores(0)
	return func() { b.reconciler.Stores = before }
}

// read is a Get without a cache.
func (b *bed) read(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	b.live = true
	defer func() { b.live = false }()
	err := c.Get(ctx, key, o, options...)
	if _, is := o.(*corev1.ConfigMap); is && key.Name == controlplane.Etcd {
		b.recorded++
	}
	if vc, is := o.(*tenancyv1alpha1.VirtualCluster); is && b.ahead != nil {
		b.ahead(&vc.Spec)
	}
	return err
}

// applied is what was applied.
type applied interface {
	metav1.Object
	GetKind() string
}

// replaced is an Apply of a NetworkPolicy, which has no status: the fake applies one, and refuses it.
func replaced(ctx context.Context, c client.Client, wanted runtime.ApplyConfiguration) error {
	policy := &networkingv1.NetworkPolicy{}
	text, err := json.Marshal(wanted)
	if err == nil {
		err = json.Unmarshal(text, policy)
	}
	if err != nil {
		return err
	}
	if policy.ResourceVersion == "" {
		return c.Create(ctx, policy)
	}
	return c.Update(ctx, policy)
}

// addressed gives a Service that was applied an address, as the meta cluster does.
func addressed(ctx context.Context, c client.Client, name string) error {
	live := &corev1.Service{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: root, Name: name}, live); err != nil {
		return err
	}
	if live.Spec.ClusterIP == "" {
		live.Spec.ClusterIP, live.Spec.ClusterIPs = "10.96.3.4", []string{"10.96.3.4"}
	}
	if live.Spec.Type == corev1.ServiceTypeNodePort && live.Spec.Ports[0].NodePort == 0 {
		live.Spec.Ports[0].NodePort = 30123
	}
	return c.Update(ctx, live)
}

// changed gives a workload that was applied another generation, which its controller has not seen.
func changed(ctx context.Context, c client.Client, applied applied) error {
	live := workload(applied.GetName())
	if !slices.Contains([]string{"StatefulSet", "Deployment"}, applied.GetKind()) {
		return nil
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	live.SetGeneration(live.GetGeneration() + 1)
	applied.SetGeneration(live.GetGeneration())
	return c.Update(ctx, live)
}

func (b *bed) reconcile() reconcile.Result {
	b.t.Helper()
	result, err := b.reconciler.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "acme"}})
	require.NoError(b.t, err)
	return result
}

// conditions returns the reasons of what is False, and the message of UpToDate.
func (b *bed) conditions() (missing map[string]string, message string) {
	b.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	missing = map[string]string{}
	for _, condition := range vc.Status.Conditions {
		if condition.Status == metav1.ConditionFalse {
			missing[condition.Type] = condition.Reason
		}
	}
	if upToDate := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionUpToDate); upToDate != nil {
		message = upToDate.Message
	}
	return missing, message
}

// exists reports which workloads there are.
func (b *bed) exists() (names []string) {
	b.t.Helper()
	for _, object := range []client.Object{workload(controlplane.Etcd), workload(controlplane.APIServer), workload(controlplane.ControllerManager)} {
		if err := b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(object), object); err == nil {
			names = append(names, object.GetName())
		}
	}
	return names
}

func workload(name string) client.Object {
	of := metav1.ObjectMeta{Namespace: root, Name: name}
	if name == controlplane.Etcd {
		return &appsv1.StatefulSet{ObjectMeta: of}
	}
	return &appsv1.Deployment{ObjectMeta: of}
}

// ready says that all pods of a workload are as they are to be.
func (b *bed) ready(name string) {
	b.t.Helper()
	object := workload(name)
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(object), object))
	switch live := object.(type) {
	case *appsv1.StatefulSet:
		for ordinal := range *live.Spec.Replicas {
			b.pod(ordinal, live.Status.UpdateRevision)
		}
		live.Status.ObservedGeneration, live.Status.Replicas = live.Generation, *live.Spec.Replicas
	case *appsv1.Deployment:
		live.Status = appsv1.DeploymentStatus{ObservedGeneration: live.Generation, Replicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1}
	}
	require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), object))
}

// change changes the ClusterVersion.
func (b *bed) change(change func(*tenancyv1alpha1.ClusterVersionSpec)) {
	b.t.Helper()
	version := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Name: "v1.37"}, version))
	change(&version.Spec)
	require.NoError(b.t, b.reconciler.Client.Update(b.t.Context(), version))
}

// made makes all parts.
func (b *bed) made() {
	b.t.Helper()
	for _, name := range []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager} {
		b.reconcile()
		b.ready(name)
	}
	b.reconcile()
}

// whole makes all parts, of which nothing is missing then.
func (b *bed) whole() {
	b.t.Helper()
	b.made()
	missing, _ := b.conditions()
	require.Empty(b.t, missing)
}

func (b *bed) secret(namespace, name string) *corev1.Secret {
	b.t.Helper()
	secret := &corev1.Secret{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, secret))
	return secret
}

// version returns the version that the VirtualCluster is said to have.
func (b *bed) version() string {
	b.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	return vc.Status.Version
}

func (b *bed) create(objects ...client.Object) {
	b.t.Helper()
	for _, object := range objects {
		object.SetResourceVersion("")
		require.NoError(b.t, b.reconciler.Client.Create(b.t.Context(), object))
	}
}

func (b *bed) update(object client.Object) {
	b.t.Helper()
	require.NoError(b.t, b.reconciler.Client.Update(b.t.Context(), object))
}

func (b *bed) delete(object client.Object) {
	b.t.Helper()
	require.NoError(b.t, b.reconciler.Client.Delete(b.t.Context(), object))
}

// has reports whether there is a Secret.
func (b *bed) has(namespace, name string) bool {
	b.t.Helper()
	err := b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Secret{})
	require.NoError(b.t, client.IgnoreNotFound(err))
	return err == nil
}

// vc returns the VirtualCluster.
func (b *bed) vc() *tenancyv1alpha1.VirtualCluster {
	b.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	return vc
}

// later lets time pass.
func (b *bed) later(by time.Duration) { b.clock.SetTime(b.clock.Now().Add(by)) }

// wish changes the VirtualCluster.
func (b *bed) wish(change func(*tenancyv1alpha1.VirtualClusterSpec)) {
	b.t.Helper()
	vc := b.vc()
	change(&vc.Spec)
	vc.Generation++
	require.NoError(b.t, b.reconciler.Client.Update(b.t.Context(), vc))
}

// ours is the metadata of a Secret of vc-manager.
func ours(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: root, Name: name, Labels: controlplane.Labels(controlplane.Credentials)}
}
