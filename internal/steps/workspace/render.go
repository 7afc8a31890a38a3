package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/sops"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
)

// Words of CONFIG_GENERATOR, besides "native".
const (
	Talhelper   = "talhelper"
	NoGenerator = "none"
)

// TalosconfigName is the rendered talosconfig's.
const TalosconfigName = "talosconfig"

// File is a rendered file for the folder of machine configs.
type File struct {
	Name string
	Data []byte
	// Throwaway is set when it was made with throwaway secrets: it is only judged.
	Throwaway bool
}

// PathOf is where a rendered file belongs.
func (w *Workspace) PathOf(file File) string {
	return filepath.Join(w.Settings.ClusterConfigDir, file.Name)
}

// Render makes the machine configs and the talosconfig from the secrets at a path. Nothing is written, but by talhelper
// into a temporary folder.
func (w *Workspace) Render(ctx context.Context, secretsPath string) ([]File, error) {
	if w.Settings.ConfigGenerator == Talhelper {
		return w.renderByTalhelper(ctx, secretsPath)
	}

	return w.render(func(variables talconfig.Variables) (*secrets.Bundle, error) {
		return w.readSecrets(secretsPath, variables)
	})
}

// Rehearse renders what is only judged: throwaway secrets stand in where the cluster's own are not here or can't be
// decrypted, for the reason that is told. What talhelper is to render is rendered here too: it means the same.
func (w *Workspace) Rehearse() (files []File, standIn string, err error) {
	if err := w.checkGenerator(); err != nil {
		return nil, "", err
	}

	files, err = w.render(func(variables talconfig.Variables) (bundle *secrets.Bundle, err error) {
		bundle, standIn, err = w.secretsOrStandIn(variables)

		return bundle, err
	})

	return files, standIn, err
}

// Anew is a workspace of the same files, opened again, in which the machine configs are as they would be rendered now:
// so a change of what is declared can be judged before a file is written. Where nothing renders them they are as they
// are.
func (w *Workspace) Anew(ctx context.Context) (*Workspace, error) {
	own := *w.Settings
	anew := New(ctx, &own, w.Environ)

	if err := anew.Load(); err != nil || own.ConfigGenerator == NoGenerator {
		return anew, err
	}

	rendered, standIn, err := anew.Rehearse()
	if err != nil {
		return nil, err
	}

	if standIn == "" { // otherwise it is of another cluster than what was rendered
		rendered = slices.DeleteFunc(rendered, func(file File) bool { return file.Name == TalosconfigName })
	}

	return anew, anew.PretendFiles(rendered, standIn)
}

// secretsOrStandIn are the cluster's own secrets or, for the reason that is told, throwaway ones.
func (w *Workspace) secretsOrStandIn(variables talconfig.Variables) (bundle *secrets.Bundle, standIn string,
	err error) {
	path, _ := w.NewSecretsPath()
	standIn = "there is no " + w.Files.Shown(path)

	if path := w.Cluster.SecretsPath(); path != "" {
		bundle, err = w.readSecrets(path, variables)
		if standIn = whyNotHere(err); standIn == "" {
			return bundle, "", err
		}
	}

	bundle, err = throwaway.Secrets()

	return bundle, standIn, err
}

// Secrets are the cluster's own secrets. Where they are not here, or can't be decrypted here, there are none, and it is
// said why.
func (w *Workspace) Secrets() (bundle *secrets.Bundle, whyNot string, err error) {
	variables, err := w.Cluster.Variables()
	if err != nil {
		return nil, "", BadInput(err)
	}

	if bundle, whyNot, err = w.secretsOrStandIn(variables); err != nil {
		return nil, "", BadInput(err)
	}

	if throwaway.Made([]byte(bundle.Cluster.ID)) {
		return nil, cmp.Or(whyNot, "they are throwaway secrets"), nil
	}

	return bundle, "", nil
}

// MissingProgram names the program that rendering needs and that is not there.
func (w *Workspace) MissingProgram(secretsPath string) (name string, missing bool) {
	if w.Settings.ConfigGenerator == Talhelper {
		_, found := w.programs().Find(Talhelper)
		return Talhelper, !found
	}

	return "sops", sops.Encrypted(w.Files.Open(secretsPath).Data) && !w.Sops().Installed()
}

