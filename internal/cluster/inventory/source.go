package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Kind is a form that a cluster can be declared in.
type Kind string

// Kinds of sources, by what CLUSTER_SOURCE calls them.
const (
	// Auto, as the empty text, takes what is there: a talconfig.yaml, else a cluster.yaml.
	Auto Kind = "auto"
	// Talconfig is talhelper's talconfig.yaml.
	Talconfig Kind = "talconfig"
	// Profile is a cluster profile, cluster.yaml.
	Profile Kind = "profile"
)

// topfName is the input of topf, a program whose files are not read here.
const topfName = "topf.yaml"

// kind is the chosen source, or the one that is there. A folder with none of them is taken for one whose talconfig.yaml
// is missing, and one with a topf.yaml alone is a mistake of its own.
func (o Options) kind() (Kind, error) {
	if o.Source != "" && o.Source != Auto {
		return o.Source, nil
	}

	switch {
	case exists(filepath.Join(o.TalosDir, TalconfigName)):
		return Talconfig, nil
	case exists(filepath.Join(o.TalosDir, profile.FileName)):
		return Profile, nil
	case exists(filepath.Join(o.TalosDir, topfName)):
		return "", o.refuseTopf()
	default:
		return Talconfig, nil
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return !errors.Is(err, fs.ErrNotExist)
}

func (o Options) refuseTopf() error {
	source := yamlfile.Source{Shown: o.Files.Shown(filepath.Join(o.TalosDir, topfName)),
		Mistakes: &yamlfile.Mistakes{}}

	mistake := source.Mistake(nil, diagnosis.FileMissing,
		"is an input of topf, which is not read here, and there is neither a %s nor a %s", TalconfigName, profile.FileName)
	mistake.Next = "declare the nodes in a " + profile.FileName +
		" (docs/profile.md); or keep topf: list the nodes in a " + TalconfigName +
		", have topf render the machine configs, put them where its entries expect them, and set CONFIG_GENERATOR=none"
	source.Add(mistake)

	return source.Err()
}
