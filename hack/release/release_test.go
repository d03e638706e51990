package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const prefix = "org.opencontainers.image."

// command runs a command in a folder.
func command(ctx context.Context, t *testing.T, folder string, arguments ...string) {
	t.Helper()
	c := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	c.Dir = folder
	output, err := c.CombinedOutput()
	require.NoError(t, err, string(output))
}

// repository returns a clone of what a release is made of, with small programs in the place of ours: static, with one
// module, and a version.
func repository(t *testing.T) string {
	t.Helper()
	const root = "../.."
	folder := t.TempDir()
	write := func(path, content string, mode os.FileMode) {
		path = filepath.Join(folder, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
	}
	require.NoError(t, os.CopyFS(filepath.Join(folder, "manifests"), os.DirFS(filepath.Join(root, "manifests"))))
	write("manifests/manifests.go", "package manifests\n\nvar images string\n\nfunc Images() string { return images }\n", 0o644)
	for _, path := range []string{"LICENSE", "CHANGELOG.md", "docs/operating.md", "hack/gobuild.sh", "hack/setup-vn-agent.sh", "internal/version/version.go"} {
		content, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		write(path, string(content), 0o755)
	}
	modules, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	write("go.mod", "module "+module+"\n\ngo 1.26.0\n\nrequire "+regexp.MustCompile(`golang\.org/x/sync \S+`).FindString(string(modules))+"\n", 0o644)
	write("go.sum", string(sums), 0o644)
	write(".gitignore", "/_output/\n", 0o644)
	for _, program := range append([]program{{Name: cli}}, programs...) {
		text := "package main\n\nimport (\n\t\"os\"\n\n\t\"" + module + "/internal/version\"\n"
		// The one for all platforms has no module, so that there is less to compile, and says what is linked in.
		text, use := text+"\t\""+module+"/manifests\"\n", "\tif len(os.Args) == 1 {\n\t\t_, _ = os.Stdout.WriteString(manifests.Images())\n\t\treturn\n\t}\n"
		if program.Name != cli {
			text, use = strings.TrimSuffix(text, "\t\""+module+"/manifests\"\n")+"\t\"golang.org/x/sync/errgroup\"\n", "\t_ = new(errgroup.Group).Wait()\n"
		}
		write("cmd/"+program.Name+"/main.go", text+")\n\nfunc main() {\n"+use+"\t_, _ = os.Stdout.WriteString(\""+program.Name+" version \" + version.String() + \"\\n\")\n}\n", 0o644)
	}
	command(t.Context(), t, folder, "git", "init", "-q")
	command(t.Context(), t, folder, "git", "add", "-A")
	command(t.Context(), t, folder, "git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-qm", "all")
	return folder
}

// serve serves a registry on this machine, and returns a place of images in it.
func serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/superpool"
}

