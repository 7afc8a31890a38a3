package talosctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/program"
)

// KubernetesUpgrade is what is asked of talosctl.
type KubernetesUpgrade struct {
	// Endpoint is the control plane that is asked, as host or host:port, and Node its address without a port.
	Endpoint, Node string
	// To is the version of Kubernetes, as "v1.37.0".
	To string
	// DryRun only tells what would be done. Talos 1.14 sends the control planes their own configs once more for that.
	DryRun bool
}

// Kind is what a line of the output says.
type Kind int

// Kinds of lines.
const (
	// Doing is what talosctl does or waits for; Text says it.
	Doing Kind = iota
	// Planned is a component of a node that is not as it is to be: Text is like "v1.36.3 -> v1.37.0".
	Planned
	// Updated is a component of a node that is.
	Updated
	// Manifest is an object of Kubernetes that Talos keeps and that changes: Text is like "configured
	// DaemonSet/kube-system/kube-proxy".
	Manifest
)

// Line is one that says something. What differs between objects is left out: it may hold secrets.
type Line struct {
	Kind Kind
	// Component is the one that talosctl is at, as in "kube-apiserver"; empty before the first.
	Component string
	// Node is the address of the node that it is at; empty between two.
	Node string
	Text string
}

// Failure is an upgrade that talosctl gave up. What was done until then stays.
type Failure struct {
	// Component and Node are where it stopped; empty if it has not come to any.
	Component, Node string
	// Complaint is what it printed last. It may hold secrets.
	Complaint string
	Err       error
}

func (f *Failure) Error() string { return "talosctl upgrade-k8s: " + f.Err.Error() }

// Unwrap gives how it ended.
func (f *Failure) Unwrap() error { return f.Err }

// UpgradeKubernetes has talosctl bring every component on every node to a version, and the objects that Talos keeps up
// to date. It begins with what is not there yet, so it can be run again. An error is a *Failure.
func (t Talosctl) UpgradeKubernetes(ctx context.Context, upgrade KubernetesUpgrade, told func(Line)) error {
	// The nodes' configs are written without the comments that talosctl adds otherwise.
	arguments := []string{"upgrade-k8s", "--talosconfig", t.Talosconfig, "--endpoints", upgrade.Endpoint,
		"--nodes", upgrade.Node, "--to", strings.TrimPrefix(upgrade.To, "v"), "--with-docs=false",
		"--with-examples=false"}
	if upgrade.DryRun {
		arguments = append(arguments, "--dry-run", "--pre-pull-images=false")
	}

	var at reader

	err := t.Programs.Follow(ctx, func(line string) {
		if read, says := at.read(line); says {
			told(read)
		}
	}, name, arguments...)
	if err == nil {
		return nil
	}

	failed := &Failure{Component: at.component, Node: at.node, Err: err}

	var ended *program.Failure
	if errors.As(err, &ended) {
		failed.Complaint = ended.Complaint
		at.blame(ended.Complaint)
		failed.Component, failed.Node = at.component, at.node
	}

	return failed
}

// reader knows where talosctl is.
type reader struct{ component, node string }

// The forms of lines. Source: siderolabs/talos, pkg/cluster/kubernetes/talos_managed.go and kubelet.go, and
// siderolabs/go-kubernetes, kubernetes/ssa/cli/cli.go and kubernetes/manifests/cli.go.
var (
	componentLine = pattern.New(`^updating "?([a-z-]+)"?(?: to version .*)?(?: \(dry run\))?$`)
	nodeLine      = pattern.New(`^ [<>] "([^"]+)": (.*)$`)
	changeLine    = pattern.New(`^ > update ([a-z-]+): (\S+) -> (\S+)$`)
	objectLine    = pattern.New(`^ < (created|configured|deleted|Pruned|pruned) (\S+)$`)
	phaseLine     = pattern.New(`^(?:checking for|waiting for|discovered|automatically detected) .*$`)
)

// read tells what a line says; false for one that says nothing to people.
func (r *reader) read(line string) (Line, bool) {
	if found := componentLine.FindStringSubmatch(line); found != nil {
		r.component, r.node = found[1], ""

		return r.line(Doing, "updating "+found[1]), true
	}

	if found := changeLine.FindStringSubmatch(line); found != nil {
		return r.line(Planned, fmt.Sprintf("v%s -> v%s", found[2], found[3])), true
	}

	if found := objectLine.FindStringSubmatch(line); found != nil {
		return r.line(Manifest, strings.ToLower(found[1])+" "+found[2]), true
	}

	if found := nodeLine.FindStringSubmatch(line); found != nil {
		r.node = found[1]

		if found[2] == "successfully updated" {
			return r.line(Updated, found[2]), true
		}

		return r.line(Doing, found[2]), true
	}

	if phaseLine.MatchString(line) {
		r.node = ""

		return r.line(Doing, line), true
	}

	return Line{}, false
}

func (r *reader) line(kind Kind, text string) Line {
	return Line{Kind: kind, Component: r.component, Node: r.node, Text: text}
}

// How an error names the component and the node.
var (
	blamedComponent = pattern.New(`failed (?:updating|upgrading) (?:service )?"?(kube-[a-z-]+|kubelet)"?`)
	blamedNode      = pattern.New(`(?:node|on) "?([0-9a-fA-F.:]*[0-9a-fA-F])"?:`)
)

// blame takes over what an error says of where it happened.
func (r *reader) blame(complaint string) {
	if found := blamedComponent.FindStringSubmatch(complaint); found != nil {
		r.component = found[1]
	}

	if found := blamedNode.FindStringSubmatch(complaint); found != nil {
		r.node = found[1]
	}
}
