package provision

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
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
	// tenant is the tenant's API server, and asked how many connections to it are open.
	tenant *kubefake.Clientset
	asked  int
	// refuses is what the meta cluster finds invalid where it is asked before, "" for nothing: the name of an object.
	refuses string
	// live is whether what is read is not from the cache, and ahead changes a VirtualCluster that is: the cache is behind.
	live  bool
	ahead func(*tenancyv1alpha1.VirtualClusterSpec)
	// changes are made to namespaces that are read.
	changes []func(*corev1.Namespace)
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
	b.reconciler = &Reconciler{Client: c, Reader: reader, Clock: b.clock, Validity: 30 * 24 * time.Hour, exposing: make(chan struct{}, concurrentExposed), defragmenting: make(chan struct{}, 1), joining: make(chan struct{}, 1)}
	b.reconciler.DialTenant = func(config *rest.Config) (kubernetes.Interface, func(), error) {
		require.Equal(t, "https://kube-apiserver."+root+".svc:6443", config.Host)
		require.NotEmpty(t, config.CAData)
		b.asked++
		return b.tenant, func() { b.asked-- }, nil
	}
	b.reconciler.LookUp = func(context.Context, string) ([]netip.Addr, error) { return nil, &net.DNSError{IsNotFound: true} }
	b.reconciler.DialEtcd = func(addresses map[string]etcd.Address, config *tls.Config) (EtcdClient, error) {
		require.NotEmpty(t, config.Certificates)
		require.Contains(t, addresses, "etcd-0")
		b.store.Addresses = addresses
		return b.store, nil
	}
	return b
}

// read is a Get without a cache.
func (b *bed) read(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	b.live = true
	defer func() { b.live = false }()
	err := c.Get(ctx, key, o, options...)
	if vc, is := o.(*tenancyv1alpha1.VirtualCluster); is && b.ahead != nil {
		b.ahead(&vc.Spec)
	}
	if namespace, is := o.(*corev1.Namespace); is {
		for _, change := range b.changes {
			change(namespace)
		}
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

// TestOnePartAfterTheOther: each part is made when the ones before are whole, whoever was killed in between, and nothing
// is written that is there.
func TestOnePartAfterTheOther(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	for _, step := range []struct {
		ready string
		want  []string
		lacks map[string]string
	}{
		{want: []string{"etcd"}, lacks: map[string]string{"EtcdReady": "Progressing", "UpToDate": "Progressing"}},
		{ready: "etcd", want: []string{"etcd", "kube-apiserver"}, lacks: map[string]string{"APIServerReady": "Progressing", "UpToDate": "Progressing"}},
		{
			ready: "kube-apiserver", want: []string{"etcd", "kube-apiserver", "kube-controller-manager"},
			lacks: map[string]string{"ControllerManagerReady": "Progressing", "UpToDate": "Progressing"},
		},
		{ready: "kube-controller-manager", want: []string{"etcd", "kube-apiserver", "kube-controller-manager"}, lacks: map[string]string{}},
	} {
		if step.ready != "" {
			b.ready(step.ready)
		}
		b.reconcile()
		require.Equal(t, step.want, b.exists())
		lacks, _ := b.conditions()
		require.Empty(t, cmp.Diff(step.lacks, lacks))
		b.reconcile() // a Service has addresses once it is there, which are in the certificate
		before := b.writes
		b.reconcile()
		require.Equal(t, before, b.writes, "all of it is there")
	}
	require.Equal(t, b.secret(root, "admin-kubeconfig").Data["value"], b.secret("default", "acme-kubeconfig").Data["value"])
}

// TestAnUpgrade: a part has the version that is wanted when the ones before have it.
func TestAnUpgrade(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.KubernetesVersion, version.Etcd.Image, version.APIServer.Image = "v1.38.0", "newer", "newer"
	})
	images := func() (images []string) {
		for _, name := range []string{"etcd", "kube-apiserver"} {
			object := workload(name)
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
			switch live := object.(type) {
			case *appsv1.StatefulSet:
				images = append(images, live.Spec.Template.Spec.Containers[0].Image)
			case *appsv1.Deployment:
				images = append(images, live.Spec.Template.Spec.Containers[0].Image)
			}
		}
		return images
	}
	b.reconcile()
	b.revise("newer")
	require.Equal(t, storePeriod, b.reconcile().RequeueAfter)
	require.Equal(t, []string{"newer", "of v1.37.2"}, images())
	_, message := b.conditions()
	require.Equal(t, "Waiting for etcd", message)
	require.Empty(t, b.pods(), "the old one is deleted")
	b.reconcile()
	require.Equal(t, []string{"newer", "of v1.37.2"}, images())
	b.ready("etcd")
	b.reconcile()
	require.Equal(t, []string{"newer", "newer"}, images())
	require.Equal(t, "v1.37.2", b.version())
	b.ready("kube-apiserver")
	b.reconcile()
	b.ready("kube-controller-manager")
	b.reconcile()
	require.Equal(t, "v1.38.0", b.version())
}

