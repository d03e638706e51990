package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/policy"
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

// newBundler returns an issuer whose tenant has ClusterTrustBundles, and whose pod projects some.
func newBundler(t *testing.T, asked *int, refuse *error, sources ...corev1.ClusterTrustBundleProjection) (*issuer, client.Client) {
	t.Helper()
	i := newIssuer(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	count := func() error {
		*asked++
		return *refuse
	}
	tenant := builders.Client(scheme).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: i.give,
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
// write them, and they are read once a minute for all pods of the tenant.
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
	require.InDelta(t, time.Minute, after, float64(11*time.Second))
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
	require.Empty(t, i.data(t)["bundle-0-4"])
	require.Equal(t, 1, asked, "whatever wakes the key")
	i.later(time.Minute)
	_, err = i.reconcile(t)
	require.NoError(t, err)
	data = i.data(t)
	require.Equal(t, a, data["bundle-0-0"], "what a pod has and needs it keeps")
	require.Equal(t, c, data["bundle-0-4"])
	require.Equal(t, []string{"Warning FailedTrustBundle The pod's trust bundles: there is no ClusterTrustBundle one"}, i.Told())
	require.NoError(t, tenant.Delete(t.Context(), bundle("other", "", "", nil)))
	i.later(time.Minute)
	_, err = i.reconcile(t)
	require.NoError(t, err)
	require.Empty(t, i.data(t)["bundle-0-4"], "what is optional goes")
	require.Equal(t, 3, asked)
	require.Empty(t, i.Told(), "once")
}

// later lets time pass.
func (i *issuer) later(by time.Duration) { i.clock.SetTime(i.clock.Now().Add(by)) }

// TestTrustBundlesThatAreNotThere: a pod waits for what is missing, its tenant is told once, and its tokens do not wait.
func TestTrustBundlesThatAreNotThere(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	i, tenant := newBundler(t, &asked, &refuse, corev1.ClusterTrustBundleProjection{Name: ptr.To("one"), Path: "one.pem"})
	i.pod.Spec.Volumes[0].Projected.Sources = append(i.pod.Spec.Volumes[0].Projected.Sources, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}})
	says := func(want string, said ...string) {
		t.Helper()
		for range 2 {
			i.later(time.Minute)
			_, err := i.reconcile(t)
			require.NoError(t, err)
		}
		require.Equal(t, want, i.data(t)["bundle-0-0"])
		require.NotEmpty(t, i.data(t)["token-0-1"])
		for j := range said {
			said[j] = "Warning FailedTrustBundle The pod's trust bundles: " + said[j]
		}
		require.Equal(t, said, i.Told())
	}
	of := schema.GroupResource{Resource: "clustertrustbundles"}
	refuse = apierrors.NewForbidden(of, "", errors.New("no right"))
	says("", "the control plane refuses to list ClusterTrustBundles: does the kubeconfig of the VirtualCluster have the right?")
	require.NotContains(t, i.data(t), "bundle-0-0", "so that no kubelet starts it")
	refuse = apierrors.NewNotFound(of, "")
	says("", "the control plane serves no ClusterTrustBundles of certificates.k8s.io/v1")
	refuse = nil
	says("", "there is no ClusterTrustBundle one")
	content := certificate(t, "a")
	require.NoError(t, tenant.Create(t.Context(), bundle("one", "", content, nil)))
	says(content)
	refuse = apierrors.NewServiceUnavailable("no answer")
	says(content) // an API server that does not answer is no pod's fault
	refuse = nil
	says(content)
}

// TestAPodWaitsForATrustBundle: a missing one is looked for after seconds first, and more rarely the longer its pod waits.
func TestAPodWaitsForATrustBundle(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	i, tenant := newBundler(t, &asked, &refuse, corev1.ClusterTrustBundleProjection{Name: ptr.To("one"), Path: "one.pem"})
	i.pod.CreationTimestamp = metav1.NewTime(i.clock.Now())
	waits := func(least time.Duration, reads int) {
		t.Helper()
		after, err := i.reconcile(t)
		require.NoError(t, err)
		require.InDelta(t, least, after, float64(least/4))
		require.GreaterOrEqual(t, after, least)
		require.Equal(t, reads, asked)
	}
	waits(5*time.Second, 1)
	i.later(4 * time.Second)
	waits(5*time.Second, 1)
	i.later(56 * time.Second)
	waits(15*time.Second, 2)
	i.later(time.Hour)
	waits(time.Minute, 3)
	require.NoError(t, tenant.Create(t.Context(), bundle("one", "", certificate(t, "a"), nil)))
	i.pod.CreationTimestamp = metav1.NewTime(i.clock.Now())
	i.later(5 * time.Second)
	waits(time.Minute, 4)
	require.NotEmpty(t, i.data(t)["bundle-0-0"])
	i.later(50 * time.Second)
	waits(time.Minute, 4)
}

