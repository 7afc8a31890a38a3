package chaos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Look is a call of a target that only looks, and how the cluster was meanwhile.
type Look struct {
	Target string
	Run    *Run
	// Ill are the nodes that lacked the same before and after it, and what; Well those that had no fault and lacked
	// nothing. Of the others nobody knows what was there to see.
	Ill  map[string]string
	Well []string
	// Steady is set if every node was either, so that none can have been seen in passing.
	Steady bool
	// AllWell is set if the cluster was well as a whole.
	AllWell bool
	// Blamed are the nodes that it says something is wrong with.
	Blamed []string
	// Garbled is why nobody can read what it tells; nil if it can be read.
	Garbled error
	// Changed are the calls that it changed nodes with, and what else is not as it was.
	Changed []string
	// Bundle is the archive that was asked for; nil for none.
	Bundle *Bundle
}

// Bundle is an archive for a bug report.
type Bundle struct {
	Mode os.FileMode
	// Text is all that is in it.
	Text string
}

// lookKind is a target that only looks.
type lookKind struct {
	name  string
	call  func(invocation.Invocation, context.Context, settings.Overrides) *invocation.Failure
	flags func(w *world, number int) settings.Overrides
	// judges is set if its exit code says whether the cluster is well.
	judges bool
}

// The names that more than the table knows.
const (
	healthName   = "health"
	diagnoseName = "diagnose"
)

var lookKinds = []lookKind{
	{name: healthName, call: invocation.Invocation.Health, judges: true,
		flags: func(*world, int) settings.Overrides { return settings.Overrides{"format": "json"} }},
	{name: diagnoseName, call: invocation.Invocation.Diagnose, judges: true,
		flags: func(w *world, number int) settings.Overrides {
			return settings.Overrides{"format": "json", "bundle": "true", "file": w.bundleFile(number)}
		}},
	{name: "status", call: invocation.Invocation.Status, flags: noFlags},
	{name: "etcd:status", call: invocation.Invocation.EtcdStatus, flags: noFlags},
	{name: "etcd:members", call: invocation.Invocation.EtcdMembers, flags: noFlags},
}

func noFlags(*world, int) settings.Overrides { return nil }

// drawLook has every other operation looked at, once while what went wrong is there still and once in the end.
func drawLook(random *rand.Rand) string {
	if random.IntN(2) > 0 {
		return ""
	}

	return pick(random, healthName, healthName, healthName, diagnoseName, diagnoseName, diagnoseName,
		"status", "etcd:status", "etcd:members")
}

// look calls the operation's target that looks, if it has one. On a computer that is too busy no node may answer in
// time at first, though all is well.
func (w *world) look(ctx context.Context, care *Care, number int) error {
	const tries = 3

	i := slices.IndexFunc(lookKinds, func(kind lookKind) bool { return kind.name == care.Operation.Look })
	if i < 0 {
		return nil
	}

	for try := range tries {
		look, err := w.lookOnce(ctx, lookKinds[i], number)
		if err != nil {
			return err
		}

		if try == tries-1 || !look.AllWell || look.Run.Code == diagnosis.ExitOK || len(look.Changed) > 0 {
			care.Looks = append(care.Looks, *look)

			break
		}
	}

	return nil
}

func (w *world) lookOnce(ctx context.Context, kind lookKind, number int) (*Look, error) {
	look := &Look{Target: kind.name}

	if err := os.Remove(w.bundleFile(number)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an earlier bundle: %w", err)
	}

	if kind.name == diagnoseName {
		if err := w.plantSecrets(); err != nil {
			return nil, err
		}
	}

	before := w.sight()

	var (
		document bytes.Buffer
		err      error
	)

	look.Run, err = w.operator("first").call(ctx, kind.name, func(call invocation.Invocation) *invocation.Failure {
		call.Out = &document

		return kind.call(call, ctx, kind.flags(w, number))
	}, before.patience()...)
	if err != nil {
		return nil, err
	}

	look.Run.Healed = number > 1
	look.Run.Output += document.String()
	after := w.sight()
	look.compare(before, after)
	look.Changed = w.changedSince(look.Run, before, after)

	if kind.judges {
		look.Blamed, look.Garbled = blamedIn(document.Bytes())
	}

	if kind.name == diagnoseName {
		if look.Bundle, err = readBundle(w.bundleFile(number)); err != nil {
			return nil, err
		}
	}

	return look, nil
}

