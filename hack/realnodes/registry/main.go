// Command registry serves images, each an OCI layout in a folder of its own, to the nodes of a bed, whatever registry
// their names name:
//
//	registry -listen 10.213.0.1:5000 -images bin/images -credentials _output/realnodes/registry.credentials
//
// The repositories are there a second time below private/, where only who shows the credentials reads: NAME:PASSWORD in
// a file. Nobody pushes.
package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// refName is the annotation by which an OCI layout names an image.
const refName = "org.opencontainers.image.ref.name"

func main() {
	listen := flag.String("listen", "", "host:port")
	images := flag.String("images", "", "folder with a folder for each image")
	credentials := flag.String("credentials", "", "file with NAME:PASSWORD")
	flag.Parse()
	if err := run(context.Background(), *listen, *images, *credentials); err != nil { //nolint:forbidigo // it is the program's
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, images, credentials string) error {
	content, err := os.ReadFile(credentials)
	if err != nil {
		return fmt.Errorf("-credentials: %w", err)
	}
	user, password, found := strings.Cut(strings.TrimSpace(string(content)), ":")
	if !found || user == "" || password == "" {
		return fmt.Errorf("-credentials: %s does not hold NAME:PASSWORD", credentials)
	}
	if _, err := serve(ctx, images); err != nil {
		return fmt.Errorf("-images: %w", err)
	}
	server := &http.Server{Addr: listen, Handler: private(user, password, current(images)), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe() //nolint:wrapcheck // it says all
}

// current serves the images in a folder as they are at each request: they are packed again while a bed runs.
func current(images string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served, err := serve(r.Context(), images)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		served.ServeHTTP(w, r)
	})
}

// serve returns a registry of the images in a folder.
func serve(ctx context.Context, images string) (http.Handler, error) {
	indexes, err := filepath.Glob(filepath.Join(images, "*", "index.json"))
	if err != nil || len(indexes) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no image", images))
	}
	var all blobs
	handler := registry.New(registry.WithBlobHandler(&all), registry.Logger(log.New(io.Discard, "", 0)))
	for _, index := range indexes {
		path := layout.Path(filepath.Dir(index))
		all = append(all, path)
		if err := tag(ctx, handler, path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return handler, nil
}

// tag gives the registry the manifest of an image by each of its names.
func tag(ctx context.Context, handler http.Handler, path layout.Path) error {
	index, err := path.ImageIndex()
	if err != nil {
		return fmt.Errorf("reading its index: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("reading its index: %w", err)
	}
	for i := range manifest.Manifests {
		descriptor := &manifest.Manifests[i]
		ref, err := name.NewTag(descriptor.Annotations[refName])
		if err != nil {
			return fmt.Errorf("the name of an image: %w", err)
		}
		content, err := path.Bytes(descriptor.Digest)
		if err != nil {
			return fmt.Errorf("reading the manifest of %s: %w", ref, err)
		}
		request := httptest.NewRequestWithContext(ctx, http.MethodPut, "/v2/"+ref.RepositoryStr()+"/manifests/"+ref.TagStr(), bytes.NewReader(content))
		request.Header.Set("Content-Type", string(descriptor.MediaType))
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusCreated {
			return fmt.Errorf("naming %s: %d %s", ref, answer.Code, answer.Body)
		}
	}
	return nil
}

// private lets everybody read, and who shows name and password repositories below private/, which are those without it.
func private(user, password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, `{"errors":[{"code":"UNSUPPORTED"}]}`, http.StatusMethodNotAllowed)
			return
		}
		repository, found := strings.CutPrefix(r.URL.Path, "/v2/private/")
		if !found {
			next.ServeHTTP(w, r)
			return
		}
		gotUser, gotPassword, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(gotUser+":"+gotPassword), []byte(user+":"+password)) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path = "/v2/" + repository
		next.ServeHTTP(w, r)
	})
}

// blobs are those of all images. It implements registry.BlobHandler and BlobStatHandler.
type blobs []layout.Path

// Get returns a blob, whatever repository is named.
func (b *blobs) Get(_ context.Context, _ string, hash v1.Hash) (io.ReadCloser, error) {
	for _, path := range *b {
		if content, err := path.Blob(hash); err == nil {
			return content, nil
		}
	}
	return nil, fmt.Errorf("no image has %s", hash)
}

// Stat returns the size of a blob, in bytes.
func (b *blobs) Stat(_ context.Context, _ string, hash v1.Hash) (int64, error) {
	for _, path := range *b {
		if info, err := os.Stat(filepath.Join(string(path), "blobs", hash.Algorithm, hash.Hex)); err == nil {
			return info.Size(), nil
		}
	}
	return 0, fmt.Errorf("no image has %s", hash)
}
