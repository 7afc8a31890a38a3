// Package migrate rewrites the files that declare a cluster from the older form of machine configs to the documents of
// Talos 1.14, and proves that its nodes get equal configs. It works in memory.
package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/equal"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/machineconfig/rewrite"
)

// Contracts of the two forms.
const (
	OldContract = "v1.13"
	NewContract = "v1.14"
)

// Options say what is migrated.
type Options struct {
	// Load reads the cluster with files taken for others, and its configs made in the form that a contract names; one
	// that is empty leaves that to the files.
	Load func(files map[string][]byte, contract string) (*inventory.Cluster, error)
	// Secrets are those that both forms are made with.
	Secrets *secrets.Bundle
	// Now is what certificates are valid from.
	Now time.Time
	// Encrypt encrypts what takes the place of a file that sops encrypted, for the same recipients.
	Encrypt func(path string, plain, former []byte) ([]byte, error)
	// NewDefaults takes what Talos 1.14 does by default, instead of what older releases did.
	NewDefaults bool
}

// Plan is what a migration comes to.
type Plan struct {
	// Files are those that change, by path.
	Files map[string][]byte
	// Moves say what was rewritten, each with its place as the file was.
	Moves []Note
	// Decisions are what a person has to decide first; with one nothing is migrated.
	Decisions []Note
	// Kept are fields that stay as they are.
	Kept []Note
	// Defaults are those of Talos 1.14 that are written out as the old behaviour or, with NewDefaults, taken.
	Defaults []string
	// Differences are what nodes' configs would differ in; with one nothing is migrated.
	Differences []Difference
	// Sealed is set where an encrypted patch is part of the configs: what they say may be secret.
	Sealed bool
}

// Note is about a place in a file.
type Note struct {
	Path         string
	Line, Column int
	Text         string
}

// Difference is what nodes' configs differ in.
type Difference struct {
	Nodes []string
	equal.Difference

	// Next is what to do about it.
	Next string
}

// Changes reports whether there is anything to do.
func (p *Plan) Changes() bool { return len(p.Files) > 0 }

// migration is one on its way.
type migration struct {
	Options

	plan    *Plan
	cluster *inventory.Cluster
	units   []*unit
	// disks select the disk of each entry, by its name.
	disks map[string]string
	// eachNode is set if what only control planes may have goes to each of them, instead of to their group.
	eachNode bool
	// edited are the files as they will be.
	edited map[string][]byte
	// bases are generated configs of one document, by role.
	bases map[machine.Type]func() ([]byte, error)
}

// Make plans a migration. An error is of files that can't be read, or that no config can be made of.
func Make(options Options) (*Plan, error) {
	m := &migration{Options: options, plan: &Plan{}, bases: map[machine.Type]func() ([]byte, error){}}

	var err error
	if m.cluster, err = options.Load(nil, ""); err != nil {
		return nil, err
	}

	if err := m.checkRelease(); err != nil {
		return nil, err
	}

	units, err := m.collect()
	if err != nil {
		return nil, err
	}

	m.units = units

	return m.plan, m.make()
}

// checkRelease refuses a cluster of a release that does not know the documents.
func (m *migration) checkRelease() error {
	declared := cmp.Or(m.cluster.TalosVersion, machineconfig.DefaultTalosVersion)

	minor, err := release.Minor(declared)
	if err != nil || !talosconfig.TalosVersion1_14.Greater(minor) {
		return nil //nolint:nilerr // a version that is none was told
	}

	key, place := "talosVersion", (*yaml.Node)(nil)
	if m.cluster.Profile != nil {
		key = "talos.version"
	} else {
		place = yamlfile.PlaceOf(m.cluster.Talconfig.Root, key)
	}

	mistakes := &yamlfile.Mistakes{}
	source := yamlfile.Source{Shown: m.cluster.Files.Shown(m.cluster.Source), Mistakes: mistakes}
	mistake := source.Mistake(place, diagnosis.FileValue, "Talos %s does not know the documents of %s", declared,
		NewContract)
	mistake.Next = "set " + key + " to a release of " + NewContract + ", and run the same command again"
	source.Add(mistake)

	return mistakes.Err()
}

func (m *migration) make() error {
	if err := m.readOperations(); err != nil {
		return err
	}

	done, err := m.rewriteAll()
	if err != nil || len(m.plan.Decisions) > 0 || m.isNew() && !slices.ContainsFunc(done, rewritten.changes) {
		return err
	}

	before, err := m.renderBefore()
	if err != nil {
		return err
	}

	if err := m.learnDisks(before); err != nil {
		return err
	}

	if done, err = m.rewriteAll(); err != nil { // with what was learned
		return err
	}

	return m.prove(before, done)
}

