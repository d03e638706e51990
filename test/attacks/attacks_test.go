package attacks_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/attacks"
)

// update writes the tables: go test ./test/attacks -run TestDocumented -update.
var update = flag.Bool("update", false, "write the tables of docs/security.md")

// TestDocumented: docs/security.md has the lists of attacks and of benchmarks as its tables.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page := filepath.Join("..", "..", "docs", "security.md")
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(content)
	for name, want := range map[string]string{
		"attacks": attacks.Table(attacks.All()), "benchmarks": attacks.BenchmarkTable(attacks.Benchmarks()),
	} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
		before, rest, found := strings.Cut(text, begin)
		require.True(t, found, "%s has no %q", page, begin)
		table, after, found := strings.Cut(rest, end)
		require.True(t, found, "%s has no %q", page, end)
		if *update {
			text = before + begin + "\n" + want + "\n" + end + after
			continue
		}
		require.Empty(t, gocmp.Diff(table, "\n"+want+"\n"), "if this is meant: go test ./test/attacks -run TestDocumented -update")
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text), 0o600))
	}
}

// TestBenchmarks: each check of the benchmarks is there once, and attacks of the list show it.
func TestBenchmarks(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, attack := range attacks.All() {
		listed[attack.Test()] = true
	}
	checks := map[string]bool{}
	for _, benchmark := range attacks.Benchmarks() {
		require.False(t, checks[benchmark.Check], "%s is there twice", benchmark.Check)
		checks[benchmark.Check] = true
		require.NotEmpty(t, benchmark.Here, benchmark.Check)
		require.NotEmpty(t, benchmark.Shown, benchmark.Check)
		for _, shown := range benchmark.Shown {
			require.True(t, listed[shown], "%s: there is no attack %s", benchmark.Check, shown)
		}
	}
}

// TestShown: each test that docs/security.md names is in the repository.
func TestShown(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "_output", "bin"}, entry.Name()) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		tests.Write(content)
		return err
	}))
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`(Test[A-Za-z]+)").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	for _, match := range named {
		require.Contains(t, tests.String(), "func "+match[1]+"(t *testing.T)", "docs/security.md names a test that is not there")
	}
}

// TestRun: the test of each area runs each of its attacks once, and the tests run nothing that is not in the list.
func TestRun(t *testing.T) {
	t.Parallel()
	var want []string
	for _, attack := range attacks.All() {
		want = append(want, attack.Test())
		require.NotEmpty(t, attack.Tries, attack.ID)
		require.NotEmpty(t, attack.Holds, attack.ID)
	}
	slices.Sort(want)
	require.Len(t, slices.Compact(slices.Clone(want)), len(want), "two attacks have one name")
	run := calls(t)
	slices.Sort(run)
	require.Empty(t, gocmp.Diff(want, run))
}

// calls returns Test<Area>/<id> of each call of attack in the functions of this folder's tests.
func calls(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var found []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(function.Name.Name, "Test") {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || len(call.Args) < 2 {
					return true
				}
				callee, isName := call.Fun.(*ast.Ident)
				id, isText := call.Args[1].(*ast.BasicLit)
				if isName && callee.Name == "attack" && isText {
					text, err := strconv.Unquote(id.Value)
					require.NoError(t, err)
					found = append(found, function.Name.Name+"/"+text)
				}
				return true
			})
		}
	}
	return found
}
