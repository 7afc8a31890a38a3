package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Profile is a choice of checks.
type Profile string

// InteropProfile are the checks of how the cluster's parts fit each other, area by area.
const InteropProfile Profile = "interop"

// Area is a row of the interoperability profile's table.
type Area string

// The areas of the interoperability profile, in order.
const (
	HostDNSArea   Area = "Host DNS"
	ResolverArea  Area = "DNS Resolvers"
	CiliumArea    Area = "Cilium Deployment"
	TimeArea      Area = "Time Configuration"
	MetricsArea   Area = "etcd Metrics"
	LabelsArea    Area = "Node Labels"
	ProxmoxArea   Area = "Proxmox VMs"
	Compliant          = "Compliant"
	Enhancement        = "Enhancement Available"
	NotCompliant       = "Not Compliant"
	AreaNotRun         = "Not Run"
	findingsShown      = 2
)

// Areas are all of them, in order.
func Areas() []Area {
	return []Area{HostDNSArea, ResolverArea, CiliumArea, TimeArea, MetricsArea, LabelsArea, ProxmoxArea}
}

// AreaResult is a row of the interoperability profile's table.
type AreaResult struct {
	Area Area `json:"area"`
	// Status is "Compliant", "Enhancement Available" if only something optional is missing, "Not Compliant", or "Not Run".
	Status string `json:"status"`
	// Finding is what was seen, on one line.
	Finding string `json:"finding"`
}

// choose are the rows of a table that a profile runs.
func (p Profile) choose(table []Check) []Check {
	return slices.DeleteFunc(slices.Clone(table), func(check Check) bool {
		if p == InteropProfile {
			return check.Area == "" && check.Kind != Reading
		}

		return check.ProfileOnly
	})
}

// areaResults are the rows of the profile's table.
func areaResults(table []Check, result Result) []AreaResult {
	rows := make([]AreaResult, 0, len(Areas()))

	for _, area := range Areas() {
		rows = append(rows, areaResult(table, result, area))
	}

	return rows
}

func areaResult(table []Check, result Result, area Area) AreaResult {
	var (
		trouble, suggested, seen []string
		ids                      []diagnosis.ID
	)

	for _, check := range table {
		if check.Area == area {
			ids = append(ids, check.ID)
		}
	}

	for _, finding := range result.Findings {
		switch {
		case !slices.Contains(ids, finding.ID):
		case finding.Severity != diagnosis.OK:
			trouble = append(trouble, Headline(finding))
		case finding.Next != "":
			suggested = append(suggested, Headline(finding))
		default:
			seen = append(seen, finding.Headline())
		}
	}

	passed := 0

	for _, id := range Unique(ids) {
		if slices.Contains(result.Passed, id) {
			passed++
		}
	}

	switch {
	case len(trouble) > 0:
		return AreaResult{area, NotCompliant, firstOf(trouble)}
	case len(seen) > 0:
		return AreaResult{area, Compliant, strings.Join(seen, "; ") + leftOut(result, ids)}
	case len(suggested) > 0:
		return AreaResult{area, Enhancement, firstOf(suggested)}
	case passed > 0:
		if missing := leftOut(result, ids); missing != "" {
			return AreaResult{area, Compliant, "nothing wrong in what could be judged" + missing}
		}

		return AreaResult{area, Compliant, allRight[area]}
	default:
		return AreaResult{area, AreaNotRun, whyNotRun(result, ids)}
	}
}

// allRight is what to say of an area whose checks have nothing more to tell.
var allRight = map[Area]string{
	CiliumArea:  "all required settings present",
	ProxmoxArea: "firmware, processor, memory, disk controller and network as documented",
}

// leftOut says how many checks of an area were not run.
func leftOut(result Result, ids []diagnosis.ID) string {
	var notRun []diagnosis.ID

	for _, check := range result.NotRun {
		if slices.Contains(ids, check.ID) {
			notRun = append(notRun, check.ID)
		}
	}

	if notRun = Unique(notRun); len(notRun) > 0 {
		return fmt.Sprintf(" (%s not run)", Count(len(notRun), "check"))
	}

	return ""
}

// firstOf are the first of several findings, and how many more there are.
func firstOf(findings []string) string {
	if more := len(findings) - findingsShown; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(findings[:findingsShown], "; "), more)
	}

	return strings.Join(findings, "; ")
}

// whyNotRun is the reason that the checks of an area share.
func whyNotRun(result Result, ids []diagnosis.ID) string {
	for _, check := range result.NotRun {
		if slices.Contains(ids, check.ID) {
			return check.Why
		}
	}

	return "there was nothing to look at"
}

// Suggestions are findings that make nothing wrong, in the table's order; none without a profile.
func (r Result) Suggestions() []diagnosis.Finding {
	if r.Areas == nil {
		return nil
	}

	return slices.DeleteFunc(slices.Clone(r.Findings), func(finding diagnosis.Finding) bool {
		return finding.Severity != diagnosis.OK || finding.Next == ""
	})
}
