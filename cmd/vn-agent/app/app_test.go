package app_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	logsapi "k8s.io/component-base/logs/api/v1"

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
			o.Mode, o.KubeletHost, o.Kubelet.CAFile = app.ModeAPIServer, "", ""
		}},
		{name: "address without a host", change: func(o *app.Options) { o.Kubelet.Address = ":10255" }},
		{name: "no client CA", change: func(o *app.Options) { o.Certificates.ClientCAFile = "" }, want: "set --client-ca-file: without it any client could say that it is any tenant"},
		{name: "no client CA, API server", change: func(o *app.Options) { o.Mode, o.Certificates.ClientCAFile = app.ModeAPIServer, "" }, want: "--client-ca-file"},
		{name: "no serving certificate", change: func(o *app.Options) { o.Certificates.CertFile = "" }, want: "--tls-cert-file"},
		{name: "no key", change: func(o *app.Options) { o.Certificates.KeyFile = "" }, want: "--tls-private-key-file"},
		{name: "mode", change: func(o *app.Options) { o.Mode = "both" }, want: "--mode"},
		{name: "no kubelet CA", change: func(o *app.Options) { o.Kubelet.CAFile = "" }, want: "--kubelet-certificate-authority"},
		{name: "no host", change: func(o *app.Options) { o.KubeletHost = "" }, want: "--kubelet-address"},
		{name: "address", change: func(o *app.Options) { o.Kubelet.Address = "10.0.0.1" }, want: "--kubelet-address"},
		{name: "half a pair", change: func(o *app.Options) { o.Kubelet.CertFile = "x" }, want: "--kubelet-client-key"},
		{name: "port", change: func(o *app.Options) { o.SecurePort = 0 }, want: "--secure-port"},
		{name: "super cluster", change: func(o *app.Options) { o.SuperCluster = "a.b" }, want: "--super-cluster"},
		{name: "streams", change: func(o *app.Options) { o.MaxStreams = 0 }, want: "--max-streams-per-tenant"},
		{name: "streams of all", change: func(o *app.Options) { o.MaxAllStreams = 0 }, want: "--max-streams 0"},
		{name: "grace", change: func(o *app.Options) { o.ShutdownGrace = -1 }, want: "--shutdown-grace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			options := app.NewOptions(func(key string) string { return map[string]string{"NODE_IP": "10.0.0.1"}[key] })
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

func init() {
	// A process sets up its logs once, before anything logs; tests run several commands side by side.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	utilruntime.Must(logsapi.ValidateAndApply(logsapi.NewLoggingConfiguration(), nil))
}

// TestCommand: what the command refuses. What it takes, it goes on with, to a file that is missing here.
func TestCommand(t *testing.T) {
	t.Parallel()
	const complete = "--mode=apiserver --kubeconfig=/does/not/exist --client-ca-file=c --tls-cert-file=c --tls-private-key-file=k"
	for _, tc := range []struct{ name, args, want string }{
		{name: "complete", args: complete, want: "reading --kubeconfig: stat /does/not/exist"},
		{name: "a verbosity that is none", args: complete + " -v=much", want: `invalid argument "much" for "-v, --v" flag`},
		{name: "incomplete", args: "--mode=apiserver", want: "set --client-ca-file"},
		{name: "arguments", args: complete + " word", want: "unknown command \"word\""},
		{name: "an unknown flag", args: complete + " --no-such=1", want: "unknown flag: --no-such"},
		{name: "metrics for those whom nobody knows", args: "--kubeconfig=/none --kubelet-host=h --kubelet-certificate-authority=k --client-ca-file=c --tls-cert-file=c --tls-private-key-file=k", want: "--metrics-secure asks the super cluster who may read: reading --kubeconfig"},
		{name: "an unknown format of logs", args: complete + " --logging-format=xml", want: "Unsupported log format"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			command := app.NewCommand()
			command.SetArgs(strings.Fields(tc.args))
			require.ErrorContains(t, command.ExecuteContext(t.Context()), tc.want)
		})
	}
}

// TestExamples: each example of the help has all flags that it needs.
func TestExamples(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(app.NewCommand().Example, "\\\n", " ")
	var run []string
	for line := range strings.Lines(text) {
		args := strings.Fields(line)
		if len(args) == 0 || args[0] != "vn-agent" {
			continue
		}
		run = append(run, line)
		command := app.NewCommand()
		command.SetArgs(args[1:])
		require.ErrorContains(t, command.ExecuteContext(t.Context()), "no such file or directory", "it gets as far as to its files: %s", line)
	}
	require.Len(t, run, 2)
}
