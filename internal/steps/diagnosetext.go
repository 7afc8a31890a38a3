package steps

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/evidence"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Text is the diagnosis for people: each node with its causes, best first, and the lines that point to them.
func (d Diagnosis) Text() string {
	var shown strings.Builder

	for _, node := range d.Nodes {
		fmt.Fprintf(&shown, "%s\n%s\n", node.headline(), node.reasons())
	}

	if len(d.Cluster) > 0 {
		fmt.Fprintf(&shown, "cluster\n%s\n", causesText(d.Cluster))
	}

	return shown.String()
}

// reasons are its causes, or that there are none.
func (n NodeDiagnosis) reasons() string {
	switch {
	case len(n.Causes) > 0:
		return causesText(n.Causes)
	case n.Seen.State == talos.Ours && !well(n.Seen):
		return "  waits for what the cluster lacks, see below: " + stageText(n.Seen) + "\n"
	default:
		return "  nothing is found wrong\n"
	}
}

// headline is the node, where it answers and how far it is.
func (n NodeDiagnosis) headline() string {
	words := []string{stateWord(n)}
	if stage := n.Seen.Stage(); stage != "" && n.Seen.State == talos.Ours {
		words = append(words, stage)
	}

	if n.Version != "" {
		words = append(words, "Talos "+n.Version)
	}

	subject := diagnosis.Finding{Node: n.Seen.Node.Name, Address: n.Seen.Address}.Subject()
	line := fmt.Sprintf("%s: %s", subject, strings.Join(words, ", "))

	if unread := slices.Sorted(maps.Keys(n.told.unread)); len(unread) > 0 {
		line += "; not read: " + text.List(unread)
	}

	return line
}

func stateWord(node NodeDiagnosis) string {
	if node.Seen.Silent() {
		return node.Seen.Silence.String()
	}

	return node.Seen.State.String()
}

func causesText(causes []evidence.Cause) string {
	var shown strings.Builder

	for i, cause := range causes {
		fmt.Fprintf(&shown, "  %d. %s %s  %s\n", i+1, cause.Severity, cause.ID, indented(cause.Cause))

		for _, line := range cause.Lines {
			fmt.Fprintf(&shown, "       %s: %s\n", line.Kind, line.Text)
		}

		if cause.Next != "" {
			fmt.Fprintf(&shown, "     next: %s\n", cause.Next)
		}
	}

	return shown.String()
}

// indented puts the further lines of a cause below its first.
func indented(cause string) string {
	return strings.ReplaceAll(strings.TrimRight(cause, "\n"), "\n", "\n       ")
}

func clockText(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// diagnosisDocument is a Diagnosis in JSON. docs/recovery.md names the fields.
type diagnosisDocument struct {
	Nodes   []nodeDocument  `json:"nodes"`
	Cluster []causeDocument `json:"cluster"`
	Next    string          `json:"next"`
}

type nodeDocument struct {
	Node    string            `json:"node"`
	Role    string            `json:"role"`
	Address string            `json:"address,omitempty"`
	State   string            `json:"state"`
	Stage   string            `json:"stage,omitempty"`
	Version string            `json:"version,omitempty"`
	Well    bool              `json:"well"`
	Causes  []causeDocument   `json:"causes"`
	Unread  map[string]string `json:"unread,omitempty"`
}

type causeDocument struct {
	ID       diagnosis.ID    `json:"id"`
	Severity string          `json:"severity"`
	Title    string          `json:"title"`
	Cause    string          `json:"cause"`
	Next     string          `json:"next,omitempty"`
	Evidence []evidence.Line `json:"evidence"`
}

// JSON is the diagnosis as one document.
func (d Diagnosis) JSON() string {
	document := diagnosisDocument{Nodes: []nodeDocument{}, Cluster: causeDocuments(d.Cluster), Next: d.Next}

	for _, node := range d.Nodes {
		document.Nodes = append(document.Nodes, nodeDocument{
			Node: node.Seen.Node.Name, Role: node.Seen.Node.Role.String(), Address: node.Seen.Address,
			State: stateWord(node), Stage: node.Seen.Stage(), Version: node.Version, Well: well(node.Seen),
			Causes: causeDocuments(node.Causes), Unread: node.told.unread,
		})
	}

	var written strings.Builder

	encoder := json.NewEncoder(&written)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	encoder.Encode(document) //nolint:errcheck,errchkjson // it is made of strings

	return written.String()
}

func causeDocuments(causes []evidence.Cause) []causeDocument {
	documents := []causeDocument{}
	for _, cause := range causes {
		entry, _ := diagnosis.Lookup(cause.ID)
		documents = append(documents, causeDocument{
			ID: cause.ID, Severity: cause.Severity.String(), Title: entry.Title, Cause: cause.Cause, Next: cause.Next,
			Evidence: append([]evidence.Line{}, cause.Lines...),
		})
	}

	return documents
}
