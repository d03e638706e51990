package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// krewFile is the manifest of kubectl-vc in the release.
const krewFile = "krew/vc.yaml"

// plugin is a manifest by which krew installs a plugin of kubectl.
type plugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       pluginSpec        `json:"spec"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

// pluginPlatform is the archive of a platform: where it is, its SHA-256, and what of it is installed.
type pluginPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string       `json:"uri"`
	SHA256 string       `json:"sha256"`
	Bin    string       `json:"bin"`
	Files  []pluginFile `json:"files"`
}

type pluginFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// cliOf returns the names of kubectl-vc's program and archive for a platform.
func (r *release) cliOf(platform v1.Platform) (program, packed string) {
	program, extension := cli, ".tar.gz"
	if platform.OS == "windows" {
		program, extension = cli+".exe", ".zip"
	}
	return program, fmt.Sprintf("%s_%s_%s_%s%s", cli, r.version, platform.OS, platform.Architecture, extension)
}

// writeKrew writes the manifest for krew, with the archives that were written. It names them where releases are published.
func (r *release) writeKrew() error {
	p := &plugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "vc"}, Spec: pluginSpec{
		Version: r.version, Homepage: "https://" + module, ShortDescription: "Tenants and super clusters of a pool",
		Description: "Make, use and change the tenants of a pool of Superpool, and look after its super clusters.\nkubectl vc check looks whether a cluster has what a pool needs.\n",
	}}
	for _, platform := range cliPlatforms {
		program, packed := r.cliOf(platform)
		content, err := os.ReadFile(filepath.Join(r.out, packed))
		if err != nil {
			return fmt.Errorf("reading an archive: %w", err)
		}
		of := pluginPlatform{
			URI: "https://" + module + "/releases/download/" + r.version + "/" + packed, SHA256: fmt.Sprintf("%x", sha256.Sum256(content)), Bin: program,
			Files: []pluginFile{{From: program, To: "."}, {From: "LICENSE", To: "."}},
		}
		of.Selector.MatchLabels = map[string]string{"os": platform.OS, "arch": platform.Architecture}
		p.Spec.Platforms = append(p.Spec.Platforms, of)
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return fmt.Errorf("writing %s: %w", krewFile, err)
	}
	return r.save(krewFile, text)
}
