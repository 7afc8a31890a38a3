package check

import (
	"errors"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/check/proxmox"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
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
	// Made says what became of making the machine configs and the talosconfig in memory where one is not there. What was
	// made is in Files.
	Made Made
	// Profile narrows the checks to those of one profile; empty for all that need none.
	Profile Profile
	// CiliumValues is the file with the Helm values of Cilium, or with its HelmRelease. Empty looks for a HelmRelease
	// below Root.
	CiliumValues string
	// VMs lists the virtual machines that the nodes run on; those that wanted says no to may be left out. Nil for none.
	VMs func(wanted func(name string) bool) ([]proxmox.VM, error)
	// CallsFrom is the address that this computer calls another from; invalid if it is not known. Nil leaves that
	// unjudged: where no node is called, as in a pipeline, it says nothing.
	CallsFrom func(netip.Addr) netip.Addr
	// AsTheyAre is set for a run that takes the machine configs that are there as they are: what making them again would
	// fail for does not stop it.
	AsTheyAre bool
	// Checks are the settings of the checks, and their ways out of the process.
	Checks Settings
}

// Made is what became of making files that are not there, as they would be written. The zero value is for files that
// nobody tried to make.
type Made struct {
	// WhyNot says why there are none, in one line, or holds the mistakes in the files (see inventory.FileErrors), or is
	// the *diagnosis.Problem that is in the way.
	WhyNot error
	// StandIn says why throwaway secrets took the place of the cluster's own; empty where they did not.
	StandIn string
	// Compared is set where those that are there were made again, Outdated the machine configs that came out otherwise.
	Compared bool
	Outdated []string
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

	// Manifests are the files of extraManifests, as Patches are those of patches.
	Manifests []*Patch
	// Missing are the nodes, or files, whose machine config could not be read.
	Missing []string

	// unreadable are findings of reading.
	unreadable []diagnosis.Finding
	byFile     map[*File]*Rendered
	byNode     map[*inventory.Node]*Rendered
	// whyNot says why files that are not there could not be made; empty while nobody tried.
	whyNot string
	// ungenerable are the mistakes in the files that making machine configs came upon.
	ungenerable []diagnosis.Finding
	// doubtful are the lines with a key, or a kind of value, that the inventory does not know.
	doubtful map[spot]bool
	// made are the values that checks have of Once, by their types.
	made sync.Map
}

// spot is a line of a file, by the path that people are shown.
type spot struct {
	path string
	line int
}

// Once makes a value of the files when it is first asked for, however many checks ask: one of each type.
func Once[T any](in *Input, find func(*Input) T) T {
	once, _ := in.made.LoadOrStore(reflect.TypeFor[T](), sync.OnceValue(func() T { return find(in) }))

	return once.(func() T)() //nolint:forcetypeassert // it is what was stored for the type
}

// ConfigOf is the machine config that a node gets; nil if it could not be read.
func (in *Input) ConfigOf(node *inventory.Node) *Rendered { return in.byNode[node] }

// Unreadable are the findings of reading.
func (in *Input) Unreadable() []diagnosis.Finding { return in.unreadable }

// Read reads all files of a cluster. A file that can't be read or parsed becomes a finding of the result, and the rest
// is read all the same.
func Read(options Options) *Input {
	in := &Input{Options: options, byFile: map[*File]*Rendered{}, byNode: map[*inventory.Node]*Rendered{},
		doubtful: map[spot]bool{}, Cluster: options.Cluster}

	if options.Files == nil {
		in.Options.Files = reading.New(options.Root, nil)
	}

	if options.ConfigDir == "" {
		in.Options.ConfigDir = filepath.Join(options.TalosDir, "clusterconfig")
	}

	if options.Talosconfig == "" {
		in.Options.Talosconfig = filepath.Join(in.Options.ConfigDir, talosconfigName)
	}

	in.readInventory()
	in.adoptTalconfig()
	in.readWarnings()

	if options.Made.WhyNot != nil {
		in.ungenerated(options.Made.WhyNot)
	}

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
		in.KubeconfigFile = in.Open(options.Kubeconfig)
	}

	return in
}

