package files_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// ourSecrets are those of every test's cluster.
var ourSecrets = sync.OnceValues(clusterfiles.NewSecrets)

// files are a cluster's files by their path in TALOS_DIR.
type files map[string]string

// read writes the files and has them read.
func (f files) read(t testing.TB) *check.Input {
	t.Helper()

	folder := f.write(t)

	return check.Read(check.Options{TalosDir: folder, Root: folder, Checks: check.Settings{Now: time.Now()}})
}

// write writes the files into a new folder.
func (f files) write(t testing.TB) string {
	t.Helper()

	folder := t.TempDir()

	for name, text := range f {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	return folder
}

// mainDocument is the least of a machine config; each fragment says what goes below machine and cluster.
func mainDocument(role, machine, cluster string) string {
	text := "version: v1alpha1\nmachine:\n  type: " + role + "\n" + indent(machine)

	return text + "cluster:\n  controlPlane:\n    endpoint: https://192.0.2.10:6443\n" + indent(cluster)
}

// indent moves a fragment below a key, and makes two spaces of tabs so that fragments can be written in Go.
func indent(fragment string) string {
	fragment = strings.ReplaceAll(strings.Trim(fragment, "\n"), "\t", "  ")
	if fragment == "" {
		return ""
	}

	return "  " + strings.ReplaceAll(fragment, "\n", "\n  ") + "\n"
}

// config is a machine config of one node: its main document, and documents besides.
type config struct {
	role, machine, cluster string
	documents              []string
}

func (c config) text() string {
	if c.role == "" {
		c.role = "controlplane"
	}

	parts := []string{mainDocument(c.role, c.machine, c.cluster)}
	for _, document := range c.documents {
		parts = append(parts, "apiVersion: v1alpha1\n"+strings.ReplaceAll(strings.Trim(document, "\n"), "\t", "  ")+"\n")
	}

	return strings.Join(parts, "---\n")
}

// lab are the files of a cluster "lab" with these machine configs, by node name; addresses are 192.0.2.11 and on.
func lab(configs ...config) files {
	var talconfig strings.Builder

	talconfig.WriteString("clusterName: lab\nendpoint: https://192.0.2.10:6443\ntalosVersion: " +
		"v1.13.9\nkubernetesVersion: v1.36.0\nnodes:\n")

	made := files{}

	for i, config := range configs {
		name := fmt.Sprintf("n%d", i+1)
		fmt.Fprintf(&talconfig, "  - hostname: %s\n    ipAddress: 192.0.2.%d\n    controlPlane: %t\n    installDisk: "+
			"/dev/vda\n", name, 11+i, config.role != "worker")
		made["clusterconfig/lab-"+name+".yaml"] = config.text()
	}

	made["talconfig.yaml"] = talconfig.String()

	return made
}

// trial is a set of files that is judged by one check.
type trial struct {
	files files
	// line is the offending line of the finding, and cause is part of its cause; both empty when nothing is to be found.
	line, cause string
	// at is the file of the finding, when it is not a machine config.
	at string
	// severity is another than the catalogue's.
	severity diagnosis.Severity
}

// judge runs the trials of a check; a clean one has no cause.
func judge(t *testing.T, id diagnosis.ID, trials map[string]trial) {
	t.Helper()
	judgeRead(t, id, trials, files.read)
}

// judgeRead is judge for files that are read in another way.
func judgeRead(t *testing.T, id diagnosis.ID, trials map[string]trial, read func(files, testing.TB) *check.Input) {
	t.Helper()

	triggered, clean := false, false

	for _, trial := range trials {
		triggered, clean = triggered || trial.cause != "", clean || trial.cause == ""
	}

	require.True(t, triggered, "%s: a trial has to trigger it", id)
	require.True(t, clean, "%s: a trial has to stay clean", id)
	tried.add(id)

	for name, trial := range trials {
		t.Run(string(id)+" "+name, func(t *testing.T) {
			t.Parallel()

			found := findingsOf(table.Run(context.Background(), read(trial.files, t)), id)

			if trial.cause == "" {
				require.Empty(t, found, "nothing was to be found")

				return
			}

			require.NotEmpty(t, found, "nothing was found")
			require.Contains(t, found[0].Cause, trial.cause)
			require.NotEmpty(t, found[0].Next)

			if trial.line != "" {
				require.Equal(t, trial.line, strings.TrimSpace(found[0].At.Text), "at %s", found[0].At)
				require.NotZero(t, found[0].At.Line)
			}

			if trial.at != "" {
				require.Equal(t, trial.at, found[0].At.Path)
			}

			if trial.severity != diagnosis.OK {
				require.Equal(t, trial.severity, found[0].Severity)
			}
		})
	}
}

// findingsOf are a check's findings and suggestions, without what it says of files that are right.
func findingsOf(result check.Result, id diagnosis.ID) []diagnosis.Finding {
	var found []diagnosis.Finding

	for _, finding := range result.Findings {
		if finding.ID == id && (finding.Severity != diagnosis.OK || finding.Next != "") {
			found = append(found, finding)
		}
	}

	return found
}

// tried are the checks that tests judged, so that none is left out.
var tried triedChecks

type triedChecks struct {
	mu  sync.Mutex
	ids map[diagnosis.ID]bool
}

func (c *triedChecks) add(id diagnosis.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.ids == nil {
		c.ids = map[diagnosis.ID]bool{}
	}

	c.ids[id] = true
}

// ourTalosconfig is made once, with the endpoints to be filled in.
var ourTalosconfig = sync.OnceValues(func() (string, error) {
	bundle, err := ourSecrets()
	if err != nil {
		return "", err
	}

	made, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName: "lab", Endpoint: "https://192.0.2.10:6443", Secrets: bundle,
		Nodes: []clusterfiles.Node{{Name: "n1", Role: machine.TypeControlPlane,
			Address: netip.MustParsePrefix("192.0.2.11/24")}},
	})
	if err != nil {
		return "", err
	}

	return string(made.Talosconfig), nil
})

