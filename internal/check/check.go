// Package check holds what every check is made of: the row of the one table that it is, the files and answers that it
// looks at, the report that it fills, and how checks are run.
//
// A check is one small function over data that was read before. It says what it needs, so that all that needs no node
// runs offline, and so that a check whose input is missing is reported as not run, never as passed. It names the field
// that it judges, and where that stands is found here. Titles, causes, remedies and sources stand in the catalogue of
// internal/diagnosis, under the check's id. The checks themselves are in packages below: files has those of files, a
// package a subject, and nodes those of a node that answers; table has them all.
package check

import (
	"context"

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
	Startup    Kind = "What nodes start with"
	Machines   Kind = "Machines that answer"
	Interop    Kind = "Interoperability"
)

// Kinds are all of them, in order.
func Kinds() []Kind {
	return []Kind{
		Reading, Belonging, Addresses, Endpoints, Networks, Names, Interfaces, Disks, Documents, Images, Versions, Secrets,
		Firewall, Roles, Startup, Machines, Interop,
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

// look is a function that finds one kind of trouble or several, in files or on a node.
type look struct {
	files func(context.Context, *Report, *Input)
	node  func(context.Context, *Report, *Node)
}

// Entry is what the catalogue says about the check.
func (c Check) Entry() diagnosis.Entry {
	entry, _ := diagnosis.Lookup(c.ID)

	return entry
}

// IdleIf leaves the check unpassed where it found nothing because there is nothing to look at: why says so, and is
// empty where there is something.
func (c Check) IdleIf(why func(*Input) string) Check {
	c.idle = why

	return c
}

// Except leaves out subjects that can't be judged.
func (c Check) Except(unknown func(*Input) []NotRun) Check {
	c.unknown = unknown

	return c
}

// OfSecrets leaves the check out where throwaway secrets stand in for the cluster's own, which it is about.
func (c Check) OfSecrets() Check {
	c.Needs |= diagnosis.NeedsOwnSecrets

	return c
}

// Within makes the check part of an area of the interoperability profile.
func (c Check) Within(area Area) Check {
	c.Area = area

	return c
}

// EachConfig is a check of single machine configs.
func EachConfig(id diagnosis.ID, kind Kind, run func(*Report, *Rendered)) Check {
	return Whole(id, kind, diagnosis.NeedsConfig, func(r *Report, in *Input) {
		for _, config := range in.Configs {
			r.Config = config
			run(r, config)
		}
	})
}

// Whole is a check of the files together.
func Whole(id diagnosis.ID, kind Kind, needs diagnosis.Need, run func(*Report, *Input)) Check {
	return Several(kind, needs, func(_ context.Context, r *Report, in *Input) { run(r, in) }, id)[0]
}

// Several are the rows of one function that finds several kinds of trouble, or that asks the network.
func Several(
	kind Kind, needs diagnosis.Need, run func(context.Context, *Report, *Input), ids ...diagnosis.ID,
) []Check {
	return rows(kind, needs, &look{files: run}, ids)
}

// OfNode are the rows of one function that judges a node that answered.
func OfNode(needs diagnosis.Need, run func(context.Context, *Report, *Node), ids ...diagnosis.ID) []Check {
	return rows(Machines, needs|diagnosis.NeedsFacts, &look{node: run}, ids)
}

func rows(kind Kind, needs diagnosis.Need, shared *look, ids []diagnosis.ID) []Check {
	list := make([]Check, 0, len(ids))
	for _, id := range ids {
		list = append(list, Check{ID: id, Kind: kind, Needs: needs, look: shared})
	}

	return list
}

// Milder makes warnings of what only the next making of machine configs fails for, where that is not to come: all are
// there, and are used as they are.
func Milder(run func(*Report, *Input)) func(*Report, *Input) {
	return func(r *Report, in *Input) {
		run(r, in)

		if in.Options.AsTheyAre && len(in.Missing) == 0 && len(in.Configs) > 0 {
			r.AtMost(diagnosis.Warning)
		}
	}
}
