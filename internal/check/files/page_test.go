package files_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/sourcelinks"
)

// pageOfChecks is the documentation page of all checks.
func pageOfChecks() string {
	var page strings.Builder

	page.WriteString("# Checks\n\n<!-- Made from internal/check/files: go test ./internal/check/files -update -->\n\n" +
		"`mage audit` runs every check that needs files alone, `mage preflight` those and the ones that ask the network " +
		"and the nodes, and\n" +
		"`mage explain TM065` tells about one. A check whose input is missing is shown as not run. `SKIP_CHECKS=TM065` " +
		"turns failures of a check\n" +
		"into warnings that say so. `-format=json` and `-format=sarif` (SARIF 2.1.0) are for programs. A failure that " +
		"files alone decide ends with\n" +
		"code 2. What each check means and what to do about it is on the page of [diagnoses](diagnoses.md).\n")

	for _, kind := range check.Kinds() {
		var rows []check.Check

		for _, check := range table.Checks() {
			if check.Kind == kind {
				rows = append(rows, check)
			}
		}

		if len(rows) == 0 {
			continue
		}

		fmt.Fprintf(&page, "\n## %s\n\n", kind)

		if kind == check.Interop {
			page.WriteString(interopIntroduction())
		}

		page.WriteString("| id | severity | looks for | needs | source |\n|---|---|---|---|---|\n")

		for _, check := range rows {
			entry := check.Entry()
			fmt.Fprintf(&page, "| [%s](diagnoses.md#%s) | %s | %s | %s | %s |\n", check.ID, strings.ToLower(string(check.ID)),
				severity(check),
				cell(entry.Title), strings.Join(check.Needs.Names(), ", ")+always(check), cell(sourcelinks.Of(entry.Source)))
		}
	}

	return page.String()
}

// severity is the entry's, in the page's words.
func severity(c check.Check) string {
	severity := c.Entry().Severity
	if c.Area != "" && severity == diagnosis.OK {
		return check.Suggestion
	}

	return severity.String()
}

// always marks the rows of the profile's section that need no profile.
func always(c check.Check) string {
	if c.Kind == check.Interop && !c.ProfileOnly {
		return " (always)"
	}

	return ""
}

// interopIntroduction says how the profile is asked for, and what belongs to which area.
func interopIntroduction() string {
	var text strings.Builder

	text.WriteString("`mage audit -profile=interop` judges seven areas by what is documented for Talos, and shows a " +
		"table of them: what is wrong, what could\n" +
		"be better (a suggestion changes no exit code), and what was not there to be judged. The checks of this section " +
		"run with the profile alone,\n" +
		"except those that say \"always\". [interop.md](interop.md) says where Cilium's values and the VMs are read " +
		"from.\n\n" +
		"| area | checks |\n|---|---|\n")

	for _, area := range check.Areas() {
		var ids []string

		for _, check := range table.Checks() {
			if id := string(check.ID); check.Area == area && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}

		fmt.Fprintf(&text, "| %s | %s |\n", area, strings.Join(ids, " "))
	}

	return text.String() + "\n"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
