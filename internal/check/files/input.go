package audit

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	preflight "github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Options say where a cluster's files are, and how they are judged.
type Options struct {
	// TalosDir holds talconfig.yaml, ConfigDir the machine configs; Talosconfig is the client configuration's path.
	TalosDir, ConfigDir, Talosconfig string
	// Kubeconfig is where the cluster's kubeconfig is; empty leaves it unjudged.
	Kubeconfig string
	// Root shortens the paths in findings: they are shown relative to it.
	Root string
	// Environ are NAME=value pairs for variables, as os.Environ gives them.
	Environ []string
	// Cluster is the inventory, if it was loaded before. Nil reads it.
	Cluster *inventory.Cluster
	// Source is the form that the cluster is declared in. Default: the one that is there.
	Source inventory.Kind
	// Files are what the run has read so far; nil has the audit read all itself.
	Files *reading.Files
	// Generate makes the machine configs and the talosconfig in memory, by their paths in ConfigDir: it is asked when one
	// of them is not there. Its error says why there are none, in one line, or holds the mistakes in the files (see
	// inventory.FileErrors). Nil makes none.
	Generate func() (map[string][]byte, error)
	// Profile narrows the checks to those of one profile; empty for all that need none.
	Profile Profile
	// CiliumValues is the file with the Helm values of Cilium, or with its HelmRelease. Empty looks for a HelmRelease
	// below Root.
	CiliumValues string
	// VMs lists the virtual machines that the nodes run on; those that wanted says no to may be left out. Nil for none.
	VMs func(wanted func(name string) bool) ([]proxmox.VM, error)
	// CallsFrom is the address that this computer calls another from; invalid if it is not known. Nil leaves that
	// unjudged.
	CallsFrom func(netip.Addr) netip.Addr
	// AsTheyAre is set for a run that takes the machine configs that are there as they are: what making them again would
	// fail for does not stop it.
	AsTheyAre bool
	// Checks are the settings of the checks, and their ways out of the process.
	Checks preflight.Options
}

// Input is everything that the checks look at. It is read once and not changed afterwards.
type Input struct {
	Options Options
	// Cluster is what the inventory tells; nil if nothing can be made out.
	Cluster *inventory.Cluster
	// Talconfig is nil when it could not be read.
	Talconfig *File
	// Configs are the machine configs that could be read, in the inventory's order.
	Configs []*Rendered
	// Patches are those that the talconfig names, in its order, once each.
	Patches []*Patch
	// Credentials are nil without a usable talosconfig; TalosconfigFile is nil without the file.
	Credentials     *talos.Credentials
	TalosconfigFile *File
	// SecretsFile is nil when there is none.
	SecretsFile *File

	// KubeconfigFile is nil when there is none.
	KubeconfigFile *File

	// cilium are the Helm values of Cilium, or why there are none. machines are the VMs, or why there are none.
	cilium   func() (*helmValues, string)
	machines func() ([]proxmox.VM, string)
	// manifests are the files of extraManifests, as Patches are those of patches.
	manifests []*Patch
	// unreadable are findings of reading.
	unreadable []diagnosis.Finding
	// missing are the nodes, or files, whose machine config could not be read.
	missing []string
	byFile  map[*File]*Rendered
	byNode  map[*inventory.Node]*Rendered
	origins func() *origins
	// nodesByHost are the names of nodes by what they are called and where they are.
	nodesByHost func() map[string]string
	// bundle is what the secrets file holds.
	bundle func() bundle
	// tracked are the files that git tracks.
	tracked func() trackedFiles
	// onLoopback tells of a cluster of emulated nodes.
	onLoopback func() bool
	// reached are the disk selectors that were judged, by their text.
	reached map[string]reach
	reaches sync.Mutex
	// refusals are what Talos says about patches, by their text; nil for those that it can read.
	refusals map[string]*machineconfig.LoadError
	// recipients are the nodes that patches are for.
	recipients func() recipients
	// imagePatches are the patches that may name an installer image.
	imagePatches func() []*Patch
	// schematics are those of the talconfig, and known are all that can be told by their id.
	schematics func() []declaredSchematic
	known      func() map[string]*schematic.Schematic
	// templates are the files of the repository that others are made from, by the name of what they make.
	templates func() map[string][]string
	// looked are the files as preflight's checks take them.
	looked  preflight.Files
	lookups sync.Once
	// generated are the files of ConfigDir as they would be written; whyNot says why there are none, and is empty while
	// nobody asked.
	generated func() map[string][]byte
	whyNot    string
	// ungenerable are the mistakes in the files that making machine configs came upon.
	ungenerable []diagnosis.Finding
	// entries are the indices of the talconfig's entries of nodes, by their first line.
	entries func() map[int]int
}

