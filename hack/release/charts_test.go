package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	buffered "helm.sh/helm/v4/pkg/chart/loader/archive"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/hack/release/chart"
)

// madeChart is a chart, and what Helm reads of it.
type madeChart struct {
	*chart.Chart
	files map[string][]byte
	read  *helmchart.Chart
	// given are the values without which it is not rendered.
	given map[string]any
}

// madeCharts returns the charts of this checkout by name, and the files that they are made of.
func madeCharts(t *testing.T) (map[string]*madeChart, []file) {
	t.Helper()
	files, images := pinnedSources(t)
	return chartsOf(t, files, "v0.1.0", images), files
}

// chartsOf returns the charts of a version, whose files are these, by name.
func chartsOf(t *testing.T, files []file, version string, images map[string]string) map[string]*madeChart {
	t.Helper()
	made, err := charts(files, version, place, images)
	require.NoError(t, err)
	byName := map[string]*madeChart{}
	for _, c := range made {
		m := &madeChart{Chart: c, given: map[string]any{}}
		m.files, err = c.Files()
		require.NoError(t, err)
		var read []*buffered.BufferedFile
		for name, content := range m.files {
			read = append(read, &buffered.BufferedFile{Name: name, Data: content})
		}
		m.read, err = loader.LoadFiles(read)
		require.NoError(t, err)
		require.NoError(t, m.read.Validate())
		byName[c.Name] = m
	}
	byName["superpool-syncer"].given = map[string]any{"id": "supercluster-id"}
	return byName
}

// render returns what Helm renders by chart and values: objects by their names, and the notes.
func (m *madeChart) render(values map[string]any) (map[string]chart.Object, string, error) {
	options := common.ReleaseOptions{Name: "superpool", Namespace: "superpool-release", IsInstall: true}
	text, err := yaml.Marshal(util.CoalesceTables(values, m.given))
	if err != nil {
		return nil, "", err
	}
	merged, err := loader.LoadValues(bytes.NewReader(text)) // as of a file, whose numbers are floating ones
	if err != nil {
		return nil, "", err
	}
	rendering, err := util.ToRenderValues(m.read, merged, options, common.DefaultCapabilities)
	if err != nil {
		return nil, "", err
	}
	rendered, err := engine.Render(m.read, rendering)
	if err != nil {
		return nil, "", err
	}
	objects, notes := map[string]chart.Object{}, ""
	for name, content := range rendered {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = content
			continue
		}
		for document := range strings.SplitSeq("\n"+content, "\n---\n") {
			var object chart.Object
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				return nil, "", err
			}
			if floating := regexp.MustCompile(`(?m): [0-9.]+e\+[0-9]+$`).FindString(document); floating != "" {
				return nil, "", errors.New("no integer" + floating)
			}
			if len(object) == 0 {
				continue
			}
			if _, twice := objects[key(object)]; twice {
				return nil, "", errors.New("twice: " + key(object))
			}
			objects[key(object)] = object
		}
	}
	return objects, notes, nil
}

// with renders with one value, whose name has dots.
func (m *madeChart) with(t *testing.T, value string, content any) map[string]chart.Object {
	t.Helper()
	objects, _, err := m.render(nested(value, content))
	require.NoError(t, err, value)
	return objects
}

// nested returns values with one that is content.
func nested(value string, content any) map[string]any {
	names := strings.Split(value, ".")
	for _, name := range slices.Backward(names) {
		content = map[string]any{name: content}
	}
	return content.(map[string]any)
}

func key(object chart.Object) string {
	namespace, _ := object["metadata"].(map[string]any)["namespace"].(string)
	return chart.Name(object) + " " + namespace
}

// built returns what kustomize builds, by names.
func built(t *testing.T, files []file, kustomizations ...string) map[string]chart.Object {
	t.Helper()
	objects := map[string]chart.Object{}
	for _, kustomization := range kustomizations {
		text, err := kustomize(files, "manifests/"+kustomization)
		require.NoError(t, err)
		parsed, err := parse(text)
		require.NoError(t, err)
		for _, object := range parsed {
			require.NotContains(t, objects, key(object), "two kustomizations have it")
			objects[key(object)] = object
			switch object["kind"] {
			case "CustomResourceDefinition", "Namespace", "TenantPolicy":
				put(t, object, "metadata/annotations/helm.sh~1resource-policy", "keep")
			}
			if chart.Name(object) == "TenantPolicy/default" {
				put(t, object, "metadata/annotations/tenancy.x-k8s.io~1policies", "closed")
			}
		}
	}
	return objects
}

