package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// History is what the machines recorded over the runs of a plan, and what the operators were told. The checks need
// nothing else.
type History struct {
	DeclaredMACs bool
	// Endpoint is the node whose address is the cluster's endpoint; empty for a virtual one and a balancer's.
	Endpoint string
	// MeetInKubernetes reports whether control planes find each other's etcd through the Kubernetes API alone: there is no
	// discovery, and the endpoint is a balancer's address, where no etcd answers.
	MeetInKubernetes bool
	// Leases is set where machines in maintenance have other addresses than those in their configs.
	Leases bool
	// Nodes are those of the inventory, with what is declared for each.
	Nodes []Declared
	// Machines are all machines that ever stood in the lab.
	Machines []Recorded
	// Former are the etcd clusters of an earlier life, Made those that came to be in the first run, and in both.
	Former, MadeFirst, Made int
	Strikes                 []Strike
	// First are the runs before the healing, Again is the one after it.
	First []Run
	Again *Run
	// Unhealthy are what the nodes lack right after the runs before the healing, UnhealthyAgain after the one after it.
	Unhealthy, UnhealthyAgain map[string]string
	// Confused are the nodes that ran another node's config right after the runs before the healing.
	Confused []string
	// Crowded reports whether two operators were at work.
	Crowded bool
	// Care is what was done once the cluster was up; nil for nothing.
	Care *Care
}

// Declared is a node of the inventory.
type Declared struct {
	Name         string
	ControlPlane bool
	MAC          string
	// Config is the SHA-256 of its machine config, in hex, as the machines record it.
	Config string
}

// Recorded is a machine with its records.
type Recorded struct {
	// Name is the node in whose place it stands, MAC its own.
	Name, MAC string
	// FormerEtcd reports whether its disk held etcd data from the beginning.
	FormerEtcd bool
	Calls      []emulator.Call
}

// bootstrapped reports whether a Bootstrap that came before then took effect on the machine.
func (r Recorded) bootstrapped(then time.Time) bool {
	return slices.ContainsFunc(r.Calls, func(call emulator.Call) bool {
		return call.Name() == "Bootstrap" && call.Succeeded() && call.Time.Before(then)
	})
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)

	return hex.EncodeToString(digest[:])
}

// isControlPlane tells it of a node's name.
func (h *History) isControlPlane(name string) bool {
	return slices.ContainsFunc(h.Nodes, func(node Declared) bool { return node.Name == name && node.ControlPlane })
}

// Problem is one line of what a failed run says last.
type Problem struct {
	// Node is empty for what concerns the cluster as a whole.
	Node string
	Step string
	ID   diagnosis.ID
	Line string
}

// problemLine is "cp1 (192.0.2.11) and cp2 (192.0.2.12): verify: cause [TM091]. Next: command"; without a node what
// concerns the cluster.
var problemLine = regexp.MustCompile(`^((?:[\w.-]+ \([^)]*\)(?:, | and )?)*)(?:: )?(?:([\w:]+): )?.*\[(TM\d+)\]`)

var subject = regexp.MustCompile(`([\w.-]+) \(`)

// Problems are what a run says of its failure, line by line.
func (r Run) Problems() []Problem {
	var problems []Problem

	for line := range strings.Lines(r.Message) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}

		problem, subjects := Problem{Line: line}, ""
		if found := problemLine.FindStringSubmatch(line); found != nil {
			subjects, problem.Step, problem.ID = found[1], found[2], diagnosis.ID(found[3])
		}

		problems = append(problems, problem.ofEach(subjects)...)
	}

	return problems
}

// ofEach is the problem of each node that it is about; of the cluster as a whole where no node is named.
func (p Problem) ofEach(subjects string) []Problem {
	problems := []Problem{p}

	for i, found := range subject.FindAllStringSubmatch(subjects, -1) {
		problems = append(problems[:i], p)
		problems[i].Node = found[1]
	}

	return problems
}

// reached reports whether a step was begun.
func (r Run) reached(step string) bool {
	return strings.Contains(r.Report, `"event":"started","step":"`+step+`"`)
}
