package diagnosis

import (
	"fmt"
	"slices"
	"strings"
)

// NotRunLine says in one line how many checks one reason kept from being run, for a node or (empty) for all of them:
// "57 checks need a node's answer: mage preflight". The ids follow when they are wanted.
func NotRunLine(ids []ID, node, why string, verbose bool) string {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	text, verb := "1 check", "needs "

	if len(ids) != 1 {
		text, verb = fmt.Sprintf("%d checks", len(ids)), "need "
	}

	if node != "" {
		text += " of " + node
	}

	if need, needs := strings.CutPrefix(why, "needs "); needs {
		text += " " + verb + need
	} else {
		text += ": " + why
	}

	if verbose {
		text += fmt.Sprintf("  %v", ids)
	}

	return text
}
