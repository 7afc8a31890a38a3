package invocation_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// audited runs an audit over a repository with this talconfig.
func audited(t *testing.T, talconfig string, flags map[string]string) (string, *invocation.Failure) {
	t.Helper()

	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "talos"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "talos", "talconfig.yaml"), []byte(talconfig), 0o600))

	var out, errs bytes.Buffer

	failure := invocation.Invocation{Environ: []string{"ROOT_DIR=" + root}, Workdir: root, Out: &out,
		Err: &errs}.Audit(context.Background(), flags)

	return out.String(), failure
}

// A job of GitHub Actions shows what an audit finds beside the line that it is about; documents stay as they are.
func TestAnAuditAnnotatesFilesInAWorkflow(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "talos"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "talos", "talconfig.yaml"),
		[]byte("clusterName: lab\nnodes: [\n"), 0o600))

	for format, want := range map[string]bool{"table": true, "json": false, "sarif": false} {
		var out bytes.Buffer

		call := invocation.Invocation{Workdir: root, Out: &out, Err: &out,
			Environ: []string{"ROOT_DIR=" + root, "GITHUB_ACTIONS=true", "GITHUB_WORKSPACE=" + filepath.Dir(root)}}
		require.NotNil(t, call.Audit(t.Context(), map[string]string{"format": format}))
		require.Equal(t, want, strings.Contains(out.String(),
			"\n::error file="+filepath.Base(root)+"/talos/talconfig.yaml,line="), out.String())
	}
}

func TestAuditEndsWithBadInputForBadFiles(t *testing.T) {
	t.Parallel()

	out, failure := audited(t, "clusterName: lab\nnodes: [\n", nil)
	require.NotNil(t, failure)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, out, "talos/talconfig.yaml:")
	require.Contains(t, out, "not run")

	out, failure = audited(t, "clusterName: lab\nnodes: [\n", map[string]string{"format": "json"})
	require.NotNil(t, failure)

	var document struct{ ExitCode int }
	require.NoError(t, json.Unmarshal([]byte(out), &document))
	require.Equal(t, 2, document.ExitCode)

	_, failure = audited(t, "", map[string]string{"format": "xml"})
	require.NotNil(t, failure)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
}

func TestExplain(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	call := invocation.Invocation{Out: &out}
	require.Nil(t, call.Explain("tm200"))
	require.Contains(t, out.String(), "TM200")

	failure := call.Explain("TM20O")
	require.NotNil(t, failure)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, failure.Message, "did you mean TM20")
}

