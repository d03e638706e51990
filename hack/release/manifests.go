package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/superpool/superpool/manifests/parameters"
)

// installed are the kustomizations that are applied as they are, and the files of the release that hold them. What is
// applied for one super cluster or node, or is an example, is in the archive alone.
var installed = map[string]string{
	"manifests/crds":                "crds.yaml",
	"manifests/base":                "base.yaml",
	"manifests/policies":            "policies.yaml",
	"manifests/vc-manager":          "vc-manager.yaml",
	"manifests/metrics":             "metrics.yaml",
	"manifests/monitoring":          "monitoring.yaml",
	"manifests/monitoring/vn-agent": "vn-agent-monitoring.yaml",
	"manifests/supercluster":        "supercluster.yaml",
	"manifests/vn-agent/apiserver":  "vn-agent-apiserver.yaml",
	"manifests/tenant":              "tenant.yaml",
	"manifests/single":              "single.yaml",
}

var (
	// imageLine is an image in what kustomize builds.
	imageLine = regexp.MustCompile(`(?m)^ *(?:- )?image: (\S+)$`)
	byDigest  = regexp.MustCompile(`^[^@:]+(:[0-9]+/[^@:]+)?@sha256:[0-9a-f]{64}$`)
)

// file is one of an archive.
type file struct {
	path       string
	content    []byte
	executable bool
}

// sources returns the files that an operator needs: the manifests, and the script that applies them for vn-agent.
func sources(ctx context.Context, r *release) ([]file, error) {
	listed, err := r.git(ctx, "ls-files", "-z", "--", "LICENSE", "manifests", "hack/setup-vn-agent.sh")
	if err != nil {
		return nil, err
	}
	var files []file
	for _, name := range strings.Split(strings.TrimRight(listed, "\x00"), "\x00") {
		if path.Ext(name) == ".go" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		files = append(files, file{path: name, content: content, executable: path.Ext(name) == ".sh"})
	}
	return files, nil
}

// pin puts the images of the release, by the name of their program, in the place of those that the manifests name, and
// its registry where a kustomization is to find one by its name, and its version.
func pin(files []file, version, registry string, images map[string]string) ([]file, error) {
	values := maps.Clone(images)
	values[parameters.Registry.Name], values[parameters.Version.Name] = registry, version
	pinned := slices.Clone(files)
	for i, f := range pinned {
		text, err := parameters.Put(string(f.content), values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		pinned[i].content = []byte(text)
	}
	return pinned, nil
}

// kustomize builds a kustomization of files, and refuses a result with an image that is not named by digest.
func kustomize(files []file, kustomization string) ([]byte, error) {
	system := filesys.MakeFsInMemory()
	for _, f := range files {
		if err := system.WriteFile("/"+f.path, f.content); err != nil {
			return nil, fmt.Errorf("laying out the manifests: %w", err)
		}
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // as kubectl does: namespaces and definitions first
	objects, err := krusty.MakeKustomizer(options).Run(system, "/"+kustomization)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", kustomization, err)
	}
	text, err := objects.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("printing %s: %w", kustomization, err)
	}
	for _, match := range imageLine.FindAllSubmatch(text, -1) {
		if !byDigest.Match(match[1]) {
			return nil, fmt.Errorf("%s has image %s, which is not named by digest", kustomization, match[1])
		}
	}
	return text, nil
}

// writeManifests writes what is applied, and the archive of all kustomizations for overlays.
func (r *release) writeManifests(ctx context.Context, images []*packed) error {
	references, list := map[string]string{}, ""
	for _, image := range images {
		references[image.Name] = image.reference()
		list += image.reference() + "\n"
	}
	files, err := sources(ctx, r)
	if err != nil {
		return err
	}
	if files, err = pin(files, r.version, r.registry, references); err != nil {
		return err
	}
	for _, kustomization := range slices.Sorted(maps.Keys(installed)) {
		text, err := kustomize(files, kustomization)
		if err != nil {
			return err
		}
		header := "# Superpool " + r.version + ": " + kustomization + "\n"
		if err := r.save("manifests/"+installed[kustomization], append([]byte(header), text...)); err != nil {
			return err
		}
	}
	all, err := installAll(files)
	if err != nil {
		return err
	}
	if err := errors.Join(r.save("manifests/install.yaml", append([]byte("# Superpool "+r.version+": all of the meta cluster\n"), all...)), r.writeCharts(files, references)); err != nil {
		return err
	}
	content, err := archive("superpool-"+r.version, files, r.created)
	if err != nil {
		return err
	}
	if err := r.save("superpool-"+r.version+".tar.gz", content); err != nil {
		return err
	}
	return r.save("images.txt", []byte(list))
}
