package output

import (
	"net/url"
	"path/filepath"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// The parts of SARIF 2.1.0 that code-scanning tools read. Source: docs.oasis-open.org/sarif/sarif/v2.1.0.

const (
	sarifVersion = "2.1.0"
	sarifSchema  = "https://json.schemastore.org/sarif-2.1.0.json"
	toolPage     = "https://github.com/talos-mage/talos-mage"
)

type sarifLog struct {
	Version string     `json:"version"`
	Schema  string     `json:"$schema"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool        sarifTool         `json:"tool"`
	Invocations []sarifInvocation `json:"invocations"`
	Results     []sarifResult     `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name           string      `json:"name"`
	InformationURI string      `json:"informationUri"`
	Rules          []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID                   string             `json:"id"`
	ShortDescription     sarifText          `json:"shortDescription"`
	FullDescription      sarifText          `json:"fullDescription"`
	Help                 sarifText          `json:"help"`
	HelpURI              string             `json:"helpUri"`
	DefaultConfiguration sarifConfiguration `json:"defaultConfiguration"`
}

type sarifConfiguration struct {
	Level string `json:"level"`
}

type sarifText struct {
	Text string `json:"text"`
}

// sarifInvocation tells of the checks that were not run: such a run was not successful in SARIF's sense only if it
// could not begin.
type sarifInvocation struct {
	ExecutionSuccessful bool                `json:"executionSuccessful"`
	ExitCode            int                 `json:"exitCode"`
	Notifications       []sarifNotification `json:"toolExecutionNotifications,omitempty"`
}

type sarifNotification struct {
	Level          string         `json:"level"`
	Message        sarifText      `json:"message"`
	AssociatedRule sarifReference `json:"associatedRule"`
}

type sarifReference struct {
	ID string `json:"id"`
}

type sarifResult struct {
	RuleID           string             `json:"ruleId"`
	RuleIndex        int                `json:"ruleIndex"`
	Level            string             `json:"level"`
	Message          sarifText          `json:"message"`
	Locations        []sarifLocation    `json:"locations,omitempty"`
	RelatedLocations []sarifLocation    `json:"relatedLocations,omitempty"`
	Suppressions     []sarifSuppression `json:"suppressions,omitempty"`
}

type sarifSuppression struct {
	Kind          string `json:"kind"`
	Justification string `json:"justification"`
}

type sarifLocation struct {
	PhysicalLocation sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	ArtifactLocation sarifArtifact `json:"artifactLocation"`
	Region           *sarifRegion  `json:"region,omitempty"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	StartLine   int        `json:"startLine"`
	StartColumn int        `json:"startColumn,omitempty"`
	Snippet     *sarifText `json:"snippet,omitempty"`
}

// sarif is the result as a SARIF log, with every check of the table as a rule.
func sarif(r check.Result) sarifLog {
	rules, index := sarifRules()

	run := sarifRun{
		Tool:        sarifTool{Driver: sarifDriver{Name: "talos-mage", InformationURI: toolPage, Rules: rules}},
		Invocations: []sarifInvocation{{ExecutionSuccessful: true, ExitCode: int(r.ExitCode())}},
		Results:     []sarifResult{},
	}

	for _, check := range r.NotRun {
		text := check.Why
		if check.Node != "" {
			text = check.Node + ": " + text
		}

		run.Invocations[0].Notifications = append(run.Invocations[0].Notifications, sarifNotification{
			Level: "note", Message: sarifText{"not run: " + text}, AssociatedRule: sarifReference{string(check.ID)},
		})
	}

	for _, finding := range append(r.Trouble(), r.Suggestions()...) {
		run.Results = append(run.Results, sarifOf(finding, index[finding.ID]))
	}

	return sarifLog{Version: sarifVersion, Schema: sarifSchema, Runs: []sarifRun{run}}
}

func sarifRules() ([]sarifRule, map[diagnosis.ID]int) {
	var rules []sarifRule

	index := map[diagnosis.ID]int{}

	for _, check := range table.Checks() {
		if _, known := index[check.ID]; known {
			continue
		}

		entry := check.Entry()
		index[check.ID] = len(rules)
		rules = append(rules, sarifRule{
			ID: string(check.ID), ShortDescription: sarifText{entry.Title}, FullDescription: sarifText{entry.Cause},
			Help:                 sarifText{entry.Remedy},
			HelpURI:              toolPage + "/blob/main/docs/checks.md",
			DefaultConfiguration: sarifConfiguration{sarifLevel(entry.Severity)},
		})
	}

	return rules, index
}

func sarifLevel(severity diagnosis.Severity) string {
	switch severity {
	case diagnosis.Failure:
		return "error"
	case diagnosis.OK:
		return "note"
	default:
		return "warning"
	}
}

func sarifOf(finding diagnosis.Finding, rule int) sarifResult {
	message := check.Headline(finding)
	if finding.Next != "" {
		message += ". Next: " + finding.Next
	}

	result := sarifResult{RuleID: string(finding.ID), RuleIndex: rule, Level: sarifLevel(finding.Severity),
		Message: sarifText{message}}

	if finding.Skipped {
		result.Suppressions = []sarifSuppression{{Kind: "external", Justification: "SKIP_CHECKS"}}
	}

	if finding.At.Path == "" {
		return result
	}

	at := sarifPlace(finding.At)
	if from := finding.At.From; from != nil {
		// What is to be corrected is what the file was made from, and it is that which git has.
		result.Locations = []sarifLocation{sarifPlace(*from)}
		if !finding.At.Unwritten {
			result.RelatedLocations = []sarifLocation{at}
		}
	} else {
		result.Locations = []sarifLocation{at}
	}

	return result
}

func sarifPlace(at diagnosis.Location) sarifLocation {
	place := sarifPhysical{ArtifactLocation: sarifArtifact{sarifURI(at.Path)}}

	if at.Line > 0 {
		place.Region = &sarifRegion{StartLine: at.Line, StartColumn: at.Column}

		if at.Text != "" {
			place.Region.Snippet = &sarifText{at.Text}
		}
	}

	return sarifLocation{PhysicalLocation: place}
}

// sarifURI is a path as a URI: relative to the repository's root if the path is.
func sarifURI(path string) string {
	address := url.URL{Path: path}
	if filepath.IsAbs(path) {
		address.Scheme = "file"
	}

	return address.String()
}
