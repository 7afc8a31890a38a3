package generate

import (
	"errors"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// patch is one item of a list of patches.
type patch struct {
	// place is the item in the talconfig.
	place *yaml.Node
	// file is the @file that it comes from; nil for text in the talconfig itself.
	file *file
	text string
}

// patchCache keeps patches that were read, by their text: most nodes share them.
type patchCache map[string]loadedPatch

type loadedPatch struct {
	patch configpatcher.Patch
	err   error
}

var (
	errEmptyPatch = errors.New("empty")
	errJSONPatch  = errors.New("is a JSON patch (RFC 6902), which Talos takes for a config of one document only")
)

// nodePatches are those of the group and then the entry's own.
func (e *entry) nodePatches() []patch {
	return e.readPatches(e.settings.Patches, e.added("patches", e.OverridePatches, true))
}

// clusterPatches are those for all nodes.
func (e *entry) clusterPatches() []patch {
	var places []*yaml.Node
	if list := yamlfile.Field(e.root, "patches"); list != nil {
		places = list.Content
	}

	return e.readPatches(e.config.Patches, places)
}

func (e *entry) readPatches(texts []string, places []*yaml.Node) []patch {
	var patches []patch

	for i, text := range texts {
		one := patch{place: e.place, text: text}
		if i < len(places) {
			one.place = places[i]
		}

		if reference, isFile := fileReference(text); isFile {
			if one.file = e.open(one.place, reference); one.file.unusable {
				continue
			}

			one.text = one.file.text
		}

		patches = append(patches, one)
	}

	return patches
}

// fileReference reports whether a patch is the name of a file: @name, or a single word that can't be a patch.
func fileReference(text string) (string, bool) {
	if strings.HasPrefix(text, "@") {
		return text, true
	}

	return text, text != "" && !strings.ContainsAny(text, "\n ") && !strings.HasPrefix(text, "[") &&
		!strings.HasPrefix(text, "{")
}

// apply applies patches one after the other. Their templates all see the config as it is before the first of them. Nil
// if one is a mistake.
func (e *entry) apply(provider talosconfig.Provider, patches []patch) talosconfig.Provider {
	before := e.templateData(provider)

	for _, one := range patches {
		text, err := e.templates.render(one.text, before())
		if err != nil {
			e.badPatch(one, text, err)

			return nil
		}

		loaded, err := e.loadPatch(one, text)
		if errors.Is(err, errEmptyPatch) {
			continue
		}

		if err == nil {
			provider, err = patched(provider, loaded)
		}

		if err != nil {
			e.badPatch(one, text, err)

			return nil
		}
	}

	return provider
}

// templateData is what the templates of patches name fields of.
func (e *entry) templateData(provider talosconfig.Provider) func() *v1alpha1.Config {
	if e.contract.MultidocKubernetesConfigSupported() {
		return e.older
	}

	return provider.RawV1Alpha1
}

// patched turns a panic, which a hostile patch can cause, into an error.
func patched(provider talosconfig.Provider, loaded configpatcher.Patch) (result talosconfig.Provider, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			result, err = nil, errors.New("its structure is unexpected")
		}
	}()

	// A strategic merge patch is the only kind that several documents can be patched with.
	if _, strategic := loaded.(configpatcher.StrategicMergePatch); !strategic && len(provider.Documents()) > 1 {
		return nil, errJSONPatch
	}

	output, err := configpatcher.Apply(configpatcher.WithConfig(provider), []configpatcher.Patch{loaded})
	if err != nil {
		return nil, err
	}

	return output.Config()
}

// mistakeIn is one at a line and a column of the text that came of a patch, where they stand in its file or in the
// talconfig.
func (e *entry) mistakeIn(one patch, text string, line, column int) *yamlfile.Error {
	mistake := &yamlfile.Error{Path: e.Shown, Field: yamlfile.FieldAt(e.root, one.place.Line, one.place.Column)}

	if one.file != nil {
		mistake.Path, mistake.Field = one.file.Shown, ""
		mistake.Line, mistake.Column = yamlfile.Unfilled(one.text, text, line, column)

		return mistake
	}

	talconfig := e.source.Cluster.Files.Open(e.source.Cluster.Source)
	mistake.Line, mistake.Column = yamlfile.Inside(talconfig.Data, one.place, text, line, column)

	return mistake
}

