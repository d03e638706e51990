package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func TestLayer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := errors.Join(os.WriteFile(program, []byte("code"), 0o700), os.Chmod(program, 0o700|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	entries := []string{program + "=/bin/program", "program=>/bin/link"}
	content, err := layer(entries)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	reader := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, header.FileInfo().Mode().String()+" "+header.Name+header.Linkname)
	}
	want := "dtrwxrwxrwx tmp,drwxr-xr-x bin,urwx------ bin/program,Lrwxrwxrwx bin/linkprogram,drwxr-xr-x etc,-rw-r--r-- etc/passwd,-rw-r--r-- etc/group"
	if strings.Join(got, ",") != want {
		t.Errorf("the layer holds %q, wanted %q", strings.Join(got, ","), want)
	}
	again, err := layer(entries)
	if err != nil || !bytes.Equal(content, again) {
		t.Errorf("the same files give another layer (%v)", err)
	}
}

func TestWrite(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image")
	want := []string{"example.org/program:v1", "example.org/other:v2"}
	for range 2 { // again in place of the first
		if err := write(options{out: out, name: strings.Join(want, ","), entrypoint: "/program", cmd: "one two", directory: "/in", user: "1:1"}); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range manifest.Manifests {
		names = append(names, manifest.Manifests[i].Annotations["org.opencontainers.image.ref.name"])
		image, err := index.Image(manifest.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(append(file.Config.Entrypoint, file.Config.Cmd...), " "); got != "/program one two" || file.Config.User != "1:1" || file.Config.WorkingDir != "/in" {
			t.Errorf("the image runs %q as %q in %s", got, file.Config.User, file.Config.WorkingDir)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("the image has the names %q, wanted %q", names, want)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    options
	}{
		{name: "no image name", o: options{}},
		{name: "an entry without a path", o: options{name: "a:b", entries: []string{"program"}}},
		{name: "a file that is not there", o: options{name: "a:b", entries: []string{"/no/such/file=/file"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.out = filepath.Join(t.TempDir(), "image")
			if err := write(tc.o); err == nil {
				t.Error("it was written")
			}
			if _, err := os.Stat(tc.o.out); err == nil {
				t.Error("a folder is there")
			}
		})
	}
}
