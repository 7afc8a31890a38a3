package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// check is something that must hold after every plan.
type check struct {
	name string
	// violations says what does not hold.
	violations func(h *History) []string
}

var checks = slices.Concat([]check{
	{"one etcd", oneEtcd},
	{"one Bootstrap", oneBootstrap},
	{"own config only", ownConfigOnly},
	{"etcd left alone", etcdLeftAlone},
	{"no secrets", noSecrets},
	{"success is true", successIsTrue},
	{"swaps are told", swapsAreTold},
	{"failures are right", failuresAreRight},
	{"the code fits", codeFits},
	{"nobody is forgotten", nobodyIsForgotten},
	{"healed is healthy", healedIsHealthy},
	{"nothing done twice", nothingDoneTwice},
}, careChecks, lookChecks)

// Checks are the names of everything that is checked after a plan.
func Checks() []string {
	names := make([]string, 0, len(checks))
	for _, check := range checks {
		names = append(names, check.name)
	}

	return names
}

// Violation is a check that did not hold.
type Violation struct {
	Check string
	Text  string
}

// Check makes every check.
func (h *History) Check() []Violation {
	var found []Violation

	for _, check := range checks {
		for _, text := range check.violations(h) {
			found = append(found, Violation{check.name, text})
		}
	}

	return found
}

// oneEtcd: at most one etcd cluster ever existed; none was made beside one of an earlier life.
func oneEtcd(h *History) []string {
	switch {
	case h.Made > 1:
		return []string{fmt.Sprintf("%d etcd clusters were made", h.Made)}
	case h.Former > 0 && h.MadeFirst > 0:
		return []string{"an etcd was made although a control plane held data of an earlier one"}
	default:
		return nil
	}
}

// oneBootstrap: Bootstrap took effect on at most one machine; and where a run brought a new cluster up, on one.
func oneBootstrap(h *History) []string {
	var machines []string

	for _, machine := range h.Machines {
		if machine.bootstrapped(time.Now()) {
			machines = append(machines, machine.Name)
		}
	}

	if len(machines) > 1 {
		return []string{"Bootstrap took effect on " + strings.Join(machines, " and ")}
	}

	if h.Former == 0 && len(machines) == 0 && (succeeded(h.First) || h.Again != nil && h.Again.Code == diagnosis.ExitOK) {
		return []string{"a run succeeded, and Bootstrap took effect nowhere"}
	}

	return nil
}

func succeeded(runs []Run) bool {
	return slices.ContainsFunc(runs, func(run Run) bool { return run.Code == diagnosis.ExitOK })
}

// ownConfigOnly: a machine with a declared MAC accepted its own config and no other; one that nobody declared accepted
// none.
func ownConfigOnly(h *History) []string {
	if !h.DeclaredMACs {
		return nil
	}

	var found []string

	for _, machine := range h.Machines {
		i := slices.IndexFunc(h.Nodes, func(node Declared) bool { return node.MAC == machine.MAC })

		for _, call := range machine.Calls {
			if call.Name() != "ApplyConfiguration" || !call.Mutating || !call.Succeeded() {
				continue
			}

			switch {
			case i < 0:
				found = append(found, fmt.Sprintf("the undeclared machine in the place of %s accepted a config", machine.Name))
			case call.ConfigSHA256 != h.Nodes[i].Config:
				found = append(found, fmt.Sprintf("the machine of %s accepted another config", h.Nodes[i].Name))
			}
		}
	}

	return found
}

// inMaintenance are the roles that a machine in maintenance gives everybody.
const inMaintenance = string(role.Reader)

// etcdLeftAlone: no call changed a machine that held etcd data. In maintenance, that of an earlier life is nobody's to
// know.
func etcdLeftAlone(h *History) []string {
	var found []string

	for _, machine := range h.Machines {
		for _, call := range machine.Calls {
			unknown := machine.FormerEtcd && call.Roles == inMaintenance && call.Name() == "ApplyConfiguration"
			if call.HadEtcd && call.Mutating && call.Succeeded() && !unknown {
				found = append(found, fmt.Sprintf("%s had etcd and took a call of %s", machine.Name, call.Name()))
			}
		}
	}

	return found
}

// noSecrets: nothing that a run wrote for people holds a secret of the cluster.
func noSecrets(h *History) []string {
	var found []string

	for _, run := range h.runs() {
		for place, text := range map[string]string{"output": run.Output, "report": run.Report, "last message": run.Message} {
			for _, secret := range run.Secrets {
				if strings.Contains(text, secret) {
					found = append(found, fmt.Sprintf("a secret is in the %s of %s: %.6s…", place, run.Operator, secret))
				}
			}
		}
	}

	slices.Sort(found)

	return found
}

func (h *History) runs() []Run {
	runs := slices.Clone(h.First)
	if h.Again != nil {
		runs = append(runs, *h.Again)
	}

	if h.Care != nil {
		runs = append(runs, h.Care.runs()...)
	}

	return runs
}

