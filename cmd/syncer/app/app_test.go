package app_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/superpool/superpool/cmd/syncer/app"
)

func init() {
	// A process sets up its logs once, before anything logs; tests run several commands side by side.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	utilruntime.Must(logsapi.ValidateAndApply(logsapi.NewLoggingConfiguration(), nil))
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	const gate = "--feature-gates=SuperClusterPooling=true"
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{name: "a meta cluster without a pool", args: []string{"--meta-kubeconfig=f"}, want: "set --feature-gates=SuperClusterPooling=true"},
		{name: "no clusters", args: []string{gate}, want: "set --meta-kubeconfig, --super-cluster-kubeconfig or both"},
		{name: "a Lease of parts of a second", args: []string{gate, "--meta-kubeconfig=f", "--leader-elect-lease-duration=3900ms"}, want: "--leader-elect-lease-duration 3.9s: use whole seconds"},
		{name: "a leader that outlives its Lease", args: []string{gate, "--meta-kubeconfig=f", "--leader-elect-renew-deadline=4s"}, want: "--leader-elect-lease-duration 4s, --leader-elect-renew-deadline 4s"},
		{name: "a deadline of one look", args: []string{gate, "--meta-kubeconfig=f", "--leader-elect-retry-period=3s"}, want: "more than 1.2 times the period"},
		{name: "no shards", args: []string{gate, "--meta-kubeconfig=f", "--shard=1"}, want: "use i/N"},
		{name: "shards without an election", args: []string{gate, "--meta-kubeconfig=f", "--shard=1/2", "--leader-elect=false"}, want: "--shard: more than one needs --leader-elect"},
		{name: "shards without a pool", args: []string{"--super-cluster-kubeconfig=f", "--shard=1/2"}, want: "--shard 1/2: without the feature SuperClusterPooling the leader does all, use 0/1"},
		{name: "one worker", args: []string{gate, "--meta-kubeconfig=f", "--concurrent-syncs=1"}, want: "--concurrent-syncs 1: use 2 or more"},
		{name: "an unknown level", args: []string{gate, "--meta-kubeconfig=f", "--pod-security-level=high"}, want: `--pod-security-level "high"`},
		{name: "a port that is none", args: []string{gate, "--meta-kubeconfig=f", "--vn-agent-port=70000"}, want: "--vn-agent-port 70000: use 1 to 65535"},
		{name: "an address with a port", args: []string{gate, "--meta-kubeconfig=f", "--vn-agent-address=10.0.0.1:10550"}, want: `--vn-agent-address "10.0.0.1:10550": use an IP address`},
		{name: "an unknown gate", args: []string{"--feature-gates=No=true"}, want: "unrecognized feature gate: No"},
		{name: "an unknown format of logs", args: []string{gate, "--meta-kubeconfig=f", "--logging-format=xml"}, want: "Unsupported log format"},
		{name: "arguments", args: []string{"r1"}, want: "unknown command"},
		{name: "a kubeconfig that is missing", args: []string{gate, "--meta-kubeconfig=/does/not/exist"}, want: "--meta-kubeconfig: reading the kubeconfig: open /does/not/exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			command, err := app.NewCommand()
			require.NoError(t, err)
			command.SetArgs(tc.args)
			require.ErrorContains(t, command.ExecuteContext(t.Context()), tc.want)
		})
	}
}

func TestCommandHelps(t *testing.T) {
	t.Parallel()
	command, err := app.NewCommand()
	require.NoError(t, err)
	out := &bytes.Buffer{}
	command.SetOut(out)
	command.SetArgs([]string{"--help"})
	require.NoError(t, command.ExecuteContext(t.Context()))
	for _, want := range []string{"--super-cluster-kubeconfig r1.kubeconfig", "SuperClusterPooling=true|false (ALPHA - default=false)", "--leader-elect-namespace", "-v, --v"} {
		require.Contains(t, out.String(), want)
	}
}
