package main

import (
	"fmt"
	"go/format"
	"go/types"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// describe is a package's exported API as Go declarations, in the order of their names.
func describe(api *types.Package) ([]byte, error) {
	d := describer{api: api, imports: map[string]bool{}}

	var declared strings.Builder

	for _, name := range api.Scope().Names() {
		if object := api.Scope().Lookup(name); object.Exported() {
			declared.WriteString("\n" + d.declare(object))
		}
	}

	var text strings.Builder

	fmt.Fprintf(&text, "// What importers of %s rely on.\n", api.Path())
	text.WriteString("// Made by apicheck -update; comments and bodies are in the package.\n\n")
	fmt.Fprintf(&text, "package %s\n\n", api.Name())

	for _, path := range slices.Sorted(maps.Keys(d.imports)) {
		fmt.Fprintf(&text, "import %q\n", path)
	}

	text.WriteString(declared.String())

	return format.Source([]byte(text.String()))
}

type describer struct {
	api     *types.Package
	imports map[string]bool
}

// qualify names another package, and remembers that it has to be imported.
func (d describer) qualify(other *types.Package) string {
	if other == d.api {
		return ""
	}

	d.imports[other.Path()] = true

	return other.Name()
}

func (d describer) text(of types.Type) string { return types.TypeString(of, d.qualify) }

func (d describer) declare(object types.Object) string {
	switch object := object.(type) {
	case *types.Const:
		return fmt.Sprintf("const %s %s = %s\n", object.Name(), d.constantType(object), object.Val().ExactString())
	case *types.TypeName:
		return d.declareType(object)
	default: // a function or a variable
		return types.ObjectString(object, d.qualify) + "\n"
	}
}

// constantType leaves out that of an untyped constant.
func (d describer) constantType(of *types.Const) string {
	if basic, ok := of.Type().(*types.Basic); ok && basic.Info()&types.IsUntyped != 0 {
		return ""
	}

	return d.text(of.Type())
}

func (d describer) declareType(name *types.TypeName) string {
	named, ok := name.Type().(*types.Named)
	if !ok || name.IsAlias() {
		return types.ObjectString(name, d.qualify) + "\n"
	}

	var text strings.Builder

	fmt.Fprintf(&text, "type %s %s\n", name.Name(), d.underlying(named.Underlying()))

	byName := func(a, b *types.Func) int { return strings.Compare(a.Name(), b.Name()) }
	for _, method := range slices.SortedFunc(named.Methods(), byName) {
		if method.Exported() {
			fmt.Fprintf(&text, "func (%s) %s%s\n", d.text(method.Signature().Recv().Type()), method.Name(),
				strings.TrimPrefix(d.text(method.Signature()), "func"))
		}
	}

	return text.String()
}

// underlying is a type's definition, with one field in place of unexported ones: they keep importers from writing all
// fields without their names, and perhaps from comparing values.
func (d describer) underlying(of types.Type) string {
	fields, ok := of.(*types.Struct)
	if !ok {
		return d.text(of)
	}

	var text strings.Builder

	unexported := false

	text.WriteString("struct {\n")

	for i := range fields.NumFields() {
		field := fields.Field(i)

		switch {
		case !field.Exported():
			unexported = true
		case field.Embedded():
			fmt.Fprintf(&text, "%s %s\n", d.text(field.Type()), tag(fields.Tag(i)))
		default:
			fmt.Fprintf(&text, "%s %s %s\n", field.Name(), d.text(field.Type()), tag(fields.Tag(i)))
		}
	}

	switch {
	case unexported && types.Comparable(of):
		text.WriteString("_ struct{} // unexported\n")
	case unexported:
		text.WriteString("_ [0]func() // unexported\n")
	}

	return text.String() + "}"
}

func tag(text string) string {
	if text == "" {
		return ""
	}

	return strconv.Quote(text)
}
