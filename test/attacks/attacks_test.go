package attacks_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
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

// TestDocumented: docs/security.md has a row for each area of attacks, and for no other.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## The attacks\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	want, rows := map[string]bool{}, map[string]bool{}
	for _, attack := range attacks.All() {
		area, _, _ := strings.Cut(attack.Test(), "/")
		want[area] = true
	}
	for _, cell := range regexp.MustCompile("(?m)^\\| (`Test[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		for area := range strings.SplitSeq(cell[1], ", ") {
			rows[strings.Trim(area, "`")] = true
		}
	}
	require.Empty(t, gocmp.Diff(want, rows))
}

// TestBenchmarks: each check of the benchmarks is there once, and attacks that the tests run show it. Where it is the
// twin that shows it, the attack has one.
func TestBenchmarks(t *testing.T) {
	t.Parallel()
	run := calls(t)
	checks := map[string]bool{}
	for _, benchmark := range attacks.Benchmarks() {
		require.False(t, checks[benchmark.Check], "%s is there twice", benchmark.Check)
		checks[benchmark.Check] = true
		require.NotEmpty(t, benchmark.Here, benchmark.Check)
		require.NotEmpty(t, benchmark.Shown, benchmark.Check)
		for _, shown := range benchmark.Shown {
			twin, runs := run[shown]
			require.True(t, runs, "%s: no test runs attack %s", benchmark.Check, shown)
			require.True(t, twin || !strings.Contains(benchmark.Here, "the twin"), "%s: attack %s has no twin", benchmark.Check, shown)
		}
	}
}

// meant are the folders of tests that docs/security.md names, where several packages have one of the name. Those of
// areas of attacks are meant everywhere.
var meant = map[string]string{
	"TestDemo": "test/e2e", "TestMissingVirtualCluster": "test/integration/syncer", "TestProof": "test/integration/syncer", "TestRestored": "test/integration/syncer",
}

// TestShown: each test that docs/security.md names is in the repository, in one package or in that which is meant. What
// it names of a test is an attack.
func TestShown(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	folders := map[string][]string{} // by test or fuzzer
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(\w+ \*testing\.[TF]\)`)
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
		for _, match := range declared.FindAllSubmatch(content, -1) {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			require.NoError(t, err)
			folders[string(match[1])] = append(folders[string(match[1])], filepath.ToSlash(folder))
		}
		return err
	}))
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	require.NoError(t, err)
	run, areas := calls(t), map[string]bool{}
	for attack := range run {
		area, _, _ := strings.Cut(attack, "/")
		areas[area] = true
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(/[^`]+)?`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	for _, match := range named {
		name, of := match[1], match[2]
		if of != "" {
			require.Contains(t, run, name+of, "docs/security.md names an attack that no test runs")
			continue
		}
		folder := meant[name]
		if areas[name] {
			folder = "test/attacks"
		}
		if folder == "" {
			require.Len(t, folders[name], 1, "docs/security.md names %s", name)
			continue
		}
		require.Contains(t, folders[name], folder, "docs/security.md names %s", name)
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
	require.Empty(t, gocmp.Diff(want, slices.Sorted(maps.Keys(calls(t)))))
}

// calls returns Test<Area>/<id> of each call of attack in the functions of this folder's tests, and whether it has a
// twin. Each is there once.
func calls(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	found := map[string]bool{}
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
				if !ok || len(call.Args) != 5 {
					return true
				}
				callee, isName := call.Fun.(*ast.Ident)
				id, isText := call.Args[1].(*ast.BasicLit)
				if isName && callee.Name == "attack" && isText {
					text, err := strconv.Unquote(id.Value)
					require.NoError(t, err)
					name := function.Name.Name + "/" + text
					require.NotContains(t, found, name, "an attack that is run twice")
					twin, isName := call.Args[4].(*ast.Ident)
					found[name] = !isName || twin.Name != "nil"
				}
				return true
			})
		}
	}
	return found
}