// sight is how all machines are at one moment.
type sight struct {
	// ills are what nodes lack by their own records, or are cut off by; faulty is set for any fault, and for control
	// planes whose pods are still coming up; boots tells a node that came back from one that never went.
	ills    map[string]string
	faulty  map[string]bool
	boots   map[string]int
	cordons cordons
}

func (w *world) sight() sight {
	seen := sight{ills: w.unhealthyNodes(), faulty: map[string]bool{}, boots: map[string]int{}}
	seen.cordons = w.cordons()

	for _, planned := range w.plan.Machines {
		name := planned.Name

		faults := w.node(name).Faults()
		faults.Says = nil // what it says does not make it ill

		if w.isGone(name) {
			seen.ills[name] = "it is gone"
		} else if reason := hidden(faults, planned.ControlPlane); seen.ills[name] == "" && reason != "" {
			seen.ills[name] = reason
		}

		seen.faulty[name] = !reflect.ValueOf(faults).IsZero() || planned.ControlPlane && !w.node(name).ServesKubernetes()
		seen.boots[name] = w.node(name).Boots()
	}

	return seen
}

// patience are the limits of a look: where nothing is wrong none is reached, however busy the computer is.
func (s sight) patience() []string {
	for name, faulty := range s.faulty {
		if faulty || s.ills[name] != "" || s.cordons.on(name) {
			return []string{"HEALTH_TIMEOUT=6m"}
		}
	}

	return []string{"HEALTH_TIMEOUT=2h", "DIAL_TIMEOUT=30s"}
}

// moved is set for a node that fell ill, got well or booted since.
func (s sight) moved(after sight, name string) bool {
	return s.boots[name] != after.boots[name] || s.ills[name] != after.ills[name]
}

// hidden is what is wrong with a node that has all that makes it healthy.
func hidden(faults emulator.Faults, controlPlane bool) string {
	switch {
	case faults.Silence:
		return "it is off the network"
	case faults.Refuse:
		return "it refuses connections"
	case faults.EtcdUnhealthy && controlPlane:
		return "its etcd fails its health checks"
	case faults.KubernetesDown && controlPlane:
		return "its Kubernetes API is down"
	default:
		return ""
	}
}

// compare finds the nodes that were the same before and after it.
func (l *Look) compare(before, after sight) {
	l.Ill, l.AllWell = map[string]string{}, true

	for name := range before.boots {
		ill := before.ills[name]

		switch {
		case before.moved(after, name):
		case ill != "":
			l.Ill[name] = ill
		case !before.faulty[name] && !before.cordons.on(name) && !after.cordons.on(name):
			l.Well = append(l.Well, name)
		}
	}

	l.AllWell = len(l.Well) == len(before.boots)
	l.Steady = len(l.Well)+len(l.Ill) == len(before.boots)

	slices.Sort(l.Well)
}

// changedSince is what a look has changed. Of cordons, those of the nodes' own Talos come and go by themselves.
func (w *world) changedSince(run *Run, before, after sight) []string {
	var changed []string

	for _, machine := range w.everyMachine() {
		for _, call := range machine.Calls() {
			if call.Mutating && call.Time.After(run.Began) {
				changed = append(changed, fmt.Sprintf("%s got a call of %s", machine.Name(), call.Name()))
			}
		}
	}

	was, is := before.cordons.others(), after.cordons.others()
	if before.cordons != nil && after.cordons != nil && !slices.Equal(was, is) {
		changed = append(changed, fmt.Sprintf("cordoned are %v instead of %v", is, was))
	}

	return changed
}

// plantSecrets has each machine say one of the cluster's secrets, where diagnose reads.
func (w *world) plantSecrets() error {
	secrets, err := secretsBelow(w.talosDir(), w.operator("first").kubeconfig())
	if err != nil {
		return err
	}

	for i, planned := range w.plan.Machines {
		planted := "credentials in use: " + secrets[i%len(secrets)]

		w.node(planned.Name).Set(func(f *emulator.Faults) {
			f.Says = append(f.Says, emulator.Saying{Line: planted}, emulator.Saying{Service: "kubelet", Line: planted})
		})
	}

	return nil
}

