package app

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestHelp: every verb says what it does, has an example, and says what is wrong with what is given, without a cluster.
func TestHelp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	command := NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
	for _, verb := range verbsOf(command) {
		require.NotEmpty(t, verb.Short, verb.Name())
		require.NotEmpty(t, verb.Long, verb.Name())
		require.Contains(t, verb.Example, verb.CommandPath(), verb.Name())
	}
	for args, want := range map[string]string{
		"pause":                            "accepts 1 arg(s), received 0",
		"upgrade acme --dry-run=perhaps":   "give none, client or server",
		"create --kubeconfig /nowhere one": "/nowhere",
		"explode":                          `unknown command "explode"`,
	} {
		command := NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
		command.SetArgs(strings.Fields(args))
		require.ErrorContains(t, command.ExecuteContext(t.Context()), want)
	}
}

// TestNoCredentialsOnATerminal: what has credentials, or is an archive, is refused by a terminal before anything is asked.
func TestNoCredentialsOnATerminal(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, terminal.Close()) }()
	for args, want := range map[string]string{
		"backup acme -o -": "a snapshot is not for a terminal: give -o FILE",
		"kubeconfig acme":  "a kubeconfig is not for a terminal: kubectl vc kubeconfig acme >FILE, or kubectl vc exec acme",
		"join r1 --super-kubeconfig /nowhere -o yaml": "what has credentials is not for a terminal: write it to a file, or give --out FOLDER",
	} {
		command := NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: terminal, ErrOut: &bytes.Buffer{}})
		command.SetArgs(strings.Fields(args))
		require.EqualError(t, command.ExecuteContext(t.Context()), want)
	}
}

// TestArguments: what names nothing, or too much, is refused before anything is asked.
func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"drain":                       "give the name of one super cluster",
		"drain r1 r2":                 "give the name of one super cluster",
		"drain r1 --each x":           "--one-by-one, --each and --from are of --all",
		"drain r1 --one-by-one":       "--one-by-one, --each and --from are of --all",
		"drain r1 --all --one-by-one": "--all is all super clusters",
		"drain --all --each x":        "give --one-by-one, too",
		"drain --all --one-by-one":    "--each is missing",
		"drain --all --one-by-one --each x --from r1 --wait=false": "leave --wait=false out",
		"pool r1 r2":         "accepts at most 1 arg(s)",
		"pool -o jsonpath=x": "give one of wide, json, yaml, name",
		"cordon":             "accepts 1 arg(s), received 0",
		"drain pod/r1":       `"pod/r1" names no super cluster: give r1 or node/r1`,
		"drain --all --one-by-one --each x --from pod/r1": `--from: "pod/r1" names no super cluster`,
		"undrain node/":              `"node/" names no super cluster`,
		"pool nodes/r1/r2":           `"nodes/r1/r2" names no super cluster`,
		"top nodes":                  "give super-clusters, which is the default, or tenants",
		"top tenants super-clusters": "give super-clusters, which is the default, or tenants",
		"top -o name":                "give one of wide, json, yaml",
		"ui now":                     `unknown command "now"`,
		"ui --port 99999":            `invalid argument "99999"`,
		"ui --from /nowhere":         "--from /nowhere: reading objects",
		"top --sort-by pods":         `--sort-by: "pods" is none of cpu, memory, name`,
	} {
		var out bytes.Buffer
		command := NewCommand(genericiooptions.IOStreams{In: &out, Out: &out, ErrOut: &out})
		command.SetArgs(strings.Fields(args))
		require.ErrorContains(t, command.ExecuteContext(t.Context()), want, args)
	}
}
