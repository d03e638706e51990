package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestServe: an image is there by each of its names without the registry's, and below private/ for who shows the
// credentials alone.
func TestServe(t *testing.T) {
	folder := t.TempDir()
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	another, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	path, err := layout.Write(filepath.Join(folder, "program"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"registry.k8s.io/program:v1", "docker.io/library/other:v2"} {
		if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{refName: tag})); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(private("bed", "secret", current(folder)))
	defer server.Close()

	for _, tc := range []struct {
		repository, password, want string
	}{
		{repository: "program:v1"},
		{repository: "library/other:v2"},
		{repository: "program:v2", want: "MANIFEST_UNKNOWN"},
		{repository: "private/program:v1", password: "secret"},
		{repository: "private/program:v1", password: "wrong", want: "UNAUTHORIZED"},
		{repository: "private/program:v1", want: "UNAUTHORIZED"},
	} {
		ref, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/" + tc.repository)
		if err != nil {
			t.Fatal(err)
		}
		auth := authn.Anonymous
		if tc.password != "" {
			auth = &authn.Basic{Username: "bed", Password: tc.password}
		}
		pulled, err := remote.Image(ref, remote.WithAuth(auth), remote.WithTransport(http.DefaultTransport))
		if err == nil {
			err = validate.Image(pulled)
		}
		if err := remote.Write(ref, another, remote.WithAuth(auth), remote.WithRetryBackoff(remote.Backoff{Steps: 1})); err == nil {
			t.Errorf("an image is pushed to %s", tc.repository)
		}
		if got := errorText(err); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s with password %q: %q, wanted %q", tc.repository, tc.password, got, tc.want)
		}
	}
}

// TestServePackedAgain: an image that is packed again is served as it is now.
func TestServePackedAgain(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "program")
	server := httptest.NewServer(private("bed", "secret", current(folder)))
	defer server.Close()
	ref, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/program:v1")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		image, err := random.Image(1000, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(program); err != nil {
			t.Fatal(err)
		}
		path, err := layout.Write(program, empty.Index)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{refName: "registry.k8s.io/program:v1"})); err != nil {
			t.Fatal(err)
		}
		want, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		pulled, err := remote.Image(ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(pulled); err != nil {
			t.Error(err)
		}
		if got, err := pulled.Digest(); err != nil || got != want {
			t.Errorf("got %s, %v, wanted %s", got, err, want)
		}
	}
}

// TestServeNothing: a folder without images is an error.
func TestServeNothing(t *testing.T) {
	if _, err := serve(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no image") {
		t.Errorf("got %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
