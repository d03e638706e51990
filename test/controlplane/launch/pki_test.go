package launch

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"github.com/superpool/superpool/internal/pki"
)

func (c *ControlPlane) in(t *testing.T) *ControlPlane {
	t.Helper()
	c.Folder = t.TempDir()
	return c
}

func read(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	certificates, err := certutil.CertsFromFile(file)
	require.NoError(t, err)
	return certificates[0]
}

// signedBy reports whether an authority signed a certificate of a client.
func signedBy(t *testing.T, certificate *x509.Certificate, authority string) bool {
	t.Helper()
	pool, err := certutil.NewPool(authority + ".crt")
	require.NoError(t, err)
	_, err = certificate.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

func TestEnsurePKI(t *testing.T) {
	t.Parallel()
	shared, err := newAuthority(filepath.Join(t.TempDir(), "vn-agent-client-ca"), "vn-agent-client-ca")
	require.NoError(t, err)
	pair, err := shared.Pair()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "shared")
	require.NoError(t, pair.Write(file))
	for name, tc := range map[string]struct {
		kubeletClientCA string
		user            string
		groups          []string
	}{
		"a super cluster's API server is an administrator for its kubelets": {
			user: "kube-apiserver-kubelet-client", groups: []string{"system:masters"},
		},
		"a tenant's API server is nobody for vn-agents": {kubeletClientCA: file, user: "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sample().in(t)
			c.KubeletClientCA = tc.kubeletClientCA
			require.NoError(t, c.ensurePKI())
			client := read(t, c.pki("kubelet-client.crt"))
			require.Equal(t, tc.user, client.Subject.CommonName)
			require.Empty(t, cmp.Diff(tc.groups, client.Subject.Organization))
			require.Equal(t, tc.kubeletClientCA == "", signedBy(t, client, c.pki("ca")))
			if tc.kubeletClientCA != "" {
				require.True(t, signedBy(t, client, tc.kubeletClientCA))
			}

			server := read(t, c.pki("apiserver.crt"))
			for _, host := range []string{"10.213.0.1", "127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"} {
				require.NoError(t, server.VerifyHostname(host))
			}
			require.True(t, signedBy(t, read(t, c.pki("front-proxy-client.crt")), c.pki("front-proxy-ca")))
			require.False(t, signedBy(t, read(t, c.pki("front-proxy-client.crt")), c.pki("ca")), "an aggregated API server's user is no user of this one")
			require.FileExists(t, c.pki("service-accounts.key"))
			require.Equal(t, []string{"system:masters"}, read(t, c.pki("admin.crt")).Subject.Organization)

			config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigFile())
			require.NoError(t, err)
			require.Equal(t, "https://10.213.0.1:21005", config.Host)
			require.Empty(t, config.CertFile, "the kubeconfig can be given away")
		})
	}
}

func TestEnsurePKIKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	c := sample().in(t)
	require.NoError(t, c.ensurePKI())
	// A tenant is named after the first start.
	authority, err := pki.LoadAuthority(c.pki("ca"))
	require.NoError(t, err)
	pair, err := authority.Issue(pki.Certificate{User: "the cluster key"})
	require.NoError(t, err)
	require.NoError(t, pair.Write(c.pki("kubelet-client")))
	before, err := os.ReadFile(c.pki("ca.key"))
	require.NoError(t, err)

	require.NoError(t, c.ensurePKI())
	after, err := os.ReadFile(c.pki("ca.key"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.Equal(t, "the cluster key", read(t, c.pki("kubelet-client.crt")).Subject.CommonName)

	// One that was interrupted has no kubeconfig.
	require.NoError(t, os.Remove(c.KubeconfigFile()))
	require.NoError(t, c.ensurePKI())
	require.True(t, signedBy(t, read(t, c.pki("admin.crt")), c.pki("ca")))
}

func TestEnsurePKIRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*ControlPlane)
		want   string
	}{
		"a range that is none":           {change: func(c *ControlPlane) { c.ServiceCIDR = "10.96.0.0" }, want: "reading the range of Services"},
		"an empty range":                 {change: func(c *ControlPlane) { c.ServiceCIDR = "" }, want: "reading the range of Services"},
		"a range without a second one":   {change: func(c *ControlPlane) { c.ServiceCIDR = "10.96.0.0/32" }, want: "choosing the address"},
		"a name in an address' place":    {change: func(c *ControlPlane) { c.Address = "localhost" }, want: `"localhost" is no IP address`},
		"an authority that is not there": {change: func(c *ControlPlane) { c.KubeletClientCA = "/nowhere/ca" }, want: "reading an authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sample().in(t)
			tc.change(c)
			require.ErrorContains(t, c.ensurePKI(), tc.want)
			require.NoFileExists(t, c.KubeconfigFile(), "the next start tries again")
		})
	}
}