// successIsTrue: a run that succeeded left every node healthy, but for what befell a node that was healthy before.
func successIsTrue(h *History) []string {
	if !succeeded(h.First) {
		return nil
	}

	var found []string

	for _, node := range h.Nodes {
		if reason := h.Unhealthy[node.Name]; reason != "" && !h.befell(node.Name) {
			found = append(found, fmt.Sprintf("a run succeeded, and %s is not healthy: %s", node.Name, reason))
		}
	}

	return found
}

// befell reports whether something happened to a node that was healthy before, or to a control plane that it needs.
func (h *History) befell(name string) bool {
	return slices.ContainsFunc(h.Strikes, func(strike Strike) bool {
		return slices.Contains(strike.Healthy, name) && (strike.Node == name || h.isControlPlane(strike.Node))
	})
}

// swapsAreTold: a node that ended with another node's config is named by every run that came as far as looking at what
// nodes run.
func swapsAreTold(h *History) []string {
	var found []string

	for _, run := range h.First {
		for _, name := range h.Confused {
			told := slices.ContainsFunc(run.Problems(), func(problem Problem) bool {
				swap := problem.ID == diagnosis.NodesSwapped || problem.ID == diagnosis.WrongMachine

				// What something else keeps from being read can't be told, and is no success either.
				return problem.Node == name && (swap || h.explained(run, problem))
			})

			if !told && !run.Interrupted && run.reached("verifyWorkers") {
				found = append(found, fmt.Sprintf("%s runs another node's config, and %s was not told", name, run.Operator))
			}
		}
	}

	return found
}

// failuresAreRight: every line of a failure names a node that had an incident, or the cluster, and a diagnosis that is
// right for its class.
func failuresAreRight(h *History) []string {
	var found []string

	for _, run := range h.First {
		if run.Interrupted {
			continue
		}

		problems := run.Problems()
		if run.Code != diagnosis.ExitOK && len(problems) == 0 {
			found = append(found, fmt.Sprintf("%s failed with code %d and without a word", run.Operator, run.Code))
		}

		for _, problem := range problems {
			if !h.explained(run, problem) {
				found = append(found, "nothing that happened explains: "+problem.Line)
			}
		}
	}

	return found
}

// explained reports whether something that happened before a run ended makes one of its problems right.
func (h *History) explained(run Run, problem Problem) bool {
	if h.Crowded && (slices.Contains(crowded.Here, problem.ID) || slices.Contains(crowded.Around, problem.ID)) {
		return true
	}

	// A control plane that failed in an earlier step, for a right reason, is in the way of a Bootstrap.
	if problem.ID == diagnosis.BootstrapBlocked && slices.ContainsFunc(run.Problems(), func(other Problem) bool {
		return other.Node == problem.Node && other.ID != diagnosis.BootstrapBlocked && h.explained(run, other)
	}) {
		return true
	}

	return slices.ContainsFunc(h.Strikes, func(strike Strike) bool {
		return !strike.Time.After(run.Ended) && h.explains(strike, run, problem)
	})
}

// explains reports whether an incident makes a problem right, for its own node or for those that need it.
func (h *History) explains(strike Strike, run Run, problem Problem) bool {
	named := problem.Node == strike.Node || problem.Node == "" && strings.Contains(problem.Line, strike.Node) ||
		h.hasTaken(strike.Node, problem.Node)
	if named && (slices.Contains(strike.Class.Here, problem.ID) || h.refusesForNobody(strike, problem) ||
		h.hidesFromSearch(strike, problem)) {
		return true
	}

	if h.MeetInKubernetes && h.isControlPlane(strike.Node) && slices.Contains(strike.Class.Unmet, problem.ID) {
		return named || h.indispensable(strike.Node, run)
	}

	if !h.isControlPlane(strike.Node) || !slices.Contains(strike.Class.Around, problem.ID) {
		return false
	}

	return !slices.Contains(withoutCluster, problem.ID) || h.indispensable(strike.Node, run)
}

// unfindable are the classes of those whom no search finds: something else answers there, or they don't tell which
// machine they are.
var unfindable = []string{notTalos.Name, brokenCalls.Name, refusedCalls.Name}

// refusesForNobody reports whether a closed port is the silence of a machine that has a lease, or of one that nobody
// finds: the address in its config, which is asked too, is nobody's yet, and on loopback such an address refuses.
func (h *History) refusesForNobody(strike Strike, problem Problem) bool {
	silent := slices.Contains(strike.Class.Here, diagnosis.NodeSilent)

	switch problem.ID {
	case diagnosis.NodeRefused, diagnosis.WorkerJoining:
		return h.Leases && (silent || slices.Contains(unfindable, strike.Class.Name))
	case diagnosis.StillMaintenance: // the port was closed for long enough to be an install's
		return h.Leases && silent
	default:
		return false
	}
}

// hidesFromSearch reports whether a machine is not found again since something else answers in its place.
func (h *History) hidesFromSearch(strike Strike, problem Problem) bool {
	return h.Leases && strike.Class.Name == notTalos.Name && problem.ID == diagnosis.MachineAmbiguous
}

