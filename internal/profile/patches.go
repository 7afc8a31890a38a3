package profile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/nearest"
	"github.com/talos-mage/talos-mage/internal/yamlfile"
)

// Names of the patches that are not one node's.
const (
	patchOfAll           = "all"
	patchOfControlPlanes = "controlplane"
	patchOfWorkers       = "worker"
)

// Patch is one file of patches_dir.
type Patch struct {
	configpatcher.Patch

	shown string
}

// Network is what the patch says in machine.network; nil if it says nothing there, or is a list of operations.
func (p Patch) Network() *v1alpha1.NetworkConfig {
	strategic, ok := p.Patch.(configpatcher.StrategicMergePatch)
	if !ok {
		return nil
	}

	raw := strategic.Provider().RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil {
		return nil
	}

	return raw.MachineConfig.MachineNetwork
}

// Refused is Talos' error about the patch, or about the config that it makes, as one of the patch's file.
func (p Patch) Refused(node Machine, err error) error {
	mistakes := &yamlfile.Mistakes{}
	source := yamlfile.Source{Shown: p.shown, Mistakes: mistakes}

	mistake := source.Mistake(nil, diagnosis.FileValue, "can't be applied to %s: %s", node.Name, err)
	if _, isList := p.Patch.(configpatcher.StrategicMergePatch); !isList {
		mistake.Next = "write the patch as the part of the machine config that changes, with `$patch: delete` for what has to go: " +
			"Talos takes lists of operations (JSON6902) up to v1.11 only"
	}

	mistake.Err = err
	mistakes.Add(mistake)

	return mistakes.Err()
}

// Patches are the user's own, by the file's name without its ending.
type Patches map[string]Patch

// For are the patches of a node in the order in which they apply: those of all nodes, of its role, its own.
func (p Patches) For(node Machine) []Patch {
	role := patchOfWorkers
	if node.Role == machine.TypeControlPlane {
		role = patchOfControlPlanes
	}

	var list []Patch

	for _, name := range []string{patchOfAll, role, node.Name} {
		if patch, ok := p[name]; ok {
			list = append(list, patch)
		}
	}

	return list
}

// ReadPatches reads the folder of a profile's patches: all.yaml, controlplane.yaml, worker.yaml and <node>.yaml. A folder that does not
// exist holds none. root shortens paths in messages; an error lists every mistake.
func ReadPatches(profile *Profile, root string) (Patches, error) {
	mistakes := &yamlfile.Mistakes{}
	folder := yamlfile.Source{Shown: yamlfile.ShownPath(root, profile.PatchesDir), Mistakes: mistakes}

	entries, err := os.ReadDir(profile.PatchesDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		mistake := folder.Mistake(nil, diagnosis.FileUnreadable, "can't be read: %s", errors.Unwrap(err))
		mistake.Err = err
		folder.Add(mistake)
	}

	known := []string{patchOfAll, patchOfControlPlanes, patchOfWorkers}
	for _, node := range profile.Machines {
		known = append(known, node.Name)
	}

	patches := Patches{}

	for _, entry := range entries {
		name, isYAML := withoutEnding(entry.Name())
		if !isYAML || entry.IsDir() {
			continue
		}

		path := filepath.Join(profile.PatchesDir, entry.Name())
		source := yamlfile.Source{Shown: yamlfile.ShownPath(root, path), Mistakes: mistakes}

		if !slices.Contains(known, name) {
			mistake := source.Mistake(nil, diagnosis.FileValue, "no node has this name, so nothing would read the patch")
			mistake.Suggestion = nearest.Word(name, known)
			mistake.Next = "name it after a node, or all.yaml, controlplane.yaml or worker.yaml, or move it elsewhere"
			source.Add(mistake)

			continue
		}

		if patch, ok := readPatch(source, path); ok {
			patches[name] = patch
		}
	}

	return patches, mistakes.Err()
}

func withoutEnding(name string) (string, bool) {
	for _, ending := range []string{".yaml", ".yml"} {
		if before, found := strings.CutSuffix(name, ending); found {
			return before, true
		}
	}

	return name, false
}

// readPatch is false for a file that says nothing, which Talos would take for a list of operations.
func readPatch(source yamlfile.Source, path string) (Patch, bool) {
	text, err := source.Read(path)
	if err != nil || isBlank(text) {
		return Patch{}, false
	}

	loaded, err := configpatcher.LoadPatch(text)
	if err != nil {
		line, column, message := machineconfig.YAMLError(err)

		mistake := source.Mistake(nil, diagnosis.FileSyntax, "is no patch of a machine config: %s", message)
		mistake.Line, mistake.Column, mistake.Err = line, column, err
		source.Add(mistake)

		return Patch{}, false
	}

	return Patch{Patch: loaded, shown: source.Shown}, true
}

// isBlank tells whether a YAML text has nothing but comments and marks of documents.
func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}

	return true
}
