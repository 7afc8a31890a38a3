package settings

import (
	"cmp"
	"fmt"
	"strings"
)

// Markdown is the documentation page of all settings.
func Markdown() string {
	var page strings.Builder

	page.WriteString("# Settings\n\n" +
		"<!-- Made from internal/cli/settings: go test ./internal/cli/settings -update -->\n\n" +
		"A setting is an environment variable, a flag of a target (`mage applyParallel -parallel=3`), or both. A " +
		"flag overrides the variable.\n" +
		"What permits loss, such as `-update`, is only a flag. Its former variable has no effect; if it is set, a " +
		"warning says so.\n" +
		"An empty variable counts as not set. Durations are seconds (`300`) or have units (`5m`). Relative paths are " +
		"relative to the working\n" +
		"directory. A bad value ends a run with exit code 2 before anything is done.\n")

	group := ""

	for _, knob := range Table() {
		if knob.Group != group {
			group = knob.Group
			page.WriteString("\n## " + group + "\n\n| variable | flag | takes | default | meaning |\n|---|---|---|---|---|\n")
		}

		// The forms of a duration stand above the tables.
		takes, _, _ := strings.Cut(knob.Takes(), ": seconds")

		variable, typed := knob.Name, ""
		if knob.TypedAlone() {
			variable, typed = "", strings.Join(knob.Arguments, ", ")
		}

		fmt.Fprintf(&page, "| %s | %s | %s | %s | %s |\n",
			code("", variable), cmp.Or(code("-", knob.Flag), code("", typed)), cell(takes), code("", knob.Default),
			cell(knob.Doc))
	}

	return page.String()
}

// code sets text as code, unless it is empty or a sentence.
func code(prefix, text string) string {
	switch {
	case text == "":
		return ""
	case strings.Contains(text, " "):
		return cell(text)
	default:
		return "`" + prefix + text + "`"
	}
}

// cell escapes what would end a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(text, "|", `\|`)
}
