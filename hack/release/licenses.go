package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// terms are files with the terms of a module or of code that it has from elsewhere, which who passes the code on passes
// on, too.
var terms = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// writeLicenses writes the terms of all modules that are in a binary, and those of Go, as an archive.
func (r *release) writeLicenses(ctx context.Context) error {
	root, err := r.goCommand(ctx, "env", "GOROOT")
	if err != nil {
		return err
	}
	files, err := termsOf("go", strings.TrimSpace(string(root)))
	if err != nil {
		return err
	}
	output, err := r.goCommand(ctx, append([]string{"mod", "download", "-json"}, slices.Sorted(maps.Keys(r.modules))...)...)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var module struct{ Path, Version, Dir string }
		if err := decoder.Decode(&module); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("reading where the modules are: %w", err)
		}
		found, err := termsOf(module.Path+"@"+module.Version, module.Dir)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	content, err := archive("licenses", files, r.created)
	if err != nil {
		return err
	}
	return r.save("licenses.tar.gz", content)
}

func (r *release) goCommand(ctx context.Context, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir, command.Env = r.root, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", arguments[0], err)
	}
	return output, nil
}

// termsOf returns the terms in a folder and below it, and refuses one without.
func termsOf(module, folder string) (files []file, err error) {
	system := os.DirFS(folder)
	err = fs.WalkDir(system, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !terms.MatchString(entry.Name()) || path.Ext(name) == ".go" {
			return err
		}
		content, err := fs.ReadFile(system, name)
		files = append(files, file{path: path.Join(module, name), content: content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the terms of %s: %w", module, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("module %s, which is in a binary, has no file with its terms in %s", module, folder)
	}
	return files, nil
}
