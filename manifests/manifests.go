// Package manifests holds what an operator applies: kustomizations, which kubectl-vc builds as `kubectl kustomize`
// does.
package manifests

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/superpool/superpool/manifests/parameters"
)

//go:embed base crds metrics policies/*.yaml supercluster syncer vc-manager
var files embed.FS

// images is set by the linker of a release, which names each image by digest: -X
// github.com/superpool/superpool/manifests.images=syncer=registry.example.com/superpool/syncer@sha256:...,...
var images string

// Values are what is put into files in the place of what is there. The zero Values leave out nothing but the images
// that a release has linked in.
type Values struct {
	// ID is that of a super cluster, for folder syncer.
	ID string
	// Version is that of Superpool, "" for one that is not released.
	Version string
	// Registry is what is before the name of each image, "" for that of the release.
	Registry string
	// Images are references by the name of the program, which Registry does not change.
	Images map[string]string
}

// Validate says what is wrong with references of images.
func (v Values) Validate() error {
	if v.Registry != "" {
		if err := parameters.Registry.Check(strings.TrimSuffix(v.Registry, "/")); err != nil {
			return err //nolint:wrapcheck // it says what is wrong
		}
	}
	for _, program := range slices.Sorted(maps.Keys(v.Images)) {
		at := slices.IndexFunc(parameters.MetaImages, func(p parameters.Parameter) bool { return p.Name == program })
		if at < 0 {
			return fmt.Errorf("no program %q has an image here: syncer, vc-manager and vc-scheduler have", program)
		}
		if err := parameters.MetaImages[at].Check(v.Images[program]); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	return nil
}

// given returns the values by the names of their parameters.
func (v Values) given() map[string]string {
	registry := strings.TrimSuffix(v.Registry, "/")
	given := map[string]string{parameters.Registry.Name: registry, parameters.Version.Name: v.Version, parameters.ID.Name: v.ID}
	for released := range strings.SplitSeq(images, ",") {
		name, reference, found := strings.Cut(released, "=")
		if found && registry != "" {
			reference = registry + "/" + path.Base(reference)
		}
		given[name] = reference
	}
	maps.Copy(given, v.Images)
	return given
}

// File returns a file with these values.
func (v Values) File(name string) ([]byte, error) {
	content, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	text, err := parameters.Put(string(content), v.given())
	if err != nil {
		return nil, fmt.Errorf("manifests/%s: %w", name, err)
	}
	return []byte(text), nil
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
