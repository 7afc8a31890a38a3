package workspace

import (
	"bytes"
	"errors"
	"slices"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Compare has the checks tell which machine configs are out of date, and what keeps them from being made again. A Talos
// that is newer than this program keeps nobody from using those that are there.
func (w *Workspace) Compare() {
	names, err := w.outdated()
	w.Made.Outdated, w.Made.Compared = names, err == nil

	if err != nil && !errors.Is(err, errNotCompared) {
		w.Made.WhyNot = scrubbed(err)
	}
}

// Outdated are the machine configs that would be rendered otherwise by now. It is not known where something else
// renders them, or not all are there, and without the cluster's own secrets.
func (w *Workspace) Outdated() (names []string, known bool) {
	names, err := w.outdated()

	return names, err == nil
}

// errNotCompared is of machine configs that there is nothing to compare with.
var errNotCompared = errors.New("not compared")

func (w *Workspace) outdated() ([]string, error) {
	if w.Settings.ConfigGenerator == NoGenerator || w.Settings.ConfigGenerator == Talhelper || !w.Complete() ||
		w.Cluster.SecretsPath() == "" {
		return nil, errNotCompared
	}

	rendered, standIn, err := w.Rehearse()
	if err != nil {
		return nil, err
	}

	if standIn != "" {
		return nil, errNotCompared
	}

	_, changed := w.Difference(rendered)

	return slices.DeleteFunc(Names(changed), func(name string) bool { return name == TalosconfigName }), nil
}

// Difference compares what was rendered with what is there. A talosconfig is new each time it is rendered, so an
// existing one of the same CA stays, as long as its certificate is valid; so does every config with the same meaning.
func (w *Workspace) Difference(rendered []File) (added, changed []File) {
	for _, file := range rendered {
		same := sameConfig
		if file.Name == TalosconfigName {
			same = sameAccess
		}

		switch present := w.Files.Open(w.PathOf(file)); {
		case present.Missing() || present.Unwritten:
			added = append(added, file)
		case present.Err != nil || !same(present.Data, file.Data):
			changed = append(changed, file)
		}
	}

	return added, changed
}

// sameAccess reports whether a talosconfig that is there gives what a new one would: of the same certificate authority,
// and not expired.
func sameAccess(present, rendered []byte) bool {
	first, err := talos.ParseCredentials(present)
	if err != nil {
		return false
	}

	second, err := talos.ParseCredentials(rendered)
	return err == nil && bytes.Equal(first.CA(), second.CA()) && CertificateTime().Before(first.NotAfter())
}

func sameConfig(present, rendered []byte) bool {
	first, err := machineconfig.FromBytes("", present)
	if err != nil {
		return false
	}

	second, err := machineconfig.FromBytes("", rendered)
	return err == nil && machineconfig.Same(first, second)
}

// Names are the files' names.
func Names(files []File) []string {
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, file.Name)
	}

	return names
}
