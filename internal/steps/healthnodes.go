package steps

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/retry"
	"github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// lookAt asks one node how it is, again if it does not answer.
func (h *healthChecker) lookAt(ctx context.Context, node *inventory.Node) nodeLook {
	started := time.Now()

	h.Report.Progress(h.step.Name(), report.Progress{Node: node.Name, Text: "asking", Since: h.Clock.Now()})

	look := nodeLook{node: node}
	tries := h.Settings.ReachabilityRetries

	if h.Settings.NoWait {
		tries = 1
	}

	//nolint:errcheck // the last observation says more
	retry.Do(ctx, h.Clock, observe.Evenly(h.Settings, tries), func(ctx context.Context, _ int) error {
		look.seen = h.observer.Observe(ctx, node)
		return look.seen.Err
	}, func(error) bool { return look.seen.Silent() })

	look.NodeHealth = NodeHealth{Node: node.Name, Role: node.Role.String(), Address: look.seen.Address,
		State: stateText(look.seen)}

	if problem := h.cannotTell(look.seen); problem != nil {
		look.findings = []diagnosis.Finding{problem.Finding}
	} else {
		h.judge(ctx, &look)
	}

	look.took = time.Since(started)

	return look
}

// cannotTell is why a node does not tell how it is; nil if it does.
func (h *healthChecker) cannotTell(seen observe.Observation) *diagnosis.Problem {
	switch {
	case seen.Silent():
		return h.silent(seen)
	case seen.NotOurs():
		return h.notOurs(seen)
	case seen.State == talos.Maintenance:
		return h.problem(seen, diagnosis.StillMaintenance, "in maintenance: it has no machine config",
			command("applySequential", seen.Node))
	case seen.Status == nil:
		unread := h.problem(seen, diagnosis.NodeNotReady, "it answers, and can't be read: "+talos.Explain(seen.ReadErr),
			command("status", nil))
		if id, remedy, known := diagnosed(seen.ReadErr); known {
			unread.ID, unread.Next = id, remedy
		}

		return unread
	default:
		return nil
	}
}

func (h *healthChecker) silent(seen observe.Observation) *diagnosis.Problem {
	silent := h.problem(seen, diagnosis.NodeSilent, fmt.Sprintf(
		"no answer at %s: off, rebooting, or at another address (%s)", text.List(h.observer.Addresses(seen.Node)),
		talos.Explain(seen.Err)), "power it on, or "+command(verifyName, seen.Node))

	if seen.Silence == talos.Refused {
		silent.ID, silent.Cause = diagnosis.NodeRefused, "port 50000 refused: booting, or its API does not start"
		silent.Next = "look at the machine's console; then " + command(verifyName, seen.Node)
	}

	if id, remedy, known := diagnosed(seen.Err); known {
		silent.ID, silent.Cause, silent.Next = id, "not reachable from here: "+talos.Explain(seen.Err), remedy
	}

	return silent
}

// judge compares what a node of ours says with what is declared.
func (h *healthChecker) judge(ctx context.Context, look *nodeLook) {
	look.Answers = true

	if waits := unmet(look.seen); waits != "" {
		look.findings = append(look.findings, h.problem(look.seen, diagnosis.NodeNotReady,
			fmt.Sprintf("%s, and not ready: %s", look.seen.Stage(), waits), command("status", nil)).Finding)
	}

	h.judgeCertificate(look)

	conn, err := h.observer.Dialer().Secure(ctx, look.seen.Address)
	if err != nil {
		return // it went away in this moment: the check of the cluster will say so
	}
	defer conn.Close()

	look.Version, _ = conn.Version(ctx) //nolint:errcheck // a role that may not read it is no trouble of the node

	schematic, err := conn.Schematic(ctx)
	extensions, unread := conn.Extensions(ctx)

	if err == nil && unread == nil {
		look.Schematic, look.Extensions = schematic, extensions
		look.findings = append(look.findings, h.imageFindings(*look)...)
	}
}

// unmet is what a node waits for by its own word; Kubernetes' view of it is left to Kubernetes.
func unmet(seen observe.Observation) string {
	var reasons []string

	for _, condition := range seen.Status.Unmet {
		if condition.Name != "nodeReady" {
			reasons = append(reasons, condition.Name+": "+condition.Reason)
		}
	}

	return strings.Join(reasons, "; ")
}

// imageFindings compare the image that the node runs with the one in its declared config.
func (h *healthChecker) imageFindings(look nodeLook) []diagnosis.Finding {
	config := h.Configs[look.node.Name]
	if config == nil {
		return nil
	}

	declared := schematic.ParseReference(config.InstallImage())
	if config.InstallImage() == "" || !declared.Official() {
		return nil // what somebody else's image holds, its name does not tell
	}

	var differences []string

	if look.Version != "" && declared.Tag != "" && declared.Tag != look.Version {
		differences = append(differences, fmt.Sprintf("it runs %s, and %s is declared", look.Version, declared.Tag))
	}

	if difference := h.schematicDifference(look, declared); difference != "" {
		differences = append(differences, difference)
	}

	if len(differences) == 0 {
		return nil
	}

	return []diagnosis.Finding{{ID: diagnosis.ImageDiffers, Severity: diagnosis.Warning, Node: look.node.Name,
		Address: look.seen.Address, Cause: strings.Join(differences, "; "), Next: "mage upgradeNode " + look.node.Name}}
}

// schematicDifference says how the node's schematic is another than the declared one; empty if it is not.
func (h *healthChecker) schematicDifference(look nodeLook, declared schematic.Reference) string {
	switch {
	case declared.Schematic == look.Schematic,
		declared.Schematic == "" && look.Schematic == schematic.PlainID,
		declared.Schematic == schematic.PlainID && look.Schematic == "" && len(look.Extensions) == 0:
		return ""
	case declared.Schematic == "":
		return fmt.Sprintf("its image has the schematic %s, and one without any is declared", shortID(look.Schematic))
	}

	difference := fmt.Sprintf("its image has the schematic %s, and %s is declared", shortID(look.Schematic),
		shortID(declared.Schematic))
	if look.Schematic == "" {
		difference = fmt.Sprintf("its image has no schematic, and %s is declared", shortID(declared.Schematic))
	}

	image := h.Configs[look.node.Name].InstallImage()
	if lacking := nodes.MissingExtensions(h.Cluster, look.node, image, look.Extensions); len(lacking) > 0 {
		difference += ", with extensions that it lacks: " + text.List(lacking)
	}

	return difference
}

// renewalDue is the part of a certificate's life that is left when Talos should long have renewed it, at half of it.
const renewalDue = 4

// judgeCertificate looks at the certificate that the node's API showed.
func (h *healthChecker) judgeCertificate(look *nodeLook) {
	leaf := look.seen.Leaf
	if leaf == nil {
		return
	}

	look.certificate = &Certificate{Name: "API of " + look.node.Name, Ends: leaf.NotAfter, RenewedBy: talosItself}

	now := workspace.CertificateTime()
	if left := leaf.NotAfter.Sub(now); left < leaf.NotAfter.Sub(leaf.NotBefore)/renewalDue {
		look.findings = append(look.findings, diagnosis.Finding{ID: diagnosis.CertificateNotRenewed,
			Severity: diagnosis.Warning, Node: look.node.Name, Address: look.seen.Address,
			Cause: fmt.Sprintf("the certificate of its API %s, and Talos has not renewed it", endsText(leaf.NotAfter, now)),
			Next:  "compare the clocks, and let the workers reach port 50001 of the control planes"})
	}
}
