package steps

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/cluster/sops"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Words of CONFIG_GENERATOR, besides "native".
const (
	talhelperGenerator = "talhelper"
	noGenerator        = "none"
)

const talosconfigName = "talosconfig"

// renderedFile is a file for the folder of machine configs.
type renderedFile struct {
	name string
	data []byte
	// throwaway is set when it was made with throwaway secrets: it is only judged.
	throwaway bool
}

func namesOf(files []renderedFile) []string {
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, file.name)
	}

	return names
}

// render makes the machine configs and the talosconfig from the secrets at a path. Nothing but a temporary folder is
// written to.
func (r *Run) render(ctx context.Context, step, secretsPath string) ([]renderedFile, error) {
	if r.Settings.ConfigGenerator == talhelperGenerator {
		return r.renderByTalhelper(ctx, step, secretsPath)
	}

	return r.renderNatively(ctx, step, func(variables talconfig.Variables) (*secrets.Bundle, error) {
		return r.readSecrets(secretsPath, variables)
	})
}

// rehearse renders what is only judged: throwaway secrets stand in where the cluster's own are not here or can't be
// decrypted, for the reason that is told.
func (r *Run) rehearse(ctx context.Context, step string) (files []renderedFile, standIn string, err error) {
	files, err = r.renderNatively(ctx, step, func(variables talconfig.Variables) (*secrets.Bundle, error) {
		path := r.secretsPath()
		standIn = "there is no " + r.files.Shown(r.Cluster.NewSecretsPath(r.sops().Rules() != ""))

		if path != "" {
			bundle, err := r.readSecrets(path, variables)

			problem, _ := diagnosis.AsProblem(err)
			if problem == nil || problem.ID != diagnosis.SecretsUndecryptable && problem.ID != diagnosis.ProgramMissing {
				standIn = ""
				return bundle, err
			}

			standIn, _, _ = strings.Cut(report.Scrub(problem.Headline()), ";") // which key, without all that was tried
		}

		return throwaway.Secrets()
	})
	return files, standIn, err
}

// missingProgram names the program that rendering would be in need of and that is not there.
func (r *Run) missingProgram(secretsPath string) (name string, missing bool) {
	if r.Settings.ConfigGenerator == talhelperGenerator {
		_, found := r.programs().Find(talhelperGenerator)
		return talhelperGenerator, !found
	}

	return "sops", sops.Encrypted(r.files.Open(secretsPath).Data) && !r.sops().Installed()
}

// certificateTime is what certificates are valid from and compared with: the wall's time also in a rehearsal, whose
// clock runs faster.
func certificateTime() time.Time { return time.Now() }

// renderNatively makes them in memory.
func (r *Run) renderNatively(ctx context.Context, step string,
	secretsFor func(talconfig.Variables) (*secrets.Bundle, error)) ([]renderedFile, error) {
	variables, err := r.Cluster.Variables()
	if err != nil {
		return nil, r.fromSops(ctx, step, badInput(err))
	}

	bundle, err := secretsFor(variables)
	if err != nil {
		return nil, r.fromSops(ctx, step, badInput(err))
	}

	output, err := generate.Configs(generate.Source{Cluster: r.Cluster, Secrets: bundle, Now: certificateTime()})
	if err != nil {
		return nil, r.fromSops(ctx, step, badInput(err))
	}

	files := make([]renderedFile, 0, len(output.Configs)+1)
	marked := throwaway.Made([]byte(bundle.Cluster.ID))
	for _, config := range output.Configs {
		files = append(files, renderedFile{config.File, config.Bytes, marked})
	}

	return append(files, renderedFile{talosconfigName, output.Talosconfig, marked}), nil
}

// Images names the installer and boot image of every node. No node, and no factory, is asked.
func Images(run *Run) ([]generate.Images, error) {
	images, err := generate.NameImages(run.Cluster)
	if err != nil {
		return nil, badInput(err)
	}

	return images, nil
}

// readSecrets reads the cluster's secrets, decrypted if they are encrypted.
func (r *Run) readSecrets(path string, variables talconfig.Variables) (*secrets.Bundle, error) {
	file := r.files.Open(path)
	shown := file.Shown
	source := yamlfile.Source{Shown: shown, Mistakes: &yamlfile.Mistakes{}}

	data, err := source.Read(file)
	if err != nil {
		return nil, cmp.Or(source.Err(), err)
	}

	if sops.Encrypted(data) {
		if data, err = file.Decrypted(); err != nil {
			return nil, err
		}

		shown += " (decrypted)"
	}

	return clustersecrets.Decode(shown, data, variables, certificateTime())
}

// renderedFolder is the one folder that this cluster's configs are rendered into, for who holds the cluster's lock.
func (r *Run) renderedFolder() string {
	sum := sha256.Sum256([]byte(r.Settings.Talosconfig))
	return filepath.Join(r.temporaryFolder(), "talos-mage-configs-"+hex.EncodeToString(sum[:8]))
}

// renderByTalhelper has talhelper render into a temporary folder, which only this user can read.
func (r *Run) renderByTalhelper(ctx context.Context, step, secretsPath string) ([]renderedFile, error) {
	if r.Cluster.Profile != nil {
		return nil, &diagnosis.Problem{Step: step, Finding: diagnosis.Finding{
			ID: diagnosis.BadSetting, Severity: diagnosis.Failure,
			Cause: "CONFIG_GENERATOR=talhelper: talhelper reads no " + filepath.Base(r.Cluster.Source),
			Next:  "leave CONFIG_GENERATOR at native",
		}}
	}

	// A dry run needs the lock too: the folder is one.
	if err := r.acquireLock(ctx); err != nil {
		return nil, err
	}

	folder := r.renderedFolder()
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for rendered configs: %w", err)
	}

	defer os.RemoveAll(folder) // or the next run does it

	_, err := r.talhelper(ctx, step, "genconfig", "--no-gitignore", "--config-file", r.Cluster.Source, "--secret-file",
		secretsPath, "--out-dir", folder)
	if err != nil {
		return nil, err
	}

	return readFiles(folder)
}

func readFiles(folder string) ([]renderedFile, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read rendered configs: %w", err)
	}

	var files []renderedFile
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == ".gitignore" {
			continue
		}

		data, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read rendered config: %w", err)
		}

		files = append(files, renderedFile{name: entry.Name(), data: data})
	}

	return files, nil
}
