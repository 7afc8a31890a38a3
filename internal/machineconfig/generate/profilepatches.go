package generate

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Names of the patches that are not one node's.
const (
	patchOfAll           = "all"
	patchOfControlPlanes = "controlplane"
	patchOfWorkers       = "worker"
)

// profilePatch is one file of patches_dir.
type profilePatch struct {
	loaded configpatcher.Patch
	text   string
	shown  string
}

// documents are what the patch merges; none if it is a list of operations.
func (p profilePatch) documents() []config.Document {
	if strategic, ok := p.loaded.(configpatcher.StrategicMergePatch); ok {
		return strategic.Documents()
	}

	return nil
}

// refused is an error about the patch, or about the config that it makes, as one of the patch's file.
func (p profilePatch) refused(node profile.Machine, err error) error {
	mistakes := &yamlfile.Mistakes{}
	source := yamlfile.Source{Shown: p.shown, Mistakes: mistakes}

	if name := unfilled.FindString(err.Error()); name != "" && strings.Contains(p.text, name) {
		mistake := source.Mistake(nil, diagnosis.FileVariable, "nothing is put in for the variables of a profile's patches, "+
			"here %s, so it can't be applied to %s: %s", p.variables(), node.Name, oneLine(err))
		mistake.Next = "write the values themselves"
		source.Add(mistake)
	} else if errors.Is(err, errJSONPatch) {
		mistake := source.Mistake(nil, diagnosis.FileValue, "%s", err)
		mistake.Next = "write it as a strategic merge patch: " + machineconfig.StrategicForm(p.text)
		source.Add(mistake)
	} else {
		mistake := source.Mistake(nil, diagnosis.FileValue, "can't be applied to %s: %s", node.Name, oneLine(err))
		mistake.Next = p.advice(err.Error())
		source.Add(mistake)
	}

	return mistakes.Err()
}

// advice is what to do about what Talos says against the config that the patch makes.
func (p profilePatch) advice(problems string) string {
	switch name, _ := withoutEnding(path.Base(filepath.ToSlash(p.shown))); {
	case !strings.Contains(problems, onlyOnControlPlanes):
		return machineconfig.AdviceOn(problems)
	case name == patchOfAll:
		return "move it to controlplane.yaml: workers get this one too"
	default:
		return "take it out: only control planes may have it"
	}
}

// variables are those of the patch, each once.
func (p profilePatch) variables() string {
	names := unfilled.FindAllString(p.text, -1)
	slices.Sort(names)

	return strings.Join(slices.Compact(names), ", ")
}

// unfilled is a variable that nothing was put in for.
var unfilled = pattern.New(`\$\{\w+\}`)

// profilePatches are the user's own, by the file's name without its ending.
type profilePatches map[string]profilePatch

// of are the patches of a node in the order in which they apply: those of all nodes, of its role, its own.
func (p profilePatches) of(node profile.Machine) []profilePatch {
	role := patchOfWorkers
	if node.Role == machine.TypeControlPlane {
		role = patchOfControlPlanes
	}

	var list []profilePatch

	for _, name := range []string{patchOfAll, role, node.Name} {
		if patch, ok := p[name]; ok {
			list = append(list, patch)
		}
	}

	return list
}

// readProfilePatches reads the folder of a profile's patches: all.yaml, controlplane.yaml, worker.yaml and <node>.yaml.
// A folder that does not exist holds none. An error lists every mistake.
func readProfilePatches(declared *profile.Profile, files *reading.Files) (profilePatches, error) {
	mistakes := &yamlfile.Mistakes{}
	folder := yamlfile.Source{Shown: files.Shown(declared.PatchesDir), Mistakes: mistakes}

	entries, err := os.ReadDir(declared.PatchesDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		mistake := folder.Mistake(nil, diagnosis.FileUnreadable, "can't be read: %s", errors.Unwrap(err))
		mistake.Err = err
		folder.Add(mistake)
	}

	known := []string{patchOfAll, patchOfControlPlanes, patchOfWorkers}
	for _, node := range declared.Machines {
		known = append(known, node.Name)
	}

	patches := profilePatches{}

	for _, file := range patchFiles(declared.PatchesDir, entries, known, files) {
		name, isYAML := withoutEnding(file)
		if !isYAML {
			continue
		}

		opened := newFile(yamlfile.Source{Mistakes: mistakes}, files.Open(filepath.Join(declared.PatchesDir, file)))

		if !slices.Contains(known, name) {
			mistake := opened.Mistake(nil, diagnosis.FileValue, "no node has this name, so nothing would read the patch")
			mistake.Suggestion = suggest.Word(name, known)
			mistake.Next = "name it after a node, or all.yaml, controlplane.yaml or worker.yaml, or move it elsewhere"
			opened.Add(mistake)

			continue
		}

		if patch, ok := readPatch(opened); ok {
			patches[name] = patch
		}
	}

	return patches, mistakes.Err()
}

// patchFiles are the names of the files in the folder of patches, and of those that are only to be written there.
func patchFiles(folder string, entries []fs.DirEntry, known []string, files *reading.Files) []string {
	var names []string

	for _, entry := range entries {
		if !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}

	for _, name := range known {
		if file := name + ".yaml"; files.Open(filepath.Join(folder, file)).Unwritten && !slices.Contains(names, file) {
			names = append(names, file)
		}
	}

	return names
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
func readPatch(opened *file) (profilePatch, bool) {
	if _, err := opened.Read(opened.read); err != nil {
		return profilePatch{}, false
	}

	text := opened.decrypted(opened.Source, nil)
	if opened.unusable {
		return profilePatch{}, false
	}

	loaded, err := parsePatch(patch{file: opened}, text)
	if errors.Is(err, errEmptyPatch) {
		return profilePatch{}, false
	}

	var broken *machineconfig.LoadError

	switch {
	case errors.As(err, &broken):
		opened.Add(&yamlfile.Error{ID: diagnosis.FileValue, Path: broken.Path, Line: broken.Line, Column: broken.Column,
			Message: "as a patch: " + broken.Message})
	case err != nil:
		opened.At(nil, diagnosis.FileValue, "as a patch: %s", oneLine(err))
	}

	return profilePatch{loaded: loaded, text: text, shown: opened.Shown}, err == nil
}
