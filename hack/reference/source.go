package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// source is the code of the checkout, without tests and generated files.
type source struct {
	// root is the folder of the checkout.
	root string
	// files by path below the root, with slashes.
	files map[string]*ast.File
	// paths are the keys of files in order.
	paths []string
}

// constant is one string constant.
type constant struct {
	// Folder is the package's folder below the root.
	Folder string
	// Name and Value of the constant; Doc is its comment without the line about who writes and reads it.
	Name, Value, Doc string
	// Group is the comment of the block that it stands in, "" for none.
	Group string
	// Kind is the type that the file is of: Widget in widget_types.go, "" in other files.
	Kind string
}

// meaning returns the comment without the constant's name at its beginning, which means nothing to who does not read
// the code.
func (c constant) meaning() string {
	rest, found := strings.CutPrefix(c.Doc, c.Name)
	if !found {
		return c.Doc
	}
	rest = strings.TrimLeft(rest, " :,")
	for _, filler := range []string{"means that ", "says that ", "is ", "are "} {
		rest = strings.TrimPrefix(rest, filler)
	}
	if word, _, _ := strings.Cut(rest, " "); rest == "" || strings.ContainsAny(strings.TrimSuffix(word, "."), "-.") {
		return rest // vc-scheduler and spec.nodes begin sentences as they are written
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// parse reads all Go files below the folders.
func parse(root string, folders ...string) (*source, error) {
	code := &source{root: root, files: map[string]*ast.File{}}
	set := token.NewFileSet()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err // of a folder that does not exist, entry is nil
			}
			name := entry.Name()
			if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_") {
				return nil
			}
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			below, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			code.paths = append(code.paths, filepath.ToSlash(below))
			code.files[filepath.ToSlash(below)] = file
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", folder, err)
		}
	}
	return code, nil
}

// constants returns the string constants whose name one of the prefixes begins, in the order of files and lines. A
// constant without a comment is an error: the page would say nothing of it.
func (s *source) constants(prefixes ...string) ([]constant, error) {
	var found []constant
	known := map[string]string{} // values by folder and name, for constants that are another's value
	for _, path := range s.paths {
		for _, declaration := range s.files[path].Decls {
			block, ok := declaration.(*ast.GenDecl)
			if !ok || block.Tok != token.CONST {
				continue
			}
			for _, spec := range block.Specs {
				folder := filepath.ToSlash(filepath.Dir(path))
				one, ok := constantOf(block, spec, prefixes, func(name string) string { return known[folder+"."+name] })
				if !ok {
					continue
				}
				one.Folder, one.Kind = folder, kindOf(path, s.files[path])
				known[folder+"."+one.Name] = one.Value
				if one.Doc == "" {
					return nil, fmt.Errorf("%s: constant %s has no comment", path, one.Name)
				}
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// kindOf returns the type that a file is of.
func kindOf(path string, file *ast.File) string {
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range block.Specs {
			if of, ok := spec.(*ast.TypeSpec); ok && strings.ToLower(of.Name.Name)+"_types.go" == filepath.Base(path) {
				return of.Name.Name
			}
		}
	}
	return ""
}

// constantOf returns one constant of a block. valueOf returns the value of another constant of the package that was
// read before, "" for none.
func constantOf(block *ast.GenDecl, spec ast.Spec, prefixes []string, valueOf func(string) string) (constant, bool) {
	values, ok := spec.(*ast.ValueSpec)
	if !ok || len(values.Names) != 1 || len(values.Values) != 1 {
		return constant{}, false
	}
	name := values.Names[0].Name
	matches := false
	for _, prefix := range prefixes {
		rest, found := strings.CutPrefix(name, prefix)
		matches = matches || found && rest != "" && strings.ToUpper(rest[:1]) == rest[:1]
	}
	value := ""
	switch expression := values.Values[0].(type) {
	case *ast.Ident:
		value = valueOf(expression.Name)
	case *ast.BasicLit:
		value, _ = strconv.Unquote(expression.Value) // "" for a number
	}
	if !matches || value == "" {
		return constant{}, false
	}
	one := constant{Name: name, Value: value, Doc: prose(values.Doc)}
	if block.Lparen.IsValid() {
		one.Group = prose(block.Doc)
	} else if one.Doc == "" {
		one.Doc = prose(block.Doc)
	}
	return one, true
}

// prose returns a comment as one line.
func prose(comment *ast.CommentGroup) string {
	return strings.Join(strings.Fields(comment.Text()), " ")
}
