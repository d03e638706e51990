package tokens_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

const signerName = "example.com/spiffe"

// signed is an issuer whose tenant serves PodCertificateRequests, and whose pod projects certificates.
type signed struct {
	*issuer
	tenant    client.WithWatch
	authority crypto.Signer
	// made and read count the requests, refuse and refuseRead are the answers to them if set.
	made, read         int
	refuse, refuseRead error
	// name is that of the next request if set.
	name string
	// resynced are the keys that were enqueued.
	resynced chan engine.Key
}

func newSigned(t *testing.T, sources ...corev1.PodCertificateProjection) *signed {
	t.Helper()
	s := &signed{issuer: newIssuer(t), resynced: make(chan engine.Key, 100)}
	var err error
	s.authority, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	s.tenant = builders.Client(scheme).WithStatusSubresource(&certificatesv1.PodCertificateRequest{}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: s.give,
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if request, ok := object.(*certificatesv1.PodCertificateRequest); ok {
				if s.refuse != nil {
					return s.refuse
				}
				s.made++
				request.Name = fmt.Sprint(request.GenerateName, s.made)
				if s.name != "" {
					request.Name = s.name
					return nil
				}
			}
			return c.Create(ctx, object, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*certificatesv1.PodCertificateRequest); ok {
				s.read++
				if s.refuseRead != nil {
					return s.refuseRead
				}
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	s.Tenant.Client = kindtest.Answering(s.tenant, kindtest.TenantUID)
	s.Env.Resync = func(keys []engine.Key) {
		for _, key := range keys {
			s.resynced <- key
		}
	}
	projected := &corev1.ProjectedVolumeSource{}
	for j := range sources {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{PodCertificate: &sources[j]})
	}
	s.pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: projected}}}
	s.pod.CreationTimestamp = metav1.NewTime(s.clock.Now())
	s.TenantCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "default", UID: "account-uid"}}}
	s.TenantCache[kind.Node] = []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1.n1", UID: "node-uid"}}}
	superPod := &corev1.Pod{}
	podspec.SuperPod(s.pod, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{})
	s.SuperCache[kind.Pod] = []client.Object{superPod}
	return s
}

// all is a projection with all three files.
func all(keyType string) corev1.PodCertificateProjection {
	return corev1.PodCertificateProjection{SignerName: signerName, KeyType: keyType, CredentialBundlePath: "all.pem", KeyPath: "key.pem", CertificateChainPath: "chain.pem"}
}

// restart connects the tenant anew, as another process does.
func (s *signed) restart() {
	was := s.Tenant
	s.Tenant = &kind.Tenant{Tenant: was.Tenant, Client: was.Client, Cache: was.Cache, Recorder: was.Recorder}
}

// reconciled reconciles, and returns after what time again.
func (s *signed) reconciled(t *testing.T) time.Duration {
	t.Helper()
	after, err := s.reconcile(t)
	require.NoError(t, err)
	return after
}

// requested returns a request.
func (s *signed) requested(t *testing.T, name string) *certificatesv1.PodCertificateRequest {
	t.Helper()
	request := &certificatesv1.PodCertificateRequest{}
	require.NoError(t, s.tenant.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: name}, request))
	s.read--
	return request
}

// certificate returns one of a public key in PEM.
func (s *signed) certificate(t *testing.T, public crypto.PublicKey, lifetime time.Duration) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: s.clock.Now(), NotAfter: s.clock.Now().Add(lifetime)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, s.authority)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// sign issues what a request asks for, to be renewed at half of its life, and returns the chain.
func (s *signed) sign(t *testing.T, name string, lifetime time.Duration) string {
	t.Helper()
	request := s.requested(t, name)
	stub, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	require.NoError(t, err)
	require.NoError(t, stub.CheckSignature())
	leaf, intermediate := s.certificate(t, stub.PublicKey, lifetime), s.certificate(t, s.authority.Public(), lifetime)
	s.answer(t, request, certificatesv1.PodCertificateRequestStatus{
		CertificateChain: "a comment\n" + leaf + "\nanother\n" + intermediate,
		BeginRefreshAt:   ptr.To(metav1.NewTime(s.clock.Now().Add(lifetime / 2))),
		Conditions:       []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue}},
	})
	return leaf + intermediate
}

