package migrate_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/machineconfig/migrate"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// sameSecrets are those of all clusters here.
var sameSecrets = sync.OnceValues(throwaway.Secrets)

// planned is the plan for a folder.
func planned(t *testing.T, folder string, newDefaults bool) (*migrate.Plan, error) {
	t.Helper()

	bundle, err := sameSecrets()
	require.NoError(t, err)

	return planOf(folder, bundle, newDefaults)
}

func planOf(folder string, bundle *secrets.Bundle, newDefaults bool) (*migrate.Plan, error) {
	return migrate.Make(migrate.Options{Secrets: bundle, Now: time.Now(), NewDefaults: newDefaults,
		Load: func(files map[string][]byte, contract string) (*inventory.Cluster, error) {
			opened := reading.New(folder, nil)
			for path, data := range files {
				opened.Pretend(path, data)
			}

			return inventory.Load(inventory.Options{TalosDir: folder, Files: opened, Contract: contract})
		}})
}

// written are files in a folder of their own.
func written(t *testing.T, files map[string]string) string {
	t.Helper()

	folder := t.TempDir()

	for name, text := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	return folder
}

// take writes a plan's files.
func take(t *testing.T, plan *migrate.Plan) {
	t.Helper()

	for path, data := range plan.Files {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
}

// told is a plan as a text: what is said, and the files as they will be.
func told(folder string, plan *migrate.Plan) string {
	var text strings.Builder

	for _, note := range plan.Moves {
		fmt.Fprintf(&text, "%s:%d:%d %s\n", relative(folder, note.Path), note.Line, note.Column, note.Text)
	}

	for _, note := range slices.Concat(plan.Decisions, plan.Kept) {
		fmt.Fprintf(&text, "%s:%d:%d %s\n", relative(folder, note.Path), note.Line, note.Column, note.Text)
	}

	for _, one := range plan.Differences {
		fmt.Fprintf(&text, "%v differ in %s: %s, %s\n", one.Nodes, one.Accessor, one.Before, one.After)
	}

	fmt.Fprintf(&text, "defaults: %s\n", strings.Join(plan.Defaults, ", "))

	for _, path := range slices.Sorted(maps.Keys(plan.Files)) {
		fmt.Fprintf(&text, "\n==> %s <==\n%s", relative(folder, path), plan.Files[path])
	}

	return text.String()
}

const head = `clusterName: lab
talosVersion: v1.14.1
kubernetesVersion: v1.36.3
endpoint: https://192.0.2.10:6443
nodes:
  - hostname: cp1
    ipAddress: 192.0.2.11
    controlPlane: true
    installDisk: /dev/sda
  - hostname: w1
    ipAddress: 192.0.2.21
    installDisk: /dev/nvme0n1
`

// What becomes of whole repositories. The golden files have all that is said, and every file that changes.
func TestRepositories(t *testing.T) {
	for name, files := range map[string]map[string]string{
		// What only control planes may have leaves the patch of all nodes; the rest stays where it is.
		"patch-of-all-nodes": {"talconfig.yaml": "# ours\n" + head + `# what all nodes get
patches:
  # kubelets
  - |-
    machine:
      kubelet:
        extraArgs:
          rotate-server-certificates: "true" # for metrics
    cluster:
      # cilium does it
      proxy:
        disabled: true
      network:
        cni:
          name: none
`},
		// A file that all nodes share is split, and the second half named by the control planes.
		"shared-file": {"talconfig.yaml": head + "patches:\n  - \"@./patches/all.yaml\"\n",
			"patches/all.yaml": "cluster:\n  apiServer:\n    extraArgs:\n      v: \"4\"\nmachine:\n  sysctls:\n    a.b: \"1\"\n"},
		"file-for-control-planes": {"talconfig.yaml": head + "patches:\n  - \"@./patches/all.yaml\"\n",
			"patches/all.yaml": "cluster:\n  apiServer:\n    extraArgs:\n      v: \"4\"\n"},
		// The group's list is the workers' too, so that each control plane gets its part.
		"shared-list": {"talconfig.yaml": head + "controlPlane:\n  patches: &both\n    - |-\n      machine:\n        sysctls:\n" +
			"          a.b: \"1\"\n      cluster:\n        proxy:\n          disabled: true\nworker:\n  patches: *both\n"},
		// A node's own patch must not go over what was one of all nodes.
		"order": {"talconfig.yaml": strings.Replace(head, "    installDisk: /dev/sda\n", "    installDisk: /dev/sda\n"+
			"    patches:\n      - |-\n        cluster:\n          apiServer:\n            extraArgs:\n              v: \"2\"\n", 1) +
			"patches:\n  - |-\n    cluster:\n      apiServer:\n        extraArgs:\n          v: \"4\"\n"},
		// What is said of an installation needs each node's disk.
		"install": {"talconfig.yaml": head + "patches:\n  - |-\n    machine:\n      install:\n        wipe: true\n"},
		// JSON patches can't be used on several documents.
		"json-patch": {"talconfig.yaml": head + "worker:\n  patches:\n    - |-\n      - op: add\n        path: /machine/sysctls\n" +
			"        value:\n          a.b: \"1\"\n"},
		// A talenv.yaml that is there gets one more line.
		"variables": {"talconfig.yaml": head + "worker:\n  patches:\n    - |-\n      machine:\n        nodeLabels:\n" +
			"          rack: ${RACK}\n", "talenv.yaml": "# ours\nRACK: \"7\"\n"},
		"template": {"talconfig.yaml": head + "worker:\n  patches:\n    - |-\n      machine:\n        nodeLabels:\n" +
			"          type: '{{ .MachineConfig.MachineType }}'\n"},
		"deletes": {"talconfig.yaml": head + "controlPlane:\n  patches:\n    - |-\n      machine:\n        nodeLabels:\n" +
			"          node.kubernetes.io/exclude-from-external-load-balancers:\n            $$patch: delete\n" +
			"      cluster:\n        apiServer:\n          admissionControl:\n            $patch: delete\n"},
		"undecided": {"talconfig.yaml": head + "worker:\n  patches:\n    - |-\n      machine:\n        kubelet:\n          extraMounts:\n" +
			"            - source: /var/data\n              destination: /var/data\n              type: bind\n" +
			"    - |-\n      - op: test\n        path: /machine/type\n        value: worker\n" +
			"    - |-\n      machine:\n      {{ if true }}  sysctls: {}{{ end }}\n"},
		"unequal": {"talconfig.yaml": head + "controlPlane:\n  patches:\n    - |-\n      machine:\n        nodeLabels:\n" +
			"          $patch: delete\n"},
		// The older form of a profile has Talos ask for DHCP on links that nothing configures.
		"profile": {"cluster.yaml": profileText},
		"profile-in-braces": {"cluster.yaml": strings.NewReplacer("network:\n  api_endpoint: 192.0.2.10", "# ours\nnetwork: "+
			"{api_endpoint: 192.0.2.10}", "  kubernetes_version", "  contract: 'v1.13' # as we have it\n  kubernetes_version").
			Replace(profileText)},
		"profile-with-new-defaults": {"cluster.yaml": profileText, "out/patches/all.yaml": `# all nodes
machine:
  kubelet:
    extraArgs:
      rotate-server-certificates: "true"
cluster:
  proxy:
    disabled: true
`, "out/patches/controlplane.yaml": "# control planes\ncluster:\n  allowSchedulingOnControlPlanes: true\n",
			"out/patches/w1.yaml": "machine:\n  sysctls:\n    a.b: \"1\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := written(t, files)

			plan, err := planned(t, folder, name == "profile-with-new-defaults")
			require.NoError(t, err)
			golden.Assert(t, filepath.Join("testdata", name+".golden"), told(folder, plan))

			if len(plan.Decisions)+len(plan.Differences) > 0 {
				require.Empty(t, plan.Files)

				return
			}

			require.NotEmpty(t, plan.Files)

			take(t, plan)

			again, err := planned(t, folder, false)
			require.NoError(t, err)
			require.False(t, again.Changes(), "there is more to do")
		})
	}
}

