package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/cmd/vn-agent/app"
	"github.com/superpool/superpool/internal/vnagent"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*app.Options)
		want   string
	}{
		{name: "kubelet", change: func(*app.Options) {}},
		{name: "API server", change: func(o *app.Options) {
			o.Mode, o.NodeName, o.KubeletHost, o.Kubelet.CAFile = app.ModeAPIServer, "", "", ""
		}},
		{name: "address without a host", change: func(o *app.Options) { o.Kubelet.Address = ":10255" }},
		{name: "no client CA", change: func(o *app.Options) { o.Certificates.ClientCAFile = "" }, want: "set --client-ca-file: without it any client could say that it is any tenant"},
		{name: "no client CA, API server", change: func(o *app.Options) { o.Mode, o.Certificates.ClientCAFile = app.ModeAPIServer, "" }, want: "--client-ca-file"},
		{name: "no serving certificate", change: func(o *app.Options) { o.Certificates.CertFile = "" }, want: "--tls-cert-file"},
		{name: "no key", change: func(o *app.Options) { o.Certificates.KeyFile = "" }, want: "--tls-private-key-file"},
		{name: "mode", change: func(o *app.Options) { o.Mode = "both" }, want: "--mode"},
		{name: "no node", change: func(o *app.Options) { o.NodeName = "" }, want: "--node-name"},
		{name: "no kubelet CA", change: func(o *app.Options) { o.Kubelet.CAFile = "" }, want: "--kubelet-certificate-authority"},
		{name: "no host", change: func(o *app.Options) { o.KubeletHost = "" }, want: "--kubelet-address"},
		{name: "address", change: func(o *app.Options) { o.Kubelet.Address = "10.0.0.1" }, want: "--kubelet-address"},
		{name: "half a pair", change: func(o *app.Options) { o.Kubelet.CertFile = "x" }, want: "--kubelet-client-key"},
		{name: "port", change: func(o *app.Options) { o.SecurePort = 0 }, want: "--secure-port"},
		{name: "super cluster", change: func(o *app.Options) { o.SuperCluster = "a.b" }, want: "--super-cluster"},
		{name: "streams", change: func(o *app.Options) { o.MaxStreams = 0 }, want: "--max-streams-per-tenant"},
		{name: "grace", change: func(o *app.Options) { o.ShutdownGrace = -1 }, want: "--shutdown-grace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			options := app.NewOptions(func(key string) string { return map[string]string{"NODE_NAME": "node-1", "NODE_IP": "10.0.0.1"}[key] })
			options.Certificates = vnagent.Certificates{CertFile: "c", KeyFile: "k", ClientCAFile: "ca"}
			options.Kubelet.CAFile = "kubelet-ca"
			tc.change(options)
			err := options.Validate()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	command := app.NewCommand()
	require.Contains(t, command.Example, "--client-ca-file")
	require.NotNil(t, command.Flags().Lookup("v"))
	command.SetArgs([]string{"--mode=apiserver"})
	require.ErrorContains(t, command.ExecuteContext(t.Context()), "set --client-ca-file")
	command.SetArgs([]string{"word"})
	require.Error(t, command.ExecuteContext(t.Context()))
}
