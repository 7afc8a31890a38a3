package audit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks of patches, as the talconfig lists them for all nodes, for a role and for a node, or as a profile's folder has
// them. Whether a file is YAML at all is said by those who read it.
var patchChecks = []Check{
	ofPatches(diagnosis.DocumentTwice, checkDocumentTwice),
	ofPatches(diagnosis.JSONPatchRefused, checkJSONPatches),
	ofPatches(diagnosis.PatchEmpty, checkEmptyPatches),
	ofPatches(diagnosis.PatchMissing, checkMissingPatches),
	ofPatches(diagnosis.PatchUnusable, checkUnusablePatches),
	ofPatches(diagnosis.PatchUnknownKey, checkUnknownKeys),
	ofPatches(diagnosis.PatchNewerKey, checkNewerKeys),
	ofPatches(diagnosis.PatchDeletesNone, checkDeletions),
	ofPatches(diagnosis.PatchListedTwice, checkPatchesTwice),
	ofPatches(diagnosis.ManifestDuplicate, checkManifests),
}

func ofPatches(id diagnosis.ID, run func(*Report, *Input)) Check {
	return whole(id, Documents, diagnosis.NeedsTalconfig, milder(run))
}

// milder makes warnings of what only the next making of machine configs fails for, where that is not to come: all are
// there, and are used as they are.
func milder(run func(*Report, *Input)) func(*Report, *Input) {
	return func(r *Report, in *Input) {
		run(r, in)

		for i := range r.findings {
			if in.Options.AsTheyAre && len(in.missing) == 0 && len(in.Configs) > 0 {
				r.findings[i].Severity = min(r.findings[i].Severity, diagnosis.Warning)
			}
		}
	}
}

// variable is a variable in a patch, which gets its value before the patch is read as YAML.
var variable = pattern.New(`\$\{[^}\n]*\}|\$[A-Z_][A-Z0-9_]*`)

// adopt notes what in a patch's text can't be judged, and finds the places of what can: variables count as nothing.
func (p *Patch) adopt() {
	p.templated = bytes.Contains(p.File.Data, []byte("{{"))

	if variable.Match(p.File.Data) {
		blank := machineconfig.NewPlaces(variable.ReplaceAll(p.File.Data, nil))

		if _, _, message := p.File.places.SyntaxError(); message != "" {
			p.File.places = blank
		}
	}
}

// form is what kind of patch a text is.
type form int

const (
	strategic form = iota // documents to merge
	operations
	empty
	unusable
	unknown // templates, ciphertext, or no text at all
)

// form tells what the patch is, by its text alone.
func (p *Patch) form() form {
	roots := p.File.places.Roots()

	switch {
	case p.Missing, p.unresolved, p.templated, p.File.Data == nil:
		return unknown
	case isEmptyPatch(p.File.Data):
		return empty
	case len(roots) == 0:
		return unusable
	case roots[0].Kind == yaml.SequenceNode && len(roots) == 1 && areOperations(roots[0]):
		return operations
	}

	for _, root := range roots {
		switch {
		case machineconfig.Field(root, "sops") != nil:
			return unknown
		case root.Kind != yaml.MappingNode && root.Tag != "!!null":
			return unusable
		}
	}

	return strategic
}

func areOperations(list *yaml.Node) bool {
	return len(list.Content) > 0 && !slices.ContainsFunc(list.Content, func(item *yaml.Node) bool {
		return machineconfig.Field(item, "op") == nil || machineconfig.Field(item, "path") == nil
	})
}

// isEmptyPatch reports whether a text has nothing but comments and document marks.
func isEmptyPatch(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.Equal(line, []byte("---")) && line[0] != '#' {
			return false
		}
	}

	return true
}

// name is how people are told of a patch.
func (p *Patch) name() string {
	if p.Inline {
		return "the patch"
	}

	return "the patch " + p.File.Shown
}

// used reports whether any node gets the patch; an inventory without nodes of a role has patches for nobody.
func (in *Input) used(patch *Patch) bool {
	return slices.ContainsFunc(patch.uses(), func(use patchUse) bool { return len(in.nodesOf(use)) > 0 })
}