// put sets a field of an object by its path in a table; the end of a list is -.
func put(t *testing.T, object chart.Object, path string, value any) {
	t.Helper()
	keys := strings.Split(path, "/")
	var at any = object
	for i, name := range keys {
		name = strings.ReplaceAll(name, "~1", "/")
		if list, is := at.([]any); is {
			index, err := strconv.Atoi(name)
			if err != nil {
				index = slices.IndexFunc(list, func(element any) bool { return element.(map[string]any)["name"] == name })
			}
			require.GreaterOrEqual(t, index, 0, path)
			at = list[index]
			continue
		}
		parent := at.(map[string]any)
		switch next, found := parent[name]; {
		case i == len(keys)-1:
			parent[name] = value
		case keys[i+1] == "-":
			list, _ := next.([]any)
			parent[name] = append(list, value.([]any)...)
			return
		case !found:
			parent[name] = map[string]any{}
		}
		at = parent[name]
	}
}

// plain returns objects as JSON has them: all numbers are of one type.
func plain(t *testing.T, objects map[string]chart.Object) (same map[string]chart.Object) {
	t.Helper()
	text, err := json.Marshal(objects)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &same))
	return same
}

func requireEqual(t *testing.T, want, got map[string]chart.Object, what string) {
	t.Helper()
	require.Empty(t, cmp.Diff(plain(t, want), plain(t, got)), what)
}

// TestChartsAreTheKustomizations: object by object, a chart with its default values is what kustomize builds, and what
// it adds is said.
func TestChartsAreTheKustomizations(t *testing.T) {
	t.Parallel()
	made, files := madeCharts(t)
	meta, syncer, agent := made["superpool"], made["superpool-syncer"], made["superpool-agent"]
	for _, test := range []struct {
		chart *madeChart
		value string
		is    bool
		want  []string
	}{
		{chart: meta, value: "manager.enabled", is: true, want: []string{"base", "vc-manager"}},
		{chart: meta, value: "manager.enabled", want: []string{"base"}},
		{chart: meta, value: "policies.enabled", is: true, want: []string{"base", "vc-manager", "policies"}},
		{chart: meta, value: "monitoring.enabled", is: true, want: []string{"base", "vc-manager", "monitoring"}},
		{chart: syncer, value: "global.x", want: []string{"syncer"}},
		{chart: agent, value: "monitoring.enabled", want: []string{"vn-agent/apiserver"}},
		{chart: agent, value: "monitoring.enabled", is: true, want: []string{"vn-agent/apiserver", "monitoring/vn-agent"}},
	} {
		requireEqual(t, built(t, files, test.want...), test.chart.with(t, test.value, test.is), test.chart.Name+" "+test.value)
	}
	objects, notes, err := meta.render(map[string]any{})
	require.NoError(t, err)
	requireEqual(t, built(t, files, "base", "vc-manager"), objects, "with default values")
	require.Contains(t, notes, "--set policies.enabled=true")
	require.Contains(t, string(meta.files["templates/monitoring.yaml"]), `{{ "{{" }}`, "what Prometheus is to fill in")
}

// TestSyncerOfASuperCluster: an id that YAML takes for something else stays a string.
func TestSyncerOfASuperCluster(t *testing.T) {
	t.Parallel()
	made, files := madeCharts(t)
	for _, id := range []string{"r1", "17", "true", "1e3", strings.Repeat("a", 52)} {
		text, err := kustomize(files, "manifests/syncer")
		require.NoError(t, err)
		quoted := regexp.MustCompile(`(?m): (\S*)supercluster-id$`).ReplaceAllString(string(text), `: "${1}`+id+`"`)
		require.NotContains(t, quoted, "supercluster-id")
		objects, err := parse([]byte(quoted))
		require.NoError(t, err)
		want := map[string]chart.Object{}
		for _, object := range objects {
			want[key(object)] = object
		}
		syncer := made["superpool-syncer"]
		syncer.given = map[string]any{"id": id}
		got, notes, err := syncer.render(map[string]any{})
		require.NoError(t, err)
		requireEqual(t, want, got, id)
		require.Contains(t, notes, "Secret vc-manager/vc-syncer-"+id+", key config")
	}
}

// others are values that differ from the defaults, by the last part of their names, or their whole names.
var others = map[string]any{
	"replicas": 1000000, "image": "another@sha256:1", "registry": "mirror.example.com:5000/a", "goMemLimit": "900MiB",
	"resources": map[string]any{"limits": map[string]any{"memory": "1Gi", "cpu": 2}, "requests": map[string]any{"memory": "1Gi", "cpu": "1"}}, "extraArgs": []any{"-v=4", "--x=a: b"},
	"nodeSelector": map[string]any{"a": "true"}, "tolerations": []any{map[string]any{"key": "a", "operator": "Exists"}},
	"affinity": map[string]any{"nodeAffinity": map[string]any{"x": []any{"y"}}}, "priorityClassName": "true",
	"imagePullSecrets": []any{map[string]any{"name": "a"}}, "kubeconfigSecret": "other", "tlsSecret": "17", "clientCAConfigMap": "other",
	"extraVolumes": []any{map[string]any{"name": "p", "configMap": map[string]any{"name": "p"}}}, "extraVolumeMounts": []any{map[string]any{"name": "p", "mountPath": "/p"}},
	"service.type": "NodePort", "annotations": map[string]any{"a.b/c": "1"}, "loadBalancerSourceRanges": []any{"10.0.0.0/8"}, "create": false,
}

