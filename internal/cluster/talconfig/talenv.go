package talconfig

import (
	"errors"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// talenvFiles are the files that talhelper takes variables from, in its order; later ones win.
var talenvFiles = []string{"talenv.yaml", "talenv.sops.yaml", "talenv.yml", "talenv.sops.yml"}

// ReadVariables collects the environment and then a folder's files of variables, which win over it, as with talhelper.
// A file that sops encrypted and that can't be decrypted is no mistake as long as no variable is missing.
func ReadVariables(files *reading.Files, folder string, environ []string, mistakes *yamlfile.Mistakes) Variables {
	values := map[string]string{}
	variables := Variables{
		declared: map[string]Declaration{}, locked: map[string]Declaration{},
		Lookup: func(name string) (string, bool) {
			value, set := values[name]

			return value, set
		},
	}

	for _, entry := range environ {
		if name, value, found := strings.Cut(entry, "="); found {
			values[name] = value
		}
	}

	for _, name := range talenvFiles {
		file := files.Open(filepath.Join(folder, name))
		source := yamlfile.Source{Shown: file.Shown, Mistakes: mistakes}

		data, err := source.Read(file)
		if err != nil || variables.read(source, data, values) {
			continue
		}

		if data, err = file.Decrypted(); err == nil && variables.read(source, data, values) {
			continue
		}

		variables.Unread = append(variables.Unread, source.Shown)

		if err != nil && !errors.Is(err, reading.ErrNoKey) {
			variables.Failed = diagnosis.Join(variables.Failed, err)
		}

		if problem, known := diagnosis.AsProblem(err); known {
			variables.sealed = append(variables.sealed, &yamlfile.Error{ID: problem.ID, Path: source.Shown,
				Message: strings.TrimPrefix(problem.Cause, source.Shown+" "), Next: problem.Next})
		}
	}

	return variables
}

// read adds the variables of a file; false if sops encrypted it.
func (v Variables) read(source yamlfile.Source, data []byte, values map[string]string) bool {
	root := source.Parse(data)

	switch {
	case root == nil:
		return true
	case root.Kind != yaml.MappingNode:
		source.At(root, diagnosis.FileType, "must hold lines like NAME: value")

		return true
	case yamlfile.Field(root, "sops") != nil:
		v.lock(source, root)

		return false
	}

	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]

		if value.Kind != yaml.ScalarNode {
			source.At(key, diagnosis.FileType, "%q must be a single value, not a %s", key.Value, yamlfile.KindName(value))

			continue
		}

		values[key.Value] = value.Value
		v.declared[key.Value] = Declaration{source, value}
		delete(v.locked, key.Value)

		if value.Tag == "!!null" {
			values[key.Value] = ""
		}
	}

	return true
}

// lock notes the variables of an encrypted file: sops leaves their names readable.
func (v Variables) lock(source yamlfile.Source, root *yaml.Node) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		v.locked[root.Content[i].Value] = Declaration{source, root.Content[i+1]}
	}
}
