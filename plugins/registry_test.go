package plugins_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	multiPoint := func(names ...string) *config.Plugins {
		set := config.PluginSet{}
		for _, name := range names {
			set.Enabled = append(set.Enabled, config.Plugin{Name: name})
		}
		return &config.Plugins{MultiPoint: set}
	}
	for _, tc := range []struct {
		name    string
		plugins *config.Plugins
		wantErr []string
	}{
		{name: "none"},
		{name: "our own, kube-scheduler's and those in place of scheduler-plugins'", plugins: multiPoint("NodeShape", "TaintToleration", "QOSSort")},
		{
			name: "one that is left out", plugins: multiPoint("NetworkOverhead"),
			wantErr: []string{`profile "p" enables plugin "NetworkOverhead", which is not registered: it asks the tenant's API server`},
		},
		{name: "one that nobody has", plugins: multiPoint("NodeShap"), wantErr: []string{`profile "p" enables plugin "NodeShap", which does not exist`}},
		{
			name: "at an extension point, all of them", plugins: &config.Plugins{
				Score:      config.PluginSet{Enabled: []config.Plugin{{Name: "Peaks"}}},
				PostFilter: config.PluginSet{Enabled: []config.Plugin{{Name: "CapacityScheduling"}}},
				Filter:     config.PluginSet{Disabled: []config.Plugin{{Name: "Nobody"}}},
			},
			wantErr: []string{`"Peaks", which is not registered: it scores by the loads`, `"CapacityScheduling", which is not registered: it lists ElasticQuotas in New`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := plugins.Check(&config.KubeSchedulerConfiguration{Profiles: []config.KubeSchedulerProfile{{SchedulerName: "p", Plugins: tc.plugins}}}, nil)
			if len(tc.wantErr) == 0 {
				require.NoError(t, err)
			}
			for _, want := range tc.wantErr {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestCheckOfBuiltInProfiles(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{"namespaces": profiles.NamespaceScheduler, "pods": profiles.PodScheduler} {
		object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
		require.NoError(t, err)
		require.NoError(t, plugins.Check(object.(*config.KubeSchedulerConfiguration), nil), name)
		if name == "namespaces" {
			require.NoError(t, plugins.CheckNamespaces(object.(*config.KubeSchedulerConfiguration)))
		} else {
			require.NoError(t, plugins.CheckPods(object.(*config.KubeSchedulerConfiguration)))
		}
	}
}

// TestCheckNamespaces: a profile of the namespace scheduler runs the plugins by which what operators and tenants ask
// for holds, however it enables them.
func TestCheckNamespaces(t *testing.T) {
	t.Parallel()
	const multiPoint = "    multiPoint: {enabled: [{name: NamespaceGang}, {name: NodeUnschedulable}, {name: TaintToleration}, {name: NodeAffinity}, {name: PodTopologySpread}], disabled: [{name: '*'}]}\n"
	without := func(name string) string { return strings.Replace(multiPoint, "{name: "+name+"}, ", "", 1) }
	for name, tc := range map[string]struct {
		plugins string
		wantErr string
	}{
		"all":                               {plugins: multiPoint},
		"kube-scheduler's own stay enabled": {plugins: "    multiPoint: {enabled: [{name: NamespaceGang}]}\n"},
		"no gangs":                          {plugins: without("NamespaceGang"), wantErr: `profile "p" must enable plugin NamespaceGang at queueSort, preFilter, postFilter, reserve, permit, bind, which places all`},
		"no cordons":                        {plugins: without("NodeUnschedulable"), wantErr: "plugin NodeUnschedulable at filter, by which cordons hold"},
		"no taints":                         {plugins: without("TaintToleration"), wantErr: "plugin TaintToleration at filter, preScore, score, by which taints hold"},
		"no affinity":                       {plugins: without("NodeAffinity"), wantErr: "plugin NodeAffinity at preFilter, filter, preScore, score, by which scheduling.nodeSelector of TenantPolicies"},
		"no spread":                         {plugins: strings.Replace(multiPoint, ", {name: PodTopologySpread}", "", 1), wantErr: "plugin PodTopologySpread at preFilter, filter, preScore, score"},
		"one of kube-scheduler's own is disabled": {
			plugins: "    multiPoint: {enabled: [{name: NamespaceGang}], disabled: [{name: NodeAffinity}]}\n", wantErr: "plugin NodeAffinity at preFilter, filter, preScore, score",
		},
		"disabled at one extension point":  {plugins: multiPoint + "    filter: {disabled: [{name: NodeAffinity}]}\n", wantErr: "plugin NodeAffinity at filter, by"},
		"all disabled at one":              {plugins: multiPoint + "    score: {disabled: [{name: '*'}]}\n", wantErr: "plugin TaintToleration at score, by"},
		"disabled and enabled anew at one": {plugins: multiPoint + "    score: {disabled: [{name: '*'}], enabled: [{name: TaintToleration}, {name: NodeAffinity}, {name: PodTopologySpread}]}\n"},
		"at its extension points": {
			plugins: without("NodeUnschedulable") + "    filter: {enabled: [{name: NodeUnschedulable}]}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: p\n  plugins:\n" + tc.plugins
			object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
			require.NoError(t, err)
			err = plugins.CheckNamespaces(object.(*config.KubeSchedulerConfiguration))
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
	require.ErrorContains(t, plugins.CheckNamespaces(&config.KubeSchedulerConfiguration{Profiles: []config.KubeSchedulerProfile{{SchedulerName: "p"}}}), "NodeAffinity")
}

// TestEntries checks what no compiler does: each plugin is there once, and registered for some scheduler or left out
// for a reason.
func TestEntries(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, entry := range plugins.Entries(plugins.Options{}) {
		require.False(t, names[entry.Name], "%s is there twice", entry.Name)
		names[entry.Name] = true
		require.Equal(t, entry.Factory == nil, entry.WhyNot != "", entry.Name)
		require.Equal(t, entry.Factory != nil, len(entry.Schedulers) > 0, entry.Name)
	}
}

// TestEveryPluginIsRegisteredOrHasAReason compares the list with the plugins that the module scheduler-plugins has, and
// with our folders.
func TestEveryPluginIsRegisteredOrHasAReason(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-find", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins/pkg/qos").Output()
	require.NoError(t, err)
	want := append(pluginsBelow(t, filepath.Dir(strings.TrimSpace(string(output)))), pluginsBelow(t, ".")...)
	want = append(want, "CrossNodePreemption") // a sample, which is in the list
	slices.Sort(want)
	want = slices.Compact(want) // Coscheduling is in both
	var listed []string
	for _, entry := range plugins.Entries(plugins.Options{}) {
		listed = append(listed, entry.Name)
	}
	require.ElementsMatch(t, want, append(listed, "Example"), "the plugins of both modules, and the list with the template")
}

// pluginsBelow returns the names of the plugins in a folder and those below: what a method Name() returns, where that
// is a constant of its package.
func pluginsBelow(t *testing.T, root string) []string {
	t.Helper()
	constants, returned := map[string]string{}, map[string]bool{} // by folder and identifier
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.ValueSpec:
				if value, ok := literal(node.Values); ok && len(node.Names) == 1 {
					constants[filepath.Dir(path)+" "+node.Names[0].Name] = value
				}
			case *ast.FuncDecl:
				if constant, ok := nameMethod(node); ok {
					returned[filepath.Dir(path)+" "+constant] = true
				}
			}
			return true
		})
		return nil
	}))
	var names []string
	for key := range returned {
		if name, exists := constants[key]; exists {
			names = append(names, name)
		}
	}
	return names
}

// literal returns the value of a single string literal.
func literal(values []ast.Expr) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	value, ok := values[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(value.Value)
	return text, err == nil
}

// nameMethod returns the identifier that a method Name() returns, false for any other function.
func nameMethod(function *ast.FuncDecl) (string, bool) {
	if function.Name.Name != "Name" || function.Recv == nil || function.Body == nil || len(function.Body.List) != 1 {
		return "", false
	}
	statement, ok := function.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(statement.Results) != 1 {
		return "", false
	}
	identifier, ok := statement.Results[0].(*ast.Ident)
	if !ok {
		return "", false
	}
	return identifier.Name, true
}
