package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
)

func init() {
	// A process sets up its logs once, before anything logs; tests run several commands side by side.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	utilruntime.Must(logsapi.ValidateAndApply(logsapi.NewLoggingConfiguration(), nil))
}

// TestCommandRefuses gives the program what it must name before it works: nothing here reaches the meta cluster.
func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	meta := "--kubeconfig=" + write("meta.kubeconfig", string(builders.Kubeconfig("https://127.0.0.1:1", "token")))
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{name: "arguments", args: []string{"r1"}, want: "unknown command"},
		{name: "a command of kubectl vc", args: []string{"simulate"}, want: `unknown command "simulate" for "vc-scheduler"`},
		{name: "an unknown gate", args: []string{"--feature-gates=No=true"}, want: "unrecognized feature gate: No"},
		{name: "an unknown format of logs", args: []string{"--logging-format=xml"}, want: "Unsupported log format"},
		{name: "a kubeconfig that is missing", args: []string{"--kubeconfig=/does/not/exist"}, want: "reading --kubeconfig: "},
		{name: "a kubeconfig that is none", args: []string{"--kubeconfig=" + write("text", "{{{")}, want: "reading --kubeconfig: "},
		{name: "a slice that is no JSON", args: []string{meta, "--default-slice=2 cores"}, want: "--default-slice: "},
		{name: "a slice of nothing", args: []string{meta, `--default-slice={"cpu":"0"}`}, want: "--default-slice: "},
		{name: "a negative slice", args: []string{meta, `--default-slice={"cpu":"-1"}`}, want: "--default-slice: "},
		{name: "a negative grace", args: []string{meta, "--preemption-grace-period=-1s"}, want: "--preemption-grace-period: "},
		{name: "a selector of nothing", args: []string{meta, "--cluster-selector=pool in"}, want: "--cluster-selector: "},
		{name: "a negative toleration", args: []string{meta, "--lost-toleration=-1s"}, want: "--lost-toleration: "},
		{name: "no shards", args: []string{meta, "--shard=0/0"}, want: "use i/N"},
		{name: "shards without an election", args: []string{meta, "--shard=1/2", "--leader-elect=false"}, want: "--shard: more than one needs --leader-elect"},
		{name: "no profiles of namespaces", args: []string{meta, "--namespace-scheduler-config=/does/not/exist"}, want: "--namespace-scheduler-config: reading the scheduler configuration: "},
		{name: "unknown fields of profiles", args: []string{meta, "--namespace-scheduler-config=" + write("fields.yaml", head+"parallelisme: 3\n")}, want: "unknown field"},
		{
			name: "profiles of namespaces that cannot place any", args: []string{meta, "--namespace-scheduler-config=" + write("pods.yaml", head)},
			want: "--namespace-scheduler-config: ",
		},
		{
			name: "a profile of namespaces that ignores choices", args: []string{meta, "--namespace-scheduler-config=" + write("unheeding.yaml", strings.ReplaceAll(string(profiles.NamespaceScheduler), "      - name: NodeAffinity\n        weight: 200000000\n", ""))},
			want: `--namespace-scheduler-config: profile "namespace-scheduler" must enable plugin NodeAffinity at preFilter, filter, preScore, score, by which scheduling.nodeSelector`,
		},
		{name: "no profiles of pods", args: []string{meta, "--pod-scheduler-config=/does/not/exist"}, want: "--pod-scheduler-config: reading the scheduler configuration: "},
	} {
		t.Run(tc.name, func(t *testing.T) { // one by one: a process runs the program once
			command := NewCommand()
			command.SetArgs(append(tc.args, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false"))
			require.ErrorContains(t, command.ExecuteContext(t.Context()), tc.want)
		})
	}
}

func TestCommandHelps(t *testing.T) {
	t.Parallel()
	command, out := NewCommand(), &bytes.Buffer{}
	command.SetOut(out)
	command.SetArgs([]string{"--help"})
	require.NoError(t, command.ExecuteContext(t.Context()))
	for _, want := range []string{"--namespace-scheduler-config namespaces.yaml", "--leader-elect-namespace", "--feature-gates", "-v, --v"} {
		require.Contains(t, out.String(), want)
	}
}

// TestFlags: each field of Options has the flag that its name promises, and keeps its default without it.
func TestFlags(t *testing.T) {
	t.Parallel()
	options := NewOptions()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	options.AddFlags(flags)
	require.NoError(t, flags.Parse(nil))
	require.Equal(t, []any{true, "vc-manager", ":8443", ":8081", "0"},
		[]any{options.Election.Elect, options.Election.Namespace, options.MetricsBindAddress, options.HealthProbeBindAddress, options.PprofBindAddress})
	read, err := options.read()
	require.NoError(t, err)
	require.Equal(t, "cpu=2,memory=4Gi,pods=20", read.defaultSlice.String())
	require.Equal(t, 5*time.Minute, read.lostToleration)
	require.True(t, read.namespaceProfiles.Has("namespace-scheduler"))
	require.Equal(t, "default-scheduler", read.podConfig.Profiles[0].SchedulerName)

	require.NoError(t, flags.Parse([]string{
		"--kubeconfig=k", "--namespace-scheduler-config=n", "--pod-scheduler-config=p", `--default-slice={"cpu":"1"}`, "--lost-toleration=90s", "--leader-elect=false",
		"--leader-elect-namespace=l", "--metrics-bind-address=m", "--health-probe-bind-address=h", "--pprof-bind-address=f",
	}))
	require.Equal(t, []any{"k", "n", "p", false, "l", "m", "h", "f"}, []any{
		options.Kubeconfig, options.NamespaceSchedulerConfig, options.PodSchedulerConfig, options.Election.Elect,
		options.Election.Namespace, options.MetricsBindAddress, options.HealthProbeBindAddress, options.PprofBindAddress,
	})
	options.NamespaceSchedulerConfig, options.PodSchedulerConfig = "", ""
	read, err = options.read()
	require.NoError(t, err)
	require.Equal(t, "cpu=1,memory=2Gi,pods=10", read.defaultSlice.String())
	require.Equal(t, 90*time.Second, read.lostToleration)
}
