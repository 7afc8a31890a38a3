package invocation_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

// soundFiles are those of a cluster, by their path from the repository's root.
var soundFiles = sync.OnceValues(func() (map[string]string, error) {
	folder, err := os.MkdirTemp("", "planted")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)

	bundle, err := clusterfiles.NewSecrets()
	if err != nil {
		return nil, err
	}

	cluster, err := labcluster.New(filepath.Join(folder, "talos"), labcluster.Options{
		Off: true, ControlPlanes: 1, Workers: 1, Secrets: bundle,
	})
	if err != nil {
		return nil, err
	}
	defer cluster.Close()

	files := map[string]string{"talos/patch.yaml": "machine:\n  env:\n    EXAMPLE: example\n  kubelet:\n    extraArgs:\n" +
		"      feature-gates: Example=true\n"}

	text, err := secrets.Encode(bundle)
	files["talos/talsecret.yaml"] = string(text)

	for _, name := range []string{
		"talconfig.yaml", "talenv.yaml", "clusterconfig/talosconfig", "clusterconfig/lab-cp1.yaml",
	} {
		data, readErr := os.ReadFile(filepath.Join(cluster.Dir, name))
		if err == nil {
			err = readErr
		}

		files["talos/"+name] = string(data)
	}

	files["talos/talconfig.yaml"] += "patches:\n  - \"@./patch.yaml\"\n"

	return files, err
})

// plant is a secret as people paste it, and what of it must not be seen.
type plant struct{ text, hidden string }

// plants look like secrets wherever they stand. The last one does not: it is for files whose every value is secret.
var plants = []plant{
	{"AGE-SECRET-KEY-1PLANTEDPLANTEDPLANTEDPLANTED", "PLANTED"},
	{"abcdef.planted0planted0", "planted0"},
	{`"-----BEGIN EC PRIVATE KEY-----\nUExBTlRFRFBMQU5URUQ=\n-----END EC PRIVATE KEY-----\n"`, "UExBTlRFRF"},
	{base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\nplantedplantedplantedplanted\n")),
		base64.StdEncoding.EncodeToString([]byte("plantedplantedplanted"))[3:20]},
	{"planted", "planted"},
}

// line is a key with its value, perhaps in a list.
var line = regexp.MustCompile(`^(\s*(?:- )?)([\w.-]+):(.*)$`)

// ways are how a secret gets into a line.
var ways = []func(old, secret string) string{
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}: "+secret) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}z: "+secret) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}token: "+secret+"\n"+old) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}: ["+secret) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}: ["+secret+"]") },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}: {"+secret+": x}") },
	func(_, secret string) string { return secret },
	func(old, secret string) string { return old + " " + secret },
	func(old, secret string) string { return old + " # " + secret },
}

// Whatever is wrong with an input, and wherever a secret stands in it: nothing that is said has it in it.
func FuzzNoOutputHasAPlantedSecret(f *testing.F) {
	files, err := soundFiles()
	require.NoError(f, err)

	paths := slices.Sorted(maps.Keys(files))

	for way := range uint8(len(ways)) { //nolint:gosec // they are few
		f.Add(way, uint16(7*way), way, way)
		f.Add(way+3, uint16(5*way), way, way+1)
	}

	f.Fuzz(func(t *testing.T, input uint8, place uint16, way, kind uint8) {
		secret := plants[int(kind)%len(plants)]
		given := maps.Clone(files)
		var environ []string

		if at := int(input) % (len(paths) + 1); at < len(paths) {
			path := paths[at]
			if secret == plants[len(plants)-1] {
				path = "talos/talsecret.yaml"
			}

			lines := strings.Split(given[path], "\n")
			row := int(place) % len(lines)
			lines[row] = ways[int(way)%len(ways)](lines[row], secret.text)
			given[path] = strings.Join(lines, "\n")
		} else if knobs := settings.Table(); secret != plants[len(plants)-1] {
			environ = append(environ, knobs[int(place)%len(knobs)].Name+"="+secret.text)
		}

		fuzztest.Bounded(t, func() {
			require.NotContains(t, said(t, given, environ), secret.hidden)
		})
	})
}

// said is all that the program says of the files, in every form.
func said(t *testing.T, files map[string]string, environ []string) string {
	t.Helper()

	root := t.TempDir()

	for path, text := range files {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	var output bytes.Buffer

	call := invocation.Invocation{Workdir: root, Out: &output, Err: &output, Environ: append([]string{"ROOT_DIR=" + root,
		"TMPDIR=" + root, "REPORT_FILE=" + filepath.Join(root, "report.jsonl")}, environ...)}

	for _, failure := range []*invocation.Failure{
		call.Audit(t.Context(), settings.Overrides{"format": "table"}),
		call.Audit(t.Context(), settings.Overrides{"format": "json"}),
		call.Audit(t.Context(), settings.Overrides{"format": "sarif"}),
		call.Execute(t.Context(), "config:generate", settings.Overrides{"dryRun": "true"},
			func(*settings.Settings) []steps.Step {
				return []steps.Step{steps.Secrets{ByName: true}, steps.Configs{Replace: true}}
			}),
	} {
		if failure != nil {
			fmt.Fprintln(&output, failure.Message)
		}
	}

	// No node answers there, so it need not be waited for.
	call.Environ = append(call.Environ, "DIAL_TIMEOUT=100ms", "NODE_REACHABILITY_RETRIES=1")

	for _, format := range []string{"table", "json"} {
		failure := call.Diagnose(t.Context(), settings.Overrides{"format": format, "bundle": "true",
			"file": filepath.Join(root, "bundle-"+format)})
		if failure != nil {
			fmt.Fprintln(&output, failure.Message)
		}

		output.WriteString(unpacked(t, filepath.Join(root, "bundle-"+format)))
	}

	report, _ := os.ReadFile(filepath.Join(root, "report.jsonl")) //nolint:errcheck // there may be none

	return output.String() + string(report) + recordsBelow(t, filepath.Join(root, "talos", ".talos-mage", "runs"))
}

// recordsBelow is all that was recorded of runs.
func recordsBelow(t *testing.T, folder string) string {
	t.Helper()

	var all strings.Builder

	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		data, err := os.ReadFile(path)
		all.Write(data)

		return err
	})
	require.True(t, err == nil || errors.Is(err, fs.ErrNotExist), err)

	return all.String()
}

// unpacked is all that an archive holds; nothing where none was written.
func unpacked(t *testing.T, path string) string {
	t.Helper()

	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}

	require.NoError(t, err)
	defer file.Close()

	zipped, err := gzip.NewReader(file)
	require.NoError(t, err)

	all, err := io.ReadAll(zipped)
	require.NoError(t, err)

	return string(all)
}