// version returns the version that the VirtualCluster is said to have.
func (b *bed) version() string {
	b.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	return vc.Status.Version
}

// TestVersionsThatAreRefused: what runs goes on, stays said to be whole, and the condition says what to do.
func TestVersionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// whole is the version that all parts have, "" for none.
		whole string
		// down is whether no API server is available, and gone whether there is none.
		down, gone bool

		to     string
		reason string
		want   string
	}{
		"a patch":              {whole: "v1.37.2", to: "v1.37.3"},
		"a patch back":         {whole: "v1.37.2", to: "v1.37.0"},
		"a minor version":      {whole: "v1.37.2", to: "v1.38.0"},
		"a minor version back": {whole: "v1.37.2", to: "v1.36.9", reason: "Invalid", want: "ClusterVersion v1.37: API servers of v1.37.2 may have written what those of v1.36.9 do not read; what runs goes on"},
		"two minor versions":   {whole: "v1.37.2", to: "v1.39.0", reason: "Invalid", want: "from v1.37.2 it goes up to v1.38 first, and not to v1.39.0; what runs goes on"},
		"a major version":      {whole: "v1.37.2", to: "v2.37.0", reason: "Invalid", want: "from v1.37.2 it goes up to v1.38 first"},
		"too early":            {whole: "v1.36.9", to: "v1.38.0", reason: "Invalid", want: "not all parts have v1.37.2, which comes before v1.38.0: name a version of v1.37 until they do"},
		"a patch, too early":   {whole: "v1.36.9", to: "v1.37.3"},
		"one that never ran":   {down: true, to: "v1.36.0"},
		"none that is made":    {down: true, to: "v1.31.0", reason: "Invalid", want: "spec.kubernetesVersion: this vc-manager makes v1.34 to v1.40, and not v1.31.0; what runs goes on"},
		"no version":           {whole: "v1.37.2", to: "v1.37.02", reason: "Invalid", want: "spec.kubernetesVersion: "},
		"one never, and none":  {down: true, to: "v1.37.02", reason: "Invalid", want: "spec.kubernetesVersion: "},
		"all parts never did":  {to: "v1.36.0", reason: "Invalid", want: "API servers of v1.37.2 may have written"},
		"one that was deleted": {whole: "v1.37.2", gone: true, to: "v1.36.0", reason: "Invalid", want: "API servers of v1.37.2 may have written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.whole()
			vc := &tenancyv1alpha1.VirtualCluster{}
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
			require.Equal(t, "v1.37.2", vc.Status.Version)
			vc.Status.Version = tc.whole
			require.NoError(t, b.reconciler.Client.Status().Update(t.Context(), vc))
			servers := &appsv1.Deployment{}
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "kube-apiserver"}, servers))
			if tc.down {
				servers.Status.AvailableReplicas = 0
				require.NoError(t, b.reconciler.Client.Status().Update(t.Context(), servers))
			}
			if tc.gone {
				require.NoError(t, b.reconciler.Client.Delete(t.Context(), servers))
			}
			b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
				version.KubernetesVersion, version.Etcd.Image = tc.to, "other"
			})
			b.reconcile()
			set := &appsv1.StatefulSet{}
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "etcd"}, set))
			changed := set.Spec.Template.Spec.Containers[0].Image == "other"
			require.Equal(t, tc.reason == "", changed)
			if tc.reason == "" {
				return
			}
			missing, message := b.conditions()
			require.Equal(t, map[string]string{"UpToDate": tc.reason}, missing)
			require.Contains(t, message, tc.want)
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(vc), vc))
			require.True(t, meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionAPIServerReady))
		})
	}
}