// Rendered is a machine config as a node gets it.
type Rendered struct {
	// Name is the node's, or the file's where no node of the inventory has it. Machines that share a file share its
	// Rendered.
	Name string
	// Nodes are those that get it; none without an inventory.
	Nodes []*inventory.Node
	File  *File
	*machineconfig.Config

	links func() []*link
}

// Patch is a patch that the talconfig names.
type Patch struct {
	File *File
	// Inline is set for text that stands in the talconfig itself.
	Inline bool
	// Missing is set when the file that is named does not exist; File is then without data.
	Missing bool
	// Named is where the talconfig names it.
	Named at
	// Group is "nodes", "controlPlane", "worker", or empty for all nodes; Node is the entry's index in the first case.
	Group string
	Node  int

	// again are the further places that name the same file.
	again []patchUse
	// templated is set for a text with {{ }}: only what comes out of it can be judged.
	templated bool
	// unresolved is set when the file's name has a variable in it.
	unresolved bool
}

// patchUse is an item of one of the talconfig's lists of patches.
type patchUse struct {
	named at
	group string
	node  int
}

// uses are all places that name the patch, in the order in which they are read.
func (p *Patch) uses() []patchUse {
	return append([]patchUse{{p.Named, p.Group, p.Node}}, p.again...)
}

// Read reads all files of a cluster. A file that can't be read or parsed becomes a finding of the result, and the rest
// is read all the same.
func Read(options Options) *Input {
	in := &Input{Options: options, byFile: map[*File]*Rendered{}, byNode: map[*inventory.Node]*Rendered{},
		Cluster: options.Cluster}

	if options.Files == nil {
		in.Options.Files = reading.New(options.Root, nil)
	}

	if options.ConfigDir == "" {
		in.Options.ConfigDir = filepath.Join(options.TalosDir, "clusterconfig")
	}

	if options.Talosconfig == "" {
		in.Options.Talosconfig = filepath.Join(in.Options.ConfigDir, talosconfigName)
	}

	in.generated = sync.OnceValue(func() map[string][]byte {
		if options.Generate == nil {
			return nil
		}

		made, err := options.Generate()
		if err != nil {
			in.ungenerated(err)
		}

		return made
	})

	in.readInventory()
	in.readConfigs()
	in.readPatches()
	in.readTalosconfig()
	in.readSecrets()
	in.readSyntax(in.SecretsFile)

	// What was made in memory is valid from just now on.
	if in.Options.Checks.Now.IsZero() {
		in.Options.Checks.Now = time.Now()
	}

	if options.Kubeconfig != "" {
		in.KubeconfigFile = in.open(options.Kubeconfig)
	}

	in.bundle = in.readBundle()
	in.tracked = sync.OnceValue(in.findTracked)
	in.cilium, in.machines = sync.OnceValues(in.readCilium), sync.OnceValues(in.readVMs)
	in.onLoopback = sync.OnceValue(in.findLoopback)
	in.nodesByHost = sync.OnceValue(in.findHosts)
	in.origins, in.entries = sync.OnceValue(in.findOrigins), sync.OnceValue(in.findEntries)
	in.imagePatches, in.schematics, in.known = sync.OnceValue(in.findImagePatches), sync.OnceValue(in.findSchematics),
		sync.OnceValue(in.findKnown)
	in.refusals = map[string]*machineconfig.LoadError{}
	in.recipients, in.templates = sync.OnceValue(in.findRecipients), sync.OnceValue(in.findTemplates)

	return in
}

