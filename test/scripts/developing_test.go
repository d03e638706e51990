package scripts_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/controlplane"
)

var (
	// namedFile is a code span with the path of a file, or its end: `kinds/pod.go`.
	namedFile = regexp.MustCompile("`([\\w./-]+\\.(?:go|sh|md|yaml|txt))`")
	// afterFile are the identifiers behind a Go file: `kinds/pod.go` `Reconcile`, `readFacts`.
	afterFile = regexp.MustCompile("`([\\w./-]+\\.go)`((?:,? `[A-Za-z][\\w.]*`)+)")
	// beforeFile is an identifier of a Go file: `Specs()` of `kinds.go`.
	beforeFile = regexp.MustCompile("`([A-Za-z][\\w.]*)(?:\\(\\))?` of `([\\w./-]+\\.go)`")
	// identifier is one code span of afterFile. A file is none: it has a match of its own.
	identifier = regexp.MustCompile("`([A-Za-z][\\w.]*)`")
	// link is the target of a link to a file, without a fragment.
	link = regexp.MustCompile(`\]\(([\w./-]+)(?:#[\w-]*)?\)`)
)

// stale returns what a page below docs/developing names and does not exist: files and folders, and declarations of Go
// files. files are the paths of the repository, declared returns the names that a Go file declares.
func stale(page string, files []string, declared func(path string) []string) []string {
	var missing []string
	ending := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(files), func(path string) bool { return path != name && !strings.HasSuffix(path, "/"+name) })
	}
	check := func(name, file string) {
		if !namedFile.MatchString("`"+name+"`") && !slices.ContainsFunc(ending(file), func(path string) bool { return slices.Contains(declared(path), name) }) {
			missing = append(missing, fmt.Sprintf("%s in %s", name, file))
		}
	}
	for _, match := range namedFile.FindAllStringSubmatch(page, -1) {
		if len(ending(match[1])) == 0 {
			missing = append(missing, match[1])
		}
	}
	for _, match := range link.FindAllStringSubmatch(page, -1) {
		target := filepath.Join("docs/developing", match[1])
		if !slices.ContainsFunc(files, func(path string) bool { return path == target || strings.HasPrefix(path, target+"/") }) {
			missing = append(missing, target)
		}
	}
	for _, match := range afterFile.FindAllStringSubmatch(page, -1) {
		for _, name := range identifier.FindAllStringSubmatch(match[2], -1) {
			check(name[1], match[1])
		}
	}
	for _, match := range beforeFile.FindAllStringSubmatch(page, -1) {
		check(match[1], match[2])
	}
	return missing
}

// declarations returns the functions, types, constants and variables of a Go file. A method is in it as "Receiver.Name"
// and as "Name".
func declarations(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var names []string
	for _, declaration := range file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			names = append(names, declaration.Name.Name)
			if declaration.Recv == nil {
				continue
			}
			ast.Inspect(declaration.Recv.List[0].Type, func(node ast.Node) bool {
				if receiver, ok := node.(*ast.Ident); ok {
					names = append(names, receiver.Name+"."+declaration.Name.Name)
				}
				return true
			})
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// TestPagesForDevelopers: the files and declarations that docs/developing names exist.
func TestPagesForDevelopers(t *testing.T) {
	t.Parallel()
	root, err := controlplane.Root()
	require.NoError(t, err)
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "_output"):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		below, err := filepath.Rel(root, path)
		files = append(files, filepath.ToSlash(below))
		return err
	}))
	pages, err := filepath.Glob(filepath.Join(root, "docs/developing/*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			require.Empty(t, stale(string(text), files, func(path string) []string { return declarations(t, filepath.Join(root, path)) }))
		})
	}
}

func TestStalePages(t *testing.T) {
	t.Parallel()
	files := []string{"internal/a/pod.go", "internal/b/pod.go", "docs/developing/page.md", "docs/concepts.md", "hack/x.sh"}
	declared := func(path string) []string {
		return map[string][]string{"internal/a/pod.go": {"Pods", "Pods.Reconcile", "Reconcile"}, "internal/b/pod.go": {"Index"}}[path]
	}
	for _, tc := range []struct {
		name, page string
		want       []string
	}{
		{name: "no names", page: "text with `code`"},
		{name: "the end of a path", page: "`a/pod.go`, `pod.go` and `hack/x.sh`"},
		{name: "no such file", page: "`c/pod.go` and `od.go`", want: []string{"c/pod.go", "od.go"}},
		{name: "a function", page: "`a/pod.go` `Reconcile`"},
		{name: "a method and a type", page: "| x | `a/pod.go` `Pods.Reconcile`, `Pods`; `b/pod.go` `Index` |"},
		{name: "a function of another file", page: "`a/pod.go` `Index`", want: []string{"Index in a/pod.go"}},
		{name: "one of two functions is gone", page: "`a/pod.go` `Pods`, `perform`", want: []string{"perform in a/pod.go"}},
		{name: "one of two files of a name has it", page: "`pod.go` `Index`"},
		{name: "an identifier in prose behind a file", page: "`a/pod.go` has what `Elsewhere` needs"},
		{name: "a list of files", page: "`a/pod.go`, `page.md`, `b/pod.go`"},
		{name: "an identifier of a file", page: "`Pods` of `a/pod.go`, `Gone()` of `a/pod.go`", want: []string{"Gone in a/pod.go"}},
		{name: "a link", page: "[concepts](../concepts.md#pods), [folder](../../internal/a)"},
		{name: "a broken link", page: "[concepts](../concept.md)", want: []string{"docs/concept.md"}},
		{name: "a link elsewhere", page: "[x](https://example.com/x.md)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, stale(tc.page, files, declared))
		})
	}
}
