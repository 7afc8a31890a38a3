package files_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// FuzzFiles judges any texts as the machine config of two nodes, the talosconfig and the secrets file.
func FuzzFiles(f *testing.F) {
	const talosconfig, secrets = "context: lab\ncontexts: {lab: {ca: Zm9v}}\n", "certs: {os: {crt: Zm9v}}\n"

	f.Add([]byte(config{}.text()), []byte(talosconfig), []byte(secrets))

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		f.Add(data, []byte(talosconfig), []byte(secrets))
	}

	f.Fuzz(func(t *testing.T, machine, talosconfig, secrets []byte) {
		made := lab(config{}, config{role: "worker"})
		made["clusterconfig/lab-n1.yaml"], made["clusterconfig/lab-n2.yaml"] = string(machine), string(machine)
		made["clusterconfig/talosconfig"], made["talsecret.yaml"] = string(talosconfig), string(secrets)

		requireSound(t, made.write(t))
	})
}

// FuzzTalconfigChecks judges any text as a talconfig.yaml.
func FuzzTalconfigChecks(f *testing.F) {
	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, talconfig []byte) {
		requireSound(t, lab(config{}).with("talconfig.yaml", string(talconfig)).write(t))
	})
}

// requireSound holds for whatever was read: every finding can be shown.
func requireSound(t *testing.T, folder string) {
	t.Helper()

	fuzztest.Bounded(t, func() {
		in := check.Read(check.Options{
			TalosDir: folder, ConfigDir: filepath.Join(folder, "clusterconfig"), Root: folder,
			Checks: check.Settings{Now: time.Now()},
		})

		for _, finding := range table.Run(t.Context(), in).Findings {
			require.NotEmpty(t, finding.ID)
			require.NotEmpty(t, finding.Cause)
		}
	})
}
