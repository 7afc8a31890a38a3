package migrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/machineconfig/rewrite"
)

// Names of a profile's patches that are not one node's.
const (
	ofAll           = "all"
	ofControlPlanes = "controlplane"
	ofWorkers       = "worker"
)

// profileUnits are the patches of a profile: a file each.
func (m *migration) profileUnits() ([]*unit, error) {
	folder := m.cluster.Profile.PatchesDir

	entries, err := os.ReadDir(folder)
	if err != nil && !os.IsNotExist(err) {
		return nil, err //nolint:wrapcheck // it names the folder
	}

	var units []*unit

	for _, entry := range entries {
		name, isYAML := patchName(entry.Name())
		if !isYAML || entry.IsDir() {
			continue
		}

		file := m.cluster.Files.Open(filepath.Join(folder, entry.Name()))
		if file.Err != nil {
			continue // rendering tells
		}

		units = append(units, &unit{path: file.Path, text: strings.TrimPrefix(string(file.Data), "\xef\xbb\xbf"),
			lists: []*list{m.profileList(name)}})
	}

	return units, nil
}

func patchName(file string) (string, bool) {
	ending := filepath.Ext(file)

	return strings.TrimSuffix(file, ending), ending == ".yaml" || ending == ".yml"
}

// profileList says who gets the patches of a name.
func (m *migration) profileList(name string) *list {
	of := &list{owner: name, controlPlanes: name == ofAll || name == ofControlPlanes,
		workers: name == ofAll || name == ofWorkers}

	for _, node := range m.cluster.Profile.Machines {
		if node.Name == name {
			of.controlPlanes, of.workers = node.Role == machine.TypeControlPlane, node.Role != machine.TypeControlPlane
		}
	}

	return of
}

// writeProfile makes the files of a profile. What only control planes may have comes first in their file, since the
// file of all nodes is applied before it.
func (m *migration) writeProfile(done []rewritten, needed needs) error {
	before, after := map[string][]string{}, map[string][]string{}

	for _, one := range done {
		if !one.changes() {
			continue
		}

		if one.ControlPlane != "" && one.controlPlanes() {
			before[ofControlPlanes] = append(before[ofControlPlanes], one.ControlPlane)
		}

		for _, install := range one.Installs {
			for i, node := range m.entries() {
				if one.reaches(func(of *list) bool { return m.gets(i, of) }) {
					before[node] = append(before[node], rewrite.WithDisk(install, m.disks[node]))
				}
			}
		}

		m.edited[one.path] = []byte(orRemark(one.Text))
	}

	network := m.profileDefaults(after, needed)

	for name, texts := range before {
		path := m.patchPath(name)
		m.edited[path] = []byte(joined(append(slices.Clone(texts), string(m.current(path)))...))
	}

	for name, texts := range after {
		path := m.patchPath(name)
		m.edited[path] = []byte(joined(append([]string{string(m.current(path))}, texts...)...))
	}

	return m.setProfileKeys(network)
}

// orRemark is a patch's text, or a remark where nothing is left of it.
func orRemark(text string) string {
	if strings.TrimSpace(text) == "" {
		return leftNothing
	}

	return text
}

const leftNothing = "# What stood here is in the patches of the control planes: no worker reads it.\n"

// current is a file as it will be so far.
func (m *migration) current(path string) []byte {
	if data, ok := m.edited[path]; ok {
		return data
	}

	return m.cluster.Files.Open(path).Data
}

// patchPath is the file of a name's patches: the one that is there, or a new one.
func (m *migration) patchPath(name string) string {
	for _, ending := range []string{".yaml", ".yml"} {
		if path := filepath.Join(m.cluster.Profile.PatchesDir, name+ending); !m.cluster.Files.Open(path).Missing() {
			return path
		}
	}

	return filepath.Join(m.cluster.Profile.PatchesDir, name+".yaml")
}

// joined puts documents below one another.
func joined(texts ...string) string {
	var parts []string

	for _, text := range texts {
		if text = strings.Trim(text, "\n"); text != "" {
			parts = append(parts, strings.TrimPrefix(text, "---\n")+"\n")
		}
	}

	return strings.Join(parts, "---\n")
}

// profileDefaults adds the documents that keep the old behaviour to their files, and gives what does in the profile's
// network.
func (m *migration) profileDefaults(after map[string][]string, needed needs) (network []string) {
	if needed == nil {
		return nil
	}

	add := func(name, text string) {
		if len(after[name]) == 0 {
			text = defaultsHead + text
		}

		after[name] = append(after[name], text)
	}

	add(ofAll, redirects.old)

	for i, one := range standards {
		nodes := needed[i]

		switch {
		case len(nodes) > 0 && one.inProfile != "":
			network = append(network, one.inProfile)
		case len(nodes) == 0 || one.old == "":
		case one.controlPlane && m.isRole(nodes, machine.TypeControlPlane):
			add(ofControlPlanes, one.old)
		case !one.controlPlane && !one.install && len(nodes) == len(m.entries()):
			add(ofAll, one.old)
		default:
			for _, node := range nodes {
				add(node, m.oldFor(one, node))
			}
		}
	}
	return network
}

// setProfileKeys names the new form in the profile, behind the version, and adds to its network.
func (m *migration) setProfileKeys(network []string) error {
	data, err := withKey(m.cluster.Files.Open(m.cluster.Source).Data, "talos", "version", "contract: "+NewContract)

	for _, lines := range network {
		if err == nil {
			data, err = withKey(data, "network", "", strings.Split(strings.TrimSpace(lines), "\n")...)
		}
	}

	m.edited[m.cluster.Source] = data

	return err
}

// withKey is a text with a key of a mapping below its root set: see editor.setKey.
func withKey(data []byte, mapping, behind string, lines ...string) ([]byte, error) {
	editor, err := newEditor(data)
	if err != nil {
		return nil, err
	}

	editor.setKey(value(editor.root, mapping), behind, lines...)

	return editor.text(), nil
}
