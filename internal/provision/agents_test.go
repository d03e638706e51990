package provision

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
)

const pool = "vc-manager"

// knownBy returns what vn-agents and tenants know each other by, and the authority of tenants.
func knownBy(t *testing.T) (*pki.Authority, *corev1.Secret, *corev1.ConfigMap) {
	t.Helper()
	clients, err := pki.NewAuthority(controlplane.VNAgentCA)
	require.NoError(t, err)
	pair, err := clients.Pair()
	require.NoError(t, err)
	serving, err := pki.NewAuthority(servingCAName)
	require.NoError(t, err)
	authority, err := serving.Pair()
	require.NoError(t, err)
	return clients, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pool, Name: controlplane.VNAgentCA}, Data: dataOf(pair)},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pool, Name: servingCAName}, Data: map[string]string{"ca.crt": string(authority.Certificate)}}
}

// leaf returns the certificate in a Secret.
func leaf(t *testing.T, secret *corev1.Secret) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	return pair.Leaf
}

// requireIdentity demands that a certificate is what vn-agents know the tenant by.
func requireIdentity(t *testing.T, by *pki.Authority, certificate *x509.Certificate) {
	t.Helper()
	roots := x509.NewCertPool()
	pair, err := by.Pair()
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(pair.Certificate))
	_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: certificate.NotBefore.Add(time.Minute), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	require.Equal(t, "CN="+root+",O=superpool:tenants", certificate.Subject.String())
}

// valid returns condition CertificatesValid as status: message, "" for none.
func (b *bed) valid() string {
	b.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	condition := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionCertificatesValid)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + ": " + condition.Message
}

// TestIdentityOfAnImportedTenant: what its API server shows to vn-agents lies beside its VirtualCluster, and is renewed.
func TestIdentityOfAnImportedTenant(t *testing.T) {
	t.Parallel()
	clients, authority, serving := knownBy(t)
	b := newBed(t, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "" })
	b.reconciler.AgentsNamespace = pool
	require.Equal(t, patrolPeriod, b.reconcile().RequeueAfter)
	require.Zero(t, b.writes, "the pool has no vn-agents yet")

	require.NoError(t, b.reconciler.Client.Create(t.Context(), authority))
	b.reconcile()
	require.Equal(t, "False: ConfigMap vc-manager/vn-agent-serving-ca is missing, which holds the authority of vn-agents beside Secret vn-agent-client-ca", b.valid())
	require.NoError(t, b.reconciler.Client.Create(t.Context(), serving))
	b.reconcile()
	first := b.secret("default", "acme-vn-agent")
	requireIdentity(t, clients, leaf(t, first))
	require.Equal(t, serving.Data["ca.crt"], string(first.Data["ca.crt"]))
	require.Equal(t, "acme", first.OwnerReferences[0].Name, "it ends with the VirtualCluster")
	require.Equal(t, "True: ", b.valid())
	missing, _ := b.conditions()
	require.Empty(t, missing)
	writes := b.writes
	b.reconcile()
	require.Equal(t, writes, b.writes)

	b.clock.SetTime(b.clock.Now().Add(20*24*time.Hour + time.Minute)) // two thirds of its life
	b.reconcile()
	second := b.secret("default", "acme-vn-agent")
	requireIdentity(t, clients, leaf(t, second))
	require.NotEqual(t, leaf(t, first).SerialNumber, leaf(t, second).SerialNumber)

	authority.Data[corev1.TLSPrivateKeyKey] = []byte("a typo")
	require.NoError(t, b.reconciler.Client.Update(t.Context(), authority))
	b.reconcile()
	require.Equal(t, time.Minute, b.reconcile().RequeueAfter, "nobody tells when it is mended")
	require.Contains(t, b.valid(), "False: Secret vc-manager/vn-agent-client-ca holds no authority: ")
	require.Equal(t, second.Data, b.secret("default", "acme-vn-agent").Data)
}

// TestIdentityIsNobodysElse: a Secret of that name that is not vc-manager's stays.
func TestIdentityIsNobodysElse(t *testing.T) {
	t.Parallel()
	_, authority, serving := knownBy(t)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "acme-vn-agent"}, Data: map[string][]byte{"mine": nil}}
	b := newBed(t, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "" }, authority, serving, theirs)
	b.reconciler.AgentsNamespace = pool
	b.reconcile()
	require.Contains(t, b.valid(), "False: Secret default/acme-vn-agent is not vc-manager's")
	require.Contains(t, b.secret("default", "acme-vn-agent").Data, "mine")
}

// TestIdentityOfAControlPlane: its API server shows itself to vn-agents, and goes on to where their authority is gone.
func TestIdentityOfAControlPlane(t *testing.T) {
	t.Parallel()
	clients, authority, serving := knownBy(t)
	b := newBed(t, nil)
	b.reconciler.AgentsNamespace = pool
	kubeletCA := func() string {
		servers := workload(controlplane.APIServer).(*appsv1.Deployment)
		require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(servers), servers))
		for _, flag := range servers.Spec.Template.Spec.Containers[0].Command {
			if flag == "--kubelet-certificate-authority=/etc/kubernetes/pki/kubelet-ca.crt" || flag == "--kubelet-certificate-authority=/etc/kubernetes/pki/ca.crt" {
				return flag[len("--kubelet-certificate-authority=/etc/kubernetes/pki/"):]
			}
		}
		return ""
	}
	b.whole()
	require.Equal(t, "kube-apiserver-kubelet-client", leaf(t, b.secret(root, "kubelet-client")).Subject.CommonName)
	require.Equal(t, "ca.crt", kubeletCA())

	require.NoError(t, b.reconciler.Client.Create(t.Context(), authority))
	require.NoError(t, b.reconciler.Client.Create(t.Context(), serving))
	b.reconcile()
	known := b.secret(root, "kubelet-client")
	requireIdentity(t, clients, leaf(t, known))
	require.Equal(t, serving.Data["ca.crt"], string(known.Data["ca.crt"]))
	require.Equal(t, "kubelet-ca.crt", kubeletCA())

	require.NoError(t, b.reconciler.Client.Delete(t.Context(), authority))
	b.reconcile()
	require.Equal(t, known.Data, b.secret(root, "kubelet-client").Data)
	require.Equal(t, "False: What vn-agents know tenants by is gone (Secret vn-agent-client-ca): restore it, or delete Secret "+root+"/kubelet-client", b.valid())
	require.Equal(t, "kubelet-ca.crt", kubeletCA())
}