// blamedIn are the nodes that a document of health or diagnose says something is wrong with.
func blamedIn(document []byte) ([]string, error) {
	type finding struct{ Severity, Node string }

	var told struct {
		Findings []finding
		Nodes    []struct {
			Node   string
			Causes []finding
		}
	}

	if err := json.Unmarshal(document, &told); err != nil {
		return nil, err //nolint:wrapcheck // the check says what could not be read
	}

	var blamed []string

	for _, node := range told.Nodes {
		for _, cause := range node.Causes {
			told.Findings = append(told.Findings, finding{cause.Severity, node.Node})
		}
	}

	for _, finding := range told.Findings {
		if finding.Severity == diagnosis.Failure.String() && finding.Node != "" && !slices.Contains(blamed, finding.Node) {
			blamed = append(blamed, finding.Node)
		}
	}

	return blamed, nil
}

func (w *world) bundleFile(number int) string {
	return filepath.Join(w.folder, fmt.Sprintf("bundle%d.tar.gz", number))
}

// readBundle unpacks an archive; nil if there is none.
func readBundle(path string) (*Bundle, error) {
	file, err := os.Open(path) //nolint:gosec // ours
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read

	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at bundle: %w", err)
	}

	plain, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("unpack bundle: %w", err)
	}

	var text strings.Builder

	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return &Bundle{Mode: info.Mode().Perm(), Text: text.String()}, nil
		}

		if err == nil {
			text.WriteString(header.Name + "\n")
			_, err = io.Copy(&text, archive) //nolint:gosec // ours
		}

		if err != nil {
			return nil, fmt.Errorf("unpack bundle: %w", err)
		}
	}
}

// lookChecks are those of what only looks.
var lookChecks = []check{
	{"looks change nothing", ofLooks(changesNothing)},
	{"looks are true", ofLooks(looksAreTrue)},
	{"bundles are safe", ofLooks(bundlesAreSafe)},
}

func ofLooks(judge func(Look) []string) func(*History) []string {
	return ofCare(func(c *Care) []string {
		var found []string
		for _, look := range c.Looks {
			found = append(found, judge(look)...)
		}

		return found
	})
}

// changesNothing: no node got a call that changes something.
func changesNothing(l Look) []string {
	var found []string
	for _, change := range l.Changed {
		found = append(found, l.Target+" only looks, and "+change)
	}

	return found
}

// looksAreTrue: success means that nobody lacks anything, failure that not all is well; and nobody who is well is
// blamed.
func looksAreTrue(l Look) []string {
	var found []string

	if l.AllWell && l.Run.Code != diagnosis.ExitOK {
		found = append(found, fmt.Sprintf("all is well, and %s ended with code %d: %s", l.Target, l.Run.Code, l.Run.Message))
	}

	if !slices.ContainsFunc(lookKinds, func(kind lookKind) bool { return kind.name == l.Target && kind.judges }) {
		return found
	}

	if l.Garbled != nil {
		found = append(found, fmt.Sprintf("what %s tells can't be read: %v", l.Target, l.Garbled))
	}

	for name, reason := range l.Ill {
		if l.Run.Code == diagnosis.ExitOK {
			found = append(found, fmt.Sprintf("%s says that all is well, and %s is not: %s", l.Target, name, reason))
		}
	}

	for _, name := range l.Blamed {
		if l.Steady && slices.Contains(l.Well, name) {
			found = append(found, fmt.Sprintf("%s says that something is wrong with %s, which is well", l.Target, name))
		}
	}

	slices.Sort(found)

	return found
}

// bundlesAreSafe: an archive is its owner's alone, and holds no secret of the cluster.
func bundlesAreSafe(l Look) []string {
	switch {
	case l.Target != diagnoseName:
		return nil
	case l.Bundle == nil:
		return []string{"no bundle was written"}
	case l.Bundle.Mode != 0o600: //nolint:mnd // the owner's alone
		return []string{fmt.Sprintf("the bundle has the mode %s", l.Bundle.Mode)}
	}

	var found []string

	for _, secret := range l.Run.Secrets {
		if strings.Contains(l.Bundle.Text, secret) {
			found = append(found, fmt.Sprintf("a secret is in the bundle: %.6s…", secret))
		}
	}

	return found
}
