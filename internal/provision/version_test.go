package provision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
)

// TestBundles: a ClusterVersion that is written as StatefulSets has images of another one, and what is wrong with either is
// said while what runs goes on.
func TestBundles(t *testing.T) {
	t.Parallel()
	base := &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "base"}}
	base.Spec.KubernetesVersion = "v1.37.2"
	for _, part := range []*tenancyv1alpha1.ComponentTemplate{&base.Spec.Etcd, &base.Spec.APIServer, &base.Spec.ControllerManager} {
		part.Image = "of the base"
	}
	b := newBed(t, nil)
	bundle := func(image string) *runtime.RawExtension {
		return &runtime.RawExtension{Raw: []byte(`{"spec": {"template": {"spec": {"containers": [{"image": "` + image + `", "args": ["--insecure-port=0"]}]}}}}`)}
	}
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		*version = tenancyv1alpha1.ClusterVersionSpec{}
		version.Etcd.StatefulSet, version.APIServer.StatefulSet, version.ControllerManager.StatefulSet = bundle("old"), bundle("old"), bundle("old")
	})
	says := func(reason, message string) {
		t.Helper()
		b.reconcile()
		missing, said := b.conditions()
		require.Equal(t, reason, missing["UpToDate"])
		require.Contains(t, said, message)
		require.Empty(t, b.exists())
	}
	says("Invalid", "ClusterVersion v1.37 is written as StatefulSets: start vc-manager with --base-cluster-version")
	b.reconciler.BaseVersion = "base"
	says("ClusterVersionNotFound", "has images of --base-cluster-version of vc-manager: There is no ClusterVersion base")
	b.reconciler.BaseVersion = "v1.37"
	says("Invalid", "which is written as StatefulSets, too")
	b.reconciler.BaseVersion = "base"
	require.NoError(t, b.reconciler.Client.Create(t.Context(), base))
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.Etcd.StatefulSet = &runtime.RawExtension{Raw: []byte("[]")}
	})
	says("Invalid", "ClusterVersion v1.37 cannot be read: etcd.statefulset: ")
	require.Nil(t, meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionTranslated))
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.StatefulSet = bundle("old") })
	b.made()
	require.Equal(t, "v1.37.2", b.version())
	translated := meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionTranslated)
	require.Equal(t, "LeftOut", translated.Reason)
	require.Contains(t, translated.Message, "Left out of ClusterVersion v1.37: apiServer: argument --insecure-port; apiServer: image old (of the base runs)")

	require.Len(t, b.reconciler.ofVersion(t.Context(), base), 1, "what changes the base concerns whoever has its images")
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { *version = base.Spec })
	b.reconcile()
	require.Nil(t, meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionTranslated), "nothing is to be translated")
}

// TestDaysOfCertificates: a tenant's own number of days holds for all that is issued for it, and where it becomes less for
// what was issued before.
func TestDaysOfCertificates(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.PKIExpireDays = 7 })
	b.whole()
	ends := func(days int) {
		t.Helper()
		require.WithinDuration(t, b.clock.Now().Add(time.Duration(days)*24*time.Hour), b.vc().Status.CertificatesExpire.Time, time.Minute)
		_, ends := pki.Life(secrets.PairOf(b.secret(root, "apiserver")))
		require.WithinDuration(t, b.vc().Status.CertificatesExpire.Time, ends, time.Minute)
	}
	ends(7)
	vc := b.vc()
	vc.Spec.PKIExpireDays = 2
	require.NoError(t, b.reconciler.Client.Update(t.Context(), vc))
	b.clock.SetTime(b.clock.Now().Add(33 * time.Hour)) // two thirds of two days, and not of seven
	b.reconcile()
	ends(2)

	secret := &corev1.Secret{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.CA}, secret))
	secret.Data = nil
	require.NoError(t, b.reconciler.Client.Update(t.Context(), secret))
	b.clock.SetTime(b.clock.Now().Add(time.Hour))
	b.reconcile()
	require.NotNil(t, b.vc().Status.CertificatesExpire, "it stays said while something is broken")
}