// TestRelease releases small programs, pushes, and pulls back: what an operator and a registry see of a release.
func TestRelease(t *testing.T) {
	t.Parallel()
	root := repository(t)
	place := serve(t)
	out := filepath.Join(root, "_output", "release", "v0.1.0")
	run := func(push bool) string {
		var output bytes.Buffer
		r := &release{root: root, version: "v0.1.0", registry: place, push: push, log: &output}
		require.NoError(t, r.run(t.Context()), output.String())
		require.Contains(t, output.String(), "NOTES.md has what is under Unreleased")
		sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		require.NoError(t, err)
		return string(sums)
	}
	first := run(true)
	for _, left := range []string{".new", ".old", ".work"} { // by runs that were killed
		require.NoError(t, os.MkdirAll(filepath.Join(out+left, "linux_amd64", "syncer", "left"), 0o755))
	}
	require.Equal(t, first, run(false), "the same commit gives other files")
	entries, err := os.ReadDir(filepath.Dir(out))
	require.NoError(t, err)
	require.Len(t, entries, 1, "something is left beside the release")

	checkSums(t, out, first)
	checkCLI(t, out)
	checkKrew(t, out, first)
	checkCharts(t, out)
	var terms []string
	for _, line := range content(t, filepath.Join(out, "licenses.tar.gz")) {
		terms = append(terms, regexp.MustCompile(`@[^/]+`).ReplaceAllString(line, ""))
	}
	require.Subset(t, terms, []string{
		"-rw-r--r-- licenses/go/LICENSE", "-rw-r--r-- licenses/go/PATENTS", "-rw-r--r-- licenses/golang.org/x/sync/LICENSE", "-rw-r--r-- licenses/golang.org/x/sync/PATENTS",
	})
	folder, err := layout.ImageIndexFromPath(filepath.Join(out, "images"))
	require.NoError(t, err)
	require.NoError(t, validate.Index(folder))
	manifest, err := folder.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 3*len(programs), "an index and two lists of modules for each program")
	references, err := os.ReadFile(filepath.Join(out, "images.txt"))
	require.NoError(t, err)
	for i, reference := range strings.Fields(string(references)) {
		digest, err := name.NewDigest(reference)
		require.NoError(t, err)
		index, err := remote.Index(digest, remote.WithContext(t.Context()))
		require.NoError(t, err)
		require.NoError(t, validate.Index(index))
		checkImage(t, programs[i], index)
		tagged, err := remote.Head(digest.Tag("v0.1.0"), remote.WithContext(t.Context()))
		require.NoError(t, err)
		require.Equal(t, digest.DigestStr(), tagged.Digest.String())
		checkModules(t, out, programs[i], digest, index)
	}

	var linked []string
	for i, reference := range strings.Fields(string(references)) {
		linked = append(linked, programs[i].Name+"="+reference)
	}
	require.Equal(t, strings.Join(linked, ","), runCLI(t, out), "kubectl-vc applies the images of the release")

	base, err := os.ReadFile(filepath.Join(out, "manifests", "base.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(base), "image: "+place+"/vc-scheduler@sha256:")
	notes, err := os.ReadFile(filepath.Join(out, "NOTES.md"))
	require.NoError(t, err)
	for _, want := range []string{"# Superpool v0.1.0", place + "/vn-agent:v0.1.0", "## Changes", "## Upgrading", "https://" + module + "/blob/v0.1.0/docs/tenants.md"} {
		require.Contains(t, string(notes), want)
	}

	// A program that does not say the version is not released: the linker was told another name.
	source := filepath.Join(root, "internal", "version", "version.go")
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(source, bytes.ReplaceAll(text, []byte("var version"), []byte("const version")), 0o600))
	silent := &release{root: root, version: "v0.1.0", registry: place, force: true, log: io.Discard}
	require.ErrorContains(t, silent.run(t.Context()), `syncer --version says "syncer version v0.0.0\n", and not v0.1.0`)
	command(t.Context(), t, root, "git", "checkout", "-q", ".")

	// Another commit is another image: a version that is released stays what it is.
	command(t.Context(), t, root, "git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "--allow-empty", "-m", "more")
	again := &release{root: root, version: "v0.1.0", registry: place, push: true, log: io.Discard}
	require.ErrorContains(t, again.run(t.Context()), place+"/syncer:v0.1.0 is another image there already")
	again.force = true
	require.NoError(t, again.run(t.Context()))
}

// checkSums: the list has every file of the release but itself.
func checkSums(t *testing.T, out, sums string) {
	t.Helper()
	listed := 0
	for line := range strings.Lines(sums) {
		sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(out, path))
		require.NoError(t, err)
		got := sha256.Sum256(content)
		require.Equal(t, hex.EncodeToString(got[:]), sum, path)
		listed++
	}
	files := 0
	require.NoError(t, filepath.Walk(out, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files++
		}
		return err
	}))
	require.Equal(t, files-1, listed)
}

