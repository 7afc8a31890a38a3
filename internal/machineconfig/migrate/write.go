package migrate

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/machineconfig/rewrite"
)

// errBrackets is of a list of patches that no patch can be added to line by line.
var errBrackets = errors.New("a list of patches stands in brackets, or is another's by an alias: write it with " +
	"dashes, an item a line")

// collect finds the patches.
func (m *migration) collect() ([]*unit, error) {
	if m.cluster.Profile != nil {
		return m.profileUnits()
	}

	editor, err := newEditor(m.cluster.Files.Open(m.cluster.Source).Data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", m.cluster.Files.Shown(m.cluster.Source), err)
	}

	return talconfigUnits(m.cluster, editor.root), nil
}

// write makes the files as they are to be, with the defaults that nodes need.
func (m *migration) write(done []rewritten, needed needs) error {
	m.edited = map[string][]byte{}

	if m.cluster.Profile != nil {
		return m.writeProfile(done, needed)
	}

	return m.writeTalconfig(done, needed)
}

func (m *migration) writeTalconfig(done []rewritten, needed needs) error {
	source := m.cluster.Files.Open(m.cluster.Source)

	editor, err := newEditor(source.Data)
	if err != nil {
		return err
	}

	added := additions{}
	m.eachNode = m.eachNode || editor.isShared(value(editor.root, "controlPlane"))

	for _, one := range done {
		if !one.changes() {
			continue
		}

		if err := m.put(editor, one, &added); err != nil {
			return err
		}
	}

	m.addDefaults(&added, needed)

	if err := added.write(editor); err != nil {
		return fmt.Errorf("add patches to %s: %w", source.Shown, err)
	}

	m.edited[m.cluster.Source] = editor.text()

	return m.setContract()
}

// put writes one patch where it stands, and what only control planes may have of it into lists of theirs.
func (m *migration) put(editor *editor, one rewritten, added *additions) error {
	text := one.Text
	if strings.TrimSpace(text) == "" {
		text = ""
	}

	if one.ControlPlane != "" && one.controlPlanes() {
		if err := added.forControlPlanes(m, one); err != nil {
			return err
		}
	}

	for _, install := range one.Installs {
		for i, node := range m.entries() {
			if one.reaches(func(of *list) bool { return m.gets(i, of) }) {
				added.forNode(i, rewrite.WithDisk(install, m.disks[node]))
			}
		}
	}

	if one.item == nil {
		if err := m.set(one.unit, one.path, orRemark(text)); err != nil {
			return err
		}

		for _, item := range one.named { // it says nothing any more
			if node := itemIn(editor.root, item); text == "" && (node == nil || !editor.dropItem(node)) {
				return errBrackets
			}
		}

		return nil
	}

	node := itemIn(editor.root, one.item)

	ok := node != nil && (text == "" && editor.dropItem(node) || text != "" && editor.setItem(node, text))
	if !ok {
		return errBrackets
	}

	return nil
}

// set makes the text of a file that a unit is, or a part of one. Where the unit is encrypted this is, too.
func (m *migration) set(one *unit, path, text string) error {
	data := []byte(text)

	if one.sealed {
		var err error
		if data, err = m.Encrypt(path, data, m.cluster.Files.Open(one.path).Data); err != nil {
			return err
		}
	}

	m.edited[path] = data

	return nil
}

// asStrategic are the files with their JSON patches written as strategic ones, which is all that differs.
func (m *migration) asStrategic() (map[string][]byte, error) {
	files := map[string][]byte{}

	editor, err := newEditor(m.cluster.Files.Open(m.cluster.Source).Data)
	if err != nil {
		return nil, err
	}

	for _, one := range m.units {
		switch {
		case one.strategic == "":
		case one.item == nil:
			files[one.path] = []byte(one.strategic)
		case !editor.setItem(itemIn(editor.root, one.item), one.strategic):
			return nil, errBrackets
		default:
			files[one.path] = editor.text()
		}
	}

	return files, nil
}

// itemIn finds a node of one reading in another by its place.
func itemIn(node, like *yaml.Node) *yaml.Node {
	if node.Kind == like.Kind && node.Line == like.Line && node.Column == like.Column {
		return node
	}

	for _, child := range node.Content {
		if found := itemIn(child, like); found != nil {
			return found
		}
	}

	return nil
}

// additions are new patches of lists.
type additions struct {
	all, controlPlane, worker []string
	nodes                     map[int][]string
}

