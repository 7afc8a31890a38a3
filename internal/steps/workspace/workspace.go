// Package workspace holds the files that a run works with: what the user declares, the machine configs and talosconfig
// that were made of it, and those that would be made. It reads, and renders in memory; writing is the gate's.
package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/sops"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Contents are what was read of a cluster.
type Contents struct {
	Settings *settings.Settings
	Cluster  *inventory.Cluster
	// Configs are the loaded machine configs by node name; a node whose file is missing or broken has none.
	Configs map[string]*machineconfig.Config
	// Credentials come from the talosconfig; nil without one.
	Credentials *talos.Credentials
	// Leases are where earlier searches found machines, as far as that was kept.
	Leases leases.Leases
}

// Workspace is a cluster's files, each opened once, and what was read of them.
type Workspace struct {
	Contents

	// Environ is the environment, as "NAME=value", in which the user's programs are found and run.
	Environ []string
	// Files are what was opened so far.
	Files *reading.Files
	// Made says what became of making files in memory.
	Made check.Made
}

// New is a workspace of which nothing was read yet. A context that ends stops the programs that decrypt.
func New(ctx context.Context, settings *settings.Settings, environ []string) *Workspace {
	w := &Workspace{Contents: Contents{Settings: settings}, Environ: environ}
	shown := reading.New(settings.RootDir, nil).Shown
	w.Files = reading.New(settings.RootDir, func(path string, data []byte) ([]byte, error) {
		return w.Sops().Decrypt(ctx, shown(path), data)
	})

	return w
}

// Load reads the cluster's files. An error is bad input; a file that a later step may still make is none.
func (w *Workspace) Load() error {
	cluster, err := w.Inventory()
	if err != nil {
		return err
	}

	if w.Leases, err = leases.Read(w.Files, leases.Path(w.Settings.TalosDir)); err != nil {
		return BadInput(err)
	}

	w.Settings.MoveConfigDir(cluster.ConfigDir)
	return w.take(cluster)
}

// LoadAny is Load for who can do without nodes: where no file declares a cluster, it has none.
func (w *Workspace) LoadAny() error {
	err := w.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return w.take(&inventory.Cluster{ConfigDir: w.Settings.ClusterConfigDir, Files: w.Files})
	}

	return err
}

// Reload takes up what the configs step has made: machine configs say more about a cluster than its talconfig.
func (w *Workspace) Reload() error { return w.take(w.Cluster.Renewed()) }

func (w *Workspace) take(cluster *inventory.Cluster) error {
	w.Cluster = cluster
	w.Configs = make(map[string]*machineconfig.Config)
	for _, node := range cluster.Nodes {
		if config, err := cluster.MachineConfig(node); err == nil {
			w.Configs[node.Name] = config
		}
	}

	return w.loadCredentials()
}

// Inventory reads the files that declare the cluster, and no others.
func (w *Workspace) Inventory() (*inventory.Cluster, error) {
	cluster, err := inventory.Load(w.inventoryOptions())
	if err != nil {
		return nil, BadInput(err)
	}

	return cluster, nil
}

func (w *Workspace) inventoryOptions() inventory.Options {
	return inventory.Options{
		TalosDir:  w.Settings.TalosDir,
		Source:    inventory.Kind(w.Settings.ClusterSource),
		ConfigDir: w.Settings.ClusterConfigDir,
		Contract:  w.Settings.TalosContract,
		NodesFile: filepath.Join(w.Settings.RootDir, "nodes.yaml"),
		Environ:   w.Environ,
		Files:     w.Files,
	}
}

func (w *Workspace) loadCredentials() error {
	w.Credentials = nil

	file := w.Files.Open(w.Settings.Talosconfig)
	if file.Missing() || file.Unwritten && w.Made.StandIn != "" {
		return nil
	}

	credentials, err := talos.ParseCredentials(file.Data)
	if err = cmp.Or(file.Err, err); err != nil {
		return BadInput(fmt.Errorf("read talosconfig %s: %w", w.Settings.Talosconfig, err))
	}

	w.Credentials = credentials
	return nil
}

// Written are the machine configs and the talosconfig that exist.
func (w *Workspace) Written() []string {
	paths := make([]string, 0, len(w.Cluster.Nodes)+1)
	for _, node := range w.Cluster.Nodes {
		paths = append(paths, node.ConfigFile)
	}

	return slices.DeleteFunc(append(paths, w.Settings.Talosconfig), func(path string) bool { return !exists(path) })
}

// Complete reports whether every node has a machine config, and there is a talosconfig.
func (w *Workspace) Complete() bool {
	return !w.Files.Open(w.Settings.Talosconfig).Missing() &&
		!slices.ContainsFunc(w.Cluster.Nodes, func(node *inventory.Node) bool {
			return w.Files.Open(node.ConfigFile).Missing()
		})
}

// NewSecretsPath is where new secrets belong, and whether the user's rules ask for them to be encrypted.
func (w *Workspace) NewSecretsPath() (path string, encrypted bool) {
	encrypted = w.Sops().Rules() != ""
	return w.Cluster.NewSecretsPath(encrypted), encrypted
}

// TalosVersion is the one that the inventory declares, or the newest that is known here.
func (w *Workspace) TalosVersion() string {
	return cmp.Or(w.Cluster.TalosVersion, machineconfig.DefaultTalosVersion)
}

// TemporaryFolder is the environment's, like that of the programs that it is for.
func (w *Workspace) TemporaryFolder() string {
	return cmp.Or(program.Runner{Environ: w.Environ}.Variable("TMPDIR"), os.TempDir())
}

// Sops is the user's; it begins to look for rules in the talos folder.
func (w *Workspace) Sops() sops.Sops {
	return sops.Sops{Programs: w.programs(), KeyFile: w.Settings.SopsAgeKeyFile}
}

// CertificateTime is what certificates are valid from and compared with: the wall's time also in a rehearsal, whose
// clock runs faster.
func CertificateTime() time.Time { return time.Now() }

// BadInput is an error that settings and files alone decide.
func BadInput(err error) error {
	if _, ok := diagnosis.AsProblem(err); ok {
		return err
	}

	var problems []error
	for _, mistake := range inventory.FileErrors(err) {
		problems = append(problems, mistake.Finding().Problem("", mistake))
	}

	if len(problems) > 0 {
		return diagnosis.Join(problems...)
	}

	return diagnosis.NewProblem(diagnosis.BadInput, err.Error(), "").From(err)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// whyNotHere is what an error says of secrets that are not here: sops, the key that it needs, or the variables that
// hold them are missing. It is empty for another error, and for none.
func whyNotHere(err error) string {
	var problem *diagnosis.Problem
	if errors.As(err, &problem) &&
		(problem.ID == diagnosis.SecretsUndecryptable || problem.ID == diagnosis.ProgramMissing) {
		why, _, _ := strings.Cut(report.Scrub(problem.Headline()), ";") // which key, without all that was tried
		return why
	}

	mistakes := inventory.FileErrors(err)
	if len(mistakes) == 0 || slices.ContainsFunc(mistakes,
		func(mistake *inventory.FileError) bool { return mistake.ID != diagnosis.FileVariable }) {
		return ""
	}

	return mistakes[0].Path + ": " + mistakes[0].Message
}
