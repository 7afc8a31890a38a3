package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// reader type-checks a package and descriptions of it against the same imports, which the go command compiles. So it
// reads what any release of Go makes that it was itself built with.
type reader struct {
	files   *token.FileSet
	imports types.Importer
	target  listed
}

// listed is what the go command says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// newReader reads a package that a pattern names, and what a description of it imports.
func newReader(pattern string, description []byte) (*reader, error) {
	made := &reader{files: token.NewFileSet()}
	imported := importsOf(description)

	packages, err := list(append([]string{pattern}, imported...))
	if err != nil {
		return nil, err
	}

	exports := map[string]string{}

	for _, one := range packages {
		exports[one.ImportPath] = one.Export

		if !one.DepOnly && !slices.Contains(imported, one.ImportPath) {
			made.target = one
		}
	}

	made.imports = importer.ForCompiler(made.files, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("nothing was compiled of it")
		}

		return os.Open(exports[path])
	})

	return made, nil
}

// list asks the go command about packages, and has it compile what they import.
func list(arguments []string) ([]listed, error) {
	command := exec.Command("go", append([]string{"list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, arguments...)...)
	command.Stderr = os.Stderr

	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}

	var packages []listed

	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var one listed

		switch err := decoder.Decode(&one); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("read what go list prints: %w", err)
		}

		packages = append(packages, one)
	}
}

// importsOf are the paths that a file imports; none of one that is no Go.
func importsOf(text []byte) []string {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	if err != nil {
		return nil
	}

	var paths []string

	for _, spec := range file.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, path)
		}
	}

	return paths
}

// readPackage reads the package as it is.
func (r *reader) readPackage() (*types.Package, error) {
	var files []*ast.File

	for _, name := range r.target.GoFiles {
		file, err := parser.ParseFile(r.files, filepath.Join(r.target.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read package: %w", err)
		}

		files = append(files, file)
	}

	return r.check(files...)
}

// readDescription reads the package as it was described.
func (r *reader) readDescription(name string, text []byte) (*types.Package, error) {
	file, err := parser.ParseFile(r.files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read description: %w", err)
	}

	return r.check(file)
}

func (r *reader) check(files ...*ast.File) (*types.Package, error) {
	config := types.Config{Importer: r.imports, IgnoreFuncBodies: true}

	checked, err := config.Check(r.target.ImportPath, r.files, files, nil)
	if err != nil {
		return nil, fmt.Errorf("check types: %w", err)
	}

	return checked, nil
}
