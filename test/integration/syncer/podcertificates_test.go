package syncer_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
)

// podSigner is the signer of a tenant: an authority.
type podSigner struct {
	*world
	key crypto.Signer
}

const (
	podSignerName      = "example.com/spiffe"
	issuedCertificates = "tenancy.x-k8s.io/issued-certificates"
)

// newPodWithCertificate returns a pod of namespace web that projects a certificate in all forms.
func newPodWithCertificate(name, keyType string) *corev1.Pod {
	pod := newPod("web", name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{PodCertificate: &corev1.PodCertificateProjection{
			SignerName: podSignerName, KeyType: keyType, CredentialBundlePath: "all.pem", KeyPath: "key.pem", CertificateChainPath: "chain.pem",
			MaxExpirationSeconds: ptr.To[int32](7200), UserAnnotations: map[string]string{"example.com/path": "/a"},
		}},
	}}}}}
	return pod
}

// request waits for the PodCertificateRequest of a pod that is not answered.
func (s *podSigner) request(t *testing.T, pod *corev1.Pod) *certificatesv1.PodCertificateRequest {
	t.Helper()
	found := &certificatesv1.PodCertificateRequest{}
	eventually(t, func() error {
		var list certificatesv1.PodCertificateRequestList
		if err := s.tenant.List(t.Context(), &list, client.InNamespace(pod.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Spec.PodUID == pod.UID && len(list.Items[i].Status.Conditions) == 0 {
				*found = list.Items[i]
				return nil
			}
		}
		return fmt.Errorf("no request of pod %s waits, among %d", pod.Name, len(list.Items))
	})
	return found
}

// issue answers the next request of a pod, and returns it and the chain.
func (s *podSigner) issue(t *testing.T, pod *corev1.Pod) (*certificatesv1.PodCertificateRequest, []byte) {
	t.Helper()
	request := s.request(t, pod)
	stub, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	require.NoError(t, err)
	begins := time.Now().Truncate(time.Second)
	var chain bytes.Buffer
	for _, public := range []crypto.PublicKey{stub.PublicKey, s.key.Public()} {
		template := &x509.Certificate{SerialNumber: big.NewInt(begins.UnixNano()), NotBefore: begins, NotAfter: begins.Add(2 * time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, s.key)
		require.NoError(t, err)
		require.NoError(t, pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	at := func(after time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(begins.Add(after))) }
	request.Status = certificatesv1.PodCertificateRequestStatus{
		CertificateChain: chain.String(), NotBefore: at(0), BeginRefreshAt: at(time.Hour), NotAfter: at(2 * time.Hour),
		Conditions: []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "Signed", LastTransitionTime: *at(0)}},
	}
	require.NoError(t, s.tenant.Status().Update(t.Context(), request))
	return request, chain.Bytes()
}

// holds waits until a pod has the certificate of a chain.
func (s *podSigner) holds(t *testing.T, pod *corev1.Pod, chain []byte) *corev1.Secret {
	t.Helper()
	secret := appears(t, s.super, s.superName("web"), tenancy.TokenSecret(pod.Name, pod.UID), &corev1.Secret{}, func(secret *corev1.Secret) bool {
		return bytes.Equal(secret.Data["certificate-0-0-chain"], chain)
	})
	key := secret.Data["certificate-0-0-key"]
	require.Equal(t, string(key)+string(chain), string(secret.Data["certificate-0-0-bundle"]))
	_, err := tls.X509KeyPair(chain, key)
	require.NoError(t, err)
	return secret
}

// makeDue lets the next request of a pod be due.
func (s *podSigner) makeDue(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.superName("web"), Name: tenancy.TokenSecret(pod.Name, pod.UID)}}
	await.Change(t, s.super, secret, func(secret *corev1.Secret) {
		var records map[string]map[string]any
		require.NoError(t, json.Unmarshal([]byte(secret.Annotations[issuedCertificates]), &records))
		for _, record := range records {
			record["refresh"] = "2001-01-01T00:00:00Z"
		}
		text, err := json.Marshal(records)
		require.NoError(t, err)
		secret.Annotations[issuedCertificates] = string(text)
	})
}

// TestPodCertificates: pods have certificates that the signers of their tenant issue, with the rights that are shipped, and
// an API server that validates the requests and what is issued.
func TestPodCertificates(t *testing.T) {
	w := newWorld(t, needs{})
	w.place(t, "web", "r1")
	_, stop := w.runSyncer(t, w.superConfig)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signer := &podSigner{world: w, key: key}
	var pods []*corev1.Pod
	for name, keyType := range map[string]string{"ed25519": "ED25519", "ecdsa": "ECDSAP384", "rsa": "RSA3072"} {
		pod := newPodWithCertificate(name, keyType)
		create(t, w.tenant, pod)
		superPod := w.run(t, name, "n0")
		require.Equal(t, &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: tenancy.TokenSecret(pod.Name, pod.UID)},
			Items: []corev1.KeyToPath{
				{Key: "certificate-0-0-bundle", Path: "all.pem"}, {Key: "certificate-0-0-key", Path: "key.pem"}, {Key: "certificate-0-0-chain", Path: "chain.pem"},
			},
		}, superPod.Spec.Volumes[0].Projected.Sources[0].Secret)
		request, chain := signer.issue(t, pod)
		node := appears(t, w.tenant, "", "r1.n0", &corev1.Node{}, nil)
		account := appears(t, w.tenant, "web", "default", &corev1.ServiceAccount{}, nil)
		require.Empty(t, cmp.Diff(certificatesv1.PodCertificateRequestSpec{
			SignerName: podSignerName, PodName: name, PodUID: pod.UID, ServiceAccountName: "default", ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID, MaxExpirationSeconds: ptr.To[int32](7200),
			StubPKCS10Request: request.Spec.StubPKCS10Request, UnverifiedUserAnnotations: map[string]string{"example.com/path": "/a"},
		}, request.Spec))
		signer.holds(t, pod, chain)
		pods = append(pods, pod)
	}

	// One that is due is renewed, and one whose renewal is denied stays.
	pod := pods[0]
	signer.makeDue(t, pod)
	_, chain := signer.issue(t, pod)
	signer.holds(t, pod, chain)
	signer.makeDue(t, pod)
	denied := signer.request(t, pod)
	denied.Status.Conditions = []metav1.Condition{{
		Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: "Gone", Message: "no such identity", LastTransitionTime: metav1.Now(),
	}}
	require.NoError(t, w.tenant.Status().Update(t.Context(), denied))
	w.warned(t, "web", pod.Name, "FailedPodCertificate")
	before := signer.holds(t, pod, chain)
	appears(t, w.super, before.Namespace, before.Name, before, func(secret *corev1.Secret) bool {
		return strings.Contains(secret.Annotations[issuedCertificates], denied.Name)
	})
	w.notWarned(t, "FailedPodCertificate", pods[1].Name, pods[2].Name)

	// A restarted syncer asks for nothing that is there, nor at once for what was denied.
	requests := func() (count int) {
		var list certificatesv1.PodCertificateRequestList
		require.NoError(t, w.tenant.List(t.Context(), &list))
		return len(list.Items)
	}
	count := requests()
	stop()
	numbers, _ := w.runSyncer(t, w.superConfig)
	patrols(t, numbers)
	require.Equal(t, count, requests())
	require.Empty(t, cmp.Diff(before, signer.holds(t, pod, chain)))
	signer.makeDue(t, pod)
	_, chain = signer.issue(t, pod)
	signer.holds(t, pod, chain)
}
