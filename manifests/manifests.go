// Package manifests holds what an operator applies: kustomizations, which kubectl-vc builds as `kubectl kustomize`
// does.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// SuperClusterID is in the place of the id in folder syncer.
const SuperClusterID = "supercluster-id"

//go:embed base crds metrics policies/*.yaml supercluster syncer vc-manager
var files embed.FS

// images is set by the linker of a release, which names each image by digest: -X
// github.com/superpool/superpool/manifests.images=syncer=registry.example.com/superpool/syncer@sha256:...,...
var images string

var (
	// image is how a file names an image of ours, and reference what can name another.
	image     = regexp.MustCompile(`ghcr\.io/superpool/([a-z0-9-]+):latest`)
	reference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./:@_-]*$`)
	// registry is what is before the name of a program in the reference of its image.
	registry = regexp.MustCompile(`^.*/`)
)

// programs are those with an image in these manifests.
var programs = []string{"syncer", "vc-manager", "vc-scheduler"}

// Values are what is put into files in the place of what is there. The zero Values leave out nothing but the images
// that a release has linked in.
type Values struct {
	// ID is that of a super cluster, for folder syncer.
	ID string
	// Registry is what is before the name of each image, "" for that of the release.
	Registry string
	// Images are references by the name of the program, which Registry does not change.
	Images map[string]string
}

// Validate says what is wrong with references of images.
func (v Values) Validate() error {
	if v.Registry != "" && !reference.MatchString(v.Registry) {
		return fmt.Errorf("%q is no registry with a path: registry.example.com/superpool is one", v.Registry)
	}
	for _, program := range slices.Sorted(maps.Keys(v.Images)) {
		if !slices.Contains(programs, program) {
			return fmt.Errorf("no program %q has an image here: %s have", program, strings.Join(programs, ", "))
		}
		if !reference.MatchString(v.Images[program]) {
			return fmt.Errorf("%q is no reference of an image", v.Images[program])
		}
	}
	return nil
}

// Image returns the reference of a program's image.
func (v Values) Image(program string) string {
	if own := v.Images[program]; own != "" {
		return own
	}
	found := "ghcr.io/superpool/" + program + ":latest"
	for released := range strings.SplitSeq(images, ",") {
		if name, value, _ := strings.Cut(released, "="); name == program {
			found = value
		}
	}
	if v.Registry != "" {
		found = registry.ReplaceAllLiteralString(found, strings.TrimSuffix(v.Registry, "/")+"/")
	}
	return found
}

// File returns a file with these values.
func (v Values) File(path string) ([]byte, error) {
	content, err := files.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	content = image.ReplaceAllFunc(content, func(match []byte) []byte { return []byte(v.Image(string(image.FindSubmatch(match)[1]))) })
	if v.ID != "" {
		content = []byte(strings.ReplaceAll(string(content), SuperClusterID, v.ID))
	}
	return content, nil
}

// Build returns the objects of a kustomization with these values: namespaces and definitions first, as kubectl applies
// them.
func (v Values) Build(folder string) ([]*unstructured.Unstructured, error) {
	system := filesys.MakeFsInMemory()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := v.File(path)
		if err != nil {
			return err
		}
		return system.WriteFile("/"+path, content) //nolint:wrapcheck // it is in memory
	})
	if err != nil {
		return nil, fmt.Errorf("laying out the manifests: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	made, err := krusty.MakeKustomizer(options).Run(system, "/"+folder)
	if err != nil {
		return nil, fmt.Errorf("building manifests/%s: %w", folder, err)
	}
	objects := make([]*unstructured.Unstructured, 0, made.Size())
	for _, resource := range made.Resources() {
		object := &unstructured.Unstructured{}
		content, err := resource.MarshalJSON()
		if err == nil {
			err = object.UnmarshalJSON(content)
		}
		if err != nil {
			return nil, fmt.Errorf("building manifests/%s: %w", folder, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
