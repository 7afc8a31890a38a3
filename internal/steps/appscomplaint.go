package steps

import (
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

var (
	// clientLog is a line of the log of a Kubernetes client, which repeats what it ends with.
	clientLog = pattern.New(`^[EWI]\d{4} [\d:.]+ +\d+ `)
	// ofRelease names the release that helmfile failed with.
	ofRelease = pattern.New(`failed processing release ([^\s:]+)`)
	// helmSaid is what helm wrote, in helmfile's account of it: the lines up to an empty one.
	helmSaid = pattern.New(`(?m)^STDERR:\n((?: .*\n?)+)`)
	// painted is a change of colour.
	painted = pattern.New(`\x1b\[[\d;]*m`)
	// inFile begins helmfile's own last words.
	inFile = pattern.New(`(?m)^(?:in \S+|err|error|Error): `)
)

// essence is what of a program's complaint says why it failed. Around that helmfile tells of its progress and of helm's
// arguments, and kubectl of each attempt.
func essence(failure *program.Failure) *program.Failure {
	lasting := *failure
	lasting.Complaint = painted.ReplaceAllString(failure.Complaint, "")

	switch said := helmSaid.FindAllStringSubmatch(lasting.Complaint, -1); {
	case failure.Name == helmfile && len(said) > 0:
		lasting.Complaint = ""
		if release := ofRelease.FindStringSubmatch(failure.Complaint); release != nil {
			lasting.Complaint = "release " + release[1] + ": "
		}

		for _, lines := range said {
			lasting.Complaint += lines[1]
		}
	case failure.Name == helmfile:
		if last := inFile.FindAllStringIndex(lasting.Complaint, 1); len(last) > 0 {
			lasting.Complaint = lasting.Complaint[last[0][0]:]
		}
	}

	// What kubectl advises about a conflict is longer than what it says of it.
	lasting.Complaint, _, _ = strings.Cut(lasting.Complaint, "Please review the fields above")
	lasting.Complaint = withoutRepeats(lasting.Complaint)

	return &lasting
}

// withoutRepeats leaves out lines that were there, and those of a client's log.
func withoutRepeats(text string) string {
	var kept []string

	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !clientLog.MatchString(line) && !slices.Contains(kept, line) {
			kept = append(kept, line)
		}
	}

	return strings.Join(kept, "\n")
}

// appsRemedies are for what programs say that can be put right by one command.
var appsRemedies = []struct {
	sign pattern.Pattern
	next string
}{
	{pattern.New(`You must be logged in|Unauthorized|provide credentials`), "mage kubeconfig, which fetches valid credentials"},
	{pattern.New(`was refused|connection refused|no route to host|i/o timeout|Unable to connect`),
		"mage health says whether the Kubernetes API runs; then run the same command again"},
	{pattern.New(`is forbidden`), "mage kubeconfig, which fetches the administrator's credentials"},
	{pattern.New(`context "[^"]*" does not exist`), "mage kubeconfig, which adds the cluster's context"},
	{pattern.New(`conflict`), "leave the object to whom it names, as to Flux, by removing its file; or take its value from " +
		"there. Then run the same command again"},
	{pattern.New(`namespaces? "[^"]+" not found`), "add a folder of that name to kubernetes/apps/, and run the same command again"},
	{pattern.New(`another operation \(install/upgrade/rollback\) is in progress`), "a run that was killed left the release " +
		"half installed: helm list -A --pending names it; helm uninstall it, or helm rollback where it had been installed " +
		"before; then run the same command again"},
	{pattern.New(`for "--post-renderer" flag`), "Helm 4 takes no program as post-renderer: remove postRenderer from " +
		"bootstrap/helmfile.d/00-crds.yaml, of which only CRDs are applied anyway; then run the same command again"},
	{pattern.New(`no such host|failed to fetch|failed to perform`),
		"look whether this computer reaches the chart's registry, and correct the chart or its version; then run the same " +
			"command again"},
	{pattern.New(`context deadline exceeded|timed out|not ready`), "kubectl get pods -A shows what does not get ready; then run " +
		"the same command again"},
}

// whatNext is the next command for what a program complained of; the entry's remedy where nothing is known of it.
func whatNext(complaint, remedy string) string {
	for _, known := range appsRemedies {
		if known.sign.MatchString(complaint) {
			return known.next
		}
	}

	return remedy
}

// complained is what a program says, as far as it holds no value, which may be a secret.
func complained(failure *program.Failure) string {
	said, _, _ := strings.Cut(workspace.Complaint(essence(failure)), "Invalid value:")

	return said
}
