package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/superpool/superpool/manifests/parameters"
)

const (
	// user is that of the process, as in the manifests: kubelet can tell by its number that it is not root.
	user = "65532:65532"
	// spdx is the media type of a list of modules.
	spdx types.MediaType = "application/spdx+json"
)

// program is one of ours that runs as a container, and programs are all of them.
type program = parameters.Parameter

var programs = parameters.Images

// packed is the image of a program: one index over all platforms, and a list of modules beside the image of each.
type packed struct {
	program
	repository name.Repository
	index      v1.ImageIndex
	digest     v1.Hash
	modules    []v1.Image
}

// reference names the image by digest, for manifests.
func (p *packed) reference() string { return p.repository.Name() + "@" + p.digest.String() }

// annotations are those of the image, and its labels.
func (r *release) annotations(p program) map[string]string {
	annotations := map[string]string{}
	for key, value := range map[string]string{
		"title": p.Name, "description": p.What, "version": r.version, "revision": r.revision, "created": r.created.Format(time.RFC3339),
		"source": "https://" + module, "licenses": "Apache-2.0",
	} {
		annotations["org.opencontainers.image."+key] = value
	}
	return annotations
}

// pack packs the binaries of a program that are in work into an image for all platforms.
func (r *release) pack(p program, work string) (*packed, error) {
	repository, err := name.NewRepository(r.registry + "/" + p.Name)
	if err != nil {
		return nil, fmt.Errorf("naming the image of %s: %w", p.Name, err)
	}
	result := &packed{program: p, repository: repository}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range imagePlatforms {
		binary := filepath.Join(folderOf(work, platform), p.Name)
		image, err := r.image(p, platform, binary)
		if err != nil {
			return nil, fmt.Errorf("packing %s for %s: %w", p.Name, platform.String(), err)
		}
		descriptor, err := partial.Descriptor(image)
		if err != nil {
			return nil, fmt.Errorf("describing the image of %s: %w", p.Name, err)
		}
		descriptor.Platform, descriptor.Annotations = &platform, nil
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: *descriptor})
		modules, err := r.writeModules(p.Name, platform, binary)
		if err != nil {
			return nil, err
		}
		beside, err := besideImage(*descriptor, modules, r.created)
		if err != nil {
			return nil, fmt.Errorf("packing the modules of %s: %w", p.Name, err)
		}
		result.modules = append(result.modules, beside)
	}
	result.index = mutate.Annotations(index, r.annotations(p)).(v1.ImageIndex)
	if result.digest, err = result.index.Digest(); err != nil {
		return nil, fmt.Errorf("reading the digest of %s: %w", p.Name, err)
	}
	return result, nil
}

// image packs one binary as the only file of an image that runs it.
func (r *release) image(p program, platform v1.Platform, binary string) (v1.Image, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	if err := isStatic(content); err != nil {
		return nil, err
	}
	compressed, err := compressedLayer(p.Name, content)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(compressed)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making the layer: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "make release", Created: v1.Time{Time: r.created}}})
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = platform.OS, platform.Architecture, v1.Time{Time: r.created}
	file.Config = v1.Config{Entrypoint: []string{"/" + p.Name}, User: user, WorkingDir: "/", Labels: r.annotations(p)}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, fmt.Errorf("setting the configuration: %w", err)
	}
	return mutate.Annotations(image, r.annotations(p)).(v1.Image), nil
}

// isStatic refuses a binary that needs a loader or libraries, which the image does not have.
func isStatic(binary []byte) error {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("reading it as ELF: %w", err)
	}
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading its libraries: %w", err)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP || len(libraries) > 0 {
			return fmt.Errorf("it is not static: it needs a loader and libraries %v", libraries)
		}
	}
	return nil
}

// compressedLayer returns a file system with one program as a compressed archive that depends on the program alone.
func compressedLayer(program string, content []byte) ([]byte, error) {
	var buffer bytes.Buffer
	compressor := gzip.NewWriter(&buffer)
	writer := tar.NewWriter(compressor)
	header := &tar.Header{Name: program, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
	if err := writer.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("writing the layer: %w", err)
	}
	_, err := writer.Write(content)
	if err := errors.Join(err, writer.Close(), compressor.Close()); err != nil {
		return nil, fmt.Errorf("writing the layer: %w", err)
	}
	return buffer.Bytes(), nil
}

// besideImage packs a list of modules as what refers to an image (OCI 1.1), so that registries list it there.
func besideImage(subject v1.Descriptor, modules []byte, created time.Time) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), spdx)
	image, err := mutate.AppendLayers(image, static.NewLayer(modules, spdx))
	if err != nil {
		return nil, fmt.Errorf("adding the list: %w", err)
	}
	if image, err = mutate.CreatedAt(image, v1.Time{Time: created}); err != nil {
		return nil, fmt.Errorf("setting the time: %w", err)
	}
	subject.Platform = nil
	return mutate.Subject(image, subject).(v1.Image), nil
}

// writeLayout writes the images as an OCI layout, which `ctr images import` and `skopeo copy` read as it is or as an
// archive.
func (r *release) writeLayout(images []*packed) error {
	folder, err := layout.Write(filepath.Join(r.out, "images"), empty.Index)
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	for _, image := range images {
		names := map[string]string{"org.opencontainers.image.ref.name": image.Name + ":" + r.version, "io.containerd.image.name": image.repository.Tag(r.version).Name()}
		if err := folder.AppendIndex(image.index, layout.WithAnnotations(names)); err != nil {
			return fmt.Errorf("writing the image of %s: %w", image.Name, err)
		}
		for _, modules := range image.modules {
			if err := folder.AppendImage(modules); err != nil {
				return fmt.Errorf("writing the modules of %s: %w", image.Name, err)
			}
		}
	}
	return nil
}