// isNew reports whether the files name the new form already.
func (m *migration) isNew() bool {
	return m.cluster.Contract != nil && m.cluster.Contract.String() == NewContract
}

// renderBefore makes the configs in the form that they have now; where the new one is named already, in that before it.
func (m *migration) renderBefore() ([]generate.Config, error) {
	contract := OldContract
	if !m.isNew() && m.cluster.Contract != nil {
		contract = m.cluster.Contract.String()
	}

	files, err := m.asStrategic()
	if err != nil {
		return nil, err
	}

	before, err := m.render(files, contract)
	if err != nil {
		return nil, fmt.Errorf("render the configs as they are: %w", err)
	}

	return before, nil
}

// learnDisks notes which disk each node is installed to.
func (m *migration) learnDisks(configs []generate.Config) error {
	m.disks = map[string]string{}

	for _, one := range configs {
		config, err := configloader.NewFromBytes(one.Bytes)
		if err != nil {
			return fmt.Errorf("read the config of %s: %w", one.Node, err)
		}

		install := config.Machine().Install()
		selected, err := install.DiskMatchExpression()

		switch {
		case err == nil && selected != nil:
			m.disks[one.Node] = selected.String()
		case install.Disk() != "":
			m.disks[one.Node] = rewrite.DiskExpression(install.Disk())
		}
	}

	return nil
}

// prove writes the files, with the defaults that the nodes need to stay as they are, and compares the configs. What
// only control planes may have of a patch for all nodes goes to their group; where a node's own patch would then go
// over it, to each control plane.
func (m *migration) prove(before []generate.Config, done []rewritten) error {
	splits := m.cluster.Profile == nil &&
		slices.ContainsFunc(done, func(one rewritten) bool { return one.ControlPlane != "" })

	if err := m.attempt(before, done); err != nil {
		return err
	}

	if len(m.plan.Differences) > 0 && splits {
		m.eachNode = true

		if err := m.attempt(before, done); err != nil {
			return err
		}
	}

	return m.finish()
}

func (m *migration) attempt(before []generate.Config, done []rewritten) error {
	m.plan.Defaults, m.plan.Differences = nil, nil

	if err := m.write(done, nil); err != nil {
		return err
	}

	found, err := m.compare(before)
	if err != nil {
		return err
	}

	needed := needs{}

	for i, one := range standards {
		for node, differences := range found {
			if slices.ContainsFunc(differences, one.isAbout) {
				needed[i] = append(needed[i], node)
			}
		}
	}

	return m.takeDefaults(before, done, found, needed)
}

// needs are the nodes that a default is written out for, by its number among standards.
type needs map[int][]string

func (m *migration) takeDefaults(before []generate.Config, done []rewritten, found map[string][]equal.Difference,
	needed needs) error {
	for _, i := range slices.Sorted(maps.Keys(needed)) {
		m.plan.Defaults = append(m.plan.Defaults, standards[i].name)
	}

	if m.NewDefaults {
		for node, differences := range found {
			found[node] = slices.DeleteFunc(differences, func(one equal.Difference) bool {
				return slices.ContainsFunc(standards, func(is standard) bool { return is.isAbout(one) })
			})
		}

		m.plan.Differences = gathered(found, m.entries())

		return nil
	}

	m.plan.Defaults = append(m.plan.Defaults, redirects.name)

	err := m.write(done, needed)
	if err == nil {
		found, err = m.compare(before)
	}

	m.plan.Differences = gathered(found, m.entries())

	return err
}

// finish keeps the files that differ from what is there, if the configs are equal.
func (m *migration) finish() error {
	if len(m.plan.Differences) > 0 {
		return nil
	}

	m.plan.Files = map[string][]byte{}

	for path, data := range m.edited {
		if file := m.cluster.Files.Open(path); file.Missing() || string(file.Data) != string(data) {
			m.plan.Files[path] = data
		}
	}

	return nil
}

// rewritten is a unit with what became of it.
type rewritten struct {
	*unit
	rewrite.Patch
}

func (r rewritten) changes() bool { return r.Changed() || r.unit.strategic != "" }

// readOperations writes the JSON patches as strategic ones.
func (m *migration) readOperations() error {
	for _, one := range m.units {
		if !rewrite.IsOperations(one.text) {
			continue
		}

		strategic, err := m.strategic(one)
		if err != nil {
			m.plan.Decisions = append(m.plan.Decisions, m.at(one, 0, 0, "a JSON patch, which can't be used on several "+
				"documents: "+err.Error()+"; write it as a strategic merge patch"))
		}

		one.strategic = strategic
	}

	return nil
}