func (s *signed) answer(t *testing.T, request *certificatesv1.PodCertificateRequest, status certificatesv1.PodCertificateRequestStatus) {
	t.Helper()
	request.Status = status
	require.NoError(t, s.tenant.Status().Update(t.Context(), request))
}

// holds checks that the pod has the certificate of a chain, and no key is outside of the data.
func (s *signed) holds(t *testing.T, chain string) {
	t.Helper()
	data := s.data(t)
	require.Equal(t, chain, data["certificate-0-0-chain"])
	require.Equal(t, data["certificate-0-0-key"]+chain, data["certificate-0-0-bundle"])
	_, err := tls.X509KeyPair([]byte(chain), []byte(data["certificate-0-0-key"]))
	require.NoError(t, err)
	text, err := json.Marshal(s.SuperCache[kind.Token][0].(*corev1.Secret).ObjectMeta)
	require.NoError(t, err)
	require.NotContains(t, string(text), "PRIVATE")
}

// TestCertificates: a pod has a key and what the tenant's signer has issued for it, asked for as its kubelet would, and
// renewed when the signer says; a restart asks for nothing that is there.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for _, keyType := range []string{"ED25519", "ECDSAP256", "ECDSAP384", "ECDSAP521"} {
		t.Run(keyType, func(t *testing.T) {
			t.Parallel()
			wanted := all(keyType)
			wanted.MaxExpirationSeconds, wanted.UserAnnotations = ptr.To[int32](7200), map[string]string{"example.com/path": "/a"}
			s := newSigned(t, wanted)
			require.Equal(t, time.Second, s.reconciled(t))
			require.Empty(t, s.data(t), "no kubelet starts it")
			request := s.requested(t, "req-1")
			require.Empty(t, cmp.Diff(certificatesv1.PodCertificateRequestSpec{
				SignerName: signerName, PodName: "web-1", PodUID: "pod-uid", ServiceAccountName: "default", ServiceAccountUID: "account-uid",
				NodeName: "r1.n1", NodeUID: "node-uid", MaxExpirationSeconds: ptr.To[int32](7200), StubPKCS10Request: request.Spec.StubPKCS10Request,
				UnverifiedUserAnnotations: map[string]string{"example.com/path": "/a"},
			}, request.Spec))
			require.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-1", UID: "pod-uid"}}, request.OwnerReferences)
			require.Equal(t, time.Second, s.reconciled(t))
			s.later(20 * time.Second)
			require.Equal(t, 5*time.Second, s.reconciled(t), "it is read more rarely")
			require.Equal(t, []int{1, 2}, []int{s.made, s.read})

			chain := s.sign(t, "req-1", 2*time.Hour)
			s.reconciled(t)
			s.holds(t, chain)
			s.read = 0
			s.reconciled(t)
			s.restart()
			after := s.reconciled(t)
			require.Equal(t, []int{1, 0}, []int{s.made, s.read}, "nothing is asked for again")
			require.GreaterOrEqual(t, after, time.Hour-time.Second, "it is renewed when the signer says")
			require.LessOrEqual(t, after, 65*time.Minute)

			s.later(after - time.Second)
			s.reconciled(t)
			require.Equal(t, 1, s.made)
			s.later(time.Second)
			s.reconciled(t)
			require.Equal(t, 2, s.made)
			s.holds(t, chain)
			renewed := s.sign(t, "req-2", 2*time.Hour)
			require.NotEqual(t, chain, renewed)
			s.reconciled(t)
			s.holds(t, renewed)
			require.Empty(t, s.Told())
		})
	}
}