// checkGenerator refuses talhelper where it can't read the inventory.
func (w *Workspace) checkGenerator() error {
	switch {
	case w.Settings.ConfigGenerator != Talhelper:
		return nil
	case w.Cluster.Profile == nil:
		return w.refuseTalhelper()
	}

	return diagnosis.NewProblem(diagnosis.BadSetting,
		"CONFIG_GENERATOR=talhelper: talhelper can't read "+filepath.Base(w.Cluster.Source),
		"leave CONFIG_GENERATOR at native")
}

// refuseTalhelper keeps talhelper from Talos 1.14 and newer: it makes a draft of their form that names the key of
// encrypted Secrets otherwise than nodes do, so that an existing cluster could not read them any more.
func (w *Workspace) refuseTalhelper() error {
	minor, err := release.Minor(w.TalosVersion())
	if err != nil || !minor.MultidocKubernetesConfigSupported() {
		return nil //nolint:nilerr // talhelper says it
	}

	return diagnosis.NewProblem(diagnosis.BadSetting,
		"CONFIG_GENERATOR=talhelper: for Talos "+minor.String()+" talhelper makes configs by which an existing cluster "+
			"can't read its Secrets", "leave CONFIG_GENERATOR at native")
}

// render makes them in memory.
func (w *Workspace) render(secretsFor func(talconfig.Variables) (*secrets.Bundle, error)) ([]File, error) {
	variables, err := w.Cluster.Variables()
	if err != nil {
		return nil, BadInput(err)
	}

	bundle, err := secretsFor(variables)
	if err != nil {
		return nil, BadInput(err)
	}

	output, err := generate.Configs(generate.Source{Cluster: w.Cluster, Secrets: bundle, Now: CertificateTime()})
	if err != nil {
		return nil, BadInput(err)
	}

	files := make([]File, 0, len(output.Configs)+1)
	marked := throwaway.Made([]byte(bundle.Cluster.ID))
	for _, config := range output.Configs {
		files = append(files, File{config.File, config.Bytes, marked})
	}

	return append(files, File{TalosconfigName, output.Talosconfig, marked}), nil
}

// Images names the installer and boot image of every node. No node, and no factory, is asked.
func (w *Workspace) Images() ([]generate.Images, error) {
	images, err := generate.NameImages(w.Cluster)
	if err != nil {
		return nil, BadInput(err)
	}

	return images, nil
}

// readSecrets reads the cluster's secrets, decrypted if they are encrypted.
func (w *Workspace) readSecrets(path string, variables talconfig.Variables) (*secrets.Bundle, error) {
	file := w.Files.Open(path)
	shown := file.Shown
	source := yamlfile.Source{Shown: shown, Mistakes: &yamlfile.Mistakes{}}

	data, err := source.Read(file)
	if err != nil {
		return nil, cmp.Or(source.Err(), err)
	}

	if sops.Encrypted(data) {
		if data, err = file.Decrypted(); err != nil {
			return nil, err //nolint:wrapcheck // it names the file
		}

		shown += " (decrypted)"
	}

	return clustersecrets.Decode(shown, data, variables, CertificateTime()) //nolint:wrapcheck // it names the file
}

// renderByTalhelper has talhelper render into a temporary folder, which only this user can read.
func (w *Workspace) renderByTalhelper(ctx context.Context, secretsPath string) ([]File, error) {
	if err := w.checkGenerator(); err != nil {
		return nil, err
	}

	folder := w.rendered()
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for rendered configs: %w", err)
	}

	defer os.RemoveAll(folder) // or a later run does it

	err := w.talhelper(ctx, "genconfig", "--no-gitignore", "--config-file", w.Cluster.Source, "--secret-file",
		secretsPath, "--out-dir", folder)
	if err != nil {
		return nil, err
	}

	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read rendered configs: %w", err)
	}

	var files []File
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == ".gitignore" {
			continue
		}

		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read rendered config: %w", err)
		}

		files = append(files, File{Name: entry.Name(), Data: data})
	}

	return files, nil
}

// rendered is the one folder that this cluster's configs are rendered into, for who holds the cluster's lock.
func (w *Workspace) rendered() string {
	sum := sha256.Sum256([]byte(w.Settings.Talosconfig))
	return filepath.Join(w.TemporaryFolder(), "talos-mage-configs-"+hex.EncodeToString(sum[:8]))
}

// RemoveRendered removes, for who holds the lock, what a run that was killed left behind of rendered configs.
func (w *Workspace) RemoveRendered() {
	_ = os.RemoveAll(w.rendered()) // whoever needs it says so
}