func (in *Input) shown(path string) string {
	return in.Options.Files.Shown(path)
}

// open reads a file; nil if it can't be read.
func (in *Input) open(path string) *File {
	read := in.Options.Files.Open(path)
	if read.Err != nil {
		return nil
	}

	return &File{Path: path, Shown: read.Shown, Data: read.Data, Mode: uint32(read.Mode), places: read.Places()}
}

func (in *Input) readInventory() {
	in.Talconfig = in.open(filepath.Join(in.Options.TalosDir, inventory.TalconfigName))

	if in.Cluster != nil {
		return
	}

	cluster, err := inventory.Inspect(inventory.Options{
		TalosDir: in.Options.TalosDir, Source: in.Options.Source, ConfigDir: in.Options.ConfigDir,
		Environ: in.Options.Environ, Files: in.Options.Files,
		Unwritten: func(name string) []byte { return in.generated()[filepath.ToSlash(name)] },
	})

	in.Cluster = cluster
	in.unreadable = append(in.unreadable, in.mistakes(err)...)
	in.moveConfigDir()
}

// moveConfigDir goes where a profile puts its machine configs, unless the talosconfig was chosen by itself.
func (in *Input) moveConfigDir() {
	if in.Cluster == nil || in.Cluster.ConfigDir == in.Options.ConfigDir {
		return
	}

	if in.Options.Talosconfig == filepath.Join(in.Options.ConfigDir, talosconfigName) {
		in.Options.Talosconfig = filepath.Join(in.Cluster.ConfigDir, talosconfigName)
	}

	in.Options.ConfigDir = in.Cluster.ConfigDir
}

// ungenerated keeps why no machine configs can be made in memory. Mistakes in the files become findings.
func (in *Input) ungenerated(err error) {
	in.ungenerable, in.whyNot = in.mistakes(err), err.Error()

	if len(in.ungenerable) > 0 {
		in.whyNot = "mistakes in the files keep it from being made"
	}
}

// mistakes are those in the user's files, as findings.
func (in *Input) mistakes(err error) []diagnosis.Finding {
	var findings []diagnosis.Finding

	for _, mistake := range inventory.FileErrors(err) {
		finding := mistake.Finding()
		finding.At = diagnosis.Location{Path: mistake.Path, Line: mistake.Line, Column: mistake.Column}
		finding.Cause = strings.TrimPrefix(mistake.Error(), finding.At.String()+": ")

		if entry, known := diagnosis.Lookup(finding.ID); known && finding.Next == "" {
			finding.Next = entry.Remedy
		}

		finding.At.Text = in.textOf(mistake)
		findings = append(findings, finding)
	}

	return findings
}

// textOf is the line of a mistake. Nothing but the key is shown where what it means is not known, and of files of
// variables.
func (in *Input) textOf(mistake *inventory.FileError) string {
	file := in.Talconfig
	if file == nil || file.Shown != mistake.Path {
		path := filepath.FromSlash(mistake.Path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(in.Options.Root, path)
		}

		if file = in.open(path); file == nil {
			return ""
		}
	}

	if mistake.ID == diagnosis.FileKey || mistake.ID == diagnosis.FileSyntax ||
		strings.HasPrefix(filepath.Base(file.Path), "tal") && file != in.Talconfig {
		return file.places.Key(mistake.Line)
	}

	return file.places.Line(mistake.Line)
}