// TestCertificatesAfterAKill: a request whose key is lost is left to kube-controller-manager, and another one made; a
// Secret that is lost is filled anew.
func TestCertificatesAfterAKill(t *testing.T) {
	t.Parallel()
	s := newSigned(t, all("ED25519"))
	s.reconciled(t)
	s.sign(t, "req-1", time.Hour)
	s.restart()
	s.reconciled(t)
	require.Equal(t, 2, s.made)
	s.reconciled(t)
	require.Empty(t, s.data(t), "of another key")
	chain := s.sign(t, "req-2", time.Hour)
	s.reconciled(t)
	s.holds(t, chain)

	known := s.SuperCache[kind.Token][0].DeepCopyObject().(*corev1.Secret)
	delete(known.Data, "certificate-0-0-key")
	s.SuperCache[kind.Token][0] = known
	require.Equal(t, 10*time.Minute, s.reconciled(t))
	require.Equal(t, 2, s.made)
	s.later(10 * time.Minute)
	s.SuperCache[kind.Token][0] = known
	s.reconciled(t)
	require.Equal(t, 3, s.made)
	s.reconciled(t)
	for _, records := range []string{"{", "null", `{"certificate-0-0-bundle":{"of":"other","refresh":"2999-01-01T00:00:00Z"}}`} {
		s.restart()
		known = s.SuperCache[kind.Token][0].DeepCopyObject().(*corev1.Secret)
		known.Annotations["tenancy.x-k8s.io/issued-certificates"] = records
		s.SuperCache[kind.Token][0] = known
		before := s.made
		s.reconciled(t)
		require.Equal(t, before+1, s.made, records)
	}
}

// TestCertificatesThatAreRefused: a pod waits, and one that runs keeps what it has; the tenant is told once, and the signer
// asked again after an hour.
func TestCertificatesThatAreRefused(t *testing.T) {
	t.Parallel()
	issued := []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue}}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ours := func(s *signed, request *certificatesv1.PodCertificateRequest, lifetime time.Duration) string {
		stub, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
		require.NoError(t, err)
		return s.certificate(t, stub.PublicKey, lifetime)
	}
	for _, tc := range []struct {
		name  string
		chain func(s *signed, request *certificatesv1.PodCertificateRequest) string
		// conditions are issued unless set.
		conditions []metav1.Condition
		want       string
	}{
		{
			name: "denied", conditions: []metav1.Condition{{Type: "Denied", Status: metav1.ConditionTrue, Reason: "UnsupportedKeyType", Message: "use RSA3072" + strings.Repeat("x", 1<<20)}},
			want: "Denied: UnsupportedKeyType: use RSA3072xxx",
		},
		{name: "failed", conditions: []metav1.Condition{{Type: "Failed", Status: metav1.ConditionTrue, Reason: "Broken", Message: "no disk"}}, want: "Failed: Broken: no disk"},
		{name: "no chain", want: "the chain is not of certificates in PEM alone"},
		{name: "no certificates", chain: func(*signed, *certificatesv1.PodCertificateRequest) string { return strings.Repeat("x", 1000) }, want: "not of certificates in PEM alone"},
		{
			name: "megabytes",
			chain: func(s *signed, request *certificatesv1.PodCertificateRequest) string {
				return strings.Repeat(ours(s, request, time.Hour), 10_000)
			},
			want: "the chain is too long: it may have 64 kB",
		},
		{
			name: "the key comes back",
			chain: func(*signed, *certificatesv1.PodCertificateRequest) string {
				return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))
			},
			want: "not of certificates in PEM alone",
		},
		{
			name: "a block of another type",
			chain: func(s *signed, request *certificatesv1.PodCertificateRequest) string {
				return ours(s, request, time.Hour) + strings.ReplaceAll(ours(s, request, time.Hour), "CERTIFICATE", "X509 CRL")
			},
			want: "not of certificates in PEM alone",
		},
		{
			name: "of another key", chain: func(s *signed, _ *certificatesv1.PodCertificateRequest) string {
				return s.certificate(t, other.Public(), time.Hour)
			},
			want: "the certificate was issued to another key than that of the request",
		},
		{
			name: "it has ended", chain: func(s *signed, request *certificatesv1.PodCertificateRequest) string {
				return ours(s, request, -time.Hour)
			},
			want: "the certificate ends within 10m0s",
		},
		{
			name: "in the wrong order", chain: func(s *signed, request *certificatesv1.PodCertificateRequest) string {
				return s.certificate(t, other.Public(), time.Hour) + ours(s, request, time.Hour)
			},
			want: "another key",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSigned(t, all("ECDSAP256"))
			refuse := func(name string) {
				request := s.requested(t, name)
				status := certificatesv1.PodCertificateRequestStatus{Conditions: issued, BeginRefreshAt: ptr.To(metav1.NewTime(s.clock.Now().Add(time.Minute)))}
				if tc.conditions != nil {
					status.Conditions = tc.conditions
				}
				if tc.chain != nil {
					status.CertificateChain = tc.chain(s, request)
				}
				s.answer(t, request, status)
			}
			s.reconciled(t)
			refuse("req-1")
			require.Equal(t, time.Hour, s.reconciled(t))
			require.Empty(t, s.data(t))
			told := s.Told()
			require.Len(t, told, 1)
			require.Contains(t, told[0], "Warning FailedPodCertificate The pod's certificates: PodCertificateRequest req-1 of signer "+signerName+": ")
			require.Contains(t, told[0], tc.want)
			require.Less(t, len(told[0]), 350)
			s.restart()
			require.Equal(t, time.Hour, s.reconciled(t))
			require.Equal(t, 1, s.made, "also after a restart")
			require.Empty(t, s.Told(), "once")

			s.later(time.Hour)
			s.reconciled(t)
			require.Equal(t, 2, s.made)
			chain := s.sign(t, "req-2", 2*time.Hour)
			s.reconciled(t)
			s.holds(t, chain)
			s.later(66 * time.Minute)
			s.reconciled(t)
			refuse("req-3")
			s.Told()
			require.Equal(t, time.Hour, s.reconciled(t))
			s.holds(t, chain)
			require.Contains(t, s.Told()[0], tc.want)
			s.later(time.Hour)
			s.reconciled(t)
			s.reconciled(t)
			s.holds(t, chain)
			require.Equal(t, []string{"Warning FailedPodCertificate The pod's certificates: the certificate of signer " + signerName + " has ended, and there is no other yet"}, s.Told()[:1])
		})
	}
}

