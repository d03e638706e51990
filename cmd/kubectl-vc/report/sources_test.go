package report

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// TestSourcesHaveFieldsThatAre: each field of our kinds that is taken is in their schemas. One of another name would be
// left out, and nobody would miss it.
func TestSourcesHaveFieldsThatAre(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../manifests/crds/*_*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var definition apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(text, &definition))
		kind, all := schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}, sources()
		at := slices.IndexFunc(all, func(of source) bool { return of.kind == kind })
		require.GreaterOrEqual(t, at, 0, "%s is in no report", kind)
		inSchema(t, kind.String(), all[at].fields, taken(), definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}

// inSchema holds that fields are in a schema, and that those without others below are no objects. Those of all kinds need
// not be there.
func inSchema(t *testing.T, path string, of, ofAll fields, has *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for has.Items != nil {
		has = has.Items.Schema
	}
	require.Equal(t, len(of) > 0, has.Type == "object" || len(has.Properties) > 0, path)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		below, is := has.Properties[name]
		switch _, isCommon := ofAll[name]; {
		case is:
			inSchema(t, path+"."+name, of[name], ofAll[name], &below)
		case name != "*":
			require.True(t, isCommon, "%s has no %s", path, name)
		default:
			require.True(t, has.AdditionalProperties != nil || len(has.Properties) > 0, path)
		}
	}
}