// rewriteAll rewrites each patch.
func (m *migration) rewriteAll() ([]rewritten, error) {
	var done []rewritten

	mistakes := &yamlfile.Mistakes{}
	m.plan.Moves, m.plan.Kept = nil, nil

	for _, one := range m.units {
		if why := m.untouchable(one); why != "" {
			m.plan.Decisions = append(m.plan.Decisions, m.at(one, 0, 0, why))

			continue
		}

		patch, err := rewrite.Strategic(cmp.Or(one.strategic, one.text), rewrite.Options{SplitRoles: one.workers(),
			Disk: m.commonDisk(one), Schedules: m.schedules(), Discovers: m.cluster.Profile == nil,
			NewDefaults: m.NewDefaults})
		if err != nil {
			mistakes.Add(m.broken(one, err))

			continue
		}

		m.note(one, patch)
		done = append(done, rewritten{unit: one, Patch: patch})

		if one.sealed && len(patch.Installs) > 0 { // they would stand in the talconfig
			m.plan.Decisions = append(m.plan.Decisions, m.at(one, 0, 0, "the file is encrypted, and what it says of the "+
				"installation needs each node's disk: move machine.install into a file that is not"))
		}
	}

	return done, mistakes.Err()
}

// commonDisk selects the disk of all nodes that get a patch; empty if they differ.
func (m *migration) commonDisk(one *unit) string {
	common := ""

	for i, node := range m.entries() {
		switch disk := m.disks[node]; {
		case !one.reaches(func(of *list) bool { return m.gets(i, of) }):
		case common != "" && disk != common:
			return ""
		default:
			common = disk
		}
	}

	return common
}

// untouchable says why a patch can't be rewritten as text though it may need it; empty if it can.
func (m *migration) untouchable(one *unit) string {
	if one.item == nil && m.cluster.Profile == nil && reading.Sealed([]byte(one.text)) {
		m.unseal(one)
	}

	if !strings.Contains(one.text, "{{") {
		return ""
	}

	if _, err := rewrite.Strategic(one.text, rewrite.Options{}); err != nil {
		return "the patch is a template, whose text is no YAML before it is filled: write the documents by hand"
	}

	return ""
}

// unseal takes an encrypted patch as its plaintext, which stays in memory. That it can't be decrypted rendering tells.
func (m *migration) unseal(one *unit) {
	data, err := m.cluster.Files.Open(one.path).Decrypted()
	if err != nil {
		data = nil
	}

	one.text, one.sealed, m.plan.Sealed = string(data), true, true
}

// schedules reports whether workloads run on control planes by the talconfig itself.
func (m *migration) schedules() bool {
	if m.cluster.Talconfig == nil {
		return false
	}

	config := m.cluster.Talconfig.Config

	return config.AllowSchedulingOnControlPlanes || config.AllowSchedulingOnMasters
}

// broken is a patch that can't be parsed.
func (m *migration) broken(one *unit, err error) *yamlfile.Error {
	mistake := &yamlfile.Error{ID: diagnosis.FileSyntax, Path: m.cluster.Files.Shown(one.path),
		Message: "the patch is not valid YAML: " + err.Error(), Err: err}

	if one.item != nil {
		mistake.Line, mistake.Column = one.item.Line, one.item.Column
	}

	return mistake
}

// note takes up what is told of a patch, with places in the file.
func (m *migration) note(one *unit, patch rewrite.Patch) {
	for _, move := range patch.Moved {
		m.plan.Moves = append(m.plan.Moves, m.at(one, move.Line, move.Column, move.String()))
	}

	for _, decision := range patch.Decisions {
		m.plan.Decisions = append(m.plan.Decisions,
			m.at(one, decision.Line, decision.Column, decision.Field+": "+decision.Why))
	}

	for _, kept := range patch.Kept {
		m.plan.Kept = append(m.plan.Kept, m.at(one, kept.Line, kept.Column, kept.Field+": "+kept.Why))
	}
}

// at is a note about a place of a patch. Of a JSON patch, and of one that is encrypted, only the whole has one.
func (m *migration) at(one *unit, line, column int, text string) Note {
	if one.sealed || rewrite.IsOperations(one.text) {
		line, column = 0, 0
	}

	if one.item != nil {
		line, column = m.inItem(one, line, column)
	}

	return Note{m.cluster.Files.Shown(one.path), line, column, text}
}

