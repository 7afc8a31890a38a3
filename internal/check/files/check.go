// Package audit holds the one table of checks: what can be proven wrong about a cluster before the first packet that
// changes a node.
//
// A check is one small function over data that was read before. It says what it looks at, so that all that needs no
// node runs offline, and so that a check whose input is missing is reported as not run, never as passed. Titles,
// causes, remedies and sources stand in the catalogue of internal/diagnosis, under the check's id.
package audit

import (
	"context"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Kind is what a check is about; the documentation is ordered by it.
type Kind string

// The kinds of checks, in the documentation's order.
const (
	Reading    Kind = "Reading the files"
	Belonging  Kind = "Files that belong together"
	Addresses  Kind = "Addresses"
	Endpoints  Kind = "VIP and endpoint"
	Networks   Kind = "Pod, service and node networks"
	Names      Kind = "Names"
	Interfaces Kind = "Interfaces"
	Disks      Kind = "Disks and volumes"
	Documents  Kind = "Documents and patches"
	Images     Kind = "Installer image"
	Versions   Kind = "Versions"
	Secrets    Kind = "Secrets"
	Firewall   Kind = "Firewall"
	Roles      Kind = "Roles and quorum"
	Machines   Kind = "Machines that answer"
	Interop    Kind = "Interoperability"
)

// Kinds are all of them, in order.
func Kinds() []Kind {
	return []Kind{
		Reading, Belonging, Addresses, Endpoints, Networks, Names, Interfaces, Disks, Documents, Images, Versions, Secrets,
		Firewall, Roles, Machines,
		Interop,
	}
}

// Check is one row of the table: one kind of trouble that is looked for.
type Check struct {
	ID    diagnosis.ID
	Kind  Kind
	Needs diagnosis.Need
	// Area is the row of the interoperability profile that it is part of; empty for none.
	Area Area
	// ProfileOnly leaves it out of a run without the profile.
	ProfileOnly bool

	// idle says why there was nothing to look at although the needs are met, empty if there was: then a check that found
	// nothing has not passed.
	idle func(*Input) string
	// unknown are the subjects that it could not judge, with why: what they have is not written as a value.
	unknown func(*Input) []NotRun
	// look is what finds it. Rows that one function finds share it, and it runs once.
	look *look
}

// look is a function that finds one kind of trouble or several.
type look struct {
	run func(context.Context, *Input) []diagnosis.Finding
}

// Entry is what the catalogue says about the check.
func (c Check) Entry() diagnosis.Entry {
	entry, _ := diagnosis.Lookup(c.ID)

	return entry
}

// eachConfig is a check of single machine configs.
func eachConfig(id diagnosis.ID, kind Kind, run func(*Report, *Rendered)) Check {
	return Check{ID: id, Kind: kind, Needs: diagnosis.NeedsConfig,
		look: &look{run: func(_ context.Context, in *Input) []diagnosis.Finding {
			report := &Report{id: id, in: in}
			for _, config := range in.Configs {
				report.config = config
				run(report, config)
			}

			return report.findings
		}}}
}

// whole is a check of the files together.
func whole(id diagnosis.ID, kind Kind, needs diagnosis.Need, run func(*Report, *Input)) Check {
	return Check{ID: id, Kind: kind, Needs: needs,
		look: &look{run: func(_ context.Context, in *Input) []diagnosis.Finding {
			report := &Report{id: id, in: in}
			run(report, in)

			return report.findings
		}}}
}

// Report is what a check says it with.
type Report struct {
	id       diagnosis.ID
	in       *Input
	config   *Rendered
	findings []diagnosis.Finding
}

// at is where a field stands: in which file, in which of its documents, at which path.
type at struct {
	file     *File
	document string
	path     string
	// line and column stand for a path that can't be written with dots.
	line, column int
	// elsewhere is a place in a file that is no YAML.
	elsewhere *diagnosis.Location
	// whole is set for a finding about the file itself.
	whole bool
	// scanned is the line of a file that is searched line by line, whatever it holds.
	scanned int
}

// item is the place of an item of the list that a place is.
func (a at) item(i int) at {
	a.path = fmt.Sprintf("%s[%d]", a.path, i)

	return a
}

// field is the place of a field of the mapping that a place is.
func (a at) field(name string) at {
	if a.path != "" {
		name = a.path + "." + name
	}

	a.path = name

	return a
}

// found adds a finding with the catalogue's severity. change is what to do about it.
func (r *Report) found(place at, change, cause string, args ...any) {
	entry, _ := diagnosis.Lookup(r.id)
	r.add(entry.Severity, place, change, cause, args...)
}

// warn adds a finding that is milder than the catalogue says.
func (r *Report) warn(place at, change, cause string, args ...any) {
	r.add(diagnosis.Warning, place, change, cause, args...)
}

// suggest adds what could be better, though nothing is wrong: a finding of severity OK with a change to make.
func (r *Report) suggest(place at, change, cause string, args ...any) {
	r.add(diagnosis.OK, place, change, cause, args...)
}

// seen adds what there is to say about files that are as they should be.
func (r *Report) seen(cause string, args ...any) { r.add(diagnosis.OK, at{}, "", cause, args...) }

func (r *Report) add(severity diagnosis.Severity, place at, change, cause string, args ...any) {
	finding := diagnosis.Finding{
		ID: r.id, Severity: severity, Cause: fmt.Sprintf(cause, args...), Next: change, At: r.in.locate(place),
	}

	if config := r.in.configOf(place.file, r.config); config != nil {
		finding.Node = config.Name
	}

	r.findings = append(r.findings, finding)
}
