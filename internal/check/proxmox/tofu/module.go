package tofu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
)

// Module is a folder of OpenTofu files, with values for its variables.
type Module struct {
	*reader

	folder    string
	depth     int
	resources hcl.Blocks
	variables map[string]cty.Value
	locals    map[string]*local
	calls     []*call
	outputs   map[string]*hcl.Attribute
}

// reader reads files.
type reader struct {
	shown func(path string) string
	read  map[string]*hcl.File // by path
	texts map[string][]byte    // by the path that is shown
}

// local is a local value, which is evaluated when it is first needed.
type local struct {
	expression hcl.Expression
	busy, done bool
	value      cty.Value
}

// call is a module block.
type call struct {
	*hcl.Block

	busy, done, local bool
	modules           []*Module
	err               error
}

// maxDepth is how deep modules may call modules: one can call itself.
const maxDepth = 10

// Read reads the files of a folder, and those of the modules that they call. A file that can't be read is an *Error.
func Read(folder string, shown func(path string) string) (*Module, error) {
	reader := &reader{shown: shown, read: map[string]*hcl.File{}, texts: map[string][]byte{}}

	module, declared, err := reader.module(folder)
	if err != nil {
		return nil, err
	}

	given, err := reader.values(folder)
	if err != nil {
		return nil, err
	}

	module.declare(declared, given)

	return module, nil
}

var topLevel = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "output", LabelNames: []string{"name"}},
	{Type: "module", LabelNames: []string{"name"}},
	{Type: "locals"},
}}

// Refuse says which file of a folder can't be one of OpenTofu's, such as a pipe: it would not come to its end.
func Refuse(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil //nolint:nilerr // Read says so
	}

	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())

		if err := plainfile.Refuse(path); err != nil && isConfig(entry.Name(), entries) {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}

	return nil
}

// module reads a folder's blocks; its variables come as they are declared.
func (r *reader) module(folder string) (*Module, hcl.Blocks, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("read OpenTofu files: %w", err)
	}

	module := &Module{reader: r, folder: folder, variables: map[string]cty.Value{}, locals: map[string]*local{},
		outputs: map[string]*hcl.Attribute{}}

	var declared hcl.Blocks

	for _, entry := range entries {
		if entry.IsDir() || !isConfig(entry.Name(), entries) {
			continue
		}

		file, err := r.parse(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, nil, err
		}

		content, _, mistakes := file.Body.PartialContent(topLevel)
		if err := r.mistake(mistakes); err != nil {
			return nil, nil, err
		}

		if len(content.Blocks) > 0 && isOverride(entry.Name()) {
			return nil, nil, &Error{r.at(content.Blocks[0].DefRange), "override files are not understood"}
		}

		declared = append(declared, module.add(content.Blocks)...)
	}

	return module, declared, nil
}

// isConfig reports whether a file belongs to a module. A .tofu file takes the place of the .tf file of its name.
func isConfig(name string, entries []os.DirEntry) bool {
	for _, suffix := range []string{".tf", ".tf.json"} {
		if base, found := strings.CutSuffix(name, suffix); found {
			replaced := base + strings.Replace(suffix, ".tf", ".tofu", 1)

			return !slices.ContainsFunc(entries, func(other os.DirEntry) bool { return other.Name() == replaced })
		}
	}

	return strings.HasSuffix(name, ".tofu") || strings.HasSuffix(name, ".tofu.json")
}

func isOverride(name string) bool {
	base, _, _ := strings.Cut(name, ".")

	return base == "override" || strings.HasSuffix(base, "_override")
}

// add sorts blocks by what they are, and gives the declared variables.
func (m *Module) add(blocks hcl.Blocks) (variables hcl.Blocks) {
	for _, block := range blocks {
		switch block.Type {
		case "resource":
			m.resources = append(m.resources, block)
		case "variable":
			variables = append(variables, block)
		case "module":
			m.calls = append(m.calls, &call{Block: block})
		case "output":
			m.outputs[block.Labels[0]] = Block{body: block.Body}.attribute("value")
		case "locals":
			attributes, _ := block.Body.JustAttributes() // a block in it is OpenTofu's to find
			for name, attribute := range attributes {
				m.locals[name] = &local{expression: attribute.Expr}
			}
		}
	}

	return variables
}

func (r *reader) parse(path string) (*hcl.File, error) {
	if file, read := r.read[path]; read {
		return file, nil
	}

	data, _, err := plainfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read OpenTofu file: %w", err)
	}

	var (
		file     *hcl.File
		mistakes hcl.Diagnostics
		shown    = r.shown(path)
	)

	r.texts[shown] = data

	if strings.HasSuffix(path, ".json") {
		file, mistakes = json.Parse(data, shown)
	} else {
		file, mistakes = hclsyntax.ParseConfig(data, shown, hcl.InitialPos)
	}

	if err := r.mistake(mistakes); err != nil {
		return nil, err
	}

	r.read[path] = file

	return file, nil
}

// mistake is the first one; nil if there is none.
func (r *reader) mistake(found hcl.Diagnostics) error {
	for _, one := range found {
		if one.Severity != hcl.DiagError {
			continue
		}

		mistake := &Error{Message: one.Summary + ": " + one.Detail}
		if one.Subject != nil {
			mistake.Position = r.at(*one.Subject)
		}

		return mistake
	}

	return nil
}

// at is the place where a range begins.
func (r *reader) at(found hcl.Range) Position {
	position := Position{Path: found.Filename, Line: found.Start.Line, Column: found.Start.Column}

	if text, known := r.texts[found.Filename]; known && position.Line > 0 {
		lines := strings.SplitN(string(text), "\n", position.Line+1)
		position.Text = strings.TrimSpace(lines[min(position.Line, len(lines))-1])
	}

	return position
}

