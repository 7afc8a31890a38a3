package workspace

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
)

// Apps are the files that a cluster's first applications are installed from, as the cluster template lays them out.
type Apps struct {
	// Script is the repository's own way, which goes before everything here; empty if it has none.
	Script string
	// Folder has a folder for each namespace.
	Folder string
	// CRDs and Releases are helmfiles.
	CRDs, Releases string
	// Secrets are objects that sops may have encrypted.
	Secrets []*reading.File
}

// secretPatterns are where a repository has such secrets, below its root.
var secretPatterns = []string{"bootstrap/*.sops.yaml", "kubernetes/components/sops/*.sops.yaml",
	"kubernetes/components/*/sops/*.sops.yaml"}

// Apps finds them below the repository's root.
func (w *Workspace) Apps() Apps {
	below := func(path string) string { return filepath.Join(w.Settings.RootDir, filepath.FromSlash(path)) }
	apps := Apps{Folder: below("kubernetes/apps"), CRDs: below("bootstrap/helmfile.d/00-crds.yaml"),
		Releases: below("bootstrap/helmfile.d/01-apps.yaml")}

	if script := below("scripts/bootstrap-apps.sh"); exists(script) {
		apps.Script = script
	}

	for _, pattern := range secretPatterns {
		paths, _ := filepath.Glob(below(pattern)) //nolint:errcheck // the patterns are good
		for _, path := range paths {
			apps.Secrets = append(apps.Secrets, w.Files.Open(path))
		}
	}

	return apps
}

// Namespaces are the names of the folder's folders.
func (a Apps) Namespaces() ([]string, error) {
	entries, err := os.ReadDir(a.Folder)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the folder
	}

	var names []string

	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}

	return names, nil
}

// AppPrograms run in the repository's root, which they are told in ROOT_DIR as well.
func (w *Workspace) AppPrograms() program.Runner {
	programs := w.programs()
	programs.Dir = w.Settings.RootDir
	programs.Environ = append(slices.Clone(programs.Environ), "ROOT_DIR="+w.Settings.RootDir)

	return programs
}

// Complaint is what a program complained of, without secrets.
func Complaint(failure *program.Failure) string { return complaintOf(failure) }