// recipients are the nodes that the talconfig's lists of patches are for.
type recipients struct {
	all     []*inventory.Node
	byRole  map[string][]*inventory.Node
	byEntry map[int][]*inventory.Node
}

func (in *Input) findRecipients() recipients {
	found := recipients{all: in.Cluster.Nodes, byRole: map[string][]*inventory.Node{},
		byEntry: map[int][]*inventory.Node{}}

	for i, node := range in.Cluster.Nodes {
		index := in.entryIndex(node)
		if in.Cluster.Profile != nil {
			index = i
		}

		found.byEntry[index] = append(found.byEntry[index], node)

		role := "worker"
		if node.Role == inventory.ControlPlane {
			role = "controlPlane"
		}

		if declared := in.entry(node); declared == nil || !declared.OverridePatches {
			found.byRole[role] = append(found.byRole[role], node)
		}
	}

	return found
}

// nodesOf are the nodes that get what an item of a list of patches names. What is for a role is not for nodes that
// override it.
func (in *Input) nodesOf(use patchUse) []*inventory.Node {
	switch use.group {
	case "":
		return in.recipients().all
	case "nodes":
		return in.recipients().byEntry[use.node]
	default:
		return in.recipients().byRole[use.group]
	}
}

// entry is a node's entry in the talconfig; nil if it is not known.
func (in *Input) entry(node *inventory.Node) *talconfig.Node {
	declared, index := in.Cluster.Talconfig, in.entryIndex(node)
	if declared == nil || index < 0 || index >= len(declared.Nodes) {
		return nil
	}

	return &declared.Nodes[index]
}

// settingsOf are the settings of a node's entry, with those of its role; of a profile what there is of them.
func (in *Input) settingsOf(node *inventory.Node) (talconfig.NodeSettings, bool) {
	if in.Cluster.Profile != nil {
		return talconfig.NodeSettings{TalosImageURL: node.ImageURL,
			MachineSpec: talconfig.MachineSpec{SecureBoot: node.SecureBoot}}, true
	}

	entry := in.entry(node)
	if entry == nil {
		return talconfig.NodeSettings{}, false
	}

	return in.Cluster.Talconfig.Settings(*entry), true
}

// contract is the Talos version that machine configs are made for; nil if it is newer than what is known here, or none.
func (in *Input) contract() *config.VersionContract {
	version := in.Cluster.TalosVersion
	if version == "" {
		version = machineconfig.DefaultTalosVersion
	}

	contract, err := config.ParseContractFromVersion(version)
	if err != nil || contract.Greater(newestContract) {
		return nil
	}

	return contract
}

// newestContract is the newest Talos version that this program's machinery knows.
var newestContract = config.TalosVersion1_13

// checkDocumentTwice looks for documents of one kind and name in one text.
func checkDocumentTwice(r *Report, in *Input) {
	for _, patch := range in.Patches {
		if patch.form() != strategic {
			continue
		}

		if refused := in.refusal(patch); refused == nil || !isDuplicate(refused) {
			continue
		}

		first := map[string]*yaml.Node{}

		for _, root := range patch.File.places.Roots() {
			if root.Kind != yaml.MappingNode || deletesWhole(root) {
				continue
			}

			id := documentID(root)

			if known := first[id]; known != nil {
				r.addAt(patch.File, root, "merge the two documents into one, or make two patches of them",
					"%s has %s a second time: the first begins in line %d", patch.name(), documentLabel(id),
					patch.File.location(known.Line, 0).Line)
			} else {
				first[id] = root
			}
		}
	}
}

// documentID tells documents apart as Talos does: by kind and name.
func documentID(root *yaml.Node) string {
	text := func(key string) string {
		if value := machineconfig.Field(root, key); value != nil && value.Kind == yaml.ScalarNode {
			return value.Value
		}

		return ""
	}

	return text("kind") + "/" + text("name")
}

func documentLabel(id string) string {
	kind, name, _ := strings.Cut(id, "/")

	switch {
	case kind == "":
		return "a document without a kind"
	case name == "":
		return kind
	default:
		return kind + " " + name
	}
}

// addAt adds a finding that stands at a node of a text.
func (r *Report) addAt(file *File, node *yaml.Node, change, cause string, args ...any) {
	r.addLine(file, node.Line, node.Column, change, cause, args...)
}

