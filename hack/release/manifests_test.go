package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const place = "registry.example.com/superpool"

// pinnedSources returns the manifests and scripts of this checkout as a release has them, with a digest of each image.
func pinnedSources(t *testing.T) ([]file, map[string]string) {
	t.Helper()
	return pinnedTo(t, "0123")
}

// pinnedTo is pinnedSources with digests of one digit each.
func pinnedTo(t *testing.T, digits string) ([]file, map[string]string) {
	t.Helper()
	files, err := sources(t.Context(), &release{root: "../.."})
	require.NoError(t, err)
	images := map[string]string{}
	for i, program := range programs {
		images[program.Name] = place + "/" + program.Name + "@sha256:" + strings.Repeat(string(digits[i]), 64)
	}
	pinned, err := pin(files, "v0.1.0", place, images)
	require.NoError(t, err)
	return pinned, images
}

// TestManifests: what is released names its images by digest, and only images that are released.
func TestManifests(t *testing.T) {
	t.Parallel()
	files, images := pinnedSources(t)
	alone := map[string]bool{ // in the archive alone: no kustomization that is applied as it is
		"manifests/vn-agent/node": true, "manifests/demo": true, "manifests/shards": true, "manifests/samples": true, "manifests/samples/shards": true, "manifests/samples/monitoring": true,
		"manifests/samples/overlay/meta": true, "manifests/samples/overlay/policies": true, "manifests/syncer": true,
	}
	used, built := map[string]bool{}, 0
	for _, f := range files {
		require.NotContains(t, string(f.content), "ghcr.io/superpool", f.path)
		require.NotRegexp(t, `(:latest|:dev)\b`, string(f.content), f.path)
		for program, image := range images {
			used[program] = used[program] || strings.Contains(string(f.content), image)
		}
		folder := path.Dir(f.path)
		if path.Base(f.path) != "kustomization.yaml" {
			continue
		}
		_, is := installed[folder]
		require.NotEqual(t, is, alone[folder], "%s is neither installed nor left alone, or both", folder)
		if strings.Contains(string(f.content), "kind: Component") {
			continue
		}
		text, err := kustomize(files, folder)
		if folder == "manifests/samples" { // Kubernetes' own images
			require.ErrorContains(t, err, "which is not named by digest")
			continue
		}
		require.NoError(t, err)
		require.NotRegexp(t, `(:latest|:dev)\b`, string(text), folder)
		if namespace := strings.Index(string(text), "\nkind: Namespace\n"); namespace >= 0 {
			require.NotContains(t, string(text)[:namespace], "\n  namespace: ", "%s has an object before its namespace", folder)
		}
		built++
	}
	require.GreaterOrEqual(t, built, len(installed))
	require.Len(t, used, len(programs))
	for program, is := range used {
		require.True(t, is, "nothing names the image of %s", program)
	}
}

// TestPin: a tag becomes the digest, a name without one stays a name, and an image that nobody makes is refused.
func TestPin(t *testing.T) {
	t.Parallel()
	images := map[string]string{"syncer": place + "/syncer@sha256:1"}
	pinned, err := pin([]file{{path: "a", content: []byte("image: ghcr.io/superpool/syncer:latest\n- {name: ghcr.io/superpool/syncer, newName: x}")}}, "v0.1.0", place, images)
	require.NoError(t, err)
	require.Equal(t, "image: "+place+"/syncer@sha256:1\n- {name: "+place+"/syncer, newName: x}", string(pinned[0].content))
	_, err = pin([]file{{path: "a", content: []byte("image: ghcr.io/superpool/other:latest")}}, "v0.1.0", place, images)
	require.ErrorContains(t, err, "a: image ghcr.io/superpool/other:latest is of no program that there is")

	pod := func(image string) []file {
		return []file{
			{path: "x/kustomization.yaml", content: []byte("resources: [pod.yaml]")},
			{path: "x/pod.yaml", content: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: x, image: '" + image + "'}]}")},
		}
	}
	for image, is := range map[string]bool{
		"a/b@sha256:" + strings.Repeat("0", 64): true, "a:5000/b@sha256:" + strings.Repeat("0", 64): true,
		"a/b:v1@sha256:" + strings.Repeat("0", 64): false, "a/b:v1": false, "a/b": false, "a:5000/b": false, "a/b@sha256:0": false,
	} {
		if _, err := kustomize(pod(image), "x"); is {
			require.NoError(t, err, image)
		} else {
			require.ErrorContains(t, err, "x has image "+image+", which is not named by digest")
		}
	}
}

