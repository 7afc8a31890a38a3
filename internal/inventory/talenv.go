package inventory

import (
	"path/filepath"
	"strings"

	"github.com/talos-mage/talos-mage/internal/talconfig"
	"github.com/talos-mage/talos-mage/internal/yamlfile"
)

// talenvFiles are the files that talhelper takes variables from, in its order; later ones win.
var talenvFiles = []string{"talenv.yaml", "talenv.sops.yaml", "talenv.yml", "talenv.sops.yml"}

// loadVariables collects the environment and then the files, which win over it, as with talhelper. Files that sops encrypted are
// not decrypted: they are named when a variable is missing.
func loadVariables(options Options, mistakes *yamlfile.Mistakes) talconfig.Variables {
	values := map[string]string{}
	variables := talconfig.Variables{Lookup: func(name string) (string, bool) {
		value, set := values[name]

		return value, set
	}}

	for _, entry := range options.Environ {
		if name, value, found := strings.Cut(entry, "="); found {
			values[name] = value
		}
	}

	for _, name := range talenvFiles {
		path := filepath.Join(options.TalosDir, name)
		source := yamlfile.Source{Shown: yamlfile.ShownPath(options.Root, path), Mistakes: mistakes}

		data, err := source.Read(path)
		if err != nil {
			continue
		}

		if !talconfig.ReadVariables(source, data, values) {
			variables.Unread = append(variables.Unread, source.Shown)
		}
	}

	return variables
}
