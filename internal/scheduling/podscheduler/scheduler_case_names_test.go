package podscheduler

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/modcache"
)

// leftOutFolders say why no case of a folder of kube-scheduler's integration tests runs over the view.
var leftOutFolders = map[string]string{
	".":                                  ofFramework,
	"batch":                              "batches of equal pods are off",
	"bind":                               ofFramework,
	"eventhandler":                       ofFramework,
	"extender":                           "profiles here have no extenders",
	"nominated_node_name":                ofNominations,
	"plugins":                            ofFramework,
	"podgroup":                           ofGroups,
	"podgroup/queueing":                  ofGroups,
	"podgroup/stepsframework":            ofGroups,
	"podgroup/topology_aware_scheduling": ofGroups,
	"preemption/podgroup":                ofGroups,
	"prequeueinghint":                    ofFramework,
	"serving":                            "it is about what the program serves",
	"taint":                              "it is about the controller of the tenant that taints Nodes",
}

// stockCaseNames returns the names of all cases of kube-scheduler's integration tests, of the Kubernetes that is linked
// and but for leftOutFolders, as folder/test/case: a test that has no table is a case.
func stockCaseNames(t *testing.T) []string {
	t.Helper()
	kubernetes, err := modcache.Dir(t.Context(), "k8s.io/kubernetes")
	require.NoError(t, err)
	root := filepath.Join(kubernetes, "test/integration/scheduler")
	files := map[string][]string{} // by folder
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		files[folder] = append(files[folder], path)
		return err
	}))
	var all []string
	for folder, paths := range files {
		if leftOutFolders[folder] == "" {
			all = append(all, casesOf(t, folder, paths)...)
		}
	}
	for folder := range leftOutFolders {
		require.NotEmpty(t, files[folder], "the reason for folder %s is for one that is there", folder)
	}
	slices.Sort(all)
	return slices.Compact(all) // one has a name twice
}

// casesOf returns the names of the cases of a package. A test that names a table of the package has its cases.
func casesOf(t *testing.T, folder string, paths []string) (cases []string) {
	t.Helper()
	tests, tables := map[string]*ast.BlockStmt{}, map[string][]string{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declared := range file.Decls {
			switch declared := declared.(type) {
			case *ast.FuncDecl:
				if name := declared.Name.Name; strings.HasPrefix(name, "Test") && name != "TestMain" {
					tests[name] = declared.Body
				}
			case *ast.GenDecl:
				for _, spec := range declared.Specs {
					if variable, is := spec.(*ast.ValueSpec); is {
						tables[variable.Names[0].Name] = tableNames(t, variable)
					}
				}
			}
		}
	}
	for test, body := range tests {
		names := tableNames(t, body)
		ast.Inspect(body, func(node ast.Node) bool {
			if identifier, is := node.(*ast.Ident); is {
				names = append(names, tables[identifier.Name]...)
			}
			return true
		})
		if len(names) == 0 {
			cases = append(cases, folder+"/"+test)
		}
		for _, name := range names {
			cases = append(cases, folder+"/"+test+"/"+strings.TrimSpace(name))
		}
	}
	return cases
}

// tableNames returns the names of the cases of the tables in root: elements with a field name. What a case consists of
// may have names too, and is not looked at.
func tableNames(t *testing.T, root ast.Node) (names []string) {
	t.Helper()
	ast.Inspect(root, func(node ast.Node) bool {
		literal, is := node.(*ast.CompositeLit)
		switch {
		case !is:
			return true
		case literal.Type != nil:
			return isTable(literal.Type)
		}
		for _, element := range literal.Elts {
			field, is := element.(*ast.KeyValueExpr)
			if !is {
				return true
			}
			key, is := field.Key.(*ast.Ident)
			if !is || !strings.EqualFold(key.Name, "name") {
				continue
			}
			text, is := field.Value.(*ast.BasicLit)
			require.True(t, is, "a name that is written out")
			name, err := strconv.Unquote(text.Value)
			require.NoError(t, err)
			names = append(names, name)
			break
		}
		return false
	})
	return names
}

// isTable returns whether a type is a slice whose elements are of no type of another package.
func isTable(of ast.Expr) bool {
	slice, is := of.(*ast.ArrayType)
	if !is {
		return false
	}
	_, isForeign := slice.Elt.(*ast.SelectorExpr)
	return !isForeign
}