// TestEachValue: a value changes the fields of its row, and nothing else.
func TestEachValue(t *testing.T) {
	t.Parallel()
	made, _ := madeCharts(t)
	tried := map[string]bool{}
	for _, c := range made {
		for _, p := range c.Parameters {
			name := p.Value[strings.LastIndex(p.Value, ".")+1:]
			if name == "enabled" || name == "id" || name == "preset" { // the tests above and below
				continue
			}
			if _, found := others[name]; !found {
				name = p.Value
			}
			other, found := others[name]
			require.True(t, found, "no other value of %s", p.Value)
			tried[name] = true
			want := c.with(t, "global.x", true)
			for _, field := range p.Fields {
				for key, object := range want {
					switch {
					case chart.Name(object) != field.Object:
					case name == "create":
						delete(want, key)
					default:
						put(t, object, field.Path, other)
					}
				}
			}
			switch name {
			case "registry":
				want = imagesOf(t, want, place, other.(string))
			case "image":
				want = imagesOf(t, want, place+"/"+p.Default.(string), place+"/"+other.(string))
			}
			require.NotEmpty(t, cmp.Diff(plain(t, c.with(t, "global.x", true)), plain(t, want)), "%s: another value is none", p.Value)
			requireEqual(t, want, c.with(t, p.Value, other), c.Name+" "+p.Value)
		}
	}
	require.Len(t, tried, len(others))
}

// imagesOf returns objects with images that begin otherwise.
func imagesOf(t *testing.T, objects map[string]chart.Object, before, after string) (changed map[string]chart.Object) {
	t.Helper()
	text, err := json.Marshal(objects)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(bytes.ReplaceAll(text, []byte(`"image":"`+before), []byte(`"image":"`+after)), &changed))
	return changed
}

// TestPolicies: the preset says whose content TenantPolicy default has, and kubectl vc init goes on with it.
func TestPolicies(t *testing.T) {
	t.Parallel()
	made, files := madeCharts(t)
	for preset, from := range map[string]string{"closed": "default", "standard": "standard", "trusted": "trusted"} {
		want := built(t, files, "base", "vc-manager", "policies")
		policy := want["TenantPolicy/default "]
		policy["spec"] = want["TenantPolicy/"+from+" "]["spec"]
		put(t, policy, "metadata/annotations/tenancy.x-k8s.io~1policies", preset)
		requireEqual(t, want, made["superpool"].with(t, "policies", map[string]any{"enabled": true, "preset": preset}), preset)
	}
}

// TestSchema: what no chart knows is refused, and so is what has another type, and null, by which Helm takes a default
// away.
func TestSchema(t *testing.T) {
	t.Parallel()
	made, _ := madeCharts(t)
	for _, c := range made {
		for _, p := range c.Parameters {
			for what, wrong := range map[string]any{"another type": 1.5, "null": nil} {
				_, _, err := c.render(nested(p.Value, wrong))
				if p.Value == "id" && wrong == nil {
					continue // it is given beside
				}
				require.ErrorContains(t, err, "values don't meet the specifications of the schema", "%s %s: %s", c.Name, p.Value, what)
			}
			if group, _, is := strings.Cut(p.Value, "."); is {
				_, _, err := c.render(nested(group+".unknown", true))
				require.ErrorContains(t, err, "additional properties 'unknown' not allowed")
			}
		}
		_, _, err := c.render(map[string]any{"unknown": true})
		require.ErrorContains(t, err, "additional properties 'unknown' not allowed")
	}
	for value, wrong := range map[string]any{
		"scheduler.replicas": "2", "scheduler.extraArgs": []any{"v=4"}, "scheduler.resources": map[string]any{"limit": map[string]any{}}, "registry": "a/", "scheduler.image": `a"`,
		"policies.preset": "open", "scheduler.goMemLimit": "3Gi", "imagePullSecrets": []any{map[string]any{}}, "manager.enabled": "false",
	} {
		_, _, err := made["superpool"].render(nested(value, wrong))
		require.ErrorContains(t, err, "values don't meet the specifications of the schema", value)
	}
	syncer := made["superpool-syncer"]
	for _, id := range []string{"", "A", "a.b", "-a", "a-", strings.Repeat("a", 53)} {
		syncer.given = map[string]any{"id": id}
		_, _, err := syncer.render(map[string]any{})
		require.ErrorContains(t, err, "/id", id)
	}
}

