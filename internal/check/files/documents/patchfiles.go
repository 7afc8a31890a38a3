package documents

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/check"
)

// checkMissingPatches looks for files that are listed and not there, and for the templates that would have made them.
func checkMissingPatches(r *check.Report, in *check.Input) {
	for _, patch := range slices.Concat(in.Patches, in.Manifests) {
		if !patch.Missing || !in.Used(patch) {
			continue
		}

		next := "write the file, or take it out of the list"
		if near := suggest.Word(filepath.Base(patch.File.Path), check.NamesIn(filepath.Dir(patch.File.Path))); near != "" {
			next = "did you mean " + near + "?"
		}

		made := madeFrom(in, patch)
		if made != "" {
			next = "list it under the same condition as the template writes it, or make the condition true"
		}

		r.Found(patch.Named, next, "%s does not exist%s", patch.Name(), made)
	}
}

// templateEndings are how the files of common template programs end.
var templateEndings = []string{".j2", ".jinja", ".jinja2", ".tmpl", ".gotmpl", ".tpl", ".erb"}

// mostFiles is how many files of a repository are looked at for templates.
const mostFiles = 20_000

// templates are those below the repository's root by the name of the file that they make.
type templates map[string][]string

func findTemplates(in *check.Input) templates {
	root := in.Options.Root
	if root == "" {
		root = in.Options.TalosDir
	}

	found := templates{}
	seen := 0

	// What can't be read is no template.
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		seen++

		switch {
		case seen > mostFiles:
			return fs.SkipAll
		case err != nil:
			return nil //nolint:nilerr // the rest is looked at all the same
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		}

		if ending := filepath.Ext(path); !entry.IsDir() && slices.Contains(templateEndings, ending) {
			name := strings.TrimSuffix(entry.Name(), ending)
			found[name] = append(found[name], path)
		}

		return nil
	})

	return found
}

// condition is the beginning of a part of a template that is there only if something holds, in the marks of common
// template programs.
var condition = pattern.New(`^\s*(?:#%|\{%-?|\{\{-?|<%-?)\s*if\s+(.+?)\s*-?(?:%#|%\}|\}\}|%>)`)

// madeFrom says which template a patch is made from and on which condition; empty if there is none.
func madeFrom(in *check.Input, patch *check.Patch) string {
	if patch.Inline {
		return ""
	}

	templates := check.Once(in, findTemplates)[filepath.Base(patch.File.Path)]
	if len(templates) != 1 {
		return "" // which of several makes it is not known
	}

	shown := in.Shown(templates[0])

	template := in.Open(templates[0])
	if template == nil {
		return ""
	}

	number := 0

	for line := range strings.Lines(string(template.Data)) {
		number++

		if match := condition.FindStringSubmatch(line); match != nil {
			return fmt.Sprintf(": its template writes it only if %q holds (%s:%d)%s", match[1], shown, number,
				undefined(in, match[1]))
		}

		if text := strings.TrimSpace(line); text != "" && text != "---" && !strings.HasPrefix(text, "#") {
			break // there is text without a condition
		}
	}

	return fmt.Sprintf(": it is made from %s, which was not rendered since", shown)
}

// word is what a variable is called in a template.
var templateName = pattern.New(`[A-Za-z_][A-Za-z0-9_]*`)

// undefined says that the first variable of a condition stands in none of the YAML files at the repository's root,
// where those are kept that templates get their values from; empty if it does, or there are none.
func undefined(in *check.Input, condition string) string {
	name := templateName.FindString(strings.TrimPrefix(condition, "not "))
	paths, _ := filepath.Glob(filepath.Join(in.Options.Root, "*.y*ml")) // the pattern is well-formed

	if name == "" || len(paths) == 0 || in.Options.Root == "" {
		return ""
	}

	var names []string

	for _, path := range paths {
		file := in.Open(path)
		if file == nil || strings.Contains(string(file.Data), name) {
			return ""
		}

		names = append(names, filepath.Base(path))
	}

	return fmt.Sprintf(", and %s stands in none of %s", name, strings.Join(names, ", "))
}
