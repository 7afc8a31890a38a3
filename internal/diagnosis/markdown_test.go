package diagnosis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/test/sourcelinks"
)

// madeFrom says in a page how to renew it.
const madeFrom = "<!-- Made from internal/diagnosis: go test ./internal/diagnosis -update -->\n\n"

// Markdown is the documentation page of the whole catalogue.
func Markdown() string {
	var page strings.Builder

	page.WriteString("# Diagnoses\n\n" + madeFrom +
		"Every finding and every error that a run shows carries one of these ids. An id stays with its kind of trouble " +
		"for good and is never\n" +
		"used again. The severity is the usual one: where a step or a node's state makes a difference, the message has " +
		"the last word.\n" +
		"`SKIP_CHECKS=TM054,TM062` turns failures of these checks into warnings; those marked \"can't be skipped\" guard " +
		"the cluster's secrets.\n\n" +
		"| id | severity | exit code | kind of trouble |\n|---|---|---|---|\n")

	for _, entry := range Catalogue() {
		fmt.Fprintf(&page, "| [%s](#%s) | %s | %s | %s |\n",
			entry.ID, strings.ToLower(string(entry.ID)), entry.Severity, entry.exitText(),
			strings.ReplaceAll(entry.Title, "|", `\|`))
	}

	for _, entry := range Catalogue() {
		fmt.Fprintf(&page, "\n## %s\n\n**%s.**", entry.ID, entry.Title)

		if entry.Unskippable {
			page.WriteString(" It can't be skipped.")
		}

		fmt.Fprintf(&page, "\n\n%s\n\nWhat to do: %s\n\nSource: %s\n", entry.Cause, entry.Remedy,
			sourcelinks.Of(entry.Source))
	}

	return page.String()
}

// exitText is the exit code of a failure; a warning alone ends no run.
func (e Entry) exitText() string {
	if e.Exit == ExitOK {
		return ""
	}

	return strconv.Itoa(int(e.Exit))
}

// ExitCodesMarkdown is the documentation page of the exit codes.
func ExitCodesMarkdown() string {
	var page strings.Builder

	page.WriteString("# Exit codes\n\n" + madeFrom + "| code | meaning |\n|---|---|\n")

	for _, code := range ExitCodes() {
		fmt.Fprintf(&page, "| %d | %s |\n", code.Code, code.Meaning)
	}

	page.WriteString("\nOf several failures the earliest step's code counts, and within a step 2 before any other. " +
		"Nodes whose config differs from its file\n" +
		"are no failure: a run ends with 0 and says how many differ; a dry run ends with 8.\n\n" +
		"Task hides the code of a command that failed unless it is called with `-x` (`task -x bootstrap:talos`), and `go " +
		"run` ends with 1\n" +
		"whatever the code was; the program, `mage` and the scripts keep it. The former scripts ended with 1 for " +
		"every failure.\n")

	return page.String()
}

// ExitMeaning pairs a code with its meaning; the documentation's table is made from these.
type ExitMeaning struct {
	Code    ExitCode
	Meaning string
}

// ExitCodes lists every code the program ends with, in order.
func ExitCodes() []ExitMeaning {
	return []ExitMeaning{
		{ExitOK, "done, or nothing to do"},
		{ExitUnexpected, "unexpected error, or a Go program's own step failed"},
		{ExitBadInput, "bad input: decided by settings and files alone, whichever step finds it"},
		{ExitPreflight, "preflight found a node or a cluster that can't proceed (it needed a node's answer), or another " +
			"run holds the lock"},
		{ExitApply, "apply, or a reset, failed on at least one node"},
		{ExitVerify, "verify: a node is stuck, or its install failed; diagnose: something is found wrong"},
		{ExitBootstrap, "bootstrap or etcd failed, or bootstrap was refused"},
		{ExitKubernetes, "the Kubernetes API or the cluster's health did not come up"},
		{ExitDryRun, "dry run: changes would be made"},
		{ExitInterrupt, "stopped by SIGINT, or the end of a Go program's context, after telling what was done and how " +
			"to go on"},
		{ExitTerminated, "stopped by SIGTERM, after telling what was done and how to go on"},
	}
}