// TestCertificatesThatCannotBeAskedFor: a pod waits for what its control plane does not serve or refuses, with the same key.
func TestCertificatesThatCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	of := schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}
	invalid := func(name string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "PodCertificateRequest"}, name, field.ErrorList{field.Invalid(field.NewPath("spec"), 1, "no")})
	}
	const served = "the control plane serves no PodCertificateRequests of certificates.k8s.io/v1, as Kubernetes does from 1.37 on"
	for _, tc := range []struct {
		name   string
		change func(s *signed)
		refuse []error
		read   bool
		want   string
	}{
		{name: "not served", refuse: []error{apierrors.NewNotFound(of, "")}, want: served},
		{
			name: "no right", refuse: []error{apierrors.NewForbidden(of, "", errors.New("no right"))},
			want: "the control plane refuses a PodCertificateRequest: does the kubeconfig of the VirtualCluster have the right? podcertificaterequests.certificates.k8s.io is forbidden: no right",
		},
		{
			name: "no right to read", read: true, refuse: []error{apierrors.NewForbidden(of, "req-1", errors.New("no right"))},
			want: "the control plane refuses a PodCertificateRequest: does the kubeconfig of the VirtualCluster have the right? podcertificaterequests.certificates.k8s.io \"\" is forbidden: no right",
		},
		{name: "invalid, by other names", refuse: []error{invalid("req-a"), invalid("req-b")}, want: `the control plane refuses a PodCertificateRequest: PodCertificateRequest "" is invalid: spec: Invalid value: 1: no`},
		{
			name: "it fails", refuse: []error{apierrors.NewInternalError(errors.New("x"))},
			want: "the control plane fails with a PodCertificateRequest: look at the log of the tenant's API server, and at its webhooks",
		},
		{name: "it does not answer", refuse: []error{apierrors.NewServiceUnavailable("x"), errors.New("connection refused")}},
		{name: "deleted", read: true, refuse: []error{apierrors.NewNotFound(of, "req-1")}, want: "PodCertificateRequest req-1 was deleted: another one is made 15m0s after it"},
		{name: "no account", change: func(s *signed) { s.TenantCache[kind.ServiceAccount] = nil }, want: "there is no service account default"},
		{name: "no node", change: func(s *signed) { s.TenantCache[kind.Node] = nil }, want: "there is no Node r1.n1"},
		{name: "no name", change: func(s *signed) { s.name = strings.Repeat("x", 1<<20) }, want: "the control plane makes PodCertificateRequests without names of their own"},
		{
			name: "no such key", change: func(s *signed) { s.pod.Spec.Volumes[0].Projected.Sources[0].PodCertificate.KeyType = "DSA" },
			want: "that of signer " + signerName + ": no such key type is known",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSigned(t, all("ED25519"))
			cached := []client.Object{s.TenantCache[kind.ServiceAccount][0], s.TenantCache[kind.Node][0]}
			s.pod.Spec.Volumes[0].Projected.Sources = append(s.pod.Spec.Volumes[0].Projected.Sources, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}})
			if tc.change != nil {
				tc.change(s)
			}
			if tc.read {
				s.reconciled(t)
			}
			for i := range 3 {
				if len(tc.refuse) > 0 {
					err := tc.refuse[min(i, len(tc.refuse)-1)]
					if s.refuse = err; tc.read {
						s.refuse, s.refuseRead = nil, err
					}
				}
				after := s.reconciled(t)
				require.LessOrEqual(t, after, time.Minute)
				require.GreaterOrEqual(t, after, time.Second)
				s.later(after)
			}
			data := s.data(t)
			require.NotEmpty(t, data["token-0-1"], "tokens do not wait")
			require.Len(t, data, 1)
			if tc.want == "" {
				require.Empty(t, s.Told())
			} else {
				require.Equal(t, []string{"Warning FailedPodCertificate The pod's certificates: " + tc.want}, s.Told())
			}
			if tc.name == "no such key" {
				return
			}
			s.refuse, s.refuseRead, s.name = nil, nil, ""
			s.TenantCache[kind.ServiceAccount], s.TenantCache[kind.Node] = cached[:1], cached[1:]
			s.reconciled(t)
			chain := s.sign(t, fmt.Sprint("req-", s.made), time.Hour)
			s.reconciled(t)
			s.holds(t, chain)
		})
	}
}