// content returns the permissions and names of the files of a tar.gz.
func content(t *testing.T, archive string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(archive)
	require.NoError(t, err)
	compressed, err := gzip.NewReader(bytes.NewReader(text))
	require.NoError(t, err)
	reader := tar.NewReader(compressed)
	for header, err := reader.Next(); !errors.Is(err, io.EOF); header, err = reader.Next() {
		require.NoError(t, err)
		names = append(names, header.FileInfo().Mode().String()+" "+header.Name)
	}
	return names
}

// checkCLI: the archives of four platforms have the program, which may be run, and the license.
func checkCLI(t *testing.T, out string) {
	t.Helper()
	require.Len(t, cliPlatforms, 4)
	for _, platform := range cliPlatforms {
		archive := filepath.Join(out, cli+"_v0.1.0_"+platform.OS+"_"+platform.Architecture)
		var names []string
		if platform.OS == "windows" {
			reader, err := zip.OpenReader(archive + ".zip")
			require.NoError(t, err)
			for _, file := range reader.File {
				names = append(names, file.Mode().String()+" "+file.Name)
			}
			require.NoError(t, reader.Close())
			require.Equal(t, []string{"-rw-r--r-- LICENSE", "-rwxr-xr-x kubectl-vc.exe"}, names)
			continue
		}
		require.Equal(t, []string{"-rw-r--r-- LICENSE", "-rwxr-xr-x kubectl-vc"}, content(t, archive+".tar.gz"))
	}
}

// checkKrew: the manifest of the plugin names the archives that there are, with their sums, and programs that these have.
func checkKrew(t *testing.T, out, sums string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, krewFile))
	require.NoError(t, err)
	var p plugin
	require.NoError(t, yaml.UnmarshalStrict(text, &p))
	require.Equal(t, "krew.googlecontainertools.github.com/v1alpha2 Plugin vc v0.1.0", strings.Join([]string{p.APIVersion, p.Kind, p.Metadata["name"], p.Spec.Version}, " "))
	archives, err := filepath.Glob(filepath.Join(out, cli+"_*"))
	require.NoError(t, err)
	var want, got []string
	for _, archive := range archives {
		want = append(want, filepath.Base(archive))
	}
	for _, platform := range p.Spec.Platforms {
		base, name, _ := strings.Cut(platform.URI, "v0.1.0/")
		require.Equal(t, "https://github.com/superpool/superpool/releases/download/", base)
		require.Contains(t, sums, platform.SHA256+"  "+name+"\n")
		require.Contains(t, name, "_"+platform.Selector.MatchLabels["os"]+"_"+platform.Selector.MatchLabels["arch"]+".")
		require.Equal(t, strings.HasSuffix(name, ".zip"), strings.HasSuffix(platform.Bin, ".exe"), "checkCLI looks into the archives")
		require.Equal(t, platform.Bin, platform.Files[0].From)
		got = append(got, name)
	}
	slices.Sort(got)
	require.Equal(t, want, got)
}

// runCLI returns what kubectl-vc of this machine prints.
func runCLI(t *testing.T, out string) string {
	t.Helper()
	folder := t.TempDir()
	command(t.Context(), t, folder, "tar", "-xzf", filepath.Join(out, cli+"_v0.1.0_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"))
	output, err := exec.CommandContext(t.Context(), filepath.Join(folder, cli)).Output()
	require.NoError(t, err)
	return string(output)
}