// badPatch tells of a patch where it stands, in its file or in the talconfig, by the text that came of it.
func (e *entry) badPatch(one patch, text string, err error) {
	name := "the patch"
	if one.file != nil {
		name = "the patch " + one.file.Shown
	}

	var broken *machineconfig.LoadError

	switch {
	case errors.Is(err, errJSONPatch):
		if !e.contract.MultidocNetworkConfigSupported() { // later forms are of several documents for every node
			name += " of " + e.Hostname
		}

		mistake := e.Mistake(one.place, diagnosis.FileValue, "%s %s", name, err)
		mistake.Next = "write it as a strategic merge patch: " + machineconfig.StrategicForm(one.text)

		if e.contract.MultidocKubernetesConfigSupported() {
			mistake.Next = howToMigrate
		}

		e.Add(mistake)
	case errors.As(err, &broken) && one.file != nil:
		// A patch that several nodes share is told of once.
		mistake := e.mistakeIn(one, text, broken.Line, broken.Column)
		mistake.ID, mistake.Message = diagnosis.FileValue, "as a patch: "+broken.Message
		e.Add(mistake)
	case errors.As(err, &broken) && broken.Line > 0:
		mistake := e.mistakeIn(one, text, broken.Line, broken.Column)
		mistake.ID, mistake.Message = diagnosis.FileValue, "the patch: "+broken.Message
		e.Add(mistake)
	case errors.As(err, &broken):
		e.value(one.place, "the patch: %s", broken.Message)
	default:
		e.value(one.place, "%s of %s can't be applied: %s", name, e.Hostname, oneLine(err))
	}
}

// loadPatch reads a patch whose template is filled. Variables in a file are replaced here; those in the talconfig were
// already.
func (e *entry) loadPatch(one patch, text string) (configpatcher.Patch, error) {
	key := text
	if one.file != nil {
		key = one.file.read.Path + "\x00" + text
	}

	loaded, known := e.patches[key]
	if !known {
		loaded.patch, loaded.err = e.readPatch(one, text)
		e.patches[key] = loaded
	}

	return loaded.patch, loaded.err
}

// readPatch is loadPatch for a text that is new.
func (e *entry) readPatch(one patch, text string) (configpatcher.Patch, error) {
	if one.file == nil || !strings.Contains(text, "$") {
		return parsePatch(one, text)
	}

	filled, err := e.variables.SubstituteText(one.file.Source, text)
	if err != nil {
		return nil, notYAML(one, text, err)
	}

	loaded, err := parsePatch(one, filled)

	var broken *machineconfig.LoadError
	if errors.As(err, &broken) {
		broken.Retrace([]byte(filled), machineconfig.NewPlaces([]byte(text)).Roots())
	}

	return loaded, err
}

// notYAML is an error of a file's text that can't be parsed, with its place.
func notYAML(one patch, text string, err error) error {
	line, column, message := machineconfig.NewPlaces([]byte(text)).SyntaxError()
	if message == "" {
		return err
	}

	return &machineconfig.LoadError{Path: one.file.Shown, Line: line, Column: column,
		Message: "is not valid YAML: " + message}
}

// parsePatch reads a patch. Its errors are *machineconfig.LoadError, which hold no values, or errEmptyPatch.
func parsePatch(one patch, text string) (configpatcher.Patch, error) {
	if talconfig.SaysNothing(text) {
		return nil, errEmptyPatch
	}

	path := ""
	if one.file != nil {
		path = one.file.Shown
	}

	patch, err := machineconfig.LoadPatch([]byte(text))
	if err != nil {
		return nil, machineconfig.ExplainPatch(path, []byte(text), err)
	}

	return patch, nil
}

// readManifests reads the files of extraManifests.
func (e *entry) readManifests() []patch {
	places := e.added("extraManifests", e.OverrideExtraManifests, false)

	var manifests []patch

	for i, reference := range e.settings.ExtraManifests {
		one := patch{place: e.place}
		if i < len(places) {
			one.place = places[i]
		}

		if one.file = e.open(one.place, reference); !one.file.unusable {
			one.text = one.file.text
			manifests = append(manifests, one)
		}
	}

	return manifests
}

// addManifests appends the documents of extraManifests; nil if one is a mistake. Their templates see the patched
// config.
func (e *entry) addManifests(provider talosconfig.Provider) talosconfig.Provider {
	if len(e.extraManifests) == 0 {
		return provider
	}

	documents := provider.Documents()
	data := e.templateData(provider)

	for _, one := range e.extraManifests {
		text, err := e.templates.render(one.text, data())
		if err == nil && talconfig.SaysNothing(text) {
			continue
		}

		var added talosconfig.Provider
		if err == nil {
			added, err = configloader.NewFromBytes(machineconfig.WithoutMergeKeys([]byte(text)))
		}

		if err == nil {
			documents = append(documents, added.Documents()...)
			provider, err = container.New(documents...)
		} else if !isTemplateError(err) {
			err = machineconfig.ExplainPatch(one.file.Shown, []byte(text), err)
		}

		if err != nil {
			e.value(one.place, "the manifest %s of %s can't be added: %s", one.file.Shown, e.Hostname, oneLine(err))

			return nil
		}
	}

	return provider
}
