package inventory

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// talenvFiles are the files that talhelper takes variables from, in its order; later ones win.
var talenvFiles = []string{"talenv.yaml", "talenv.sops.yaml", "talenv.yml", "talenv.sops.yml"}

// loadVariables collects the environment and then the files, which win over it, as with talhelper. Files that sops
// encrypted and that can't be decrypted here are no mistakes, but are named when a variable is missing; why they can't
// be is the second result.
func loadVariables(options Options, mistakes *yamlfile.Mistakes) (talconfig.Variables, []*yamlfile.Error) {
	var sealed []*yamlfile.Error

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
		file := options.Files.Open(filepath.Join(options.TalosDir, name))
		source := yamlfile.Source{Shown: file.Shown, Mistakes: mistakes}

		data, err := source.Read(file)
		if err != nil {
			continue
		}

		if talconfig.ReadVariables(source, data, values) {
			continue
		}

		read, err := readEncrypted(source, file, values)
		if !read {
			variables.Unread = append(variables.Unread, source.Shown)
		}

		if err != nil && !errors.Is(err, reading.ErrNoKey) {
			variables.Failed = diagnosis.Join(variables.Failed, err)
		}

		if problem, known := diagnosis.AsProblem(err); known {
			sealed = append(sealed, &yamlfile.Error{
				ID: problem.ID, Path: source.Shown, Message: strings.TrimPrefix(problem.Cause, source.Shown+" "),
				Next: problem.Next,
			})
		}
	}

	return variables, sealed
}

// readEncrypted adds the variables of a file that sops encrypted; false if it can't be decrypted, with the reason if
// that was tried.
func readEncrypted(source yamlfile.Source, file *reading.File, values map[string]string) (bool, error) {
	plain, err := file.Decrypted()
	if err != nil {
		return false, err
	}

	return talconfig.ReadVariables(source, plain, values), nil
}

// Variables are the values that texts of the cluster's files may use, from the environment and the files of variables.
// A file that can't be read or decrypted is an error.
func Variables(options Options) (talconfig.Variables, error) {
	mistakes := &yamlfile.Mistakes{}
	variables, _ := loadVariables(options, mistakes)

	return variables, diagnosis.Join(variables.Failed, mistakes.Err())
}