// checkImage: the index has both platforms; each image runs one static program as a user that is not root.
func checkImage(t *testing.T, p program, index v1.ImageIndex) {
	t.Helper()
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	want := map[string]string{
		prefix + "title": p.Name, prefix + "description": p.What, prefix + "version": "v0.1.0", prefix + "licenses": "Apache-2.0",
		prefix + "source": "https://github.com/superpool/superpool",
	}
	require.Subset(t, manifest.Annotations, want)
	require.Regexp(t, "^[0-9a-f]{40}$", manifest.Annotations[prefix+"revision"])
	require.Regexp(t, "^20..-..-..T..:..:..Z$", manifest.Annotations[prefix+"created"])
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
		image, err := index.Image(descriptor.Digest)
		require.NoError(t, err)
		file, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, descriptor.Platform.Architecture, file.Architecture)
		require.Equal(t, "65532:65532", file.Config.User)
		require.Equal(t, []string{"/" + p.Name}, file.Config.Entrypoint)
		require.Equal(t, manifest.Annotations, file.Config.Labels)
		require.Equal(t, manifest.Annotations[prefix+"created"], file.Created.Format("2006-01-02T15:04:05Z"))
		one, err := image.Manifest()
		require.NoError(t, err)
		require.Equal(t, manifest.Annotations, one.Annotations)
		content := mutate.Extract(image)
		reader := tar.NewReader(content)
		header, err := reader.Next()
		require.NoError(t, err)
		require.Equal(t, "-rwxr-xr-x "+p.Name, header.FileInfo().Mode().String()+" "+header.Name)
		binary, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.NoError(t, isStatic(binary))
		_, err = reader.Next()
		require.ErrorIs(t, err, io.EOF, "there is more than the program")
		require.NoError(t, content.Close())
	}
	require.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
}

// checkModules: the registry lists what each image was built from beside it, which is what sbom/ has.
func checkModules(t *testing.T, out string, p program, digest name.Digest, index v1.ImageIndex) {
	t.Helper()
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	for _, descriptor := range manifest.Manifests {
		listed, err := remote.Referrers(digest.Digest(descriptor.Digest.String()), remote.WithContext(t.Context()))
		require.NoError(t, err)
		referrers, err := listed.IndexManifest()
		require.NoError(t, err)
		require.Len(t, referrers.Manifests, 1)
		beside, err := remote.Image(digest.Digest(referrers.Manifests[0].Digest.String()), remote.WithContext(t.Context()))
		require.NoError(t, err)
		layers, err := beside.Layers()
		require.NoError(t, err)
		reader, err := layers[0].Uncompressed()
		require.NoError(t, err)
		text, err := io.ReadAll(reader)
		require.NoError(t, errors.Join(err, reader.Close()))
		saved, err := os.ReadFile(filepath.Join(out, "sbom", p.Name+"_linux_"+descriptor.Platform.Architecture+".spdx.json"))
		require.NoError(t, err)
		require.Equal(t, string(saved), string(text))
		var d document
		require.NoError(t, json.Unmarshal(text, &d))
		var modules []string
		for _, p := range d.Packages {
			modules = append(modules, p.Name)
			require.True(t, p.Name == "stdlib" || len(p.Checksums) == 1, "%s has no sum", p.Name)
			require.NotEmpty(t, p.VersionInfo, p.Name)
		}
		require.Equal(t, []string{p.Name + "_linux_" + descriptor.Platform.Architecture, "stdlib", "golang.org/x/sync"}, modules)
		require.Len(t, d.Relationships, len(modules))
	}
}

