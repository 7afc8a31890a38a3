package steps

import (
	"encoding/json"
	"time"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// Tables are what a person wants to see of a cluster's health beside the nodes, of which the results tell; header
// first.
func (h Healthiness) Tables() [][][]string {
	var tables [][][]string

	if len(h.Certificates) > 0 {
		rows := [][]string{{"CERTIFICATE", "ENDS", "LEFT", "RENEWED BY"}}
		for _, certificate := range h.Certificates {
			rows = append(rows, []string{certificate.Name, day(certificate.Ends),
				leftText(certificate.Ends.Sub(workspace.CertificateTime())), certificate.RenewedBy})
		}

		tables = append(tables, rows)
	}

	if len(h.Areas) > 0 {
		rows := [][]string{{"AREA", "STATUS", "FINDING"}}
		for _, area := range h.Areas {
			rows = append(rows, []string{string(area.Area), area.Status, area.Finding})
		}

		tables = append(tables, rows)
	}

	return tables
}

// healthDocument is a Healthiness in JSON.
type healthDocument struct {
	Healthy      bool                  `json:"healthy"`
	Nodes        []healthNode          `json:"nodes"`
	Checks       []healthCheckDocument `json:"checks"`
	CheckedBy    string                `json:"checkedBy,omitempty"`
	Certificates []healthCertificate   `json:"certificates"`
	Areas        []check.AreaResult    `json:"areas,omitempty"`
	Findings     []healthFinding       `json:"findings"`
	Next         string                `json:"next"`
}

type healthNode struct {
	Node       string   `json:"node"`
	Role       string   `json:"role"`
	Address    string   `json:"address,omitempty"`
	Answers    bool     `json:"answers"`
	State      string   `json:"state"`
	Version    string   `json:"version,omitempty"`
	Schematic  string   `json:"schematic,omitempty"`
	Extensions []string `json:"extensions"`
}

type healthCheckDocument struct {
	Name   string `json:"name"`
	State  string `json:"state"` // passed, leftOut or failing
	Reason string `json:"reason,omitempty"`
}

type healthCertificate struct {
	Name      string    `json:"name"`
	Ends      time.Time `json:"ends"`
	DaysLeft  int       `json:"daysLeft"`
	RenewedBy string    `json:"renewedBy"`
}

type healthFinding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Node     string `json:"node,omitempty"`
	Cause    string `json:"cause"`
	Next     string `json:"next,omitempty"`
}

// JSON is the health of a cluster for programs.
func (h Healthiness) JSON() string {
	document := healthDocument{Healthy: h.Healthy, Nodes: []healthNode{}, Checks: []healthCheckDocument{},
		CheckedBy: h.AskedOf, Certificates: []healthCertificate{}, Areas: h.Areas, Findings: []healthFinding{}, Next: h.Next}

	for _, node := range h.Nodes {
		document.Nodes = append(document.Nodes, healthNode{Node: node.Node, Role: node.Role, Address: node.Address,
			Answers: node.Answers, State: node.State, Version: node.Version, Schematic: node.Schematic,
			Extensions: orNone(node.Extensions)})
	}

	for _, check := range h.Checks {
		state := "failing"

		switch {
		case check.Passed:
			state = "passed"
		case check.LeftOut:
			state = "leftOut"
		}

		document.Checks = append(document.Checks, healthCheckDocument{check.Name, state, check.Reason})
	}

	for _, certificate := range h.Certificates {
		document.Certificates = append(document.Certificates, healthCertificate{certificate.Name, certificate.Ends.UTC(),
			int(certificate.Ends.Sub(workspace.CertificateTime()).Hours() / 24), certificate.RenewedBy})
	}

	for _, finding := range h.Findings {
		document.Findings = append(document.Findings, healthFinding{string(finding.ID), finding.Severity.String(),
			finding.Node, finding.Cause, finding.Next})
	}

	// Of such a document there is nothing that could go wrong.
	text, _ := json.MarshalIndent(document, "", "  ") //nolint:errchkjson // texts and numbers

	return string(text) + "\n"
}