// Shown is a path as people are told it.
func (in *Input) Shown(path string) string { return in.Options.Files.Shown(path) }

// Open reads a file; nil if it can't be read.
func (in *Input) Open(path string) *File {
	read := in.Options.Files.Open(path)
	if read.Err != nil {
		return nil
	}

	return &File{Path: path, Shown: read.Shown, Data: read.Data, Mode: uint32(read.Mode), Unwritten: read.Unwritten,
		Places: read.Places()}
}

func (in *Input) readInventory() {
	in.Talconfig = in.Open(filepath.Join(in.Options.TalosDir, inventory.TalconfigName))

	if in.Cluster != nil {
		return
	}

	cluster, err := inventory.Inspect(inventory.Options{
		TalosDir: in.Options.TalosDir, Source: in.Options.Source, ConfigDir: in.Options.ConfigDir,
		Environ: in.Options.Environ, Files: in.Options.Files,
	})

	in.Cluster = cluster
	in.unreadable = append(in.unreadable, in.findingsOf(inventory.FileErrors(err))...)
	in.moveConfigDir()
}

// adoptTalconfig takes the talconfig as the inventory has read it: with the values of its variables.
func (in *Input) adoptTalconfig() {
	if in.Talconfig != nil && in.Cluster != nil && in.Cluster.Talconfig != nil {
		in.Talconfig.Places = machineconfig.PlacesOf(in.Talconfig.Data, in.Cluster.Talconfig.Root)
	}
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
	in.ungenerable, in.whyNot = in.findingsOf(inventory.FileErrors(err)), err.Error()

	if problem, ok := diagnosis.AsProblem(err); ok && len(in.ungenerable) == 0 {
		in.ungenerable = []diagnosis.Finding{problem.Finding}
	}

	if len(in.ungenerable) > 0 {
		in.whyNot = "mistakes in the files keep them from being made"
	}
}

// readWarnings tells of what reading the talconfig passed over.
func (in *Input) readWarnings() {
	if in.Cluster == nil || in.Cluster.Talconfig == nil {
		return
	}

	for _, finding := range in.findingsOf(in.Cluster.Talconfig.Warnings) {
		finding.Severity = diagnosis.Warning
		in.unreadable = append(in.unreadable, finding)
	}
}

// findingsOf are mistakes in the user's files, as findings.
func (in *Input) findingsOf(mistakes []*inventory.FileError) []diagnosis.Finding {
	for _, mistake := range mistakes {
		switch mistake.ID {
		case diagnosis.FileKey, diagnosis.FileSyntax, diagnosis.FileType:
			in.doubtful[spot{mistake.Path, mistake.Line}] = true
		}
	}

	var findings []diagnosis.Finding

	for _, mistake := range mistakes {
		finding := mistake.Finding()

		if entry, known := diagnosis.Lookup(finding.ID); known && finding.Next == "" {
			finding.Next = entry.Remedy
		}

		finding.At.Text = in.textOf(mistake)
		findings = append(findings, finding)
	}

	return findings
}

// textOf is the line of a mistake. No value is shown of files of secrets and variables, and of a patch and where else
// what a key means is not known, only one that can be no secret.
func (in *Input) textOf(mistake *inventory.FileError) string {
	file := in.Talconfig
	if file == nil || file.Shown != mistake.Path {
		path := filepath.FromSlash(mistake.Path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(in.Options.Root, path)
		}

		if file = in.Open(path); file == nil {
			return ""
		}
	}

	name, isDeclaration := filepath.Base(file.Path), file == in.Talconfig || in.Cluster != nil &&
		file.Path == in.Cluster.Source

	switch {
	case secrets.IsName(name), strings.HasPrefix(name, "tal") && file != in.Talconfig:
		return file.Places.Key(mistake.Line)
	case isDeclaration && !in.doubtful[spot{mistake.Path, mistake.Line}] && !strings.Contains(mistake.Field, "patches"):
		return file.Places.Line(mistake.Line)
	default:
		return file.Places.Harmless(mistake.Line)
	}
}