// A fresh checkout has no machine configs: what would be made is judged, if the secrets can be read.
func TestAuditOfAFolderWithoutMachineConfigs(t *testing.T) {
	t.Parallel()

	const talconfig = "clusterName: lab\nendpoint: https://192.0.2.11:6443\ntalosVersion: v1.13.9\nkubernetesVersion: " +
		"v1.36.0\nnodes:\n" +
		"  - hostname: cp1\n    ipAddress: 192.0.2.11\n    controlPlane: true\n    installDisk: /dev/vda\n    " +
		"networkInterfaces:\n" +
		"      - interface: eth0\n        addresses: [192.0.2.11/24]\n        routes:\n          - network: 0.0.0.0/0\n   " +
		"         gateway: GATEWAY\n"

	bundle, err := clusterfiles.NewSecrets()
	require.NoError(t, err)

	plain, err := secrets.Encode(bundle)
	require.NoError(t, err)

	audit := func(gateway string, environ []string, files map[string]string) (string, *invocation.Failure) {
		root := t.TempDir()
		files["talconfig.yaml"] = strings.ReplaceAll(talconfig, "GATEWAY", gateway)

		for name, text := range files {
			path := filepath.Join(root, "talos", name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}

		var out bytes.Buffer

		failure := invocation.Invocation{Environ: append(environ, "ROOT_DIR="+root), Workdir: root, Out: &out,
			Err: &out}.Audit(context.Background(), nil)
		require.NoDirExists(t, filepath.Join(root, "talos", "clusterconfig"), "an audit writes nothing")

		return out.String(), failure
	}

	secretsFile := func() map[string]string { return map[string]string{"talsecret.yaml": string(plain)} }

	t.Run("right", func(t *testing.T) {
		t.Parallel()

		out, failure := audit("192.0.2.1", nil, secretsFile())
		require.Nil(t, failure, out)
		require.Contains(t, out, "0 failures")
	})

	t.Run("wrong", func(t *testing.T) {
		t.Parallel()

		out, failure := audit("198.51.100.1", nil, secretsFile())
		require.NotNil(t, failure)
		require.Equal(t, diagnosis.ExitBadInput, failure.Code)
		require.Contains(t, out, "talos/clusterconfig/lab-cp1.yaml (not written yet):")
		require.Contains(t, out, "from  talos/talconfig.yaml:15:22")
		require.NotContains(t, out, bundle.TrustdInfo.Token)
	})

	t.Run("a mistake that only making them shows", func(t *testing.T) {
		t.Parallel()

		files := secretsFile()
		files["talenv.yaml"] = "A: b\n"

		out, failure := audit("192.0.2.1\n        dhcpOptions: {routeMetrik: 1}", nil, files)
		require.NotNil(t, failure)
		require.Contains(t, out, "talos/talconfig.yaml:16")
	})

	for name, test := range map[string]struct {
		environ []string
		files   map[string]string
		why     string
	}{
		"no secrets": {nil, map[string]string{}, "there is no talos/talsecret.yaml"},
		"encrypted secrets": {[]string{"PATH="},
			map[string]string{"talsecret.sops.yaml": "cluster: ENC[AES256_GCM,data:x]\nsops: {}\n"},
			"sops is not on the PATH, and talos/talsecret.sops.yaml is encrypted"},
		"secrets in variables": {nil, map[string]string{"talsecret.yaml": "cluster: {id: $CLUSTER_ID, secret: $SECRET}\n"},
			"talos/talsecret.yaml: variable CLUSTER_ID is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			out, failure := audit("198.51.100.1", test.environ, test.files)
			require.NotNil(t, failure, "the configs are judged as they would be")
			require.Contains(t, out, "talos/clusterconfig/lab-cp1.yaml (not written yet):")
			require.Regexp(t, `(?m)^not run  \d+ checks need the cluster's own secrets; throwaway ones were made up to `+
				`judge the rest: `+test.why+`$`, out)

			out, failure = audit("192.0.2.1", test.environ, test.files)
			require.Nil(t, failure, out)
			require.Contains(t, out, "0 failures")
		})
	}

	t.Run("talhelper is to make them", func(t *testing.T) {
		t.Parallel()

		out, failure := audit("198.51.100.1", []string{"CONFIG_GENERATOR=talhelper"}, secretsFile())
		require.NotNil(t, failure, "the configs are judged as they would be")
		require.Contains(t, out, "talos/clusterconfig/lab-cp1.yaml (not written yet):")
	})

	t.Run("misfitting secrets", func(t *testing.T) {
		t.Parallel()

		out, _ := audit("198.51.100.1", nil, map[string]string{"talsecret.yaml": "cluster: {}\n"})
		require.Regexp(t, `not run  \d+ checks: not all files are written yet; mistakes in the files`, out)
		require.NotContains(t, out, "TM020  ", "that nothing is written yet is no failure")
	})

	// Only the secrets may be made up: what else can't be decrypted is a failure that names the key.
	for name, files := range map[string]map[string]string{
		"talenv.sops.yaml": {"talenv.sops.yaml": "A: ENC[AES256_GCM,data:x]\nsops: {age: [{recipient: age1example}]}\n"},
		"patch.yaml": {"patch.yaml": "A: ENC[AES256_GCM,data:x]\nsops: {age: [{recipient: age1example}]}\n",
			"gateway": "192.0.2.1\n    patches: [\"@patch.yaml\"]"},
	} {
		t.Run("undecryptable "+name, func(t *testing.T) {
			t.Parallel()

			bin := t.TempDir()
			script := "#!/bin/sh\nexit 128\n"
			require.NoError(t, tool.WriteProgram(filepath.Join(bin, "sops"), []byte(script)))

			gateway := cmp.Or(files["gateway"], "192.0.2.1")
			delete(files, "gateway")

			out, failure := audit(gateway, []string{"PATH=" + bin}, files)
			require.NotNil(t, failure, out)
			require.Equal(t, diagnosis.ExitBadInput, failure.Code)
			require.Contains(t, out, "talos/"+name+" can't be decrypted")
			require.Contains(t, out, "age1example")
		})
	}

	t.Run("nobody makes them", func(t *testing.T) {
		t.Parallel()

		out, failure := audit("192.0.2.1", []string{"CONFIG_GENERATOR=none"}, secretsFile())
		require.NotNil(t, failure)
		require.Contains(t, out, "TM020  ")
	})
}

