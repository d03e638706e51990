package app

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/test/builders/vctest"
)

// TestPrinted: what a person sees at two widths. No line is wider than the terminal but rows of a table that are wider than it,
// and nothing has colours.
func TestPrinted(t *testing.T) {
	t.Parallel()
	_, kubeconfig := newMetaAPI(t)
	for name, test := range map[string]struct {
		args string
		// wide is with what it is printed at 160 columns.
		wide string
		code int
		// isTree is whether all lines are broken.
		isTree bool
	}{
		"list":     {args: "list", wide: "-A -o wide"},
		"describe": {args: "describe acme", isTree: true},
		"pool":     {args: "pool", wide: "-o wide"},
		"pool.r2":  {args: "pool r2"},
		"top":      {args: "top", wide: "-o wide"},
		"explain":  {args: "explain batch -t acme", isTree: true},
		"simulate": {args: "simulate --drain r1", code: 3},
	} {
		for width, ending := range map[int]string{80: ".80", 160: ".160"} {
			t.Run(name+ending, func(t *testing.T) {
				t.Parallel()
				args := strings.Fields(test.args)
				if width == 160 {
					args = append(args, strings.Fields(test.wide)...)
				}
				got := run(t, width, kubeconfig, args...)
				require.Equal(t, test.code, cli.ExitCode(got.err), "%v", got.err)
				require.NotContains(t, got.printed, "\x1b")
				for line := range strings.Lines(got.printed) {
					if test.isTree {
						require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
					}
				}
				vctest.Golden(t, name+ending, got.printed)
			})
		}
	}
}

// row is what a test knows of a verb.
type row struct {
	// dry are arguments with which it would change something. notHere is why a dry run is tested elsewhere.
	dry, notHere string
	// unknown are arguments that name what is not there, with what is said of it; "" for a verb that needs no name.
	unknown, says string
	// many are arguments that are one too many.
	many string
	// values are values that a flag of text does not take: all flags of other types get a word.
	values map[string]string
	// lead are the arguments before them.
	lead string
}

// rows are those of all verbs.
func rows() map[string]row {
	const install = "test/integration/install, TestInstall: a dry run of all that is applied needs all that an API server serves"
	ofTenant := func(verb, dry string) row {
		return row{dry: dry, unknown: verb + " nobody", says: "in namespace tenants: kubectl get virtualclusters -A", many: verb + " acme beta", lead: verb + " acme"}
	}
	ofSuper := func(verb, dry string) row {
		return row{dry: dry, unknown: verb + " nobody", says: "nobody", many: verb + " r1 r2", lead: verb + " r1"}
	}
	upgrade, restore := ofTenant("upgrade", "upgrade acme --to v1.38"), ofTenant("restore", "restore acme etcd-backup-20261128-030000")
	upgrade.unknown, restore.unknown, restore.many, restore.lead = "upgrade nobody --to v1.38", "restore nobody etcd-backup-20261128-030000", "restore acme a b", "restore acme a"
	kubeconfig, explain := ofTenant("kubeconfig", ""), ofTenant("explain", "")
	explain.unknown, explain.many, explain.lead = "explain web -t nobody", "explain web batch -t acme", "explain web -t acme"
	explain.values = map[string]string{"tenant": "a/b/c", "pod": "3", "pod-file": "/nowhere", "namespace-scheduler-config": "/nowhere"}
	backup := ofTenant("backup", "backup acme")
	backup.values = map[string]string{"output": "/nowhere/x"}
	drain := ofSuper("drain", "drain r5 --yes")
	drain.values = map[string]string{"namespace-scheduler-config": "/nowhere", "from": "r1", "each": "true"}
	return map[string]row{
		"backup": backup, "delete": ofTenant("delete", "delete acme"), "describe": ofTenant("describe", ""),
		"pause": ofTenant("pause", "pause acme"), "resume": ofTenant("resume", "resume acme"), "rotate": ofTenant("rotate", "rotate acme"),
		"upgrade": upgrade, "restore": restore, "kubeconfig": kubeconfig, "explain": explain,
		"exec":   {unknown: "exec nobody -- true", says: "in namespace tenants: kubectl get virtualclusters -A", many: "exec acme beta", lead: "exec acme"},
		"create": {dry: "create gamma", unknown: "create -f /nowhere", says: "/nowhere", many: "create a b", lead: "create gamma", values: map[string]string{"output": "wide", "filename": "x"}},
		"list":   {many: "list acme", lead: "list", values: map[string]string{"output": "xml"}},
		"cordon": ofSuper("cordon", "cordon r1"), "uncordon": ofSuper("uncordon", "uncordon r3"), "drain": drain, "undrain": ofSuper("undrain", "undrain r2"),
		"pool":          {unknown: "pool nobody", says: "nobody", many: "pool r1 r2", lead: "pool", values: map[string]string{"output": "xml"}},
		"top":           {unknown: "top nobody", says: "give super-clusters", many: "top tenants super-clusters", lead: "top", values: map[string]string{"sort-by": "pods"}},
		"simulate":      {unknown: "simulate --drain nobody", says: "nobody", many: "simulate r1", lead: "simulate", values: map[string]string{"from": "/nowhere", "default-slice": "no", "namespace-scheduler-config": "/nowhere"}},
		"rebalance":     {dry: "rebalance", many: "rebalance r1", lead: "rebalance", values: map[string]string{"namespace-scheduler-config": "/nowhere"}},
		"debug collect": {dry: "debug collect", many: "debug collect r1", lead: "debug collect", values: map[string]string{"output": "/nowhere/x"}},
		"ui":            {many: "ui r1", lead: "ui", values: map[string]string{"from": "/nowhere", "namespace-scheduler-config": "/nowhere"}},
		"check":         {many: "check r1", lead: "check", values: map[string]string{"super-kubeconfig": "/nowhere"}},
		"init":          {notHere: install, many: "init r1", lead: "init", values: map[string]string{"policies": "none", "output": "xml"}},
		"join":          {notHere: install, unknown: "join r1 --super-kubeconfig /nowhere", says: "/nowhere", many: "join r1 r2", lead: "join r1", values: map[string]string{"super-kubeconfig": "/nowhere", "output": "json", "image": "a b"}},
		"leave":         {notHere: install, unknown: "leave r1 --super-kubeconfig /nowhere", says: "/nowhere", many: "leave r1 r2", lead: "leave r1", values: map[string]string{"super-kubeconfig": "/nowhere"}},
	}
}