// TestTrustBundlesAreBounded: a hostile control plane has neither many of our requests nor much of our memory, nor of the
// super cluster's store.
func TestTrustBundlesAreBounded(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	all := corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "all.pem"}
	told := func(i *issuer) []string {
		t.Helper()
		_, err := i.reconcile(t)
		require.NoError(t, err)
		return i.Told()
	}
	i, _ := newBundler(t, &asked, &refuse, slices.Repeat([]corev1.ClusterTrustBundleProjection{all}, 17)...)
	require.Equal(t, []string{"Warning FailedTrustBundle The pod's trust bundles: it projects 17, 17 of them of a signer, and may project 256 and 16"}, told(i))

	text := certificate(t, strings.Repeat("x", 60))
	wide := all
	wide.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: slices.Repeat([]string{"b"}, 256)}}}
	i, _ = newBundler(t, &asked, &refuse, wide)
	require.Equal(t, []string{"Warning FailedTrustBundle The pod's trust bundles: its selectors have more than 256 labels and expressions"}, told(i))

	i, tenant := newBundler(t, &asked, &refuse, slices.Repeat([]corev1.ClusterTrustBundleProjection{{Name: ptr.To("example.com:s:0")}}, 150)...)
	for j := range 1000 {
		require.NoError(t, tenant.Create(t.Context(), bundle(fmt.Sprintf("example.com:s:%d", j), "example.com/s", text, nil)))
	}
	require.Empty(t, told(i))
	require.Len(t, i.data(t), 150)

	require.NoError(t, tenant.Create(t.Context(), bundle("large", "example.com/s", strings.Repeat(text, 1000), nil)))
	i.later(time.Minute)
	require.Empty(t, told(i), "one that is too large is nobody's who does not want it")
	for j := range 14 {
		require.NoError(t, tenant.Create(t.Context(), bundle(fmt.Sprintf("more:%d", j), "example.com/s", strings.Repeat(text, 600), nil)))
	}
	i.later(time.Minute)
	require.Equal(t, []string{"Warning FailedTrustBundle The pod's trust bundles: the control plane has more ClusterTrustBundles than the 4096, of 4096 kB, that are read"}, told(i))
	require.Len(t, i.data(t), 150, "what was read before stays")

	i, tenant = newBundler(t, &asked, &refuse, slices.Repeat([]corev1.ClusterTrustBundleProjection{all}, 16)...)
	for j := range 100 {
		require.NoError(t, tenant.Create(t.Context(), bundle(fmt.Sprintf("example.com:s:%d", j), "example.com/s", certificate(t, fmt.Sprint(j)), nil)))
	}
	require.Equal(t, []string{"Warning FailedTrustBundle The pod's trust bundles: they are more than 512 kB"}, told(i))
	require.Empty(t, i.data(t))
}

// TestATrustBundleThatIsTooLarge: a pod keeps what it has of one that becomes too large, or that is not there for a moment.
func TestATrustBundleThatIsTooLarge(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	i, tenant := newBundler(t, &asked, &refuse,
		corev1.ClusterTrustBundleProjection{Name: ptr.To("one"), Path: "one.pem", Optional: ptr.To(true)},
		corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "all.pem"},
	)
	text := certificate(t, "a")
	one, two := bundle("one", "", text, nil), bundle("example.com:s:2", "example.com/s", text, nil)
	require.NoError(t, tenant.Create(t.Context(), one))
	require.NoError(t, tenant.Create(t.Context(), two))
	_, err := i.reconcile(t)
	require.NoError(t, err)
	before := i.data(t)
	require.Len(t, before, 2)
	one.Spec.TrustBundle, two.Spec.TrustBundle = strings.Repeat(text, 1000), strings.Repeat(text, 1000)
	require.NoError(t, tenant.Update(t.Context(), one))
	require.NoError(t, tenant.Update(t.Context(), two))
	i.later(time.Minute)
	_, err = i.reconcile(t)
	require.NoError(t, err)
	require.Equal(t, before, i.data(t))
	require.Equal(t, []string{"Warning FailedTrustBundle The pod's trust bundles: ClusterTrustBundle one is more than 512 kB"}, i.Told())
}

// TestTrustBundlesBeyondALimit: what a tenant may not have more of keeps no token from being renewed.
func TestTrustBundlesBeyondALimit(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	i, tenant := newBundler(t, &asked, &refuse, corev1.ClusterTrustBundleProjection{Name: ptr.To("one"), Path: "one.pem"})
	i.pod.Spec.Volumes[0].Projected.Sources = append(i.pod.Spec.Volumes[0].Projected.Sources, corev1.VolumeProjection{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](1000)},
	})
	small := certificate(t, "a")
	stored := bundle("one", "", small, nil)
	require.NoError(t, tenant.Create(t.Context(), stored))
	_, err := i.reconcile(t)
	require.NoError(t, err)
	token := i.data(t)["token-0-1"]
	i.Tenant.Policy = &policy.Ref{}
	i.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "tokens", Count: 10, Bytes: resource.MustParse("5k")}}
	}))
	stored.Spec.TrustBundle = ""
	for j := range 20 {
		stored.Spec.TrustBundle += certificate(t, fmt.Sprint(j))
	}
	require.NoError(t, tenant.Update(t.Context(), stored))
	i.later(900 * time.Second)
	_, err = i.reconcile(t)
	require.NoError(t, err)
	require.Equal(t, small, i.data(t)["bundle-0-0"])
	require.NotEqual(t, token, i.data(t)["token-0-1"])
	require.Contains(t, i.Told()[0], "TenantLimit")
	writes := i.data(t)
	i.later(time.Minute)
	_, err = i.reconcile(t)
	require.NoError(t, err)
	require.Equal(t, writes, i.data(t))
}

// TestAPodOfOneBundleManyTimes: what a pod may not have is not made.
func TestAPodOfOneBundleManyTimes(t *testing.T) {
	t.Parallel()
	asked, refuse := 0, error(nil)
	i, tenant := newBundler(t, &asked, &refuse, slices.Repeat([]corev1.ClusterTrustBundleProjection{{Name: ptr.To("one")}}, 256)...)
	text := ""
	for j := range 500 {
		text += certificate(t, fmt.Sprint(j))
	}
	require.NoError(t, tenant.Create(t.Context(), bundle("one", "", text, nil)))
	allocated := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			_, _ = i.reconcile(t)
		}
	}).AllocedBytesPerOp()
	require.Less(t, allocated, int64(16<<20))
	require.Empty(t, i.data(t))
}
