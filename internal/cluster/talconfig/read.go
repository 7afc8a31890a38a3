package talconfig

import (
	"path/filepath"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// FileName is the talconfig's name in TALOS_DIR.
const FileName = "talconfig.yaml"

// Reading is a talconfig.yaml that was read. Its mistakes make it useless; those that are refused matter to who makes
// machine configs of it alone: values that a type of Talos refuses, and variables in texts that belong to others.
type Reading struct {
	yamlfile.Source
	// Config is nil when there is nothing to go on with.
	*Config

	// Root is the tree, with the variables replaced.
	Root      *yaml.Node
	Variables Variables
}

// Read reads the talconfig.yaml of a folder with the variables of its talenv.yaml and of the environment.
func Read(files *reading.Files, folder string, environ []string) *Reading {
	file := files.Open(filepath.Join(folder, FileName))
	read := &Reading{Source: yamlfile.Source{
		Shown: file.Shown, Mistakes: &yamlfile.Mistakes{}, Refused: &yamlfile.Mistakes{},
	}}

	read.Root = read.Needed(file, "inventory", "set TALOS_DIR to the folder of your "+FileName+
		" or cluster.yaml, or write one", "declare clusterName, endpoint and nodes in it")

	if !file.Missing() {
		read.Variables = ReadVariables(files, folder, environ, read.Mistakes)
	}

	if read.Root != nil {
		read.decode()
	}

	return read
}

func (r *Reading) decode() {
	straighten(r.Root)
	r.Variables.Substitute(r.Source, r.Root)

	isVariable := func(mistake *yamlfile.Error) bool { return mistake.ID == diagnosis.FileVariable }
	if slices.ContainsFunc(r.List, isVariable) {
		// Those of texts that belong to others are missing too.
		for _, mistake := range r.Refused.List {
			if isVariable(mistake) {
				r.Add(mistake)
			}
		}

		r.addSealed()
	}

	r.Check("the file", r.Root, reflect.TypeFor[Config]())
	adviseOnKeys(r.List)

	if r.Root.Kind != yaml.MappingNode {
		return
	}

	into := r.Refusal()
	if len(r.List)+len(r.Refused.List) > 0 {
		into.Mistakes = &yamlfile.Mistakes{} // it would say the same in other words
	}

	r.Config = &Config{}
	into.Decode(r.Root, r.Config)
}

// RefuseLocked adds the mistake of a variable that could not be decrypted, and why.
func (r *Reading) RefuseLocked(name string, locked Declaration, next string) {
	mistake := locked.Mistake(locked.Value, diagnosis.FileVariable, "variable %s is encrypted and was not read", name)
	mistake.Next = next
	r.Add(mistake)
	r.addSealed()
}

// addSealed adds why files of variables could not be decrypted.
func (r *Reading) addSealed() {
	for _, mistake := range r.Variables.sealed {
		if !slices.Contains(r.List, mistake) {
			r.Add(mistake)
		}
	}
}