// TestEveryVerb: a dry run of each verb writes nothing, and neither does what is given wrongly, which ends with exit code 1 and a
// sentence that says what is wrong. A verb without a row fails.
func TestEveryVerb(t *testing.T) {
	t.Parallel()
	left := rows()
	for _, verb := range verbsOf(NewCommand(genericiooptions.IOStreams{})) {
		name := strings.TrimPrefix(verb.CommandPath(), "kubectl vc ")
		of, is := left[name]
		require.True(t, is, "verb %s has no row", name)
		delete(left, name)
		inherited := verb.InheritedFlags() // it writes to the parents, which verbs share
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isDry := verb.Flags().Lookup("dry-run") != nil
			require.Equal(t, isDry, of.dry != "" || of.notHere != "", "it has dry runs, or none")
			if of.dry != "" {
				for _, dry := range []string{"client", "server"} {
					holdsDry(t, strings.Fields(of.dry), dry)
				}
			}
			if of.unknown != "" {
				refuses(t, of.unknown, of.says, true)
			}
			refuses(t, of.many, "", false)
			refuses(t, of.lead+" --no-such-flag", "unknown flag: --no-such-flag", false)
			verb.Flags().VisitAll(func(flag *pflag.Flag) {
				if inherited.Lookup(flag.Name) != nil || flag.Name == "help" {
					return
				}
				switch flag.Value.Type() {
				case "string", "stringSlice", "stringArray":
				default:
					refuses(t, of.lead+" --"+flag.Name+"=no-such-value", flag.Name, false)
				}
			})
			for _, flag := range slices.Sorted(maps.Keys(of.values)) {
				require.NotNil(t, verb.Flags().Lookup(flag), flag)
				refuses(t, of.lead+" --"+flag+"="+strings.ReplaceAll(of.values[flag], " ", "_!"), "", true)
			}
		})
	}
	require.Empty(t, left, "there are no such verbs")
}

// holdsDry holds that a dry run does what it says, and writes nothing.
func holdsDry(t *testing.T, args []string, dry string) {
	t.Helper()
	api, kubeconfig := newMetaAPI(t)
	got := run(t, 0, kubeconfig, append(args, "--dry-run="+dry)...)
	require.NoError(t, got.err, "%v %s: %s", args, dry, got.said)
	require.NotEmpty(t, got.printed)
	require.Empty(t, api.wrote, "%v %s", args, dry)
}

// refuses holds that a line is refused with a sentence, and writes nothing. asks is whether an API server may be asked before.
func refuses(t *testing.T, line, says string, asks bool) {
	t.Helper()
	api, kubeconfig := newMetaAPI(t)
	got := run(t, 0, kubeconfig, strings.Fields(line)...)
	require.Error(t, got.err, line)
	require.Equal(t, 1, cli.ExitCode(got.err), line)
	require.Contains(t, got.err.Error(), says, line)
	require.Empty(t, got.printed, line)
	require.Empty(t, api.wrote, line)
	if !asks {
		require.Empty(t, api.asked, line)
	}
	files, err := filepath.Glob("superpool-debug-*")
	require.NoError(t, err)
	require.Empty(t, files, line)
}
