package manifests

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/superpool/superpool/manifests/parameters"
)

// TestBuild: each kustomization that is applied builds, with namespaces and definitions before what needs them, and
// with no image but those that are asked for.
func TestBuild(t *testing.T) {
	t.Parallel()
	values := Values{ID: "123", Registry: "mirror.example.com/a", Images: map[string]string{"vc-manager": "elsewhere:v1"}}
	require.NoError(t, values.Validate())
	for folder, want := range map[string]struct {
		first  string
		images []string
	}{
		"base":         {"Namespace", []string{"mirror.example.com/a/vc-scheduler:latest"}},
		"policies":     {"TenantPolicy", nil},
		"vc-manager":   {"ServiceAccount", []string{"elsewhere:v1"}},
		"supercluster": {"Namespace", nil},
		"syncer":       {"ServiceAccount", []string{"mirror.example.com/a/syncer:latest"}},
	} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			objects, err := values.Build(folder)
			require.NoError(t, err)
			require.Equal(t, want.first, objects[0].GetKind())
			var images []string
			for _, object := range objects {
				containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
				require.NoError(t, err)
				for _, container := range containers {
					images = append(images, container.(map[string]any)["image"].(string))
				}
				require.NotContains(t, object.GetName(), parameters.ID.Text)
			}
			require.Equal(t, want.images, images)
		})
	}
	objects, err := values.Build("syncer")
	require.NoError(t, err)
	deployment := objects[slices.IndexFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Deployment" })]
	require.Equal(t, "vc-syncer-123", deployment.GetName())
	require.Equal(t, "123", deployment.GetLabels()["scheduler.tenancy.x-k8s.io/joined"], "an id of digits stays a text")
}

// TestImage: a release names its images by digest, and a mirror changes what is before the name alone.
func TestImage(t *testing.T) { //nolint:paralleltest // the linker's variable is one
	before := images
	images = "syncer=registry.example.com/superpool/syncer@sha256:ab,vc-scheduler=registry.example.com/superpool/vc-scheduler@sha256:cd"
	defer func() { images = before }()
	for file, test := range map[string]struct {
		values Values
		want   string
	}{
		"syncer/vc-syncer.yaml":      {Values{}, "registry.example.com/superpool/syncer@sha256:ab"},
		"base/vc-scheduler.yaml":     {Values{Registry: "mirror.example.com/"}, "mirror.example.com/vc-scheduler@sha256:cd"},
		"vc-manager/deployment.yaml": {Values{Registry: "mirror.example.com", Images: map[string]string{"vc-manager": "x:y"}}, "x:y"},
	} {
		content, err := test.values.File(file)
		require.NoError(t, err)
		require.Contains(t, string(content), " image: "+test.want+"\n")
	}
	content, err := Values{}.File("vc-manager/deployment.yaml")
	require.NoError(t, err)
	require.Contains(t, string(content), " image: ghcr.io/superpool/vc-manager:latest\n", "none was linked in")
}

// TestValidate: what would change more of a file than an image is refused.
func TestValidate(t *testing.T) {
	t.Parallel()
	for want, values := range map[string]Values{
		"is not a registry with a path":    {Registry: "a b"},
		`no program "etcd" has`:            {Images: map[string]string{"etcd": "x"}},
		"is not the reference of an image": {Images: map[string]string{"syncer": "x\n- y"}},
	} {
		require.ErrorContains(t, values.Validate(), want)
	}
}
