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

const (
	// ofTalconfig is the repository of a cluster with a talconfig, and with what else is read beside it.
	ofTalconfig = "of a talconfig"
	ofProfile   = "of a profile"
	// secretsPath is the file whose every value is secret.
	secretsPath = "talos/talsecret.yaml"
)

// repositories are those of sound clusters, by name, each with its files by their path.
var repositories = sync.OnceValues(func() (map[string]map[string]string, error) {
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

	text, err := secrets.Encode(bundle)
	files := maps.Clone(besideTalconfig)
	files[secretsPath] = string(text)

	for _, name := range []string{
		"talconfig.yaml", "talenv.yaml", "clusterconfig/talosconfig", "clusterconfig/lab-cp1.yaml",
	} {
		data, readErr := os.ReadFile(filepath.Join(cluster.Dir, name))
		if err == nil {
			err = readErr
		}

		files["talos/"+name] = string(data)
	}

	files["talos/talconfig.yaml"] += "patches:\n  - \"@./patch.yaml\"\n  - |-\n    machine:\n      kubelet:\n" +
		"        registerWithFQDN: false\nworker:\n  extraManifests:\n    - \"@./manifest.yaml\"\n"

	return map[string]map[string]string{ofTalconfig: files, ofProfile: {
		secretsPath: string(text), "talos/cluster.yaml": soundProfile,
		"talos/clusterconfig/patches/all.yaml": besideTalconfig["talos/patch.yaml"],
	}}, err
})

// besideTalconfig are the files that people write besides.
var besideTalconfig = map[string]string{
	"talos/patch.yaml":    "machine:\n  env:\n    EXAMPLE: example\n  kubelet:\n    registerWithFQDN: false\n",
	"talos/manifest.yaml": "apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 2m0s\n",
	"nodes.yaml":          "nodes:\n  - name: cp1\n    address: 192.0.2.11\n    mac_addr: 02:00:5e:10:00:01\n",
	"kubeconfig": "apiVersion: v1\nkind: Config\ncurrent-context: lab\nclusters:\n  - name: lab\n    cluster:\n" +
		"      server: https://192.0.2.10:6443\ncontexts:\n  - name: lab\n    context:\n      cluster: lab\n" +
		"      user: lab\nusers:\n  - name: lab\n    user:\n      token: example\n",
	"kubernetes/cilium.yaml": "kind: HelmRelease\nspec:\n  chart:\n    spec:\n      chart: cilium\n  values:\n" +
		"    kubeProxyReplacement: true\n    k8sServiceHost: localhost\n    k8sServicePort: 7445\n    MTU: 1450\n",
	"infrastructure/tofu/main.tf": "resource \"proxmox_virtual_environment_vm\" \"cp1\" {\n  name = \"cp1\"\n" +
		"  bios = \"seabios\"\n  cpu {\n    type = \"qemu64\"\n  }\n}\n",
}

// plant is a secret as people paste it, and what of it must not be seen.
type plant struct{ text, hidden string }

// plants look like secrets wherever they stand.
var plants = []plant{
	{"AGE-SECRET-KEY-1PLANTEDPLANTEDPLANTEDPLANTED", "PLANTED"},
	{"abcdef.planted0planted0", "planted0"},
	{`"-----BEGIN EC PRIVATE KEY-----\nUExBTlRFRFBMQU5URUQ=\n-----END EC PRIVATE KEY-----\n"`, "UExBTlRFRF"},
	{base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\nplantedplantedplantedplanted\n")),
		base64.StdEncoding.EncodeToString([]byte("plantedplantedplanted"))[3:20]},
	plainWord,
}

// plainWord looks like no secret: only where it stands tells that it is one.
var plainWord = plant{"planted", "planted"}

// line is a key with its value, perhaps in a list, or as OpenTofu has it.
var line = regexp.MustCompile(`^(\s*(?:- )?)([\w.-]+)(:| =)(.*)$`)

// ways are how a secret gets into a line.
var ways = []func(old, secret string) string{
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}${3} "+secret) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}z${3} "+secret) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}token${3} "+secret+"\n"+old) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}${3} ["+secret) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}${3} ["+secret+"]") },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}${3} {"+secret+": x}") },
	func(_, secret string) string { return secret },
	func(old, secret string) string { return old + " " + secret },
	func(old, secret string) string { return old + " # " + secret },
}

// misspelt are how it gets under a key that is one of secrets but for a letter.
var misspelt = []func(old, secret string) string{
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}pasword: "+secret+"\n"+old) },
	func(old, secret string) string { return line.ReplaceAllString(old, "${1}${2}: {pasword: "+secret+"}") },
}

// waysInto are those that make a secret of a word in a file; none in one whose keys are not ours to know.
func waysInto(path string, secret plant) []func(old, secret string) string {
	switch {
	case secret != plainWord, path == secretsPath:
		return ways
	case strings.HasPrefix(path, "talos/") && filepath.Ext(path) == ".yaml" && filepath.Base(path) != "talenv.yaml":
		return misspelt
	default:
		return nil
	}
}

// place is a file of a repository.
type place struct{ repository, path string }

func places(repositories map[string]map[string]string) []place {
	var all []place

	for _, repository := range slices.Sorted(maps.Keys(repositories)) {
		for _, path := range slices.Sorted(maps.Keys(repositories[repository])) {
			all = append(all, place{repository, path})
		}
	}

	return all
}

// Whatever is wrong with an input, and wherever a secret stands in it: nothing that is said has it in it.
func FuzzNoOutputHasAPlantedSecret(f *testing.F) {
	repositories, err := repositories()
	require.NoError(f, err)

	places := places(repositories)
	plain := uint8(slices.Index(plants, plainWord)) //nolint:gosec // they are few

	for i := range uint8(len(places) + 1) { //nolint:gosec // they are few
		f.Add(i, 7*uint16(i), i, i%plain)
	}

	// A plain word under a misspelt key, and a token for a key, were seen once.
	patch, declared := place{ofTalconfig, "talos/patch.yaml"}, place{ofProfile, "talos/cluster.yaml"}
	f.Add(uint8(slices.Index(places, patch)), uint16(3), uint8(0), plain)       //nolint:gosec // they are few
	f.Add(uint8(slices.Index(places, declared)), uint16(1), uint8(5), uint8(1)) //nolint:gosec // they are few

	f.Fuzz(func(t *testing.T, input uint8, row uint16, way, kind uint8) {
		secret, at := plants[int(kind)%len(plants)], int(input)%(len(places)+1)

		if at == len(places) {
			knobs := settings.Table()
			environ := []string{knobs[int(row)%len(knobs)].Name + "=" + secret.text}

			if secret != plainWord {
				assertHidden(t, secret, repositories[ofTalconfig], environ)
			}

			return
		}

		given := maps.Clone(repositories[places[at].repository])
		path := places[at].path

		if into := waysInto(path, secret); into != nil {
			lines := strings.Split(given[path], "\n")
			row := int(row) % len(lines)
			lines[row] = into[int(way)%len(into)](lines[row], secret.text)
			given[path] = strings.Join(lines, "\n")

			assertHidden(t, secret, given, nil)
		}
	})
}

func assertHidden(t *testing.T, secret plant, files map[string]string, environ []string) {
	t.Helper()

	fuzztest.Bounded(t, func() {
		require.NotContains(t, said(t, files, environ), secret.hidden)
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
		call.Audit(t.Context(), settings.Overrides{"format": "json", "profile": "interop"}),
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

	if failure := call.Status(t.Context(), nil); failure != nil {
		fmt.Fprintln(&output, failure.Message)
	}

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