// TestTemplate: what somebody reads who looks into a chart. UPDATE=1 writes testdata anew.
func TestTemplate(t *testing.T) {
	t.Parallel()
	made, _ := madeCharts(t)
	for _, name := range []string{"values.yaml", "templates/syncer.yaml"} {
		got, golden := made["superpool-syncer"].files[name], filepath.Join("testdata", "superpool-syncer", name)
		if os.Getenv("UPDATE") != "" {
			require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
			require.NoError(t, os.WriteFile(golden, got, 0o644)) //nolint:gosec // it is of the repository
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(string(want), string(got)))
	}
}

// TestTable: a row that is of nothing is an error of whoever made it.
func TestTable(t *testing.T) {
	t.Parallel()
	of := func(value string, fields ...chart.Field) error {
		object := chart.Object{"kind": "Service", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"ports": []any{map[string]any{"name": "x"}}}}
		twice := chart.Object{"kind": "Role", "metadata": map[string]any{"name": "a"}}
		c := chart.Chart{
			Name: "c", Parts: []chart.Part{{File: "a", Objects: []chart.Object{object, twice, twice}, When: "on"}},
			Parameters: []chart.Parameter{{Value: value, What: "x", Schema: anyText, Fields: fields}},
		}
		if value == "on" {
			c.Parameters[0].Default = true
		}
		_, err := c.Files()
		return err
	}
	require.NoError(t, of("on"))
	require.NoError(t, of("port", chart.Field{Object: "Service/a", Path: "spec/ports/x/name"}))
	require.ErrorContains(t, of("off"), "nothing has value off")
	require.ErrorContains(t, of("port", chart.Field{Object: "Service/b", Path: "spec"}), "value port is of Service/b, which is not there")
	require.ErrorContains(t, of("port", chart.Field{Object: "Role/a", Path: "rules"}), "value port is of Role/a, which is not there, or there twice")
	require.ErrorContains(t, of("port", chart.Field{Object: "Service/a", Path: "spec/ports/1/name"}), "1 is no element")
	require.ErrorContains(t, of("port", chart.Field{Object: "Service/a", Path: "spec/ports/y/name"}), "y is no element")
	require.ErrorContains(t, of("port", chart.Field{Object: "Service/a", Path: "spec/ports/x/name/z"}), "nothing is above z")
	require.ErrorContains(t, of("port", chart.Field{Object: "Service/a", Path: "spec/type"}), "value port has no default")
}

// TestInstallAll: one file has all of the meta cluster once, definitions first and what is of their kinds last.
func TestInstallAll(t *testing.T) {
	t.Parallel()
	files, _ := pinnedSources(t)
	text, err := installAll(files)
	require.NoError(t, err)
	objects, err := parse(text)
	require.NoError(t, err)
	want, kinds, got := built(t, files, "base", "vc-manager", "policies"), []string{}, map[string]chart.Object{}
	for _, object := range objects {
		delete(want[key(object)]["metadata"].(map[string]any), "annotations")
		delete(object["metadata"].(map[string]any), "annotations")
		kinds, got[key(object)] = append(kinds, object["kind"].(string)), object
	}
	require.Len(t, objects, len(got), "an object is there twice")
	requireEqual(t, want, got, "install.yaml")
	kinds = slices.Compact(kinds)
	require.Equal(t, []string{"CustomResourceDefinition", "Namespace"}, kinds[:2])
	require.Equal(t, "TenantPolicy", kinds[len(kinds)-1])
	require.Len(t, slices.DeleteFunc(kinds, func(kind string) bool { return kind != "TenantPolicy" && kind != "CustomResourceDefinition" }), 2)
}

// checkCharts: Helm reads the archives of a release.
func checkCharts(t *testing.T, out string) {
	t.Helper()
	for _, name := range []string{"superpool", "superpool-syncer", "superpool-agent"} {
		content, err := os.ReadFile(filepath.Join(out, "charts", name+"-0.1.0.tgz"))
		require.NoError(t, err)
		read, err := loader.LoadArchive(io.Reader(bytes.NewReader(content)))
		require.NoError(t, err)
		require.Equal(t, []string{name, "0.1.0", "v0.1.0"}, []string{read.Name(), read.Metadata.Version, read.AppVersion()})
		require.Less(t, len(content), 200<<10, "Helm keeps it in a Secret, with what it renders to")
	}
}