// TestRenewal: what is issued is renewed in time, by the authority that there was, and what signs stays.
func TestRenewal(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	require.Equal(t, patrolPeriod, b.reconcile().RequeueAfter)
	names := []string{"apiserver", "etcd-server", "etcd-peer", "etcd-client", "etcd-manager", "front-proxy-client", "controller-manager", "admin-kubeconfig"}
	stay := []string{"ca", "etcd-ca", "front-proxy-ca", "service-accounts"}
	before := map[string]map[string][]byte{}
	for _, name := range append(names, stay...) {
		before[name] = b.secret(root, name).Data
	}
	b.clock.SetTime(b.clock.Now().Add(20*24*time.Hour - 8*time.Minute)) // two thirds of 30 days are over within patrolPeriod
	require.Less(t, b.reconcile().RequeueAfter, patrolPeriod)
	require.Equal(t, before["apiserver"], b.secret(root, "apiserver").Data)
	b.clock.SetTime(b.clock.Now().Add(patrolPeriod))
	b.reconcile()
	require.Equal(t, patrolPeriod, b.reconcile().RequeueAfter)
	for _, name := range stay {
		require.Equal(t, before[name], b.secret(root, name).Data, name)
	}
	for _, name := range names {
		require.NotEqual(t, before[name], b.secret(root, name).Data, name)
	}
	require.Equal(t, b.secret(root, "admin-kubeconfig").Data["value"], b.secret("default", "acme-kubeconfig").Data["value"])
	writes := b.writes
	b.reconcile()
	require.Equal(t, writes, b.writes)
}

// TestWhatIsNotReplaced: vc-manager replaces nothing that others trust or have made, says so, and goes on when it is
// mended. What is wrong with one authority keeps nobody from what others issue.
func TestWhatIsNotReplaced(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		object client.Object
		// before is whether it was so before anything was made.
		before    bool
		condition string
		want      string
	}{
		"an authority that is none": {object: &corev1.Secret{ObjectMeta: ours("ca")}, want: "Secret " + root + "/ca holds no authority"},
		"a key that is none":        {object: &corev1.Secret{ObjectMeta: ours("service-accounts")}, want: "Secret " + root + "/service-accounts holds no private key"},
		"a Secret of somebody else": {
			object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "acme-kubeconfig"}}, before: true,
			want: "Secret default/acme-kubeconfig is not vc-manager's",
		},
		"a certificate of somebody else": {
			object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "admin-kubeconfig"}}, before: true,
			want: "Secret " + root + "/admin-kubeconfig is not vc-manager's. If a control plane runs, import it",
		},
		"a workload of somebody else": {
			object: &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "etcd"}}, before: true,
			want: "StatefulSet " + root + "/etcd is not vc-manager's: delete it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var made client.Object
			b := newBed(t, nil)
			c := b.reconciler.Client
			if !tc.before {
				b.reconcile()
				made = b.secret(root, tc.object.GetName())
				require.NoError(t, c.Delete(t.Context(), made.DeepCopyObject().(client.Object)))
				b.reconcile()
				_, message := b.conditions()
				require.Contains(t, message, "is gone, and all")
			}
			require.NoError(t, c.Create(t.Context(), tc.object))
			require.Equal(t, storePeriod, b.reconcile().RequeueAfter, "it has said something")
			require.Equal(t, time.Minute, b.reconcile().RequeueAfter)
			missing, message := b.conditions()
			require.Equal(t, tenancyv1alpha1.ReasonInvalid, missing[tenancyv1alpha1.ConditionUpToDate])
			require.Contains(t, message, tc.want)
			require.NotContains(t, b.exists(), "kube-apiserver")
			require.NotEmpty(t, b.secret(root, "etcd-server").Data)

			require.NoError(t, c.Delete(t.Context(), tc.object))
			if made != nil {
				made.SetResourceVersion("")
				require.NoError(t, c.Create(t.Context(), made))
			}
			b.reconcile()
			_, message = b.conditions()
			require.Equal(t, "Waiting for etcd", message)
		})
	}
}

func ours(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: root, Name: name, Labels: controlplane.Labels(controlplane.Credentials)}
}