// readConfigs reads the machine configs of the inventory's nodes, or all that lie in the folder where there is no
// inventory.
func (in *Input) readConfigs() {
	if in.Cluster == nil {
		paths, _ := filepath.Glob(filepath.Join(in.Options.ConfigDir, "*.yaml")) // the pattern is well-formed
		for _, path := range paths {
			in.addConfig(path, strings.TrimSuffix(filepath.Base(path), ".yaml"), nil)
		}

		return
	}

	byPath := map[string]*Rendered{}

	for _, node := range in.Cluster.Nodes {
		config := byPath[node.ConfigFile]
		if config == nil {
			config = in.addConfig(node.ConfigFile, node.Name, node)
			byPath[node.ConfigFile] = config
		} else {
			config.Nodes = append(config.Nodes, node)
		}

		if config != nil {
			in.byNode[node] = config
		}
	}
}

// talosconfigName is the name of the talosconfig in the folder of machine configs.
const talosconfigName = "talosconfig"

// notWritten marks the path of a machine config that exists in memory only.
const notWritten = " (not written yet)"

func (in *Input) addConfig(path, name string, node *inventory.Node) *Rendered {
	var (
		config *machineconfig.Config
		err    error
	)

	if node != nil {
		config, err = in.Cluster.MachineConfig(node)
	} else if config, err = machineconfig.Load(path); err != nil {
		in.unreadable = append(in.unreadable, in.loadFinding(path, err)) // with an inventory the cross-check tells it
	}

	shown := in.shown(path)

	if in.Cluster != nil && in.Cluster.Unwritten(path) != nil {
		shown += notWritten
	}

	if err != nil {
		in.missing = append(in.missing, name)

		return nil
	}

	rendered := &Rendered{Name: name, File: newFile(path, shown, config.Bytes), Config: config}
	rendered.File.readMode()

	rendered.links = sync.OnceValue(func() []*link { return linksOf(rendered) })

	if node != nil {
		rendered.Nodes = []*inventory.Node{node}
	}

	in.Configs = append(in.Configs, rendered)
	in.byFile[rendered.File] = rendered

	return rendered
}

// loadFinding is a machine config that can't be decoded.
func (in *Input) loadFinding(path string, err error) diagnosis.Finding {
	finding := diagnosis.Finding{
		ID: diagnosis.ConfigUnreadable, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput, Cause: err.Error(),
		Next: machineconfig.HowToGenerate, At: diagnosis.Location{Path: in.shown(path)},
	}

	var broken *machineconfig.LoadError
	if errors.As(err, &broken) {
		finding.Cause, finding.At.Line, finding.At.Column = broken.Message, broken.Line, broken.Column
		if broken.Next != "" {
			finding.Next = broken.Next
		}
	}

	if file := in.open(path); file != nil {
		finding.At.Text = file.places.Key(finding.At.Line)
	}

	return finding
}

// patchLists are where a talconfig lists patches for all nodes or a role.
var patchLists = []string{"", "controlPlane", "worker"}

func (in *Input) readPatches() {
	if in.Cluster != nil && in.Cluster.Profile != nil {
		in.Patches = in.readFolder()

		return
	}

	in.Patches, in.manifests = in.readLists("patches"), in.readLists("extraManifests")
}

// readLists reads what the lists of a name have, for all nodes, for the roles and for the nodes.
func (in *Input) readLists(key string) []*Patch {
	if in.Talconfig == nil || len(in.Talconfig.places.Roots()) == 0 {
		return nil
	}

	var patches []*Patch

	root := in.Talconfig.places.Roots()[0]
	seen := map[string]*Patch{}

	for _, group := range patchLists {
		holder, path := root, key
		if group != "" {
			holder, path = machineconfig.Field(root, group), group+"."+key
		}

		patches = append(patches, in.readList(seen, machineconfig.Field(holder, key), in.Talconfig.at(path), group, 0)...)
	}

	nodes := machineconfig.Field(root, "nodes")
	if nodes == nil {
		return patches
	}

	for i, node := range nodes.Content {
		patches = append(patches,
			in.readList(seen, machineconfig.Field(node, key), in.Talconfig.at("nodes").item(i).field(key), "nodes", i)...)
	}

	return patches
}

