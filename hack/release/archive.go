package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// mode returns the permissions of a file in an archive.
func (f file) mode() fs.FileMode {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// archive returns files below a folder as a tar.gz that depends on them and the time alone.
func archive(folder string, files []file, modified time.Time) ([]byte, error) {
	var buffer bytes.Buffer
	compressor := gzip.NewWriter(&buffer)
	writer := tar.NewWriter(compressor)
	for _, f := range files {
		header := &tar.Header{Name: path.Join(folder, f.path), Typeflag: tar.TypeReg, Mode: int64(f.mode()), Size: int64(len(f.content)), ModTime: modified}
		err := writer.WriteHeader(header)
		if err == nil {
			_, err = writer.Write(f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.path, err)
		}
	}
	if err := errors.Join(writer.Close(), compressor.Close()); err != nil {
		return nil, fmt.Errorf("ending the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// zipped is archive for Windows.
func zipped(folder string, files []file, modified time.Time) ([]byte, error) {
	var buffer bytes.Buffer
	writer := zip.NewWriter(&buffer)
	for _, f := range files {
		header := &zip.FileHeader{Name: path.Join(folder, f.path), Method: zip.Deflate, Modified: modified}
		header.SetMode(f.mode())
		entry, err := writer.CreateHeader(header)
		if err == nil {
			_, err = entry.Write(f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.path, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("ending the archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// writeCLI writes the archive of kubectl-vc for a platform, and its modules.
func (r *release) writeCLI(platform v1.Platform, work string) error {
	name, archived := r.cliOf(platform)
	pack := archive
	if platform.OS == "windows" {
		pack = zipped
	}
	binary := filepath.Join(folderOf(work, platform), name)
	if _, err := r.writeModules(cli, platform, binary); err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("reading the license: %w", err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading %s: %w", cli, err)
	}
	packed, err := pack("", []file{{path: "LICENSE", content: license}, {path: name, content: content, executable: true}}, r.created)
	if err != nil {
		return err
	}
	return r.save(archived, packed)
}

// writeSums writes the SHA-256 of every file of the release, in the form of sha256sum, and in the order of their names.
func (r *release) writeSums() error {
	const list = "SHA256SUMS"
	var sums strings.Builder
	err := filepath.WalkDir(r.out, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(r.out, name)
		if err != nil {
			return err
		}
		opened, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = opened.Close() }()
		hash := sha256.New()
		if _, err := io.Copy(hash, opened); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&sums, "%x  %s\n", hash.Sum(nil), filepath.ToSlash(relative)) // a Builder takes all
		return nil
	})
	if err != nil {
		return fmt.Errorf("summing up the files: %w", err)
	}
	return r.save(list, []byte(sums.String()))
}