// hasTaken reports whether one node's machine has got another one's address, so that its troubles are seen there.
func (h *History) hasTaken(machine, other string) bool {
	return slices.ContainsFunc(h.Strikes, func(strike Strike) bool {
		return strike.Class.Name == moved.Name && strike.Node == machine && strike.Other == other
	})
}

// indispensable tells of a control plane that the cluster can't do without: the endpoint is its address, etcd began
// with it, or so many others were struck too, or had not joined yet, that etcd has no quorum.
func (h *History) indispensable(name string, run Run) bool {
	struck, costly, all := map[string]bool{}, false, 0

	for _, node := range h.Nodes {
		if node.ControlPlane {
			all++
		}
	}

	for _, strike := range h.Strikes {
		if h.isControlPlane(strike.Node) {
			struck[strike.Node] = true
			costly = costly || strike.Node == name && strike.CostsQuorum
		}
	}

	return h.Endpoint == name || costly || 2*len(struck) >= all ||
		slices.ContainsFunc(h.Machines, func(machine Recorded) bool {
			return machine.Name == name && (machine.FormerEtcd || machine.bootstrapped(run.Ended))
		})
}

// codesOf are the exit codes of the steps; a step's other problems concern the cluster's API.
var codesOf = map[string][]diagnosis.ExitCode{
	"discover":        {diagnosis.ExitPreflight},
	"preflight":       {diagnosis.ExitPreflight},
	"applySequential": {diagnosis.ExitApply},
	"applyParallel":   {diagnosis.ExitApply},
	"verify":          {diagnosis.ExitVerify},
	"bootstrap":       {diagnosis.ExitBootstrap, diagnosis.ExitKubernetes},
	"kubeconfig":      {diagnosis.ExitKubernetes},
	"verifyWorkers":   {diagnosis.ExitVerify, diagnosis.ExitKubernetes},
}

// codeFits: the exit code is that of the step that failed first, and Ctrl-C has its own.
func codeFits(h *History) []string {
	var found []string

	for _, run := range h.First {
		problems := run.Problems()

		switch {
		case run.Interrupted:
			if run.Code != diagnosis.ExitInterrupt {
				found = append(found, fmt.Sprintf("%s was interrupted, and the code is %d", run.Operator, run.Code))
			}
		case len(problems) == 0 || problems[0].ID == diagnosis.LockTaken:
		case problems[0].ID == diagnosis.NodesSwapped && run.Code == diagnosis.ExitVerify: // whichever step finds it
		case !slices.Contains(codesOf[problems[0].Step], run.Code):
			found = append(found, fmt.Sprintf("the code is %d, and what failed first is: %s", run.Code, problems[0].Line))
		}
	}

	return found
}

// nobodyIsForgotten: a run that came to its end names every node that is not healthy, or says that it could not ask.
func nobodyIsForgotten(h *History) []string {
	var found []string

	for _, run := range h.First {
		if run.Interrupted || run.Code == diagnosis.ExitOK || !run.reached("verifyWorkers") {
			continue
		}

		for _, node := range h.Nodes {
			reason := h.Unhealthy[node.Name]
			told := strings.Contains(run.Message, node.Name) || reason == unregistered && run.wasNotAnswered()

			if reason != "" && !told && !h.befell(node.Name) {
				found = append(found, fmt.Sprintf("%s is not healthy (%s), and %s was not told", node.Name, reason, run.Operator))
			}
		}
	}

	return found
}

// wasNotAnswered reports whether a run was told that the Kubernetes API answers nothing about any node.
func (r Run) wasNotAnswered() bool {
	return slices.ContainsFunc(r.Problems(), func(problem Problem) bool {
		silent := []diagnosis.ID{diagnosis.APINotReady, diagnosis.EndpointSilent, diagnosis.APIRefusesClient}

		return problem.Node == "" && slices.Contains(silent, problem.ID)
	})
}

// healedIsHealthy: the run after the healing succeeds, and all nodes are healthy.
func healedIsHealthy(h *History) []string {
	if h.Again == nil {
		return nil
	}

	var found []string

	if h.Again.Code != diagnosis.ExitOK {
		found = append(found, fmt.Sprintf("the run after the healing failed with code %d: %s", h.Again.Code, h.Again.Message))
	}

	for _, node := range h.Nodes {
		if reason := h.UnhealthyAgain[node.Name]; reason != "" {
			found = append(found, fmt.Sprintf("after the healing %s is not healthy: %s", node.Name, reason))
		}
	}

	return found
}

// nothingDoneTwice: a run over a cluster that is up changes nothing.
func nothingDoneTwice(h *History) []string {
	if h.Again == nil || !succeeded(h.First) || len(h.Unhealthy) > 0 {
		return nil
	}

	var found []string

	for _, machine := range h.Machines {
		for _, call := range machine.Calls {
			if call.Mutating && call.Time.After(h.Again.Began) {
				found = append(found, fmt.Sprintf("the cluster was up, and %s got a call of %s", machine.Name, call.Name()))
			}
		}
	}

	return found
}
