package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"github.com/superpool/superpool/internal/pki"
)

func newAuthority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority(name)
	require.NoError(t, err)
	return authority
}

// roots returns a pool of the authority alone.
func roots(t *testing.T, authority *pki.Authority) *x509.CertPool {
	t.Helper()
	pair, err := authority.Pair()
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pair.Certificate))
	return pool
}

// parse returns the certificate of a pair whose key is its own.
func parse(t *testing.T, pair *pki.Pair) *x509.Certificate {
	t.Helper()
	parsed, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	require.NoError(t, err)
	require.Len(t, parsed.Certificate, 1)
	return parsed.Leaf
}

func TestIssue(t *testing.T) {
	t.Parallel()
	client, both := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for name, tc := range map[string]struct {
		wanted pki.Certificate
		usages []x509.ExtKeyUsage
		hosts  []string // that it is valid for
		server bool
	}{
		"a user": {wanted: pki.Certificate{User: "kubernetes-admin"}, usages: client},
		"a user of groups": {
			wanted: pki.Certificate{User: "system:node:node-1", Groups: []string{"others", "system:nodes"}}, usages: client,
		},
		"a server at an address": {
			wanted: pki.Certificate{User: "vn-agent", IPs: []net.IP{net.IPv4(10, 213, 0, 11)}}, usages: both, hosts: []string{"10.213.0.11"}, server: true,
		},
		"a server of a name": {
			wanted: pki.Certificate{User: "metrics-server", DNSNames: []string{"metrics-server.kube-system.svc"}}, usages: both,
			hosts: []string{"metrics-server.kube-system.svc"}, server: true,
		},
		"a server of both, at an IPv6 address": {
			wanted: pki.Certificate{User: "kube-apiserver", IPs: []net.IP{net.IPv6loopback}, DNSNames: []string{"localhost"}}, usages: both,
			hosts: []string{"localhost", "::1"}, server: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			authority, before := newAuthority(t, "ca"), time.Now()
			pair, err := authority.Issue(tc.wanted)
			require.NoError(t, err)
			issued := parse(t, pair)
			require.Equal(t, tc.wanted.User, issued.Subject.CommonName)
			require.Empty(t, cmp.Diff(tc.wanted.Groups, issued.Subject.Organization))
			require.Empty(t, cmp.Diff(tc.usages, issued.ExtKeyUsage))
			require.Equal(t, x509.KeyUsageDigitalSignature, issued.KeyUsage)
			require.False(t, issued.IsCA)
			require.True(t, issued.BasicConstraintsValid)
			require.WithinDuration(t, before.AddDate(0, 0, 365), issued.NotAfter, time.Minute)
			require.False(t, issued.NotBefore.After(before), "it is valid at once")
			require.Positive(t, issued.SerialNumber.Sign())

			for _, host := range tc.hosts {
				require.NoError(t, issued.VerifyHostname(host))
			}
			require.Error(t, issued.VerifyHostname("example.com"))
			verify := func(authority *pki.Authority, usage x509.ExtKeyUsage) error {
				_, err := issued.Verify(x509.VerifyOptions{Roots: roots(t, authority), KeyUsages: []x509.ExtKeyUsage{usage}})
				return err
			}
			require.NoError(t, verify(authority, x509.ExtKeyUsageClientAuth))
			require.Equal(t, tc.server, verify(authority, x509.ExtKeyUsageServerAuth) == nil)
			require.Error(t, verify(newAuthority(t, "ca"), x509.ExtKeyUsageClientAuth), "an authority of the same name is another")
		})
	}
}

func TestSerialNumbersDiffer(t *testing.T) {
	t.Parallel()
	authority, seen := newAuthority(t, "ca"), map[string]bool{}
	for range 20 {
		pair, err := authority.Issue(pki.Certificate{User: "user"})
		require.NoError(t, err)
		seen[parse(t, pair).SerialNumber.String()] = true
	}
	require.Len(t, seen, 20)
}

// TestLoadAuthority lets a control plane that starts again issue with the authority that it had.
func TestLoadAuthority(t *testing.T) {
	t.Parallel()
	authority, file := newAuthority(t, "r1"), filepath.Join(t.TempDir(), "pki", "r1", "ca")
	pair, err := authority.Pair()
	require.NoError(t, err)
	require.NoError(t, pair.Write(file))
	for _, extension := range []string{".crt", ".key"} {
		info, err := os.Stat(file + extension)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}

	loaded, err := pki.LoadAuthority(file)
	require.NoError(t, err)
	require.Equal(t, "r1", loaded.Name())
	issued, err := loaded.Issue(pki.Certificate{User: "user"})
	require.NoError(t, err)
	_, err = parse(t, issued).Verify(x509.VerifyOptions{Roots: roots(t, authority), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	own := parse(t, pair)
	require.True(t, own.IsCA)
	require.NotZero(t, own.KeyUsage&x509.KeyUsageCertSign)
}

func TestLoadAuthorityRefuses(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t, "ca")
	own, err := authority.Pair()
	require.NoError(t, err)
	user, err := authority.Issue(pki.Certificate{User: "user"})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"what is not there":               {want: "reading an authority"},
		"an authority without its key":    {files: map[string][]byte{"ca.crt": own.Certificate}, want: "reading the key of an authority"},
		"a file that is no certificate":   {files: map[string][]byte{"ca.crt": []byte("none"), "ca.key": own.Key}, want: "reading an authority"},
		"a user's certificate":            {files: map[string][]byte{"ca.crt": user.Certificate, "ca.key": user.Key}, want: "is not an authority"},
		"a public key in the key's place": {files: map[string][]byte{"ca.crt": own.Certificate, "ca.key": own.Certificate}, want: "it cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range tc.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
			}
			_, err := pki.LoadAuthority(filepath.Join(dir, "ca"))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// TestWriteReplaces gives a tenant's API server the certificate that names it, in the place of the one that it started
// with.
func TestWriteReplaces(t *testing.T) {
	t.Parallel()
	authority, dir := newAuthority(t, "vn-agent-client-ca"), t.TempDir()
	file := filepath.Join(dir, "kubelet-client")
	for _, wanted := range []pki.Certificate{{User: "nobody"}, {User: "default-8f51c3-vc-sample-1", Groups: []string{"superpool:tenants"}}} {
		pair, err := authority.Issue(wanted)
		require.NoError(t, err)
		require.NoError(t, pair.Write(file))
		_, err = tls.LoadX509KeyPair(file+".crt", file+".key")
		require.NoError(t, err)
		certificates, err := certutil.CertsFromFile(file + ".crt")
		require.NoError(t, err)
		require.Equal(t, wanted.User, certificates[0].Subject.CommonName)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing is left of the writing")
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t, "r1")
	content, err := authority.Kubeconfig("https://10.213.0.1:21000", pki.Certificate{User: "system:kube-proxy", Groups: []string{"g"}})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	require.NoError(t, err)
	require.Equal(t, "https://10.213.0.1:21000", config.Host)
	own, err := authority.Pair()
	require.NoError(t, err)
	require.Equal(t, string(own.Certificate), string(config.CAData))
	user := parse(t, &pki.Pair{Certificate: config.CertData, Key: config.KeyData})
	require.Equal(t, "system:kube-proxy", user.Subject.CommonName)
	require.Equal(t, []string{"g"}, user.Subject.Organization)

	raw, err := clientcmd.Load(content)
	require.NoError(t, err)
	require.Equal(t, "r1", raw.CurrentContext)
	require.Contains(t, raw.AuthInfos, "system:kube-proxy")
}