// forControlPlanes adds what only control planes may have: to their group's list, and to those of nodes that do not
// take that.
func (a *additions) forControlPlanes(m *migration, one rewritten) error {
	text := one.ControlPlane

	if one.item == nil { // a file of its own, beside it
		folder, name := filepath.Split(one.path)
		dot := strings.Index(name+".", ".") // before all endings: rules may ask for .sops.yaml
		path := filepath.Join(folder, name[:dot]+"-controlplane"+name[dot:])

		if err := m.set(one.unit, path, text); err != nil {
			return err
		}

		relative, err := filepath.Rel(filepath.Dir(m.cluster.Source), path)
		if err != nil {
			relative = path
		}

		text = "@" + filepath.ToSlash(relative)
		if !strings.HasPrefix(text, "@.") && !filepath.IsAbs(relative) {
			text = "@./" + filepath.ToSlash(relative)
		}
	}

	if !slices.ContainsFunc(one.lists, func(of *list) bool { return of.owner == "" || of.owner == "controlPlane" }) {
		for _, of := range one.lists {
			if of.owner == "nodes" && of.controlPlanes {
				a.forNode(of.node, text)
			}
		}

		return nil
	}

	a.toControlPlanes(m, text)

	return nil
}

// toControlPlanes adds a patch to the list of the control planes' group, and to the nodes that do not take that.
func (a *additions) toControlPlanes(m *migration, text string) {
	if !m.eachNode {
		a.controlPlane = append(a.controlPlane, text)
	}

	for i, node := range m.cluster.Talconfig.Config.Nodes {
		if node.ControlPlane && (m.eachNode || node.OverridePatches) {
			a.forNode(i, text)
		}
	}
}

func (a *additions) forNode(node int, text string) {
	if a.nodes == nil {
		a.nodes = map[int][]string{}
	}

	a.nodes[node] = append(a.nodes[node], text)
}

// write puts them into the talconfig.
func (a *additions) write(editor *editor) error {
	for _, one := range []struct {
		key   string
		texts []string
	}{{"", a.all}, {"controlPlane", a.controlPlane}, {"worker", a.worker}} {
		owner := editor.root
		if one.key != "" {
			owner = value(editor.root, one.key)
		}

		if len(one.texts) > 0 && !editor.addPatches(owner, one.key, one.texts) {
			return errBrackets
		}
	}

	nodes := items(value(editor.root, "nodes"))

	for i, texts := range a.nodes {
		if !editor.addPatches(nodes[i], "", texts) {
			return errBrackets
		}
	}

	return nil
}

// defaultsHead stands above the patch of defaults.
const defaultsHead = `# What Talos 1.14 does otherwise, written out as it was before (config:migrate). To take a new default, write the
# line that a comment here names, or remove the document.
`

// addDefaults adds the documents that keep the old behaviour: to all nodes where all need them, else to those that do.
func (m *migration) addDefaults(added *additions, needed needs) {
	if needed == nil {
		return
	}

	all, controlPlane := []string{redirects.old}, []string(nil)

	for i, one := range standards {
		nodes := needed[i]

		switch {
		case len(nodes) == 0 || one.old == "":
		case one.controlPlane && m.isRole(nodes, machine.TypeControlPlane):
			controlPlane = append(controlPlane, one.old)
		case !one.controlPlane && len(nodes) == len(m.entries()):
			all = append(all, one.old)
		default:
			for j, node := range m.cluster.Talconfig.Config.Nodes {
				if slices.Contains(nodes, node.Hostname) {
					added.forNode(j, one.old)
				}
			}
		}
	}

	added.all = append(added.all, defaultsHead+strings.Join(all, "---\n"))

	if len(controlPlane) > 0 {
		added.toControlPlanes(m, defaultsHead+strings.Join(controlPlane, "---\n"))
	}
}

// oldFor is a default's document for one node.
func (m *migration) oldFor(one standard, node string) string {
	if one.install {
		return rewrite.WithDisk(one.old, m.disks[node])
	}

	return one.old
}

// isRole reports whether these are all nodes of a role.
func (m *migration) isRole(names []string, role machine.Type) bool {
	for _, node := range m.cluster.Nodes {
		if node.Role == role != slices.Contains(names, node.Hostname) {
			return false
		}
	}

	return true
}

// setContract names the new form in the file of variables.
func (m *migration) setContract() error {
	path := m.talenv()
	data := m.cluster.Files.Open(path).Data

	if len(strings.TrimSpace(string(data))) == 0 {
		m.edited[path] = []byte(string(data) + contractLine)

		return nil
	}

	editor, err := newEditor(data)
	if err != nil {
		return err
	}

	editor.setLine("talosContract", NewContract)
	m.edited[path] = editor.text()

	return nil
}

const contractLine = "talosContract: " + NewContract + "\n"
