package kubeconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/superpool/superpool/internal/kubeconfig"
)

func write(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	cluster, user := &clientcmdapi.Cluster{Server: "https://example.com:6443"}, &clientcmdapi.AuthInfo{Token: "s3cret"}
	if change != nil {
		change(cluster, user)
	}
	config.Clusters["c"], config.AuthInfos["u"] = cluster, user
	config.Contexts["x"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	data, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return data
}

func TestParse(t *testing.T) {
	t.Parallel()
	config, err := kubeconfig.Parse(write(t, nil))
	require.NoError(t, err)
	require.Equal(t, "https://example.com:6443", config.Host)
	require.Equal(t, "s3cret", config.BearerToken)

	for _, tc := range []struct {
		name      string
		data      []byte
		wantError string
	}{
		{name: "nothing", wantError: "empty"},
		{name: "no YAML", data: []byte("{{{"), wantError: "reading the kubeconfig"},
		{name: "another document", data: []byte("a: b"), wantError: "kubeconfig"},
		{name: "no server", data: write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "" }), wantError: "server"},
		{name: "no URL", data: write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "file:///etc/passwd" }), wantError: "http or https"},
		{name: "authority in a file", data: write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = "/etc/ca" }), wantError: "certificate-authority-data"},
		{name: "bad authority", data: write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = []byte("x") }), wantError: "certificates"},
		{name: "program", data: write(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "client.authentication.k8s.io/v1"}
		}), wantError: "runs a program"},
		{name: "auth-provider", data: write(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}), wantError: "auth-provider"},
		{name: "certificate in a file", data: write(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = "/c" }), wantError: "client-certificate-data"},
		{name: "key in a file", data: write(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = "/k" }), wantError: "client-key-data"},
		{name: "token in a file", data: write(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = "/t" }), wantError: "use token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := kubeconfig.Parse(tc.data)
			require.ErrorContains(t, err, tc.wantError)
			require.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: 'https://a'}\nusers:\n- name: u\n  user: {tokenFile: /t}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := kubeconfig.Parse(data)
		if err != nil {
			return
		}
		require.Nil(t, config.ExecProvider)
		require.Nil(t, config.AuthProvider)
		require.Empty(t, config.BearerTokenFile+config.CAFile+config.CertFile+config.KeyFile)
	})
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	again := kubeconfig.Fingerprint([]byte("a"), []byte("b"))
	require.Equal(t, again, kubeconfig.Fingerprint([]byte("a"), []byte("b")))
	require.NotEqual(t, kubeconfig.Fingerprint([]byte("ab"), nil), kubeconfig.Fingerprint([]byte("a"), []byte("b")))
}
