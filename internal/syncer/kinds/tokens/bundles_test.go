package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// certificate returns one in PEM.
func certificate(t *testing.T, name string) string {
	t.Helper()
	authority, err := pki.NewAuthority(name)
	require.NoError(t, err)
	pair, err := authority.Pair()
	require.NoError(t, err)
	return string(pair.Certificate)
}

// bundler is an issuer whose tenant has ClusterTrustBundles, and whose pod projects some.
func newBundler(t *testing.T, asked *int, refuse *error, sources ...corev1.ClusterTrustBundleProjection) (*issuer, client.Client) {
	t.Helper()
	i := newIssuer(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	count := func() error {
		*asked++
		return *refuse
	}
	tenant := builders.Client(scheme).WithIndex(&certificatesv1.ClusterTrustBundle{}, "spec.signerName", func(object client.Object) []string {
		return []string{object.(*certificatesv1.ClusterTrustBundle).Spec.SignerName}
	}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: i.give,
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, is := object.(*certificatesv1.ClusterTrustBundle); is {
				if err := count(); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	i.Tenant.Client = kindtest.Answering(tenant, kindtest.TenantUID)
	projected := &corev1.ProjectedVolumeSource{}
	for j := range sources {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{ClusterTrustBundle: &sources[j]})
	}
	i.pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: projected}}}
	superPod := &corev1.Pod{}
	podspec.SuperPod(i.pod, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{})
	i.SuperCache[kind.Pod] = []client.Object{superPod}
	return i, tenant
}

func bundle(name, signer, content string, labels map[string]string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: content}}
}

// TestTrustBundles: a pod has the certificates of the tenant's ClusterTrustBundles that it projects, as a kubelet would
// write them.
func TestTrustBundles(t *testing.T) {
	t.Parallel()
	a, b, c := certificate(t, "a"), certificate(t, "b"), certificate(t, "c")
	asked, refuse := 0, error(nil)
	blue := &metav1.LabelSelector{MatchLabels: map[string]string{"colour": "blue"}}
	i, tenant := newBundler(t, &asked, &refuse,
		corev1.ClusterTrustBundleProjection{Name: ptr.To("one"), Path: "one.pem"},
		corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s"), LabelSelector: blue, Path: "blue.pem"},
		corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "all.pem"},
		corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s"), Path: "none.pem", Optional: ptr.To(true)},
		corev1.ClusterTrustBundleProjection{Name: ptr.To("other"), Path: "other.pem", Optional: ptr.To(true)},
	)
	for _, object := range []client.Object{
		bundle("one", "", "# a comment that nobody needs\n"+a, nil), bundle("example.com:s:1", "example.com/s", b, map[string]string{"colour": "blue"}),
		bundle("example.com:s:2", "example.com/s", c+b, nil), bundle("example.com:t:1", "example.com/t", a, map[string]string{"colour": "blue"}),
	} {
		require.NoError(t, tenant.Create(t.Context(), object))
	}
	after, err := i.reconcile(t)
	require.NoError(t, err)
	require.InDelta(t, 5*time.Minute, after, float64(10*time.Second))
	data := i.data(t)
	require.Len(t, data, 5)
	require.Equal(t, a, data["bundle-0-0"])
	require.Equal(t, b, data["bundle-0-1"])
	require.ElementsMatch(t, strings.SplitAfter(b+c, "-----END CERTIFICATE-----\n"), strings.SplitAfter(data["bundle-0-2"], "-----END CERTIFICATE-----\n"), "each once")
	require.Empty(t, data["bundle-0-3"], "no selector selects none")
	require.Empty(t, data["bundle-0-4"])
	superPod := i.SuperCache[kind.Pod][0].(*corev1.Pod)
	require.Equal(t, []corev1.KeyToPath{{Key: "bundle-0-1", Path: "blue.pem"}}, superPod.Spec.Volumes[0].Projected.Sources[1].Secret.Items)
	require.Nil(t, superPod.Spec.Volumes[0].Projected.Sources[1].ClusterTrustBundle)

	require.NoError(t, tenant.Delete(t.Context(), bundle("one", "", "", nil)))
	require.NoError(t, tenant.Create(t.Context(), bundle("other", "", c, nil)))
	_, err = i.reconcile(t)
	require.NoError(t, err)
	data = i.data(t)
	require.Equal(t, a, data["bundle-0-0"], "what a pod has it keeps")
	require.Equal(t, c, data["bundle-0-4"])
	require.Empty(t, i.Told())
}