// TestASignerThatDoesNotAnswer: the tenant is told after a minute, and the request is made again when kube-controller-manager
// has deleted it.
func TestASignerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newSigned(t, all("ED25519"))
	s.reconciled(t)
	s.later(59 * time.Second)
	s.reconciled(t)
	require.Empty(t, s.Told())
	s.later(time.Second)
	require.Equal(t, 15*time.Second, s.reconciled(t))
	require.Equal(t, []string{"Warning FailedPodCertificate The pod's certificates: PodCertificateRequest req-1 is not answered: is there a signer " + signerName + "?"}, s.Told())
	s.later(13 * time.Minute)
	require.Equal(t, time.Minute, s.reconciled(t))
	require.Equal(t, 1, s.made)
	s.later(time.Minute)
	s.reconciled(t)
	require.Equal(t, 2, s.made)
	chain := s.sign(t, "req-2", time.Hour)
	s.reconciled(t)
	s.holds(t, chain)
	s.reconciled(t)
	require.Empty(t, s.Told())
}

// TestCertificatesAreBounded: a hostile tenant has neither much of our memory and time, nor of the super cluster's store.
func TestCertificatesAreBounded(t *testing.T) {
	t.Parallel()
	t.Run("that are many", func(t *testing.T) {
		t.Parallel()
		s := newSigned(t, slices.Repeat([]corev1.PodCertificateProjection{all("ED25519")}, 17)...)
		require.Zero(t, s.reconciled(t))
		require.Zero(t, s.made)
		require.Equal(t, []string{"Warning FailedPodCertificate The pod's certificates: it projects 17, and may project 16"}, s.Told())
	})
	t.Run("that are large", func(t *testing.T) {
		t.Parallel()
		s := newSigned(t, slices.Repeat([]corev1.PodCertificateProjection{{SignerName: signerName, KeyType: "ECDSAP256", CertificateChainPath: "chain.pem"}}, 16)...)
		s.reconciled(t)
		require.Equal(t, 16, s.made)
		for j := range 16 {
			request := s.requested(t, fmt.Sprint("req-", j+1))
			stub, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
			require.NoError(t, err)
			s.answer(t, request, certificatesv1.PodCertificateRequestStatus{
				CertificateChain: strings.Repeat(s.certificate(t, stub.PublicKey, time.Hour), 100), Conditions: []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue}},
			})
		}
		s.reconciled(t)
		size := 0
		for _, content := range s.data(t) {
			size += len(content)
		}
		require.LessOrEqual(t, size, 192<<10)
		require.Greater(t, size, 150<<10)
		require.Contains(t, s.Told()[0], "the pod's certificates are too large: they may have files of 192 kB")
	})
	t.Run("that are renewed at once", func(t *testing.T) {
		t.Parallel()
		s := newSigned(t, all("ECDSAP256"))
		s.reconciled(t)
		s.sign(t, "req-1", 11*time.Minute) // to be renewed after half of it
		s.reconciled(t)
		s.reconciled(t)
		s.later(10*time.Minute - time.Second)
		s.reconciled(t)
		require.Equal(t, 1, s.made)
		s.later(time.Second)
		s.reconciled(t)
		require.Equal(t, 2, s.made)
	})
	t.Run("of volumes that change", func(t *testing.T) {
		t.Parallel()
		s := newSigned(t, all("ECDSAP256"))
		s.reconciled(t)
		chain := s.sign(t, "req-1", time.Hour)
		s.reconciled(t)
		s.reconciled(t)
		s.pod.Spec.Volumes[0].Projected.Sources[0].PodCertificate.KeyType = "ECDSAP521"
		require.Equal(t, 10*time.Minute, s.reconciled(t))
		require.Equal(t, 1, s.made)
		s.holds(t, chain)
		s.later(10 * time.Minute)
		s.name = "req-1" // it is the name of all
		s.reconciled(t)
		s.reconciled(t)
		require.Equal(t, 3, s.made)
		require.Contains(t, s.Told()[0], "without names of their own")
		s.later(time.Minute)
		require.Equal(t, 15*time.Second, s.reconciled(t), "more rarely")
	})
	t.Run("that a limit has no room for", func(t *testing.T) {
		t.Parallel()
		s := newSigned(t, all("ECDSAP256"))
		s.pod.Spec.Volumes[0].Projected.Sources = append(s.pod.Spec.Volumes[0].Projected.Sources, corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](1000)},
		})
		s.Tenant.Policy = &policy.Ref{}
		s.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "tokens", Count: 10, Bytes: resource.MustParse("2k")}}
		}))
		s.reconciled(t)
		s.sign(t, "req-1", time.Hour)
		before := s.data(t)
		s.later(14 * time.Minute)
		s.reconciled(t)
		require.Len(t, s.data(t), 1)
		require.NotEqual(t, before, s.data(t), "tokens are renewed")
		require.Equal(t, 1, s.made)
		require.Contains(t, strings.Join(s.Told(), "\n"), "TenantLimit")
		s.Tenant.Policy.Set(kindtest.PolicyWith(t, nil))
		chain := s.sign(t, "req-1", time.Hour)
		s.reconciled(t)
		s.holds(t, chain)
		s.reconciled(t)
		s.later(36 * time.Minute) // it is to be renewed after half of its life
		s.reconciled(t)
		require.Equal(t, 2, s.made)
		s.sign(t, "req-2", time.Hour)
		renewed := s.requested(t, "req-2")
		renewed.Status.CertificateChain += strings.Repeat(s.certificate(t, s.authority.Public(), time.Hour), 10)
		s.answer(t, renewed, renewed.Status)
		s.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "tokens", Count: 10, Bytes: resource.MustParse("5k")}}
		}))
		records := func() string {
			return s.SuperCache[kind.Token][0].GetAnnotations()["tenancy.x-k8s.io/issued-certificates"]
		}
		before, record := s.data(t), records()
		s.later(14 * time.Minute) // a token is due
		s.reconciled(t)
		require.NotEqual(t, before["token-0-1"], s.data(t)["token-0-1"])
		s.holds(t, chain)
		require.Equal(t, record, records())
	})
	t.Run("whose record a limit has no room for", func(t *testing.T) {
		t.Parallel()
		s := newSigned(t, all("ECDSAP256"))
		s.pod.Spec.Volumes[0].Projected.Sources = append(s.pod.Spec.Volumes[0].Projected.Sources, corev1.VolumeProjection{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](1000)},
		})
		s.reconciled(t)
		before := s.data(t)
		s.Tenant.Policy = &policy.Ref{}
		s.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "tokens", Count: 10, Bytes: resource.MustParse("100")}}
		}))
		s.answer(t, s.requested(t, "req-1"), certificatesv1.PodCertificateRequestStatus{
			Conditions: []metav1.Condition{{Type: "Denied", Status: metav1.ConditionTrue, Message: strings.Repeat("x", 200)}},
		})
		s.later(14 * time.Minute)
		s.reconciled(t)
		require.NotEqual(t, before, s.data(t), "tokens are renewed")
	})
	t.Run("that wait for their signers", func(t *testing.T) {
		t.Parallel()
		s := newSigned(t, slices.Repeat([]corev1.PodCertificateProjection{all("ED25519")}, 16)...)
		pods := func(from, to int) {
			for i := from; i < to; i++ {
				pod, superPod := s.pod.DeepCopy(), &corev1.Pod{}
				pod.Name, pod.UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("uid-", i))
				podspec.SuperPod(pod, superPod, kindtest.OwnerOf(pod.UID), nil, &podspec.PodEnvironment{})
				s.TenantCache[kind.Pod], s.SuperCache[kind.Pod] = []client.Object{pod}, []client.Object{superPod}
				_, err := s.Kind(kind.Token).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Token, Namespace: "web", Name: pod.Name + "/" + string(pod.UID)}, 0)
				require.NoError(t, err)
			}
		}
		pods(0, 40)
		require.Equal(t, 512, s.made)
		require.Contains(t, s.Told()[0], "The pod's certificates: they wait for others: 512 PodCertificateRequests of the control plane are not answered")
		s.TenantCache[kind.Pod], s.SuperCache[kind.Pod] = nil, nil // a pod that is gone leaves its room to others
		_, err := s.Kind(kind.Token).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Token, Namespace: "web", Name: "p0/uid-0"}, 0)
		require.NoError(t, err)
		pods(40, 41)
		require.Equal(t, 528, s.made)
		s.later(15 * time.Minute)
		pods(41, 45)
		require.Equal(t, 592, s.made)
	})
}

