package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/superpool/superpool/test/controlplane/launch"
)

// run runs the command.
func run(t *testing.T, arguments ...string) error {
	t.Helper()
	command := newCommand()
	command.SetArgs(arguments)
	command.SetOut(t.Output())
	return command.ExecuteContext(t.Context())
}

// leaf returns the certificate in FILE.crt, whose key is in FILE.key.
func leaf(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	require.NoError(t, err)
	return pair.Leaf
}

// TestCertificates makes what the bed makes, as the bed does.
func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority, file := filepath.Join(dir, "pki", "serving-ca"), filepath.Join(dir, "pki", "vc-sample-1", "kubelet-client")
	require.NoError(t, run(t, "authority", authority, "--name", "serving-ca"))
	require.True(t, leaf(t, authority).IsCA)
	require.Equal(t, "serving-ca", leaf(t, authority).Subject.CommonName)

	require.NoError(t, run(t, "certificate", file, "--authority", authority, "--user", "nobody"))
	require.Equal(t, "nobody", leaf(t, file).Subject.CommonName)
	require.NoError(t, run(t, "certificate", file, "--authority", authority, "--user", "key", "--group", "superpool:tenants"))
	require.Equal(t, "CN=key,O=superpool:tenants", leaf(t, file).Subject.String(), "it is replaced")
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, leaf(t, file).ExtKeyUsage)

	require.NoError(t, run(t, "certificate", file, "--authority", authority, "--user", "vn-agent", "--ip", "10.213.0.11", "--dns", "a.svc,b.svc"))
	for _, host := range []string{"10.213.0.11", "a.svc", "b.svc"} {
		require.NoError(t, leaf(t, file).VerifyHostname(host))
	}
	require.Contains(t, leaf(t, file).ExtKeyUsage, x509.ExtKeyUsageServerAuth)

	kubeconfig := filepath.Join(dir, "kube-proxy.kubeconfig")
	require.NoError(t, run(t, "kubeconfig", kubeconfig, "--authority", authority, "--server", "https://10.213.0.1:21005", "--user", "system:kube-proxy"))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	require.Equal(t, "https://10.213.0.1:21005", config.Host)
}

func TestStart(t *testing.T) {
	t.Parallel()
	folder, bin := t.TempDir(), t.TempDir()
	// It ends at once, and start says so: what starts has no test that ends it.
	require.NoError(t, os.WriteFile(filepath.Join(bin, "kube-scheduler"), []byte("#!/bin/sh\n"), 0o700))
	ports, release, err := launch.ReservePorts() // nobody else answers there
	require.NoError(t, err)
	defer release()
	first := fmt.Sprint(ports.Scheduler - 4)
	require.ErrorContains(t, run(t, "start", "kube-scheduler", "--name", "r1", "--folder", folder, "--bin", bin, "--first-port", first, "--address", "10.213.0.1"), "it ended")
	require.FileExists(t, filepath.Join(folder, "pids", "kube-scheduler-r1"))
	require.Equal(t, "kube-apiserver-kubelet-client", leaf(t, filepath.Join(folder, "pki", "r1", "kubelet-client")).Subject.CommonName)
	log, err := os.ReadFile(filepath.Join(folder, "logs", "kube-scheduler-r1.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), fmt.Sprint("--secure-port=", ports.Scheduler))
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(folder, "r1.kubeconfig"))
	require.NoError(t, err)
	require.Equal(t, "https://10.213.0.1:"+first, config.Host)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ arguments, want string }{
		"an authority without a name":       {arguments: "authority ca", want: `"name" not set`},
		"an authority without a file":       {arguments: "authority --name ca", want: "accepts 1 arg"},
		"a certificate that nobody signs":   {arguments: "certificate file --user u", want: `"authority" not set`},
		"an authority that is not there":    {arguments: "certificate file --user u --authority /nowhere/ca", want: "reading an authority"},
		"an address that is none":           {arguments: "certificate file --user u --authority ca --ip node", want: "invalid string being converted to IP address"},
		"a kubeconfig without a server":     {arguments: "kubeconfig file --user u --authority ca", want: `"server" not set`},
		"no program":                        {arguments: "start --name r1 --folder f --first-port 1", want: "requires at least 1 arg"},
		"a control plane without a folder":  {arguments: "start etcd --name r1 --first-port 1", want: `"folder" not set`},
		"a control plane without its ports": {arguments: "start etcd --name r1 --folder f", want: `"first-port" not set`},
		"a command that is none":            {arguments: "stop", want: "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, run(t, strings.Fields(tc.arguments)...), tc.want)
		})
	}
}