const profileText = `name: lab
type: talos
network:
  api_endpoint: 192.0.2.10
talos:
  version: "1.14.1" # the release
  kubernetes_version: v1.36.3
  factory:
    schematic_id: ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515
  vip: {interface: eth0, ip: 192.0.2.10}
  config_dir: out
nodes:
  controlplane:
    assignments:
      - {name: cp1, ip: 192.0.2.11}
  workers:
    assignments:
      - {name: w1, ip: 192.0.2.21}
`

// A talconfig has no key for links that it does not name: a person names them.
func TestOtherLinksOfATalconfig(t *testing.T) {
	folder := written(t, map[string]string{"talenv.yaml": "talosContract: v1.11\n", "talconfig.yaml": strings.Replace(head,
		"    installDisk: /dev/nvme0n1\n", "    installDisk: /dev/nvme0n1\n    networkInterfaces:\n      - interface: eth0\n"+
			"        addresses: [192.0.2.21/24]\n", 1)})

	plan, err := planned(t, folder, false)
	require.NoError(t, err)
	require.Empty(t, plan.Files)

	next := map[string]string{}
	for _, one := range plan.Differences {
		next[one.Accessor] = one.Next
	}

	require.Contains(t, next["RunDefaultDHCPOperators"], "networkInterfaces")

	plan, err = planned(t, folder, true)
	require.NoError(t, err)
	require.Empty(t, plan.Differences)
}