// readList reads what one list has; what was seen before gets one more use.
func (in *Input) readList(seen map[string]*Patch, list *yaml.Node, named at, group string, node int) []*Patch {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}

	var patches []*Patch

	for i, item := range list.Content {
		if item.Kind != yaml.ScalarNode {
			continue
		}

		patch := &Patch{Named: named.item(i), Group: group, Node: node}

		if name, isFile := fileReference(item.Value); isFile {
			path := name
			if !filepath.IsAbs(path) {
				path = filepath.Join(in.Options.TalosDir, path)
			}

			if known := seen[path]; known != nil {
				known.again = append(known.again, patchUse{patch.Named, group, node})

				continue
			}

			seen[path] = patch
			in.openPatch(patch, path)
		} else {
			patch.Inline = true
			patch.File = newFile(in.Talconfig.Path, in.Talconfig.Shown, []byte(item.Value))
			patch.File.From, patch.File.FromLine = in.Talconfig, item.Line

			if item.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
				patch.File.FromLine++ // the text begins below the sign of its style
			}

			patch.adopt()
		}

		patches = append(patches, patch)
	}

	return patches
}

// fileReference reports whether an item of a list of patches is the name of a file: @name, or a single word, which no
// patch is. Source: machinery config/configpatcher/load.go.
func fileReference(item string) (string, bool) {
	if name, isFile := strings.CutPrefix(strings.TrimSpace(item), "@"); isFile {
		return name, true
	}

	return item, item != "" && !strings.ContainsAny(item, "\n ") && !strings.HasPrefix(item, "[") &&
		!strings.HasPrefix(item, "{")
}

// openPatch reads a patch's file.
func (in *Input) openPatch(patch *Patch, path string) {
	if strings.Contains(path, "$") {
		patch.unresolved = true
	} else if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		patch.Missing = true
	}

	if patch.File = in.open(path); patch.File == nil {
		patch.File = newFile(path, in.shown(path), nil)

		return
	}

	if patch.adopt(); !patch.templated { // a template need not be YAML before it is filled in, which generation does
		in.readSyntax(patch.File)
	}
}

// readSyntax looks whether a file is YAML; nil is.
func (in *Input) readSyntax(file *File) {
	if file == nil {
		return
	}

	if line, column, message := file.places.SyntaxError(); message != "" {
		in.unreadable = append(in.unreadable, diagnosis.Finding{
			ID: diagnosis.FileSyntax, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: "is not valid YAML: " + message,
			Next:  "correct the line", At: file.location(line, column),
		})
		in.unreadable[len(in.unreadable)-1].At.Text = file.places.Key(line)
	}
}

func (in *Input) readTalosconfig() {
	if in.TalosconfigFile = in.open(in.Options.Talosconfig); in.TalosconfigFile == nil && in.Cluster != nil {
		if made := in.Cluster.Unwritten(in.Options.Talosconfig); made != nil {
			in.TalosconfigFile = newFile(in.Options.Talosconfig, in.shown(in.Options.Talosconfig)+notWritten, made)
		}
	}

	if in.TalosconfigFile == nil {
		return
	}

	credentials, err := talos.ParseCredentials(in.TalosconfigFile.Data)
	if err == nil {
		in.Credentials = credentials

		return
	}

	if in.Cluster == nil { // with an inventory the cross-check tells it
		in.unreadable = append(in.unreadable, diagnosis.Finding{
			ID: diagnosis.TalosconfigBroken, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: "can't be used as a talosconfig",
			Next:  machineconfig.HowToGenerate, At: diagnosis.Location{Path: in.TalosconfigFile.Shown},
		})
	}
}

func (in *Input) readSecrets() {
	for _, name := range secrets.Names() {
		if in.SecretsFile = in.open(filepath.Join(in.Options.TalosDir, name)); in.SecretsFile != nil {
			return
		}
	}
}