// TestRefusals: what is no release is refused before anything is built, with what is to be done.
func TestRefusals(t *testing.T) {
	t.Parallel()
	root := repository(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	gone := strings.TrimPrefix(closed.URL, "http://")
	for version, is := range map[string]bool{
		"v0.1.0": true, "v1.20.3-rc.1": true, "v0.1.0-x-y.0": true,
		"": false, "0.1.0": false, "v1": false, "v01.0.0": false, "v0.1.0+abc": false, "v0.1.0-01": false, "v0.1.0-": false,
		"v0.1.0-rc-": false, "v0.1.0-" + strings.Repeat("a", 57): false,
	} {
		r := &release{version: version, registry: "registry.example.com/superpool"}
		if err := r.validate(); is {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "as VERSION=v0.1.0")
		}
	}
	for place, want := range map[string]string{"": "the registry is missing", "https://registry.example.com": "is no place of images", gone + "/superpool": "registry " + gone + " takes no image superpool/syncer"} {
		r := &release{root: root, version: "v0.1.0", registry: place, push: true, log: io.Discard}
		require.ErrorContains(t, r.run(t.Context()), want)
	}

	command(t.Context(), t, root, "git", "config", "status.showUntrackedFiles", "no")
	require.NoError(t, os.WriteFile(filepath.Join(root, "cmd", "new.txt"), nil, 0o600))
	r := &release{root: root, version: "v0.1.0", registry: "registry.example.com/superpool", log: io.Discard}
	require.ErrorContains(t, r.run(t.Context()), "the tree has changes that no commit holds (?? cmd/new.txt): commit them, or give FORCE=1")
	r.force, r.push = true, true
	require.ErrorContains(t, r.commit(t.Context()), "the tree has changes that no commit holds (?? cmd/new.txt): commit them to push")
	r.push = false
	require.NoError(t, r.commit(t.Context()))
	require.Regexp(t, "^[0-9a-f]{40}-dirty$", r.revision)
	require.NoDirExists(t, filepath.Join(root, "_output"))
}

// TestStatic: a program that needs a loader is not packed.
func TestStatic(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, isStatic([]byte("#!/bin/sh")), "reading it as ELF")
	require.NoError(t, isStatic(headers(t, elf.PT_LOAD)))
	require.ErrorContains(t, isStatic(headers(t, elf.PT_INTERP)), "it is not static: it needs a loader")
}

// headers returns those of a program with one segment.
func headers(t *testing.T, segment elf.ProgType) []byte {
	t.Helper()
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	header := elf.Header64{
		Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: uint64(binary.Size(elf.Header64{})), Phentsize: uint16(binary.Size(elf.Prog64{})), Phnum: 1,
	}
	var content bytes.Buffer
	require.NoError(t, binary.Write(&content, binary.LittleEndian, header))
	require.NoError(t, binary.Write(&content, binary.LittleEndian, elf.Prog64{Type: uint32(segment)}))
	return content.Bytes()
}

// TestTerms: code that a module has from elsewhere has terms of its own, further down; a source file has none.
func TestTerms(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"LICENSE", "third_party/forked/LICENSE.txt", "licenses/x/NOTICE", "license.go", "internal/patents_test.go"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	files, err := termsOf("m@v1", folder)
	require.NoError(t, err)
	var paths []string
	for _, f := range files {
		paths = append(paths, f.path)
	}
	require.Equal(t, []string{"m@v1/LICENSE", "m@v1/licenses/x/NOTICE", "m@v1/third_party/forked/LICENSE.txt"}, paths)
	_, err = termsOf("m@v1", t.TempDir())
	require.ErrorContains(t, err, "module m@v1, which is in a binary, has no file with its terms")
}

// TestPushUnanswered: a registry that does not say what a version is there gets no other image under it.
func TestPushUnanswered(t *testing.T) {
	t.Parallel()
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var once atomic.Int32 // what the next question for an image is answered with
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodHead && strings.Contains(request.URL.Path, "/manifests/") {
			if answer := once.Swap(0); answer != 0 {
				w.WriteHeader(int(answer))
				return
			}
		}
		images.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/superpool/syncer")
	require.NoError(t, err)
	for answer, is := range map[int32]bool{http.StatusMethodNotAllowed: false, http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusNotFound: true} {
		once.Store(answer)
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		digest, err := index.Digest()
		require.NoError(t, err)
		p := &packed{repository: repository, index: index, digest: digest}
		if err := p.push(t.Context(), "v0.1.0", false); is {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "asking for "+repository.Tag("v0.1.0").Name())
		}
	}
}

// TestPrograms: each program of cmd has an image or is kubectl-vc.
func TestPrograms(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("../../cmd")
	require.NoError(t, err)
	want := []string{cli}
	for _, program := range programs {
		want = append(want, program.Name)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	slices.Sort(want)
	require.Equal(t, want, got)
}
