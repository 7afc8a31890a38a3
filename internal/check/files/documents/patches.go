package documents

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// checkDocumentTwice looks for documents of one kind and name in one text.
func checkDocumentTwice(r *check.Report, in *check.Input) {
	for _, patch := range in.Patches {
		if patch.Form() != check.StrategicPatch || patch.Unset {
			continue
		}

		if refusal(in, patch) != nil {
			continue
		}

		first := map[string]*yaml.Node{}

		for _, root := range patch.File.Places.Roots() {
			if root.Kind != yaml.MappingNode || check.DeletesWhole(root) {
				continue
			}

			id := check.DocumentID(root)

			if known := first[id]; known != nil {
				r.Found(patch.File.Node(root), "merge the two documents into one, or make two patches of them",
					"%s has %s a second time: the first begins in line %d", patch.Name(), documentLabel(id),
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
func checkJSONPatches(r *check.Report, in *check.Input) {
	for _, patch := range in.Patches {
		if patch.Form() != check.OperationsPatch {
			continue
		}

		var (
			names []string
			why   string
		)

		for _, use := range patch.Uses() {
			for _, node := range in.NodesOf(use) {
				if reason := severalDocuments(in, node); reason != "" && !slices.Contains(names, node.Name) {
					names, why = append(names, node.Name), reason
				}
			}
		}

		if len(names) > 0 {
			r.Found(patch.Named, instead(in, patch),
				"%s is a list of operations (RFC 6902), which Talos refuses for configs of several documents, and %s of %s",
				patch.Name(), why, check.NodeList(names))
		}
	}
}

// instead is what to write in the place of a list of operations: fields, or the documents that replace them.
func instead(in *check.Input, patch *check.Patch) string {
	if contract := in.Contract(); contract != nil && contract.MultidocKubernetesConfigSupported() {
		return "mage config:migrate rewrites it, or names what it can't"
	}

	return "write it as a strategic merge patch: " + machineconfig.StrategicForm(string(patch.File.Data))
}

// severalDocuments says why a node's config has several documents before it is patched; empty if it has one, or that is
// not known.
func severalDocuments(in *check.Input, node *inventory.Node) string {
	if contract := in.Contract(); contract == nil || contract.MultidocNetworkConfigSupported() {
		return "from Talos 1.12 on HostnameConfig is one"
	}

	settings, known := in.SettingsOf(node)

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

func checkEmptyPatches(r *check.Report, in *check.Input) {
	for _, patch := range in.Patches {
		if patch.Form() == check.EmptyPatch {
			r.Found(patch.Named, "take it out of the list", "%s is empty%s", patch.Name(), madeFrom(in, patch))
		}
	}
}

func checkUnusablePatches(r *check.Report, in *check.Input) {
	for _, patch := range in.Patches {
		switch patch.Form() {
		case check.UnusablePatch:
			checkUnusableText(r, patch)
		case check.StrategicPatch:
			if refused := refusal(in, patch); refused != nil && !isUnknownKey(refused) &&
				!patch.Unset {
				message := strings.Replace(refused.Message, "the machine config is empty", "says nothing", 1)
				r.Found(patch.File.Line(refused.Line, refused.Column), "correct the patch", "%s %s", patch.Name(), message)
			}
		}
	}
}

// checkUnusableText tells of a patch that is not even of the form of one.
func checkUnusableText(r *check.Report, patch *check.Patch) {
	line, column, message := patch.File.Places.SyntaxError()

	switch roots := patch.File.Places.Roots(); {
	case message != "" && patch.Inline:
		r.Found(patch.File.Line(line, column), "correct the line", "%s is not valid YAML: %s", patch.Name(), message)
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

		r.Found(patch.File.Node(roots[0]), next, "%s is %s, and no mapping", patch.Name(), kind)
	}
}

// refusals are what Talos says about patches, by their file and text; nil for those that it can read.
type refusals map[string]*machineconfig.LoadError

// refusal is why Talos can't read a patch; nil if it can. Variables without a value count as empty. Patches that are
// alike are read once.
func refusal(in *check.Input, patch *check.Patch) *machineconfig.LoadError {
	refusals := check.Once(in, func(*check.Input) refusals { return refusals{} })

	key := patch.File.Shown + "\x00" + string(patch.Text)

	refused, known := refusals[key]
	if !known {
		refused = explained(patch)
		refusals[key] = refused
	}

	return refused
}

// explained is what is wrong with a patch as Talos reads it, at the place where that stands in the file.
func explained(patch *check.Patch) *machineconfig.LoadError {
	err := loadPatch(patch.Text)
	if err == nil {
		return nil
	}

	told := machineconfig.ExplainPatch(patch.File.Shown, patch.Text, err)
	if !bytes.Equal(patch.Text, patch.File.Data) { // with the values of variables it was written anew
		told.Retrace(patch.Text, patch.File.Places.Roots())
	}

	return told
}

func loadPatch(text []byte) error {
	_, err := machineconfig.LoadPatch(text)

	return err
}

func isUnknownKey(refused *machineconfig.LoadError) bool {
	return strings.Contains(refused.Message, "unknown keys") || strings.Contains(refused.Message, "not registered")
}

func checkUnknownKeys(r *check.Report, in *check.Input) {
	if in.Release() == nil {
		return // of a Talos that is newer than this program nothing is known
	}

	for _, patch := range in.Patches {
		if patch.Form() != check.StrategicPatch || !in.Used(patch) {
			continue
		}

		refused := refusal(in, patch)
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

		r.Found(patch.File.Line(refused.Line, refused.Column), next, "%s: %s", patch.Name(), cause)
	}
}

// unregisteredKind is the first kind of document in a patch that Talos does not know; empty if it knows them all.
func unregisteredKind(patch *check.Patch) string {
	for _, root := range patch.File.Places.Roots() {
		if kind := machineconfig.Field(root, "kind"); kind != nil && !slices.Contains(machineconfig.Kinds(), kind.Value) {
			return kind.Value
		}
	}

	return ""
}

func checkNewerKeys(r *check.Report, in *check.Input) {
	talos := in.Release()
	if in.Cluster.TalosVersion == "" {
		return // then configs are made for the newest version that is known
	}

	for _, patch := range in.Patches {
		if patch.Form() != check.StrategicPatch || !in.Used(patch) {
			continue
		}

		for _, root := range patch.File.Places.Roots() {
			if check.DeletesWhole(root) {
				continue
			}

			for _, key := range machineconfig.NewerKeys(root, talos) {
				r.Found(patch.File.Line(key.Line, key.Column),
					fmt.Sprintf("set talosVersion to %s or newer, or take %s out", key.Since, key.Name),
					"%s has %s, which Talos knows from %s on, and talosVersion is %s", patch.Name(), key.Name, key.Since,
					in.Cluster.TalosVersion)
			}
		}
	}
}

// checkPatchesTwice looks for patches that reach one node by two ways.
func checkPatchesTwice(r *check.Report, in *check.Input) {
	inline := map[string]*check.Patch{}

	for _, patch := range in.Patches {
		if form := patch.Form(); form == check.UnknownPatch || form == check.EmptyPatch {
			continue
		}

		first, others := patch.Uses()[0], patch.Uses()[1:]

		if patch.Inline {
			known := inline[string(patch.File.Data)]
			if known == nil {
				inline[string(patch.File.Data)] = patch

				continue
			}

			first, others = known.Uses()[0], patch.Uses()
		}

		for _, other := range others {
			if twice := commonNodes(in.NodesOf(first), in.NodesOf(other)); len(twice) > 0 {
				r.Found(other.Named, "list it once", "%s is listed twice for %s: the first time at %s", patch.Name(),
					check.NodeList(twice), in.Locate(first.Named))

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