// TestTrustBundlesThatAreNotThere: a pod waits for what is missing, and its tenant is told once.
func TestTrustBundlesThatAreNotThere(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	i, tenant := newBundler(t, &asked, &refuse, corev1.ClusterTrustBundleProjection{Name: ptr.To("one"), Path: "one.pem"})
	for range 3 {
		_, err := i.reconcile(t)
		require.ErrorContains(t, err, "waiting for the trust bundles of the pod")
	}
	require.NotContains(t, i.data(t), "bundle-0-0", "so that no kubelet starts it")
	require.Equal(t, []string{"Warning FailedTrustBundle Trust bundle one: the control plane has none"}, i.Told())
	require.NoError(t, tenant.Create(t.Context(), bundle("one", "", certificate(t, "a"), nil)))
	_, err := i.reconcile(t)
	require.NoError(t, err)
	require.Contains(t, i.data(t), "bundle-0-0")

	for _, tc := range []struct {
		refuse error
		want   string
	}{
		{apierrors.NewForbidden(schema.GroupResource{Resource: "clustertrustbundles"}, "one", errors.New("no right")), "Reading the pod's trust bundles: "},
		{apierrors.NewServiceUnavailable("no answer"), ""},
	} {
		i, _ := newBundler(t, &asked, &tc.refuse, corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "one.pem"})
		_, err := i.reconcile(t)
		require.Error(t, err)
		if tc.want == "" {
			require.Empty(t, i.Told(), "an API server that does not answer is no pod's fault")
			continue
		}
		told := i.Told()
		require.Len(t, told, 1)
		require.Contains(t, told[0], tc.want)
	}
}

// TestTrustBundlesAreBounded: a hostile control plane has neither many of our requests nor much of the super cluster's
// store.
func TestTrustBundlesAreBounded(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	var many []corev1.ClusterTrustBundleProjection
	for j := range 17 {
		many = append(many, corev1.ClusterTrustBundleProjection{Name: ptr.To("one"), Path: fmt.Sprint(j)})
	}
	i, _ := newBundler(t, &asked, &refuse, many...)
	_, err := i.reconcile(t)
	require.ErrorContains(t, err, "waiting for ")
	require.Zero(t, asked)
	require.Equal(t, []string{"Warning FailedTrustBundle The pod projects 17 trust bundles: at most 16 are there"}, i.Told())

	i, tenant := newBundler(t, &asked, &refuse, corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "all.pem"})
	text := certificate(t, strings.Repeat("x", 60))
	for j := range 800 {
		require.NoError(t, tenant.Create(t.Context(), bundle(fmt.Sprintf("example.com:s:%d", j), "example.com/s", text, nil)))
	}
	_, err = i.reconcile(t)
	require.NoError(t, err, "the same certificate is there once")
	require.Equal(t, text, i.data(t)["bundle-0-0"])
	for j := range 800 {
		stored := bundle(fmt.Sprintf("example.com:s:%d", j), "", "", nil)
		require.NoError(t, tenant.Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
		stored.Spec.TrustBundle = "nonsense"
		require.NoError(t, tenant.Update(t.Context(), stored))
	}
	_, err = i.reconcile(t)
	require.NoError(t, err)
	require.Equal(t, text, i.data(t)["bundle-0-0"], "what cannot be read changes nothing")
}
