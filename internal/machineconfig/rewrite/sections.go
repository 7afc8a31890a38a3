package rewrite

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// section is a mapping of fields that a patch takes out as a whole.
type section struct {
	name       string
	key, value *yaml.Node
}

// removal is a document that takes a section's place, or a key of one: without the section there is none.
type removal struct{ kind, name, key string }

// removals are the sections whose place whole documents, or whole keys of them, have taken. Others have some keys of a
// document that also says something else: nobody but a person knows which are meant.
var removals = map[string][]removal{
	"cluster.discovery":                         {{"DiscoveryServiceConfig", "default", ""}},
	"machine.features.hostDNS":                  {{"ResolverConfig", "", "hostDNS"}},
	"machine.features.imageCache":               {{"ImageCacheConfig", "", ""}},
	"machine.features.kubePrism":                {{"KubePrismConfig", "", ""}},
	"machine.features.kubernetesTalosAPIAccess": {{"KubeTalosAPIAccessConfig", "", ""}},
	"machine.network.kubespan":                  {{"KubeSpanConfig", "", ""}},
	"machine.time":                              {{"TimeSyncConfig", "", ""}},
	"machine.udev":                              {{"UdevRulesConfig", "", ""}},
	"machine.systemDiskEncryption": {{"VolumeConfig", constants.StatePartitionLabel, "encryption"},
		{"VolumeConfig", constants.EphemeralPartitionLabel, "encryption"}},
}

// removedSections are those that a patch takes out, of fields that documents replace. What Talos takes beside documents
// stays as it is.
func removedSections(mapping *yaml.Node, above []string) []section {
	var found []section

	for i := 0; i+1 < len(mapping.Content) && mapping.Kind == yaml.MappingNode; i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		keys := append(slices.Clone(above), key.Value)
		name := strings.Join(keys, ".")

		switch {
		case value.Kind != yaml.MappingNode || !slices.ContainsFunc(successor.All(), isBelow(name)):
		case !successor.Deletes(value):
			found = append(found, removedSections(value, keys)...)
		case slices.ContainsFunc(successor.All(), func(field successor.Field) bool {
			return isBelow(name)(field) && field.Outcome == successor.Refused
		}):
			found = append(found, section{name, key, value})
		}
	}

	return found
}

// isBelow reports whether a field belongs to a section.
func isBelow(section string) func(successor.Field) bool {
	return func(field successor.Field) bool { return strings.HasPrefix(field.Path, section+".") }
}

// undecided are the sections of which a person has to say what is meant.
func (p part) undecided(sections []section) []Decision {
	var found []Decision

	for _, one := range sections {
		if removals[one.name] == nil {
			found = append(found, Decision{one.name, byName(one.name),
				one.key.Line + p.first, one.key.Column})
		}
	}

	return found
}

// byName says what to do instead of taking out a section.
func byName(section string) string {
	if all := places(section); len(all) > 0 {
		return "it takes out all that is set there, which documents say now: take out by name what you mean of " +
			strings.Join(all, ", ")
	}

	first := slices.IndexFunc(successor.All(), isBelow(section))

	return "it takes out what nothing replaces: " + successor.All()[first].Note
}

// places are the documents and keys that replace what is below a section.
func places(section string) []string {
	var all []string

	for _, field := range successor.All() {
		if place := field.Place(); isBelow(section)(field) && place != "" && !slices.Contains(all, place) {
			all = append(all, place)
		}
	}

	return all
}

// remove takes the documents out, or their keys, that have taken a section's place.
func (b *builder) remove(one section) {
	var to []string

	for _, of := range removals[one.name] {
		if of.key == "" {
			b.result.documents = append(b.result.documents, &document{kind: of.kind, name: of.name, deletes: true})
		} else {
			b.document(of.kind, of.name, false).keys.set(of.key, fragment{below: []string{"  $patch: delete"}})
		}

		to = append(to, strings.TrimSpace(of.kind+" "+of.name))
	}

	at := entryOf(b.lines, one.key, one.value)
	b.gone = append(b.gone, at)
	b.first[at.start] = b.result.documents[len(b.result.documents)-1]
	b.first[at.start].keep(dedented(b.lines[at.head:at.start], one.key.Column-1))

	place := b.places[one.name]
	b.result.moved = append(b.result.moved, Move{one.name, strings.Join(to, " and ") + ", taken out",
		place[0] + b.part.first, place[1]})
}
