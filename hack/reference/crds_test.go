package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// crds returns a checkout with one CustomResourceDefinition, whose spec has these properties.
func crds(t *testing.T, properties string) *source {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "manifests", "crds")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte("no definition"), 0o600))
	text := `spec:
  group: x.io
  scope: Cluster
  names: {kind: Widget, shortNames: [w]}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: "Widget is\na thing. It has <parts>."
        x-kubernetes-validations: [{message: x < y}, {message: z}]
        properties:
          apiVersion: {type: string}
          spec:
            description: spec is what it is to be.
            type: object
            required: [b]
            properties: ` + properties
	require.NoError(t, os.WriteFile(filepath.Join(folder, "x.io_widgets.yaml"), []byte(text), 0o600))
	return &source{root: root}
}

func TestCRDsPage(t *testing.T) {
	t.Parallel()
	const head = notice + "# Kinds\n\nThe fields of lists and maps are below `[]` and `{}`. \"Like\" names a row whose fields are the same.\n\n" +
		"## Widget\n\n`x.io/v1`, cluster-scoped, short `w`. Widget is a thing. It has &lt;parts&gt;. Rules: x &lt; y; z.\n\n" +
		"| field | type | rules | what |\n| --- | --- | --- | --- |\n| `spec` | object |  | What it is to be. |\n"
	for _, tc := range []struct {
		name, properties string
		want             string // of the page, without its head
		wantErr          string
	}{
		{name: "no fields", properties: "{}"},
		{
			name: "not empty", properties: `{a: {description: kube-apiserver., type: string, minLength: 1}}`,
			want: "| `spec.a` | string | not empty | kube-apiserver. |\n",
		},
		{
			name:       "in the order of names, with the first sentence",
			properties: `{b: {type: string, description: "b is this.\nAnd that."}, a: {type: integer, description: a of them.}}`,
			want:       "| `spec.a` | integer |  | A of them. |\n| `spec.b` | string | required | This. |\n",
		},
		{
			name: "rules",
			properties: `{i: {description: N., type: integer, minimum: 1, maximum: 9, default: 3}, o: {description: O., type: integer, minimum: 0},
              s: {description: S., type: string, enum: [A, B]}, t: {description: T., type: string, maxLength: 3, pattern: "^a|b$"},
              v: {description: V., type: object, default: {}, x-kubernetes-validations: [{message: a < b}]}}`,
			want: "| `spec.i` | integer | default `3`; 1 to 9 | N. |\n| `spec.o` | integer | at least 0 | O. |\n" +
				"| `spec.s` | string | one of `A`, `B` | S. |\n| `spec.t` | string | matches `^a\\|b$`; at most 3 characters | T. |\n" +
				"| `spec.v` | object | a &lt; b | V. |\n",
		},
		{
			name: "lists and maps",
			properties: `{l: {description: L., type: array, maxItems: 2, items: {type: string, maxLength: 3}},
              m: {description: M., type: object, maxProperties: 4, additionalProperties: {x-kubernetes-int-or-string: true, pattern: "^1$"}},
              t: {description: T., type: string, format: date-time}}`,
			want: "| `spec.l[]` | list of string | at most 3 characters; at most 2 items | L. |\n" +
				"| `spec.m{}` | map of quantity | at most 4 keys | M. |\n| `spec.t` | time |  | T. |\n",
		},
		{
			name: "rules of the values of lists and maps",
			properties: `{l: {description: L., type: array, x-kubernetes-validations: [{message: of l}],
                items: {type: object, properties: {x: {description: X.}}, x-kubernetes-validations: [{message: of its items}]}},
              m: {description: M., type: object, additionalProperties: {type: integer, minimum: 1, x-kubernetes-validations: [{message: of its values}]}}}`,
			want: "| `spec.l[]` | list of object | of l; of its items | L. |\n| `spec.l[].x` |  |  | X. |\n" +
				"| `spec.m{}` | map of integer | at least 1; of its values | M. |\n",
		},
		{
			name: "what has the same fields is listed once",
			properties: `{l: {description: L., type: array, items: {type: object, required: [x], properties: {x: {description: X.}, z: {description: Y.}}}},
              m: {description: M., type: object, properties: {x: {description: X.}, z: {description: Y.}}}}`,
			want: "| `spec.l[]` | list of object |  | L. |\n| `spec.l[].x` |  | required | X. |\n| `spec.l[].z` |  |  | Y. |\n" +
				"| `spec.m` | object |  | M. Like `spec.l[]`. |\n",
		},
		{
			name:       "a type of Kubernetes",
			properties: `{clusterChoice: {description: C., type: object, properties: {nodeAffinity: {description: N., type: object, properties: {deep: {}}}}}}`,
			want:       "| `spec.clusterChoice` | object |  | C. |\n| `spec.clusterChoice.nodeAffinity` | NodeAffinity |  | N. |\n",
		},
		{name: "no comment", properties: `{a: {type: string}, b: {type: object, description: B., properties: {c: {}}}}`, wantErr: "spec.a, spec.b.c: no comment"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := crdsPage(crds(t, tc.properties))
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(head+tc.want, got))
		})
	}
	_, err := crdsPage(crds(t, "{"))
	require.ErrorContains(t, err, "decoding ")
	got, err := crdsPage(&source{root: t.TempDir()})
	require.NoError(t, err)
	require.NotContains(t, got, "## ")
}

// TestCRDsPageHasAllRules looks for the message of each rule in manifests/crds.
func TestCRDsPageHasAllRules(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	page, err := crdsPage(&source{root: root})
	require.NoError(t, err)
	paths, err := filepath.Glob(filepath.Join(root, "manifests", "crds", "*_*.yaml"))
	require.NoError(t, err)
	var all []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var definition any
		require.NoError(t, yaml.Unmarshal(text, &definition))
		all = append(all, messages(definition)...)
	}
	require.NotEmpty(t, all)
	for _, message := range all {
		require.Contains(t, page, escapeHTML(message))
	}
}

// messages returns those of the rules anywhere below part of a definition.
func messages(part any) []string {
	var found []string
	switch part := part.(type) {
	case []any:
		for _, below := range part {
			found = append(found, messages(below)...)
		}
	case map[string]any:
		if message, isRule := part["message"].(string); isRule {
			found = append(found, message)
		}
		for _, below := range part {
			found = append(found, messages(below)...)
		}
	}
	return found
}
