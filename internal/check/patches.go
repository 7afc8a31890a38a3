package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

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

		for _, root := range patch.File.Places.Roots() {
			if root.Kind != yaml.MappingNode || deletesWhole(root) {
				continue
			}

			id := documentID(root)

			if known := first[id]; known != nil {
				r.Found(patch.File.Node(root), "merge the two documents into one, or make two patches of them",
					"%s has %s a second time: the first begins in line %d", patch.name(), documentLabel(id),
					patch.File.Location(known.Line, 0).Line)
			} else {
				first[id] = root
			}
		}
	}
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
			r.Found(patch.Named, "write it as a strategic merge patch: "+machineconfig.StrategicForm(string(patch.File.Data)),
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

func checkEmptyPatches(r *Report, in *Input) {
	for _, patch := range in.Patches {
		if patch.form() == empty {
			r.Found(patch.Named, "take it out of the list", "%s is empty%s", patch.name(), in.madeFrom(patch))
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
				r.Found(patch.File.Line(refused.Line, refused.Column), "correct the patch", "%s %s", patch.name(), message)
			}
		}
	}
}

// checkUnusableText tells of a patch that is not even of the form of one.
func checkUnusableText(r *Report, patch *Patch) {
	line, column, message := patch.File.Places.SyntaxError()

	switch roots := patch.File.Places.Roots(); {
	case message != "" && patch.Inline:
		r.Found(patch.File.Line(line, column), "correct the line", "%s is not valid YAML: %s", patch.name(), message)
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

		r.Found(patch.File.Node(roots[0]), next, "%s is %s, and no mapping", patch.name(), kind)
	}
}

// refusals are what Talos says about patches, by their text; nil for those that it can read.
type refusals map[string]*machineconfig.LoadError

// refusal is why Talos can't read a patch; nil if it can. Variables in it count as empty. Patches that are alike are
// read once.
func (in *Input) refusal(patch *Patch) *machineconfig.LoadError {
	text := variable.ReplaceAll(patch.File.Data, nil)

	refusals := Once(in, func(*Input) refusals { return refusals{} })

	refused, known := refusals[string(text)]
	if !known {
		if err := loadPatch(text); err != nil {
			refused = machineconfig.ExplainPatch(patch.File.Shown, text, err)
		}

		refusals[string(text)] = refused
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

		r.Found(patch.File.Line(refused.Line, refused.Column), next, "%s: %s", patch.name(), cause)
	}
}

// unregisteredKind is the first kind of document in a patch that Talos does not know; empty if it knows them all.
func unregisteredKind(patch *Patch) string {
	for _, root := range patch.File.Places.Roots() {
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

		for _, root := range patch.File.Places.Roots() {
			if deletesWhole(root) {
				continue
			}

			for _, key := range machineconfig.NewerKeys(root, contract) {
				r.Found(patch.File.Line(key.Line, key.Column),
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
				r.Found(other.named, "list it once", "%s is listed twice for %s: the first time at %s", patch.name(),
					nodeList(twice), in.Locate(first.named))

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
