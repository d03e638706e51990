package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestFields: what no path names is left out, whatever its form is, and what is taken is bounded.
func TestFields(t *testing.T) {
	t.Parallel()
	of := fieldsOf("metadata.name", "spec.containers.name", "status.conditions.type", "status.allocatable.*", "spec.list", "spec.replicas", "spec.paused")
	object := map[string]any{
		"metadata": map[string]any{"name": strings.Repeat("n", 2*longestText), "annotations": map[string]any{"a": "secret"}},
		"spec": map[string]any{
			"containers": []any{map[string]any{"name": "c", "env": []any{map[string]any{"name": "TOKEN", "value": "secret"}}}, "secret"},
			"list":       []any{"a", map[string]any{"b": "secret"}}, "replicas": int64(2), "paused": true,
		},
		"status": map[string]any{
			"conditions":  []any{map[string]any{"type": "Ready", "message": "secret"}},
			"allocatable": map[string]any{"cpu": "1", "nested": map[string]any{"a": "secret"}},
		},
		"data": map[string]any{"key": "secret"},
	}
	want := map[string]any{
		"metadata": map[string]any{"name": strings.Repeat("n", longestText-3) + "..."},
		"spec": map[string]any{
			"containers": []any{map[string]any{"name": "c"}}, "list": []any{"a"}, "replicas": int64(2), "paused": true,
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready"}}, "allocatable": map[string]any{"cpu": "1"}},
	}
	require.Empty(t, cmp.Diff(want, of.of(object)))
	require.Nil(t, of.of("secret"))
	require.Nil(t, fieldsOf("spec").of(map[string]any{"spec": map[string]any{"a": "secret"}}), "a field that became an object")
}

// TestNoSourceIsOfPayloads: no Secrets, ConfigMaps, and no variables, arguments or annotations of anything.
func TestNoSourceIsOfPayloads(t *testing.T) {
	t.Parallel()
	var walk func(path string, of fields)
	walk = func(path string, of fields) {
		for name, below := range of {
			require.NotContains(t, []string{"data", "stringData", "binaryData", "env", "envFrom", "args", "command", "annotations", "labels", "managedFields", "extraArgs", "files", "content"},
				name, path)
			walk(path+"."+name, below)
		}
	}
	files := map[string]bool{}
	for _, of := range sources() {
		require.NotContains(t, []string{"Secret", "ConfigMap", "ServiceAccount"}, of.kind.Kind)
		require.NotEmpty(t, of.fields)
		require.False(t, files[of.file], of.file)
		files[of.file] = true
		walk(of.what, of.fields)
	}
}

// TestLog: of a line is taken when and where it was written, its message, and values of some keys; what is of another form is
// left out, and an error loses what it quotes.
func TestLog(t *testing.T) {
	t.Parallel()
	const at = `I1129 13:24:00.000001       1 controller.go:12] `
	for line, want := range map[string]string{
		at + `"Placed" tenant="default/acme" namespace="web" slices=2`:                at + `"Placed" tenant="default/acme" namespace="web" slices=2`,
		at + `"Read" token="secret" pod="a/b"`:                                        at + `"Read" pod="a/b"`,
		at + `"Read" object={"a":"x err=secret"} pod="a/b"`:                           at + `"Read"`,
		at + `"Read" pod=secret"x`:                                                    at + `"Read"`,
		at + `"Read" pod=<`:                                                           at + `"Read"`,
		at + `"Read" err="Secret \"secret\" is invalid: data: Invalid value: secret"`: at + `"Read" err="Secret \"...\" is invalid: data: Invalid value ..."`,
		at + `"Refused" reason="data: Invalid value: \"secret\"" pod="a/b"`:           at + `"Refused" reason="data: Invalid value ..." pod="a/b"`,
		at + `"Evicted" reason="Drained" superCluster=r1`:                             at + `"Evicted" reason="Drained" superCluster=r1`,
		at + `"Read" err="not 'secret"`:                                               at + `"Read" err="not \"...\""`,
		at + `"Read" err=secret`:                                                      at + `"Read" err=""`,
		at + `GET /secret`:                                                            at + "(text without a constant message)",
		at + `"secret`:                                                                at + "(text without a constant message)",
		"\tkubeconfig: secret":                                                        "",
		"panic: secret":                                                               "",
		`{"msg":"secret"}`:                                                            "",
		"goroutine 12 [running]:":                                                     "goroutine 12 [running",
		"\t/src/a/b.go:12 +0x1 secret":                                                "\t/src/a/b.go:12",
		"main.run(0x1, {0x2, \"secret\"":                                              "",
	} {
		require.Equal(t, want, takeLine(line), line)
	}
	log := strings.Repeat("x", longestLine+10) + "\n" + strings.Repeat(at+`"Placed"`+"\n", 100) + "secret\n"
	taken, err := takeLog(strings.NewReader(log), 1000)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(taken), at+"\"Placed\"\n2 lines were left out.\n"), string(taken))
	require.Less(t, len(taken), 1100)
	require.NotContains(t, string(taken), "xx")
}

// TestArchiveIsBounded: what does not fit is left out, and what is smaller is taken yet.
func TestArchiveIsBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newArchive(&out, "folder", time.Unix(0, 0), 10)
	require.NoError(t, a.add("a", make([]byte, 6)))
	require.ErrorIs(t, a.add("b", make([]byte, 5)), errNoRoom)
	require.NoError(t, a.add("c", make([]byte, 4)))
	require.NoError(t, a.close())
}

// TestEventsThatAreOurs: those that others write are left out.
func TestEventsThatAreOurs(t *testing.T) {
	t.Parallel()
	for component, want := range map[string]bool{"vc-scheduler": true, "vc-manager": true, "superpool-syncer": true, "syncer-r1": true, "kubelet": false, "": false} {
		require.Equal(t, want, isByUs(&unstructured.Unstructured{Object: map[string]any{"source": map[string]any{"component": component}}}), component)
		require.Equal(t, want, isByUs(&unstructured.Unstructured{Object: map[string]any{"reportingComponent": component}}), component)
	}
}