// With the new defaults nothing is written out, and what differs is only what they bring.
func TestNewDefaults(t *testing.T) {
	folder := written(t, map[string]string{"talconfig.yaml": head})

	plan, err := planned(t, folder, true)
	require.NoError(t, err)
	require.Empty(t, plan.Differences)
	require.Contains(t, plan.Defaults, "workload isolation")
	require.Equal(t, "talosContract: v1.14\n", string(plan.Files[filepath.Join(folder, "talenv.yaml")]))
	require.NotContains(t, plan.Files, filepath.Join(folder, "talconfig.yaml"))
}

// sealer stands in for sops: what it encrypts cannot be read, but by itself.
type sealer map[string]string

func (s sealer) encrypt(_ string, plain, _ []byte) ([]byte, error) {
	sealed := fmt.Sprintf("machine: ENC[AES256_GCM,data:%d]\nsops: {mac: x}\n", len(s))
	s[sealed] = string(plain)

	return []byte(sealed), nil
}

func (s sealer) decrypt(_ string, sealed []byte) ([]byte, error) {
	return []byte(s[string(sealed)]), nil
}

// plan is the plan for a folder with a file that is encrypted.
func (s sealer) plan(t *testing.T, folder string) *migrate.Plan {
	t.Helper()

	bundle, err := sameSecrets()
	require.NoError(t, err)

	plan, err := migrate.Make(migrate.Options{Secrets: bundle, Now: time.Now(), Encrypt: s.encrypt,
		Load: func(files map[string][]byte, contract string) (*inventory.Cluster, error) {
			opened := reading.New(folder, s.decrypt)
			for path, data := range files {
				opened.Pretend(path, data)
			}

			return inventory.Load(inventory.Options{TalosDir: folder, Contract: contract, Files: opened})
		}})
	require.NoError(t, err)

	return plan
}

// What takes the place of an encrypted file is encrypted, and so is the part of it that only control planes get.
func TestEncryptedPatch(t *testing.T) {
	made := sealer{}
	sealed, err := made.encrypt("", []byte("machine:\n  kubelet:\n    extraArgs:\n      v: \"4\"\ncluster:\n  apiServer:\n"+
		"    env:\n      A: s3cret\n"), nil)
	require.NoError(t, err)

	folder := written(t, map[string]string{"talconfig.yaml": head + "patches:\n  - \"@./secret.sops.yaml\"\n",
		"secret.sops.yaml": string(sealed)})

	plan := made.plan(t, folder)
	require.Empty(t, plan.Decisions)
	require.Empty(t, plan.Differences)
	require.True(t, plan.Sealed)

	for name, expected := range map[string]string{
		"secret.sops.yaml":              "apiVersion: v1alpha1\nkind: KubeletConfig\nextraArgs:\n  v: \"4\"\n",
		"secret-controlplane.sops.yaml": "apiVersion: v1alpha1\nkind: KubeAPIServerConfig\nenv:\n  A: s3cret\n",
	} {
		require.Equal(t, expected, made[string(plan.Files[filepath.Join(folder, name)])])
	}

	take(t, plan)
	require.False(t, made.plan(t, folder).Changes())
}

// What would stand in the talconfig, which is not encrypted, is a person's to move.
func TestEncryptedPatchOfAnInstallation(t *testing.T) {
	made := sealer{}
	sealed, err := made.encrypt("", []byte("machine:\n  install:\n    wipe: true\n"), nil)
	require.NoError(t, err)

	plan := made.plan(t, written(t, map[string]string{"talconfig.yaml": head + "patches:\n  - \"@./secret.yaml\"\n",
		"secret.yaml": string(sealed)}))
	require.NotEmpty(t, plan.Decisions)
	require.Contains(t, plan.Decisions[0].Text, "the file is encrypted")
	require.False(t, plan.Changes())
}

func TestOlderRelease(t *testing.T) {
	folder := written(t, map[string]string{"talconfig.yaml": strings.Replace(head, "v1.14.1", "v1.13.9", 1)})

	_, err := planned(t, folder, false)
	require.ErrorContains(t, err, "talconfig.yaml:2:15: Talos v1.13.9 does not know the documents of v1.14")
}