// The profile reads a repository's OpenTofu files and HelmRelease, or what settings name instead.
func TestTheInteroperabilityProfile(t *testing.T) {
	t.Parallel()

	const proxmoxSecret = "00000000-0000-4000-8000-000000000001"

	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := `{"data":[{"vmid":1,"name":"n1","node":"pve1","type":"qemu"}]}`
		if strings.HasSuffix(r.URL.Path, "/config") {
			text = `{"data":{"bios":"seabios"}}`
		}

		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(api.Close)

	root := t.TempDir()
	for name, text := range map[string]string{
		"talos/talconfig.yaml": "clusterName: lab\nendpoint: https://192.0.2.10:6443\nnodes:\n  - " +
			"{hostname: n1, ipAddress: 192.0.2.11, controlPlane: true, installDisk: /dev/sda}\n",
		"talos/clusterconfig/lab-n1.yaml": "version: v1alpha1\nmachine: {type: controlplane}\ncluster: {controlPlane: " +
			"{endpoint: https://192.0.2.10:6443}}\n",
		"infrastructure/tofu/main.tf": "resource \"proxmox_virtual_environment_vm\" \"n1\" {\n  bios = \"other\"\n}\n",
		"kubernetes/cilium/helmrelease.yaml": "kind: HelmRelease\nmetadata: {name: cilium}\nspec: {values: {ipam: {mode: " +
			"from-release}}}\n",
		"values.yaml": "ipam: {mode: from-values}\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	for name, test := range map[string]struct {
		environ []string
		want    []string
	}{
		"found": {nil, []string{"at    infrastructure/tofu/main.tf:2:10", "the BIOS is other, not ovmf",
			"at    kubernetes/cilium/helmrelease.yaml:3:30", "ipam.mode is from-release"}},
		"named": {[]string{"CILIUM_VALUES=values.yaml", "TOFU_DIR=elsewhere"},
			[]string{"ipam.mode is from-values", "no OpenTofu files describe VMs"}},
		"API": {[]string{"PROXMOX_VE_ENDPOINT=" + api.URL, "PROXMOX_VE_API_TOKEN=a@b!c=" + proxmoxSecret},
			[]string{"the BIOS is seabios, not ovmf"}},
		"API, no token": {[]string{"PROXMOX_VE_ENDPOINT=" + api.URL}, []string{"PROXMOX_VE_API_TOKEN is not"}},
		"API that is off": {[]string{"PROXMOX_VE_ENDPOINT=http://127.0.0.1:1", "PROXMOX_VE_API_TOKEN=a@b!c=" + proxmoxSecret},
			[]string{"the VMs can't be read: ask Proxmox"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var out, errs bytes.Buffer

			call := invocation.Invocation{Environ: append([]string{"ROOT_DIR=" + root}, test.environ...), Workdir: root,
				Out: &out, Err: &errs}
			failure := call.Audit(context.Background(), map[string]string{"profile": "interop"})

			for _, want := range append(test.want, "Proxmox VMs") {
				require.Contains(t, out.String(), want)
			}

			require.NotContains(t, out.String(), proxmoxSecret)
			require.NotNil(t, failure, "SYS_MODULE is among the chart's defaults")
		})
	}
}

// auditOf are the checks that an audit of a cluster did not run for any node, by the reason, how many it ran, and what
// it warned of.
func auditOf(t *testing.T, folder string, environ ...string) (reasons map[string][]string, ran int, warned []string) {
	t.Helper()

	var out bytes.Buffer

	failure := invocation.Invocation{Environ: append(environ, "ROOT_DIR="+folder, "TALOS_DIR="+folder), Workdir: folder,
		Out: &out, Err: &out}.Audit(context.Background(), map[string]string{"format": "json"})
	require.Nil(t, failure, out.String())

	var document struct {
		NotRun   []struct{ ID, Node, Why string }
		Passed   []string
		Findings []struct{ ID, Severity string }
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &document))

	reasons = map[string][]string{}

	for _, check := range document.NotRun {
		require.Empty(t, check.Node)
		reasons[check.Why] = append(reasons[check.Why], check.ID)
	}

	seen := document.Passed
	for _, finding := range document.Findings {
		seen = append(seen, finding.ID)

		if finding.Severity == diagnosis.Warning.String() {
			warned = append(warned, finding.ID)
		}
	}

	slices.Sort(seen)

	return reasons, len(slices.Compact(seen)), warned
}

// A fresh clone of a public repository, as every CI run has it: secrets encrypted, no key, no clusterconfig/. All is
// judged but what is about the secrets and the talosconfig's credentials, and what takes a node or the network.
func TestAuditOfPublicClones(t *testing.T) {
	t.Parallel()

	folders, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "clusters", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, folders)

	// Why these are right all the same stands beside the checks of files.
	warnings := map[string][]string{"dual-stack": {"TM236", "TM340"}, "volumes": {"TM390", "TM340"}}

	for _, example := range folders {
		t.Run(filepath.Base(example), func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			require.NoError(t, os.CopyFS(folder, os.DirFS(example)))

			bundle, err := clusterfiles.NewSecrets()
			require.NoError(t, err)

			plain, err := secrets.Encode(bundle)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "talsecret.yaml"), plain, 0o600))

			_, withKey, _ := auditOf(t, folder, "PATH=")

			require.NoError(t, os.Rename(filepath.Join(folder, "talsecret.yaml"),
				filepath.Join(folder, "talsecret.sops.yaml")))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "talsecret.sops.yaml"),
				[]byte("cluster: ENC[AES256_GCM,data:x]\nsops: {age: [{recipient: age1example}]}\n"), 0o600))

			before := treeOf(t, folder)
			reasons, without, warned := auditOf(t, folder, "PATH=")
			require.Equal(t, before, treeOf(t, folder), "an audit writes nothing")

			const atLeast = 138 // of 179

			require.GreaterOrEqual(t, without, atLeast)
			require.GreaterOrEqual(t, without, withKey-13, "those about secrets alone are left out")

			require.Equal(t, warnings[filepath.Base(example)], slices.Compact(warned))

			for why, ids := range reasons {
				t.Logf("%d %s", len(ids), why)
			}
		})
	}
}

// treeOf is every file below a folder with its content.
func treeOf(t *testing.T, folder string) map[string]string {
	t.Helper()

	tree := map[string]string{}

	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			tree[path] = "folder"

			return err
		}

		data, err := os.ReadFile(path)
		tree[path] = string(data)

		return err
	}))

	return tree
}