// values are those of the files of values.
func (r *reader) values(folder string) (map[string]cty.Value, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read OpenTofu values: %w", err)
	}

	var names []string

	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".json")
		if !entry.IsDir() && (name == "terraform.tfvars" || strings.HasSuffix(name, ".auto.tfvars")) {
			names = append(names, entry.Name())
		}
	}

	// The later goes over the earlier. os.ReadDir has them by name, and so they stay within a class.
	slices.SortStableFunc(names, func(a, b string) int { return precedence(a) - precedence(b) })

	given := map[string]cty.Value{}

	for _, name := range names {
		file, err := r.parse(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}

		attributes, mistakes := file.Body.JustAttributes()
		if err := r.mistake(mistakes); err != nil {
			return nil, err
		}

		for name, attribute := range attributes {
			given[name] = (&Module{reader: r}).scope().evaluate(attribute.Expr)
		}
	}

	return given, nil
}

func precedence(name string) int {
	switch name {
	case "terraform.tfvars":
		return 0
	case "terraform.tfvars.json":
		return 1
	default:
		return 2
	}
}

// declare gives the variables their values: what is given, or their defaults.
func (m *Module) declare(variables hcl.Blocks, given map[string]cty.Value) {
	for _, block := range variables {
		name, declared := block.Labels[0], Block{body: block.Body}
		value, set := given[name]

		if set && value.IsKnown() && value.IsNull() {
			if nullable := declared.attribute("nullable"); nullable != nil {
				keeps := m.scope().evaluate(nullable.Expr)
				keeps, _ = keeps.Unmark()
				set = !keeps.RawEquals(cty.False)
			}
		}

		if !set {
			value = unknown(fmt.Sprintf("var.%s has no value (%s)", name, m.at(block.DefRange)))
			if byDefault := declared.attribute("default"); byDefault != nil {
				value = m.scope().evaluate(byDefault.Expr)
			}
		}

		if kind := declared.attribute("type"); kind != nil {
			value = m.typed(name, value, kind.Expr)
		}

		m.variables[name] = value
	}
}

// typed gives a value the type that its variable is declared with, and what that type adds.
func (m *Module) typed(name string, value cty.Value, declared hcl.Expression) cty.Value {
	kind, defaults, mistakes := typeexpr.TypeConstraintWithDefaults(declared)
	if mistakes.HasErrors() {
		return value // an old way to write it
	}

	if defaults != nil {
		value = defaults.Apply(value)
	}

	converted, err := convert.Convert(value, kind)
	if err != nil {
		return unknown(fmt.Sprintf("the value of var.%s has not its type (%s)", name, m.at(declared.Range())))
	}

	return converted
}

// called are the modules that a call makes; none if it is no local one.
func (m *Module) called(call *call) ([]*Module, error) {
	if call.done || call.busy {
		return call.modules, call.err
	}

	call.busy = true
	call.modules, call.err = m.call(call)
	call.busy, call.done = false, true

	return call.modules, call.err
}

func (m *Module) call(call *call) ([]*Module, error) {
	at := m.at(call.DefRange)

	source, set := Block{body: call.Body, scope: m.scope(), At: at}.Attribute("source")
	if !set || !source.Known {
		return nil, &Error{at, fmt.Sprintf("the source of module %s is not known", call.Labels[0])}
	}

	if call.local = strings.HasPrefix(source.Text, "./") || strings.HasPrefix(source.Text, "../"); !call.local {
		return nil, nil
	}

	if m.depth == maxDepth {
		return nil, &Error{at, "modules call modules too deep"}
	}

	attributes, _ := call.Body.JustAttributes() // a block in it is for OpenTofu

	var modules []*Module

	for _, one := range m.scope().instances(call.Body) {
		module, declared, err := m.module(filepath.Join(m.folder, filepath.FromSlash(source.Text)))
		if errors.Is(err, os.ErrNotExist) {
			return nil, &Error{at, fmt.Sprintf("module %s: there is no folder %s", call.Labels[0], source.Text)}
		}

		if err != nil {
			return nil, err
		}

		given := map[string]cty.Value{}
		for name, attribute := range attributes {
			given[name] = one.scope.evaluate(attribute.Expr)
		}

		module.depth = m.depth + 1
		module.declare(declared, given)

		modules = append(modules, module)
	}

	return modules, nil
}

// output is what a call's module gives; unknown for several.
func (m *Module) output(name string) cty.Value {
	i := slices.IndexFunc(m.calls, func(call *call) bool { return call.Labels[0] == name })
	if i < 0 {
		return unknown(fmt.Sprintf("there is no module %s", name))
	}

	call := m.calls[i]

	called, err := m.called(call)
	if err != nil || call.busy || len(called) != 1 || repeated(call.Body) {
		return unknown(fmt.Sprintf("what module %s gives is not known (%s)", name, m.at(call.DefRange)))
	}

	outputs := map[string]cty.Value{}
	for name, value := range called[0].outputs {
		if value != nil {
			outputs[name] = called[0].scope().evaluate(value.Expr)
		}
	}

	return cty.ObjectVal(outputs)
}

func repeated(body hcl.Body) bool {
	block := Block{body: body}

	return block.attribute("count") != nil || block.attribute("for_each") != nil
}

// local is the value of a local.
func (m *Module) local(name string) cty.Value {
	found := m.locals[name]

	switch {
	case found == nil:
		return unknown("there is no local." + name)
	case found.busy:
		return unknown(fmt.Sprintf("local.%s needs itself (%s)", name, m.at(found.expression.Range())))
	case !found.done:
		found.busy = true
		found.value = m.scope().evaluate(found.expression)
		found.busy, found.done = false, true
	}

	return found.value
}