// addLine adds a finding that stands on a line of a text.
func (r *Report) addLine(file *File, line, column int, change, cause string, args ...any) {
	entry, _ := diagnosis.Lookup(r.id)

	r.findings = append(r.findings, diagnosis.Finding{
		ID: r.id, Severity: entry.Severity, Cause: fmt.Sprintf(cause, args...), Next: change, At: file.location(line, column),
	})
}

// checkJSONPatches looks for lists of operations where the config has several documents.
func checkJSONPatches(r *Report, in *Input) {
	for _, patch := range in.Patches {
		if patch.form() != operations {
			continue
		}

		var (
			names []string
			why   string
		)

		for _, use := range patch.uses() {
			for _, node := range in.nodesOf(use) {
				if reason := in.severalDocuments(node); reason != "" && !slices.Contains(names, node.Name) {
					names, why = append(names, node.Name), reason
				}
			}
		}

		if len(names) > 0 {
			r.found(patch.Named, "write it as a strategic merge patch: "+machineconfig.StrategicForm(string(patch.File.Data)),
				"%s is a list of operations (RFC 6902), which Talos refuses for configs of several documents, and %s of %s",
				patch.name(), why, nodeList(names))
		}
	}
}

// severalDocuments says why a node's config has several documents before it is patched; empty if it has one, or that is
// not known.
func (in *Input) severalDocuments(node *inventory.Node) string {
	if contract := in.contract(); contract == nil || contract.MultidocNetworkConfigSupported() {
		return "from Talos 1.12 on HostnameConfig is one"
	}

	settings, known := in.settingsOf(node)

	switch {
	case !known:
		return ""
	case settings.IngressFirewall != nil:
		return "ingressFirewall makes some"
	case len(settings.Volumes)+len(settings.UserVolumes) > 0:
		return "volumes make some"
	case len(settings.ExtensionServices) > 0:
		return "extensionServices make some"
	default:
		return ""
	}
}

// nodeList is a list of nodes for people, cut where it gets long.
func nodeList(names []string) string {
	const most = 3

	if len(names) <= most {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more nodes", strings.Join(names[:most], ", "), len(names)-most)
}

func checkEmptyPatches(r *Report, in *Input) {
	for _, patch := range in.Patches {
		if patch.form() == empty {
			r.found(patch.Named, "take it out of the list", "%s is empty%s", patch.name(), in.madeFrom(patch))
		}
	}
}

func checkUnusablePatches(r *Report, in *Input) {
	for _, patch := range in.Patches {
		switch patch.form() {
		case unusable:
			checkUnusableText(r, patch)
		case strategic:
			if refused := in.refusal(patch); refused != nil && !isUnknownKey(refused) && !isDuplicate(refused) &&
				!variable.Match(patch.File.Data) {
				message := strings.Replace(refused.Message, "the machine config is empty", "says nothing", 1)
				r.addLine(patch.File, refused.Line, refused.Column, "correct the patch", "%s %s", patch.name(), message)
			}
		}
	}
}

// checkUnusableText tells of a patch that is not even of the form of one.
func checkUnusableText(r *Report, patch *Patch) {
	line, column, message := patch.File.places.SyntaxError()

	switch roots := patch.File.places.Roots(); {
	case message != "" && patch.Inline:
		r.addLine(patch.File, line, column, "correct the line", "%s is not valid YAML: %s", patch.name(), message)
	case message != "": // whoever reads files says so
	case len(roots) == 0:
	default:
		kind := "a single value"
		if roots[0].Kind == yaml.SequenceNode {
			kind = "a list, and not of operations with op and path"
		}

		next := "write a mapping, as `machine:` with what belongs below it"
		if roots[0].Kind == yaml.ScalarNode && strings.Contains(roots[0].Value, ".y") {
			next = "write @ before the name of a file"
		}

		r.addAt(patch.File, roots[0], next, "%s is %s, and no mapping", patch.name(), kind)
	}
}

// refusal is why Talos can't read a patch; nil if it can. Variables in it count as empty. Patches that are alike are
// read once.
func (in *Input) refusal(patch *Patch) *machineconfig.LoadError {
	text := variable.ReplaceAll(patch.File.Data, nil)

	refused, known := in.refusals[string(text)]
	if !known {
		if err := loadPatch(text); err != nil {
			refused = machineconfig.ExplainPatch(patch.File.Shown, text, err)
		}

		in.refusals[string(text)] = refused
	}

	return refused
}

// loadPatch turns a panic of the decoder, which hostile input can cause, into an error.
func loadPatch(text []byte) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("the patch can't be decoded")
		}
	}()

	_, err = configpatcher.LoadPatch(text)

	return err
}