// readConfigs reads the machine configs of the inventory's nodes, or all that lie in the folder where there is no
// inventory.
func (in *Input) readConfigs() {
	if in.Cluster == nil {
		paths, _ := filepath.Glob(filepath.Join(in.Options.ConfigDir, "*.yaml")) // the pattern is well-formed
		for _, path := range paths {
			if name := filepath.Base(path); !secrets.IsName(name) && in.mayBeConfig(path) {
				in.addConfig(path, strings.TrimSuffix(name, ".yaml"), nil)
			}
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

// mayBeConfig reports whether a file in the folder of machine configs is one, where no inventory says so: other files
// lie there too. One that is no YAML may be.
func (in *Input) mayBeConfig(path string) bool {
	file := in.Open(path)
	if file == nil || len(file.Places.Roots()) == 0 {
		return true
	}

	return slices.ContainsFunc(file.Places.Roots(), func(root *yaml.Node) bool {
		version := machineconfig.Field(root, "apiVersion")

		return machineconfig.Field(root, "machine") != nil || version != nil && version.Value == "v1alpha1"
	})
}

// talosconfigName is the name of the talosconfig in the folder of machine configs.
const talosconfigName = "talosconfig"

func (in *Input) addConfig(path, name string, node *inventory.Node) *Rendered {
	var (
		config *machineconfig.Config
		err    error
	)

	if node != nil {
		config, err = in.Cluster.MachineConfig(node)
	} else if config, err = in.Options.Files.Open(path).Config(); err != nil {
		in.unreadable = append(in.unreadable, in.loadFinding(path, err)) // with an inventory the cross-check tells it
	}

	if err != nil {
		in.Missing = append(in.Missing, name)

		return nil
	}

	rendered := NewRendered(config)
	rendered.Name, rendered.File = name, in.Open(path)

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
		Next: machineconfig.HowToGenerate, At: diagnosis.Location{Path: in.Shown(path)},
	}

	var broken *machineconfig.LoadError
	if errors.As(err, &broken) {
		finding.Cause, finding.At.Line, finding.At.Column = broken.Message, broken.Line, broken.Column
		if broken.Next != "" {
			finding.Next = broken.Next
		}
	}

	if file := in.Open(path); file != nil {
		finding.At.Text = file.Places.Harmless(finding.At.Line)
	}

	return finding
}

// readSyntax looks whether a file is YAML; nil is.
func (in *Input) readSyntax(file *File) {
	if file == nil {
		return
	}

	if line, column, message := file.Places.SyntaxError(); message != "" {
		in.unreadable = append(in.unreadable, diagnosis.Finding{
			ID: diagnosis.FileSyntax, Severity: diagnosis.Failure, Exit: diagnosis.ExitBadInput,
			Cause: "is not valid YAML: " + message,
			Next:  howToCorrect(file, line), At: file.Location(line, column),
		})
		in.unreadable[len(in.unreadable)-1].At.Text = file.Places.Key(line)
	}
}

// howToCorrect is what to do about a line that is no YAML.
func howToCorrect(file *File, line int) string {
	lines := strings.Split(string(file.Data), "\n")
	if line > 0 && line <= len(lines) && strings.Contains(lines[line-1], "${") {
		return `put the variable in quotes: within [ ] and { } YAML reads its braces`
	}

	return "correct the line"
}

func (in *Input) readTalosconfig() {
	if in.TalosconfigFile = in.Open(in.Options.Talosconfig); in.TalosconfigFile == nil {
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
	var paths []string

	if in.Cluster != nil {
		paths = in.Cluster.SecretsPaths()
	} else {
		for _, name := range secrets.Names() {
			paths = append(paths, filepath.Join(in.Options.TalosDir, name))
		}
	}

	for _, path := range paths {
		if in.SecretsFile = in.Open(path); in.SecretsFile != nil {
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
		return in.None("there is no machine config that can be read")
	case needs.Has(diagnosis.NeedsConfigs) && (len(in.Configs) == 0 || len(in.Missing) > 0):
		return in.None("not all machine configs can be read")
	case needs.Has(diagnosis.NeedsTalosconfig) && in.Credentials == nil:
		return in.None("there is no talosconfig that can be used")
	case needs.Has(diagnosis.NeedsOwnSecrets) && in.madeUp(needs):
		return "needs the cluster's own secrets; throwaway ones were made up to judge the rest: " + in.Options.Made.StandIn
	case needs.Has(diagnosis.NeedsSecrets) && in.SecretsFile == nil && in.Cluster == nil:
		return "the inventory can't be read"
	case needs.Has(diagnosis.NeedsSecrets) && in.SecretsFile == nil:
		return "there is no secrets file"
	case needs.Has(diagnosis.NeedsCilium):
		_, why := in.Cilium()

		return why
	case needs.Has(diagnosis.NeedsVMs):
		_, why := in.Machines()

		return why
	default:
		return ""
	}
}

// madeUp reports whether one of the files that are needed was made with throwaway secrets.
func (in *Input) madeUp(needs diagnosis.Need) bool {
	unwritten := func(config *Rendered) bool { return config.File.Unwritten }

	return in.Options.Made.StandIn != "" &&
		(needs.Has(diagnosis.NeedsTalosconfig) && in.TalosconfigFile.Unwritten ||
			!needs.Has(diagnosis.NeedsTalosconfig) && slices.ContainsFunc(in.Configs, unwritten) ||
			needs.Has(diagnosis.NeedsConfig) && slices.ContainsFunc(in.Configs, unwritten))
}

// None is what is missing, or why it can't be made in memory, if that was tried.
func (in *Input) None(text string) string {
	if in.whyNot == "" {
		return text
	}

	return "not all files are written yet; " + in.whyNot
}

// NothingMade says why no file of the folder of machine configs exists yet and none could be made to be judged: then it
// is not run what is about them, and it is no trouble that they are missing. It is empty where there are some.
func (in *Input) NothingMade() string {
	if len(in.Configs) == 0 && in.TalosconfigFile == nil && len(in.onDisk()) == 0 {
		return in.whyNot
	}

	return ""
}

// onDisk are the files that lie in the folder of machine configs.
func (in *Input) onDisk() []string {
	paths, _ := filepath.Glob(filepath.Join(in.Options.ConfigDir, "*.y*ml")) // the pattern is well-formed

	return paths
}

// entryIndex is the index of a node's entry in the talconfig; -1 if it is not known.
func (in *Input) entryIndex(node *inventory.Node) int {
	if index, known := Once(in, findEntries)[node.Line]; known {
		return index
	}

	return -1
}

// entries are the indices of the talconfig's entries of nodes, by the line that they begin on.
type entries map[int]int

func findEntries(in *Input) entries {
	entries := entries{}

	if in.Talconfig == nil || len(in.Talconfig.Places.Roots()) == 0 {
		return entries
	}

	if list := machineconfig.Field(in.Talconfig.Places.Roots()[0], "nodes"); list != nil {
		for i, entry := range list.Content {
			entries[entry.Line] = i
		}
	}

	return entries
}

// Node is the place of a node's entry in the talconfig.
func (in *Input) Node(node *inventory.Node) Place {
	if in.Talconfig == nil {
		return Place{}
	}

	if index := in.entryIndex(node); index >= 0 {
		return in.Talconfig.At("nodes").Item(index)
	}

	return in.Talconfig.At("nodes")
}