// TestWhatFails: a part that the API server refuses is told of, and none is said to be there that was not looked at.
func TestWhatFails(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		b.reconcile()
		b.ready(name)
	}
	b.reconcile()
	missing, _ := b.conditions()
	require.Empty(t, missing)
	refuses := interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		return apierrors.NewBadRequest("limits are below requests")
	}}
	c := b.reconciler.Client
	version := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "v1.37"}, version))
	version.Spec.Etcd.Image = "newer"
	require.NoError(t, c.Update(t.Context(), version))
	b.reconciler.Client = interceptor.NewClient(c.(client.WithWatch), refuses)
	_, err := b.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "acme"}})
	require.ErrorContains(t, err, "limits are below requests")
	missing, message := b.conditions()
	require.Equal(t, map[string]string{"UpToDate": "Failed"}, missing)
	require.Contains(t, message, "limits are below requests")
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	require.Equal(t, metav1.ConditionUnknown, meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionAPIServerReady).Status)
}

// TestNoneOfItsBusiness writes nothing.
func TestNoneOfItsBusiness(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*tenancyv1alpha1.VirtualCluster){
		"one that is imported":       func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "" },
		"one without root namespace": func(vc *tenancyv1alpha1.VirtualCluster) { vc.Status.ClusterNamespace = "" },
		"one that is being deleted": func(vc *tenancyv1alpha1.VirtualCluster) {
			vc.DeletionTimestamp, vc.Finalizers = &metav1.Time{Time: time.Now()}, []string{"superpool/test"}
		},
	} {
		b := newBed(t, change)
		b.reconcile()
		require.Zero(t, b.writes, name)
	}
}

// TestImportedLater: what vc-manager said of a control plane goes when it is none of its business any more.
func TestImportedLater(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.reconcile()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	require.Len(t, vc.Status.Conditions, 6)
	vc.Spec.ClusterVersionName, vc.Spec.KubeconfigSecretRef = "", &tenancyv1alpha1.SecretKeyRef{Name: "acme-kubeconfig"}
	require.NoError(t, b.reconciler.Client.Update(t.Context(), vc))
	b.reconcile()
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(vc), vc))
	require.Empty(t, vc.Status.Conditions)
}

func TestNoSuchVersion(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "v1.38" })
	b.reconcile()
	require.Equal(t, patrolPeriod, b.reconcile().RequeueAfter, "certificates end without a version, too")
	missing, message := b.conditions()
	require.Equal(t, map[string]string{"UpToDate": "ClusterVersionNotFound"}, missing)
	require.Contains(t, message, "There is no ClusterVersion v1.38")
	require.NotEmpty(t, b.secret("default", "acme-kubeconfig").Data["value"])
}

// TestAnotherWasFaster: who loses a race for an authority uses that of the other.
func TestAnotherWasFaster(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	authority, err := pki.NewAuthority("other")
	require.NoError(t, err)
	pair, err := authority.Pair()
	require.NoError(t, err)
	raced := false
	inner := b.reconciler.Client
	b.reconciler.Client = interceptor.NewClient(inner.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if secret, is := o.(*corev1.Secret); is && secret.Name == "ca" && !raced {
				raced = true
				other := secret.DeepCopy()
				other.Data = secrets.DataOf(pair)
				if err := c.Create(ctx, other); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, options...)
		},
	})
	require.Equal(t, time.Second, b.reconcile().RequeueAfter)
	b.reconcile()
	require.True(t, bytes.Equal(pair.Certificate, b.secret(root, "ca").Data[corev1.TLSCertKey]))
	_, why := authority.Due(secrets.PairOf(b.secret(root, "apiserver")), mustWant(t, b, "apiserver"), b.clock.Now())
	require.Empty(t, why)
}

func mustWant(t *testing.T, b *bed, name string) pki.Certificate {
	t.Helper()
	all, err := (&controlplane.ControlPlane{Namespace: root, Tenant: &tenancyv1alpha1.VirtualCluster{}}).Certificates(b.reconciler.Validity)
	require.NoError(t, err)
	for _, certificate := range all {
		if certificate.Name == name {
			return certificate.Wanted
		}
	}
	t.Fatal(name)
	return pki.Certificate{}
}
