package provision

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
)

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
	c := b.reconciler.Client
	version := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "v1.37"}, version))
	version.Spec.Etcd.Image = "newer"
	require.NoError(t, c.Update(t.Context(), version))
	b.fails = apierrors.NewBadRequest("limits are below requests")
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