// TestKeysThatTakeLong: RSA keys are computed aside from the workers, one after the other, and few of a tenant stand in
// line; nothing is computed for a pod that is gone.
func TestKeysThatTakeLong(t *testing.T) {
	t.Parallel()
	s := newSigned(t, all("RSA3072"), all("RSA3072"), all("RSA4096"))
	tokens := s.Kind(kind.Token)
	reconcile := func() time.Duration {
		after, err := s.reconcileBy(t, tokens)
		require.NoError(t, err)
		return after
	}
	require.Equal(t, 5*time.Second, reconcile(), "the third waits until there is room")
	reconcile()
	require.Zero(t, s.made, "no worker computes")
	runs(t, tokens)
	for range 3 {
		require.Equal(t, s.key, <-s.resynced)
		reconcile()
	}
	require.Equal(t, 3, s.made)
	chain := s.sign(t, "req-1", time.Hour)
	reconcile()
	s.holds(t, chain)
}

// TestKeysOfConnectionsThatEnded: a tenant whose connection comes and goes has no more computed than another.
func TestKeysOfConnectionsThatEnded(t *testing.T) {
	t.Parallel()
	s := newSigned(t, all("RSA3072"))
	tokens := s.Kind(kind.Token)
	for range 3 {
		s.restart()
		_, err := s.reconcileBy(t, tokens)
		require.NoError(t, err)
	}
	runs(t, tokens)
	require.Equal(t, s.key, <-s.resynced)
	_, err := s.reconcileBy(t, tokens)
	require.NoError(t, err)
	require.Equal(t, 1, s.made, "the first one that is computed is of the connection")
}

func TestKeysOfPodsThatAreGone(t *testing.T) {
	t.Parallel()
	s := newSigned(t, all("RSA4096"))
	tokens := s.Kind(kind.Token)
	pod := s.pod
	gone := s.key
	for _, uid := range []types.UID{"pod-uid", "other-uid"} {
		s.pod = pod.DeepCopy()
		s.pod.UID, s.key.Name = uid, pod.Name+"/"+string(uid)
		superPod := &corev1.Pod{}
		podspec.SuperPod(s.pod, superPod, kindtest.OwnerOf(uid), nil, &podspec.PodEnvironment{})
		s.TenantCache[kind.Pod], s.SuperCache[kind.Pod] = []client.Object{s.pod}, []client.Object{superPod}
		_, err := s.reconcileBy(t, tokens)
		require.NoError(t, err)
	}
	_, err := tokens.Reconcile(t.Context(), gone, 0) // the cache shows another pod of its name
	require.NoError(t, err)
	runs(t, tokens)
	require.Equal(t, s.key, <-s.resynced)
	require.Empty(t, s.resynced)
}

// runs lets a kind run until the test ends.
func runs(t *testing.T, of engine.Kind) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { of.(engine.Runner).Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