// talosconfig adds a talosconfig with these endpoints.
func (f files) talosconfig(t testing.TB, endpoints ...string) files {
	t.Helper()

	text, err := ourTalosconfig()
	require.NoError(t, err)

	list := "endpoints:\n            - '" + strings.Join(endpoints, "'\n            - '") + "'\n"

	f["clusterconfig/talosconfig"] = regexp.MustCompile(`endpoints:\n(\s+- \S+\n)+`).ReplaceAllString(text, list)
	require.Contains(t, f["clusterconfig/talosconfig"], endpoints[0])

	return f
}

// with adds a file, or replaces it.
func (f files) with(name, text string) files {
	f[name] = text

	return f
}

// replaced changes a text in a file.
func (f files) replaced(name, old, replacement string) files {
	f[name] = strings.ReplaceAll(f[name], old, replacement)

	return f
}

// onLink is a machine config with one interface, eth0, in the old style; fields are its other fields, one a line.
func onLink(fields ...string) config {
	return config{machine: "network:\n\tinterfaces:\n\t\t- interface: eth0\n\t\t\t" + strings.Join(fields, "\n\t\t\t")}
}

// asDocument is a machine config with a LinkConfig document for eth0; fields are its other fields, one a line.
func asDocument(fields ...string) config {
	return config{documents: []string{"kind: LinkConfig\nname: eth0\n" + strings.Join(fields, "\n")}}
}

func readText(t testing.TB, folder string) []byte {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(folder, "talconfig.yaml"))
	require.NoError(t, err)

	return data
}

func writeText(t testing.TB, folder, text string) {
	t.Helper()

	require.NoError(t, os.WriteFile(filepath.Join(folder, "talconfig.yaml"), []byte(text), 0o600))
}

// without takes a file out.
func (f files) without(name string) files {
	delete(f, name)

	return f
}
