package generate

import (
	"fmt"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// howToMigrate is the command that rewrites patches.
const howToMigrate = "mage config:migrate rewrites it"

// sayReplaced tells of fields in the entry's patches that documents replaced, and which Talos takes no more beside
// those; true if there are any. A patch that several nodes share is told of once.
func (e *entry) sayReplaced() bool {
	if !e.contract.MultidocKubernetesConfigSupported() {
		return false
	}

	told := false

	for _, one := range slices.Concat(e.patchRounds...) {
		text, err := e.templates.render(one.text, e.older())
		if err != nil {
			continue // that is told when it is applied
		}

		roots := machineconfig.NewPlaces([]byte(text)).Roots()
		if len(roots) == 1 && roots[0].Kind == yaml.SequenceNode {
			told = true

			e.badPatch(one, text, errJSONPatch)
		}

		for _, field := range replacedFields(roots, e.generatedKinds()) {
			told = true

			e.Add(e.replacedIn(one, text, field))
		}
	}

	return told
}

// replacedIn is the mistake about a field in the text that came of a patch, where it stands in its file or in the
// talconfig.
func (e *entry) replacedIn(one patch, text string, field successor.Found) *yamlfile.Error {
	mistake := e.mistakeIn(one, text, field.At.Line, field.At.Column)
	mistake.ID, mistake.Next = diagnosis.FieldReplaced, replacedNext(field)
	mistake.Message = "the patch " + replacedCause(field, e.contract)

	if one.file != nil {
		mistake.Message = "as a patch: it " + replacedCause(field, e.contract)
	}

	return mistake
}

func replacedCause(field successor.Found, contract *talosconfig.VersionContract) string {
	verb := "sets"
	if field.Deletes() {
		verb = "deletes"
	}

	replaced := "nothing replaces"
	if field.Kind != "" {
		replaced = field.Place() + " replaces"
	}

	return fmt.Sprintf("%s %s, which %s with contract %s", verb, field.Name(), replaced, contract)
}

func replacedNext(field successor.Found) string {
	switch {
	case field.Kind == "":
		return field.Note
	case field.Note == "":
		return howToMigrate
	default:
		return howToMigrate + " (" + field.Note + ")"
	}
}

// replacedFields are those of a patch that Talos refuses beside documents of some kinds, and deletions of what is in
// such a document now.
func replacedFields(roots []*yaml.Node, kinds map[string]bool) []successor.Found {
	var found []successor.Found

	for _, root := range roots {
		found = append(found, slices.DeleteFunc(successor.Find(root), func(field successor.Found) bool {
			return field.Outcome != successor.Refused || isEmptyValue(field.Value) || !isReplaced(field, kinds)
		})...)
	}

	return found
}

// sections are fields that Talos refuses as a whole beside a kind of document.
var sections = []struct{ path, kind string }{
	{"machine.kubelet.", "KubeletConfig"},
	{"machine.install.", "UnattendedInstallConfig"},
	{"cluster.network.", "KubeNetworkConfig"},
	{"cluster.apiServer.", "KubeAPIServerConfig"},
	{"cluster.controllerManager.", "KubeControllerManagerConfig"},
	{"cluster.scheduler.", "KubeSchedulerConfig"},
}

func isReplaced(field successor.Found, kinds map[string]bool) bool {
	for _, section := range sections {
		if strings.HasPrefix(field.Path, section.path) {
			return kinds[section.kind]
		}
	}

	return kinds[field.Kind]
}

func isEmptyValue(value *yaml.Node) bool {
	return value.Kind == yaml.ScalarNode && value.Tag == "!!null"
}

// generatedKinds are those of the documents that the entry has without patches.
func (e *entry) generatedKinds() map[string]bool {
	if e.kinds == nil {
		if provider, err := e.base(); err == nil && provider != nil {
			e.kinds = kindsOf(provider.Documents())
		}
	}

	return e.kinds
}

func kindsOf(documents []config.Document) map[string]bool {
	kinds := map[string]bool{}
	for _, document := range documents {
		kinds[document.Kind()] = true
	}

	return kinds
}
