package check

import (
	"fmt"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Report is what a check says with what it finds.
type Report struct {
	// In are the files; nil for a check of a node.
	In *Input
	// Config is the machine config that findings are about which stand elsewhere.
	Config *Rendered

	id diagnosis.ID
	// subject is whom findings are about.
	subject  subject
	answers  *Node
	findings []diagnosis.Finding
}

// subject is a node whatever a finding stands in, with the address that it is declared at or without, or the cluster.
// The zero value leaves it to the file that a finding stands in.
type subject struct {
	node     *inventory.Node
	declared bool
	cluster  bool
}

// As says which kind of trouble the next findings are, for checks that find several.
func (r *Report) As(id diagnosis.ID) *Report {
	r.id = id

	return r
}

// About says which node the next findings are about, whatever they stand in; nil leaves it to the file.
func (r *Report) About(node *inventory.Node) *Report {
	r.subject = subject{node: node}

	return r
}

// AtDeclared is About with the address that the node is declared at.
func (r *Report) AtDeclared(node *inventory.Node) *Report {
	r.subject = subject{node: node, declared: true}

	return r
}

// OfCluster says that the next findings are about no single node.
func (r *Report) OfCluster() *Report {
	r.subject = subject{cluster: true}

	return r
}

// EachNode goes over the inventory's nodes that have a machine config; machines that share a file each get a turn.
func (r *Report) EachNode(visit func(*inventory.Node, *Rendered)) {
	for _, node := range r.In.Cluster.Nodes {
		if config := r.In.ConfigOf(node); config != nil {
			r.About(node)
			visit(node, config)
		}
	}

	r.About(nil)
}

// Found adds a finding with the catalogue's severity. change is what to do about it.
func (r *Report) Found(place Place, change, cause string, args ...any) {
	r.Add(r.Severity(), place, change, cause, args...)
}

// Severity is the catalogue's.
func (r *Report) Severity() diagnosis.Severity {
	entry, _ := diagnosis.Lookup(r.id)

	return entry.Severity
}

// Fail adds a failure, whatever the catalogue says.
func (r *Report) Fail(place Place, change, cause string, args ...any) {
	r.Add(diagnosis.Failure, place, change, cause, args...)
}

// Warn adds a finding that is milder than the catalogue says.
func (r *Report) Warn(place Place, change, cause string, args ...any) {
	r.Add(diagnosis.Warning, place, change, cause, args...)
}

// Suggest adds what could be better, though nothing is wrong: a finding of severity OK with a change to make.
func (r *Report) Suggest(place Place, change, cause string, args ...any) {
	r.Add(diagnosis.OK, place, change, cause, args...)
}

// Seen adds what there is to say about what is as it should be.
func (r *Report) Seen(cause string, args ...any) { r.Add(diagnosis.OK, Place{}, "", cause, args...) }

// Passed says so, unless the check found anything.
func (r *Report) Passed(id diagnosis.ID, cause string, args ...any) {
	if len(r.findings) == 0 {
		r.As(id).Seen(cause, args...)
	}
}

// Add adds a finding.
func (r *Report) Add(severity diagnosis.Severity, place Place, change, cause string, args ...any) {
	finding := diagnosis.Finding{ID: r.id, Severity: severity, Cause: fmt.Sprintf(cause, args...), Next: change}

	switch {
	case r.answers != nil:
		finding.Node, finding.Address = r.answers.Name, r.answers.Facts.Address
	case r.subject.cluster:
	case r.subject.node != nil:
		finding.Node = r.subject.node.Name
		if r.subject.declared {
			finding.Address = r.subject.node.Address
		}
	default:
		if config := r.In.configAt(place.file, r.Config); config != nil {
			finding.Node = config.Name
		}
	}

	if r.In != nil {
		finding.At = r.In.Locate(place)
	} else if place.elsewhere != nil {
		finding.At = *place.elsewhere
	}

	r.findings = append(r.findings, finding)
}

// Put adds findings that others have made.
func (r *Report) Put(findings ...diagnosis.Finding) { r.findings = append(r.findings, findings...) }

// AtMost makes all findings no worse than a severity.
func (r *Report) AtMost(severity diagnosis.Severity) {
	for i := range r.findings {
		r.findings[i].Severity = min(r.findings[i].Severity, severity)
	}
}

// Last is the finding that was added last, to correct what is special about it.
func (r *Report) Last() *diagnosis.Finding { return &r.findings[len(r.findings)-1] }

// Count is how many findings there are.
func (r *Report) Count() int { return len(r.findings) }
