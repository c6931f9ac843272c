package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits for readability. Generated code is not counted.
const (
	maxFiles         = 40  // of a package, without tests
	maxLines         = 400 // of a file, tests too
	maxFields        = 15  // of a struct
	maxConfigFields  = 20  // of a struct that is plain configuration
	maxMethods       = 5   // of an interface
	maxFunctionLines = 80  // of a function, without tests
)

// TestSizes: no package, file, type or function exceeds the limits.
func TestSizes(t *testing.T) {
	t.Parallel()
	s := sizes{t}
	for _, p := range list(t) {
		name := path.Base(p.ImportPath)
		sources := append(append([]string{}, p.GoFiles...), p.CgoFiles...)
		s.check(name+" files", len(sources), maxFiles)
		for _, f := range append(append(append([]string{}, sources...), p.TestGoFiles...), p.XTestGoFiles...) {
			if strings.HasSuffix(f, ".pb.go") {
				continue
			}
			n, err := lines(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			s.check(name+"/"+f+" lines", n, maxLines)
			if !strings.HasSuffix(f, "_test.go") {
				s.declarations(name, filepath.Join(p.Dir, f))
			}
		}
	}
}

// TestSizesOfScripts: no file in Python or TypeScript exceeds the limit, tests too.
func TestSizesOfScripts(t *testing.T) {
	t.Parallel()
	s := sizes{t}
	for _, folder := range []string{"cluster", "e2e", "notebooks", "tensorboard", "jupyter-ext/src"} {
		found := 0
		err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "node_modules" {
				return cmp.Or(err, fs.SkipDir)
			}
			if !slices.Contains([]string{".py", ".ts", ".tsx", ".mjs"}, path.Ext(file)) {
				return nil
			}
			found++
			n, err := lines(file)
			s.check(file+" lines", n, maxLines)
			return err
		})
		if err != nil || found == 0 {
			t.Errorf("%s: %d files, %v", folder, found, err)
		}
	}
}

// sizes compares numbers with the limits.
type sizes struct{ t *testing.T }

func (s sizes) check(what string, n, limit int) {
	s.t.Helper()
	if n > limit {
		s.t.Errorf("%s: %d, want at most %d", what, n, limit)
	}
}

// declarations checks the types and functions of a file.
func (s sizes) declarations(pkg, file string) {
	s.t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			s.check(pkg+"."+d.Name.Name+" lines", fset.Position(d.End()).Line-fset.Position(d.Pos()).Line+1, maxFunctionLines)
		case *ast.TypeSpec:
			s.typeSpec(pkg+"."+d.Name.Name, d.Type)
		}
		return true
	})
}

func (s sizes) typeSpec(name string, typ ast.Expr) {
	s.t.Helper()
	switch typ := typ.(type) {
	case *ast.StructType:
		limit := maxFields
		if isConfiguration(name) {
			limit = maxConfigFields
		}
		s.check(name+" fields", count(typ.Fields), limit)
	case *ast.InterfaceType:
		s.check(name+" methods", count(typ.Methods), maxMethods)
	}
}

// isConfiguration reports, by its name, whether a struct is plain configuration or a record of plain values.
func isConfiguration(name string) bool {
	for _, suffix := range []string{"Config", "Options", "Limits", "Record", ".State", "Input"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

func count(fields *ast.FieldList) int {
	n := 0
	for _, f := range fields.List {
		n += max(1, len(f.Names))
	}
	return n
}
