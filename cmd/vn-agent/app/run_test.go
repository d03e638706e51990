package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/builders"
)

func environment(values map[string]string) func(string) string {
	return func(key string) string { return values[key] }
}

func TestKubeletAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host, address string
		want, wantErr       string
	}{
		{name: "the host alone", host: "10.0.0.1", want: "10.0.0.1:10250"},
		{name: "IPv6", host: "fd00::1", want: "[fd00::1]:10250"},
		{name: "the address alone", address: "10.0.0.1:10255", want: "10.0.0.1:10255"},
		{name: "the address wins", host: "10.0.0.1", address: "node-1:10255", want: "node-1:10255"},
		{name: "a port alone", host: "10.0.0.1", address: ":10255", want: "10.0.0.1:10255"},
		{name: "a port of no host", address: ":10255", wantErr: "set --kubelet-address, --kubelet-host or NODE_IP in mode kubelet"},
		{name: "nothing", wantErr: "set --kubelet-address, --kubelet-host or NODE_IP in mode kubelet"},
		{name: "no port", host: "10.0.0.1", address: "node-1", wantErr: "--kubelet-address: address node-1: missing port in address"},
		{name: "bare IPv6", address: "fd00::1:10250", wantErr: "--kubelet-address: address fd00::1:10250: too many colons in address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			options := NewOptions(environment(nil))
			options.KubeletHost, options.Kubelet.Address = tc.host, tc.address
			got, err := options.kubeletAddress()
			if tc.wantErr != "" {
				require.EqualError(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

// TestFlags: the environment fills in what no flag sets.
func TestFlags(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) *Options {
		options := NewOptions(environment(map[string]string{"NODE_IP": "10.0.0.1"}))
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		options.AddFlags(flags)
		require.NoError(t, flags.Parse(args))
		return options
	}
	options := parse()
	require.Equal(t, []any{ModeKubelet, "10.0.0.1", 10550, 30 * time.Second, "127.0.0.1:10551", true},
		[]any{options.Mode, options.KubeletHost, options.SecurePort, options.ShutdownGrace, options.MetricsBindAddress, options.MetricsSecure})
	options = parse("--mode=apiserver", "--metrics-secure=false", "--kubelet-host=h", "--secure-port=1", "--shutdown-grace=1s", "--max-streams-per-tenant=7", "--super-cluster=r1",
		"--client-ca-file=ca", "--tls-cert-file=c", "--tls-private-key-file=k", "--kubelet-certificate-authority=kca", "--kubelet-token-file=t")
	require.Equal(t, []any{ModeAPIServer, false, "h", 1, time.Second, 7, "r1", "ca", "c", "k", "kca", "t"}, []any{
		options.Mode, options.MetricsSecure, options.KubeletHost, options.SecurePort, options.ShutdownGrace, options.MaxStreams, options.SuperCluster,
		options.Certificates.ClientCAFile, options.Certificates.CertFile, options.Certificates.KeyFile, options.Kubelet.CAFile, options.Kubelet.TokenFile,
	})
}

// TestMetricsAreProtected: who reads metrics is asked for in both modes, unless a flag turns it off.
func TestMetricsAreProtected(t *testing.T) {
	t.Parallel()
	options := NewOptions(environment(nil))
	served := metricsOptions(options)
	require.True(t, served.SecureServing)
	require.NotNil(t, served.FilterProvider)
	options.MetricsSecure = false
	served = metricsOptions(options)
	require.False(t, served.SecureServing)
	require.Nil(t, served.FilterProvider)
}

// TestValidateNamesAllFaults: an operator mends them in one go.
func TestValidateNamesAllFaults(t *testing.T) {
	t.Parallel()
	options := NewOptions(environment(nil))
	options.SecurePort, options.MaxStreams, options.SuperCluster = 65536, -1, "R1"
	err := options.Validate()
	for _, want := range []string{
		"--client-ca-file", "--tls-cert-file", "--tls-private-key-file", "--secure-port 65536", "--super-cluster: ", "--max-streams-per-tenant -1",
		"--kubelet-certificate-authority", "--kubelet-address",
	} {
		require.ErrorContains(t, err, want)
	}
}

// TestRunRefuses: files that cannot be used end the program before a port is open.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, builders.Kubeconfig("https://127.0.0.1:1", "token"), 0o600))
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{name: "no kubeconfig", change: func(o *Options) { o.Kubeconfig = filepath.Join(dir, "none") }, want: "none"},
		{name: "no client CA", change: func(o *Options) { o.Certificates.ClientCAFile = filepath.Join(dir, "none.crt") }, want: "none.crt"},
		{name: "a client CA that is no certificate", change: func(*Options) {}, want: "reading the certificate authority of clients: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			options := NewOptions(environment(nil))
			options.Mode, options.Kubeconfig = ModeAPIServer, kubeconfig
			options.Certificates.ClientCAFile, options.Certificates.CertFile, options.Certificates.KeyFile = kubeconfig, kubeconfig, kubeconfig
			tc.change(options)
			require.ErrorContains(t, Run(t.Context(), options), tc.want)
		})
	}
}