// unmet says why a check can't be run; empty if it can.
func (in *Input) unmet(needs diagnosis.Need) string {
	switch {
	case needs.Has(diagnosis.NeedsFacts):
		return "needs a node's answer: mage preflight"
	case needs.Has(diagnosis.NeedsNetwork) && in.Options.Checks.LookupHost == nil:
		return "needs the network: mage preflight"
	case needs.Has(diagnosis.NeedsTalconfig) && in.Cluster == nil:
		return "the inventory can't be read"
	case needs.Has(diagnosis.NeedsConfig) && len(in.Configs) == 0:
		return in.none("there is no machine config that can be read")
	case needs.Has(diagnosis.NeedsConfigs) && (len(in.Configs) == 0 || len(in.missing) > 0):
		return in.none("not all machine configs can be read")
	case needs.Has(diagnosis.NeedsTalosconfig) && in.Credentials == nil:
		return in.none("there is no talosconfig that can be used")
	case needs.Has(diagnosis.NeedsSecrets) && in.SecretsFile == nil:
		return "there is no secrets file"
	case needs.Has(diagnosis.NeedsCilium):
		_, why := in.cilium()

		return why
	case needs.Has(diagnosis.NeedsVMs):
		_, why := in.machines()

		return why
	default:
		return ""
	}
}

// none is what is missing, or why it can't be made in memory, if that was tried.
func (in *Input) none(text string) string {
	if in.whyNot == "" {
		return text
	}

	return "not all files are written yet; " + in.whyNot
}

// nothingMade reports whether no file of the folder of machine configs exists yet, and none could be made to be judged:
// then it is not run what is about them, and it is no trouble that they are missing.
func (in *Input) nothingMade() bool {
	return in.whyNot != "" && len(in.Configs) == 0 && in.TalosconfigFile == nil && len(in.onDisk()) == 0
}

// onDisk are the files that lie in the folder of machine configs.
func (in *Input) onDisk() []string {
	paths, _ := filepath.Glob(filepath.Join(in.Options.ConfigDir, "*.y*ml")) // the pattern is well-formed

	return paths
}

// configsByNode are the machine configs by the name of the node.
func (in *Input) configsByNode() map[string]*machineconfig.Config {
	configs := make(map[string]*machineconfig.Config)

	for _, config := range in.Configs {
		for _, node := range config.Nodes {
			configs[node.Name] = config.Config
		}
	}

	return configs
}

// entryIndex is the index of a node's entry in the talconfig; -1 if it is not known.
func (in *Input) entryIndex(node *inventory.Node) int {
	if index, known := in.entries()[node.Line]; known {
		return index
	}

	return -1
}

// findEntries are the indices of the talconfig's entries of nodes, by the line that they begin on.
func (in *Input) findEntries() map[int]int {
	entries := map[int]int{}

	if in.Talconfig == nil || len(in.Talconfig.places.Roots()) == 0 {
		return entries
	}

	if list := machineconfig.Field(in.Talconfig.places.Roots()[0], "nodes"); list != nil {
		for i, entry := range list.Content {
			entries[entry.Line] = i
		}
	}

	return entries
}

// node is the place of a node's entry in the talconfig.
func (in *Input) node(node *inventory.Node) at {
	if in.Talconfig == nil {
		return at{}
	}

	if index := in.entryIndex(node); index >= 0 {
		return in.Talconfig.at("nodes").item(index)
	}

	return in.Talconfig.at("nodes")
}

// addressesOf are the addresses that the files give a node, without their prefix lengths.
func addressesOf(node *inventory.Node, config *Rendered) []netip.Addr {
	var addresses []netip.Addr

	if declared, err := netip.ParseAddr(node.Address); err == nil {
		addresses = append(addresses, declared.Unmap())
	}

	if config != nil {
		for _, prefix := range config.Addresses() {
			addresses = append(addresses, prefix.Addr().Unmap())
		}
	}

	slices.SortFunc(addresses, netip.Addr.Compare)

	return slices.Compact(addresses)
}