func isUnknownKey(refused *machineconfig.LoadError) bool {
	return strings.Contains(refused.Message, "unknown keys") || strings.Contains(refused.Message, "not registered")
}

func isDuplicate(refused *machineconfig.LoadError) bool {
	return strings.Contains(refused.Message, "duplicate document") || strings.Contains(refused.Message, "second document")
}

func checkUnknownKeys(r *Report, in *Input) {
	if in.contract() == nil {
		return // of a Talos that is newer than this program nothing is known
	}

	for _, patch := range in.Patches {
		if patch.form() != strategic || !in.used(patch) {
			continue
		}

		refused := in.refusal(patch)
		if refused == nil || !isUnknownKey(refused) {
			continue
		}

		cause, next := refused.Message, "correct the key"

		if kind := unregisteredKind(patch); kind != "" && strings.Contains(cause, "not registered") {
			cause = fmt.Sprintf("has a document of kind %s, which Talos does not know", kind)

			if near := suggest.Word(kind, machineconfig.Kinds()); near != "" {
				cause += " (did you mean " + near + "?)"
			} else {
				next = "put Kubernetes manifests into cluster.inlineManifests, and documents of a newer Talos into a newer cluster"
			}
		}

		r.addLine(patch.File, refused.Line, refused.Column, next, "%s: %s", patch.name(), cause)
	}
}

// unregisteredKind is the first kind of document in a patch that Talos does not know; empty if it knows them all.
func unregisteredKind(patch *Patch) string {
	for _, root := range patch.File.places.Roots() {
		if kind := machineconfig.Field(root, "kind"); kind != nil && !slices.Contains(machineconfig.Kinds(), kind.Value) {
			return kind.Value
		}
	}

	return ""
}

func checkNewerKeys(r *Report, in *Input) {
	contract := in.contract()
	if in.Cluster.TalosVersion == "" {
		return // then configs are made for the newest version that is known
	}

	for _, patch := range in.Patches {
		if patch.form() != strategic || !in.used(patch) {
			continue
		}

		for _, root := range patch.File.places.Roots() {
			if deletesWhole(root) {
				continue
			}

			for _, key := range machineconfig.NewerKeys(root, contract) {
				r.addLine(patch.File, key.Line, key.Column,
					fmt.Sprintf("set talosVersion to %s or newer, or take %s out", key.Since, key.Name),
					"%s has %s, which Talos knows from %s on, and talosVersion is %s", patch.name(), key.Name, key.Since,
					in.Cluster.TalosVersion)
			}
		}
	}
}

// checkPatchesTwice looks for patches that reach one node by two ways.
func checkPatchesTwice(r *Report, in *Input) {
	inline := map[string]*Patch{}

	for _, patch := range in.Patches {
		if form := patch.form(); form == unknown || form == empty {
			continue
		}

		first, others := patch.uses()[0], patch.uses()[1:]

		if patch.Inline {
			known := inline[string(patch.File.Data)]
			if known == nil {
				inline[string(patch.File.Data)] = patch

				continue
			}

			first, others = known.uses()[0], patch.uses()
		}

		for _, other := range others {
			if twice := commonNodes(in.nodesOf(first), in.nodesOf(other)); len(twice) > 0 {
				r.found(other.named, "list it once", "%s is listed twice for %s: the first time at %s", patch.name(),
					nodeList(twice), in.locate(first.named))

				break
			}
		}
	}
}

func commonNodes(some, others []*inventory.Node) []string {
	var names []string

	for _, node := range some {
		if slices.Contains(others, node) {
			names = append(names, node.Name)
		}
	}

	return names
}