// inItem is a place of an item's text in the file. Only of literal texts it is known.
func (m *migration) inItem(one *unit, line, column int) (int, int) {
	if one.item.Style&yaml.LiteralStyle == 0 || line == 0 {
		return one.item.Line, one.item.Column
	}

	indent := 0

	lines := strings.Split(string(m.cluster.Files.Open(one.path).Data), "\n")
	for _, below := range lines[min(one.item.Line, len(lines)):] {
		if found := rewrite.Indentation(below); found >= 0 {
			indent = found

			break
		}
	}

	return one.item.Line + line, indent + column
}

// render makes the configs of all nodes.
func (m *migration) render(files map[string][]byte, contract string) ([]generate.Config, error) {
	cluster, err := m.Load(files, contract)
	if err != nil {
		return nil, err
	}

	output, err := generate.Configs(generate.Source{Cluster: cluster, Secrets: m.Secrets, Now: m.Now})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the files
	}

	return output.Configs, nil
}

// compare renders the configs in the new form, and lists what differs by node.
func (m *migration) compare(before []generate.Config) (map[string][]equal.Difference, error) {
	after, err := m.render(m.edited, NewContract)
	if err != nil {
		return nil, fmt.Errorf("render the configs as they would be: %w", err)
	}

	if len(after) != len(before) {
		return nil, errors.New("compare the configs: other nodes would get one")
	}

	found := map[string][]equal.Difference{}

	for i, one := range before {
		first, err := configloader.NewFromBytes(one.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the config of %s as it is: %w", one.Node, err)
		}

		second, err := configloader.NewFromBytes(after[i].Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the config of %s as it would be: %w", one.Node, err)
		}

		differences, err := equal.Configs(first, second)
		if err != nil {
			return nil, err //nolint:wrapcheck // it says what it compares
		}

		if len(differences) > 0 {
			found[one.Node] = differences
		}
	}

	return found, nil
}

// gathered tells equal differences of several nodes once.
func gathered(found map[string][]equal.Difference, nodes []string) []Difference {
	var all []Difference

	for _, node := range nodes {
		for _, one := range found[node] {
			known := slices.IndexFunc(all, func(other Difference) bool { return other.Difference == one })
			if known < 0 {
				all = append(all, Difference{Difference: one, Next: nextOf(one)})
				known = len(all) - 1
			}

			all[known].Nodes = append(all[known].Nodes, node)
		}
	}

	slices.SortStableFunc(all, func(a, b Difference) int { return cmp.Compare(a.Accessor, b.Accessor) })

	return all
}

// nextOf is what to do about a difference.
func nextOf(one equal.Difference) string {
	for _, is := range standards {
		if is.decision != "" && is.isAbout(one) {
			return is.decision
		}
	}

	return "write what the patches say of it by hand, and run the same command again"
}

// entries are the names of the entries that configs are made of, in their order.
func (m *migration) entries() []string {
	var names []string

	if m.cluster.Profile != nil {
		for _, node := range m.cluster.Profile.Machines {
			names = append(names, node.Name)
		}

		return names
	}

	for _, node := range m.cluster.Talconfig.Config.Nodes {
		names = append(names, node.Hostname)
	}

	return names
}

// isControlPlane is of an entry.
func (m *migration) isControlPlane(entry int) bool {
	if m.cluster.Profile != nil {
		return m.cluster.Profile.Machines[entry].Role == machine.TypeControlPlane
	}

	return m.cluster.Talconfig.Config.Nodes[entry].ControlPlane
}

// gets reports whether an entry gets the patches of a list.
func (m *migration) gets(entry int, of *list) bool {
	if m.cluster.Profile != nil {
		name := m.cluster.Profile.Machines[entry].Name

		return of.owner == ofAll || of.owner == name || of.owner == ofControlPlanes && m.isControlPlane(entry) ||
			of.owner == ofWorkers && !m.isControlPlane(entry)
	}

	switch of.owner {
	case "":
		return true
	case "nodes":
		return of.node == entry
	default:
		return (of.owner == "controlPlane") == m.isControlPlane(entry) &&
			!m.cluster.Talconfig.Config.Nodes[entry].OverridePatches
	}
}

// talenv is the file of variables that names the contract: the first plain one that is there.
func (m *migration) talenv() string {
	folder := filepath.Dir(m.cluster.Source)

	for _, name := range []string{"talenv.yaml", "talenv.yml"} {
		file := m.cluster.Files.Open(filepath.Join(folder, name))
		if file.Err == nil && !strings.Contains(string(file.Data), "\nsops:") {
			return file.Path
		}
	}

	return filepath.Join(folder, "talenv.yaml")
}
