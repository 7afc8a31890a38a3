package output

import (
	"fmt"
	"strings"

	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// ExplainIndent is where the texts of Explain stand, behind what they are about.
const ExplainIndent = len("remedy  ")

// Explain is what there is to know about a kind of trouble, for people.
func Explain(entry diagnosis.Entry) string {
	var text strings.Builder

	fmt.Fprintf(&text, "%s  %s (%s", entry.ID, entry.Title, entry.Severity)

	if entry.Exit != diagnosis.ExitOK {
		fmt.Fprintf(&text, ", exit code %d", entry.Exit)
	}

	text.WriteString(")\n\n")
	fmt.Fprintf(&text, "cause   %s\nremedy  %s\nsource  %s\n", entry.Cause, entry.Remedy, entry.Source)

	for _, check := range table.Checks() {
		if check.ID == entry.ID {
			needs := strings.Join(check.Needs.Names(), ", ")
			if needs == "" {
				needs = "nothing but the files"
			}

			fmt.Fprintf(&text, "needs   %s\n", needs)
		}
	}

	if entry.Unskippable {
		text.WriteString("skip    it can't be skipped\n")
	} else if entry.Severity == diagnosis.Failure {
		fmt.Fprintf(&text, "skip    SKIP_CHECKS=%s turns it into a warning\n", entry.ID)
	}

	return text.String()
}
