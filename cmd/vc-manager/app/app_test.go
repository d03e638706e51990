package app_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/superpool/superpool/cmd/vc-manager/app"
)

func init() {
	// A process sets up its logs once, before anything logs; tests run several commands side by side.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	utilruntime.Must(logsapi.ValidateAndApply(logsapi.NewLoggingConfiguration(), nil))
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"certificates of four minutes":      {args: []string{"--certificate-validity=4m"}, want: "--certificate-validity 4m0s: use 5m0s or more"},
		"what may be reached is no range":   {args: []string{"--reachable-cidrs=10.0.0.0"}, want: `--reachable-cidrs: netip.ParsePrefix("10.0.0.0"): no '/'`},
		"what is closed is no range":        {args: []string{"--closed-cidrs=10.0.0.0/8,all"}, want: "--closed-cidrs: "},
		"an unknown format of logs":         {args: []string{"--logging-format=xml"}, want: "Unsupported log format"},
		"arguments":                         {args: []string{"acme"}, want: "unknown command"},
		"a kubeconfig that is missing":      {args: []string{"--kubeconfig=/does/not/exist"}, want: "--kubeconfig: reading the kubeconfig: open /does/not/exist"},
		"no kubeconfig, and it is no pod's": {want: "--kubeconfig is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := app.NewCommand()
			command.SetArgs(tc.args)
			require.ErrorContains(t, command.ExecuteContext(t.Context()), tc.want)
		})
	}
}

func TestCommandHelps(t *testing.T) {
	t.Parallel()
	command, out := app.NewCommand(), &bytes.Buffer{}
	command.SetOut(out)
	command.SetArgs([]string{"--help"})
	require.NoError(t, command.ExecuteContext(t.Context()))
	for _, want := range []string{"acme-kubeconfig", "--certificate-validity duration", "--leader-elect-namespace", "-v, --v"} {
		require.Contains(t, out.String(), want)
	}
}