// TestOverlay: what an operator changes is there after the release below it is exchanged.
func TestOverlay(t *testing.T) {
	t.Parallel()
	files, _ := pinnedSources(t)
	text, err := kustomize(files, "manifests/samples/overlay/meta")
	require.NoError(t, err)
	meta := string(text)
	require.Contains(t, meta, "image: mirror.example.com/superpool/vc-scheduler@sha256:"+strings.Repeat("2", 64), "the mirror, with the digest of the release")
	require.Contains(t, meta, "- --leader-elect=true", "the arguments of the release")
	require.Contains(t, meta, "- --namespace-scheduler-config=/etc/superpool/profiles/namespace-scheduler.yaml")
	named := regexp.MustCompile(`name: (scheduler-profiles-\w+)`).FindAllStringSubmatch(meta, -1)
	require.Len(t, named, 2, "a ConfigMap, and the volume that names it")
	require.Equal(t, named[0][1], named[1][1])
	require.Contains(t, meta, "memory: 8Gi")

	text, err = kustomize(files, "manifests/samples/overlay/policies")
	require.NoError(t, err)
	policies := map[string]string{}
	for _, object := range strings.Split(string(text), "\n---\n") {
		policies[regexp.MustCompile(`\n  name: (\w+)`).FindStringSubmatch(object)[1]] = object
	}
	require.Len(t, policies, 4)
	require.Contains(t, policies["gold"], "guaranteed:")
	require.Contains(t, policies["standard"], "cpu: \"100\"")
	require.Contains(t, policies["standard"], "storage: 500Gi", "what the release says besides")
}

// TestNotes: the section of a version, and links that work outside of the repository.
func TestNotes(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## Unreleased\n\nNew.\n\n## [v0.2.0] - 2026-12-01\n\nLater.\n### Details\n\n## v0.1.0\n"
	require.Equal(t, "New.\n", section(changelog, "Unreleased"))
	require.Equal(t, "Later.\n### Details\n", section(changelog, "v0.2.0"))
	require.Empty(t, section(changelog, "v0.1.0"))
	require.Empty(t, section(changelog, "v0.3.0"))
	const blob = "https://" + module + "/blob/v0.1.0/"
	require.Equal(t, "[a]("+blob+"docs/tenants.md#x) [b]("+blob+"CHANGELOG.md) [c]("+blob+"docs/operating.md#gone) [d](https://semver.org)",
		absolute("[a](tenants.md#x) [b](../CHANGELOG.md) [c](#gone) [d](https://semver.org)", "docs/operating.md", "v0.1.0"))

	r := &release{root: "../..", out: t.TempDir(), version: "v0.1.0", log: testWriter{t}}
	require.NoError(t, r.writeNotes(nil))
	notes, err := os.ReadFile(filepath.Join(r.out, "NOTES.md"))
	require.NoError(t, err)
	require.NotRegexp(t, `\]\((#|[a-z./]+\.md)`, string(notes), "a link into the repository")
}

// testWriter writes to the log of a test.
type testWriter struct{ *testing.T }

func (w testWriter) Write(text []byte) (int, error) {
	w.Log(string(text))
	return len(text), nil
}

// TestKustomize: a release is built by the kustomize that kubectl-vc has, which is that of kubectl.
func TestKustomize(t *testing.T) {
	t.Parallel()
	of, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	info, is := debug.ReadBuildInfo()
	require.True(t, is)
	used := map[string]string{}
	for _, module := range info.Deps {
		used[module.Path] = module.Version
		if module.Replace != nil {
			used[module.Path] = module.Replace.Version
		}
	}
	found := regexp.MustCompile(`(?m)^\t(sigs\.k8s\.io/kustomize/\S+) (v\S+)`).FindAllStringSubmatch(string(of), -1)
	require.NotEmpty(t, found)
	for _, module := range found {
		require.Equal(t, module[2], used[module[1]], module[1])
	}
}
