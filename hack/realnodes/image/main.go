// Command image packs static programs into an OCI layout without a base image, which command registry serves:
//
//	image -out bin/images/agnhost -name registry.k8s.io/e2e-test-images/agnhost:2.56 -entrypoint /agnhost -cmd pause \
//	  bin/agnhost=/agnhost /bin/busybox=/bin/busybox /bin/busybox=>/bin/sh
//
// FILE=PATH adds a file at a path of the image, TARGET=>PATH a symbolic link; /etc/passwd, /etc/group and /tmp are
// added always. Several names, separated by commas, become tags of one image. The same files give the same image.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

type options struct {
	out, name, entrypoint, cmd, directory, user string
	entries                                     []string
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "", "the folder to write")
	flag.StringVar(&o.name, "name", "", "the image's names and tags, separated by commas")
	flag.StringVar(&o.entrypoint, "entrypoint", "", "the image's entry point")
	flag.StringVar(&o.cmd, "cmd", "", "the arguments of the entry point, separated by blanks")
	flag.StringVar(&o.directory, "directory", "/", "where the process starts")
	flag.StringVar(&o.user, "user", "", "the user and group of the process, default root")
	flag.Parse()
	o.entries = flag.Args()
	if err := write(o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write packs the image and renames its folder to o.out only when it is complete.
func write(o options) error {
	tags := strings.Split(o.name, ",")
	for _, text := range tags {
		if _, err := name.NewTag(text); err != nil {
			return fmt.Errorf("-name: %w", err)
		}
	}
	content, err := layer(o.entries)
	if err != nil {
		return err
	}
	// The nodes that read it are on this machine, so compression would only cost time.
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return fmt.Errorf("making the layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return fmt.Errorf("adding the layer: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("reading the image's configuration: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config = v1.Config{
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Cmd: strings.Fields(o.cmd), User: o.user, WorkingDir: o.directory,
	}
	if o.entrypoint != "" {
		file.Config.Entrypoint = []string{o.entrypoint}
	}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return fmt.Errorf("setting the image's configuration: %w", err)
	}
	return writeLayout(o.out, image, tags)
}

// writeLayout writes the image with these names in place of a folder.
func writeLayout(out string, image v1.Image, tags []string) error {
	if err := os.RemoveAll(out + ".new"); err != nil {
		return fmt.Errorf("removing what was not completed: %w", err)
	}
	path, err := layout.Write(out+".new", empty.Index)
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	for _, tag := range tags {
		if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
			return fmt.Errorf("writing the image: %w", err)
		}
	}
	if err := errors.Join(os.RemoveAll(out), os.Rename(out+".new", out)); err != nil {
		return fmt.Errorf("naming the folder: %w", err)
	}
	return nil
}

// layer returns the file system of the image as a tar archive. All times are zero and all owners root, so it depends on
// the files alone.
func layer(entries []string) ([]byte, error) {
	var buffer bytes.Buffer
	l := &layerWriter{Writer: tar.NewWriter(&buffer), directories: map[string]bool{"/": true}}
	if err := l.add(&tar.Header{Name: "/tmp", Typeflag: tar.TypeDir, Mode: 0o1777}, nil); err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if err := l.entry(entry); err != nil {
			return nil, err
		}
	}
	for _, file := range []struct{ name, content string }{
		{"/etc/passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"},
		{"/etc/group", "root:x:0:\nnobody:x:65534:\n"},
	} {
		header := &tar.Header{Name: file.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(file.content))}
		if err := l.add(header, strings.NewReader(file.content)); err != nil {
			return nil, err
		}
	}
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("ending the layer: %w", err)
	}
	return buffer.Bytes(), nil
}

// layerWriter writes a layer. directories holds the paths of the folders that are in it.
type layerWriter struct {
	*tar.Writer
	directories map[string]bool
}

// entry adds the file or link of one argument.
func (l *layerWriter) entry(entry string) error {
	source, target, found := strings.Cut(entry, "=")
	if !found || source == "" {
		return fmt.Errorf("%q is neither FILE=PATH nor TARGET=>PATH", entry)
	}
	if link, ok := strings.CutPrefix(target, ">"); ok {
		return l.add(&tar.Header{Name: link, Linkname: source, Typeflag: tar.TypeSymlink, Mode: 0o777}, nil)
	}
	file, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("entry %q: %w", entry, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("entry %q: %w", entry, err)
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return fmt.Errorf("entry %q: %w", entry, err)
	}
	return l.add(&tar.Header{Name: target, Typeflag: tar.TypeReg, Mode: header.Mode, Size: info.Size()}, file)
}

// add writes one file, link or folder, and the folders above it first.
func (l *layerWriter) add(header *tar.Header, content io.Reader) error {
	header.Name = path.Clean("/" + header.Name)
	if parent := path.Dir(header.Name); !l.directories[parent] {
		if err := l.add(&tar.Header{Name: parent, Typeflag: tar.TypeDir, Mode: 0o755}, nil); err != nil {
			return err
		}
	}
	if header.Typeflag == tar.TypeDir {
		if l.directories[header.Name] {
			return nil
		}
		l.directories[header.Name] = true
	}
	header.Name = strings.TrimPrefix(header.Name, "/")
	if err := l.WriteHeader(header); err != nil {
		return fmt.Errorf("writing the header of %s: %w", header.Name, err)
	}
	if content == nil {
		return nil
	}
	if _, err := io.Copy(l, content); err != nil {
		return fmt.Errorf("writing %s: %w", header.Name, err)
	}
	return nil
}
