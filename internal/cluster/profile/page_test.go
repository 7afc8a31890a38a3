package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

const example = `# yaml-language-server: $schema=https://raw.githubusercontent.com/talos-mage/talos-mage/main/docs/schemas/cluster.schema.json
name: lab
network:
  api_endpoint: 192.0.2.10
  pod_cidr: 10.244.0.0/16
  service_cidr: 10.96.0.0/12
  gateway: 192.0.2.1
talos:
  version: 1.13.9
  kubernetes_version: 1.36.3
  factory:
    schematic_id: ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515
  vip: {interface: ens18, ip: 192.0.2.10}
  config_dir: clusterconfig
  patches_dir: patches
  secrets_file: secrets.yaml
nodes:
  controlplane:
    assignments:
      - {name: cp1, ip: 192.0.2.11, mac: "02:00:5e:10:00:01", vmid: 101}
      - {name: cp2, ip: 192.0.2.12, mac: "02:00:5e:10:00:02", vmid: 102}
      - {name: cp3, ip: 192.0.2.13, mac: "02:00:5e:10:00:03", vmid: 103}
  workers:
    assignments:
      - {name: w1, ip: 192.0.2.21, interface: ens18, vmid: 111}
regenerate_secrets: false
`

const introduction = `# Cluster profiles

<!-- Made from internal/cluster/profile: go test ./internal/cluster/profile -update -->

A ` + "`cluster.yaml`" + ` in TALOS_DIR says in one file what a cluster is. It is for those who otherwise call ` + "`talosctl gen config`" + ` and give
` + "`talosctl apply-config`" + ` a patch for each node; from here on the configs are made by ` + "`mage config:generate`" + `, and the recipe does the rest.
With a talconfig.yaml in the same folder that one is read, unless CLUSTER_SOURCE=profile.

`

const meaning = `
Editors complete and check the file with [its schema](schemas/cluster.schema.json), which ` + "`mage config:schema -of=cluster.yaml`" + ` prints too. A mistake is told with file, line,
column and key before anything is done.

## What the machine configs are

| from | is made |
|---|---|
| ` + "`talos.factory`" + ` | the installer image, ` + "`factory.talos.dev/installer/<schematic>:<version>`" + `; with a platform ` + "`<platform>-installer`" + `; with secureboot ` + "`…-secureboot`" + ` |
| ` + "`network.pod_cidr`, `network.service_cidr`" + ` | the subnets, in place of Talos' own |
| an assignment | hostname, address with prefix, default route, name servers, on the node's interface without DHCP |
| ` + "`talos.vip`" + ` | the VIP, on control planes alone |
| always | cluster discovery off |

For Talos up to 1.11 that is, in meaning, what these steps give, and a test compares it with the library that talosctl calls:

    talosctl gen config <name> https://<api_endpoint>:6443 --with-secrets <secrets_file> --install-image <installer> \
      --kubernetes-version <kubernetes_version> --with-cluster-discovery=false --config-patch <JSON patch of both subnets>
    talosctl apply-config --insecure --nodes <ip> --file controlplane.yaml --config-patch @<patches_dir>/<node>.yaml

Talos from 1.12 on refuses both: the first with ` + "`JSON6902 patches are not supported for multi-document machine configuration`" + `, the second with
` + "`static hostname is already set in v1alpha1 config`" + `. Here the hostname is then a document of its own, HostnameConfig with ` + "`auto: off`" + `, and the rest means the same.

## Your own patches

Files of ` + "`patches_dir`" + ` go on top, in this order: ` + "`all.yaml`" + `, then ` + "`controlplane.yaml` or `worker.yaml`" + `, then ` + "`<node>.yaml`" + `. Each is a part of a machine config (with
` + "`$patch: delete`" + ` for what has to go), or further documents; up to Talos 1.11 also a list of operations (JSON6902). A patch that no node has the name of is a mistake.

The patches that you have from those steps can stay. Where a patch says itself what the profile says, only the patch counts: its name servers, the node's address,
a default route of the same interface. If it gives the node's address to another interface, the VIP goes there too. That holds for ` + "`machine.network`" + ` and for documents
as LinkConfig and ResolverConfig alike. From Talos 1.12 on a hostname in ` + "`machine.network`" + ` becomes that of the HostnameConfig.

## Secrets

` + "`secrets_file`" + ` is a bundle of ` + "`talosctl gen secrets`" + ` or of talhelper. ` + "`regenerate_secrets: true`" + ` lets new ones be made where there are none; it replaces no existing bundle:
who means to start anew moves the old one away first.

## Keys

A key that is none of these and looks like none of these is passed over at the top level, in a group and in an assignment, since the program that makes the machines
keeps its own there. Elsewhere every unknown key is a mistake.

`

// The page shows a profile that works, and every key.
func TestPageOfTheProfile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), FileName)
	require.NoError(t, os.WriteFile(path, []byte(example), 0o600))

	_, err := Read(reading.New("", nil).Open(path))
	require.NoError(t, err)

	indented := "    " + strings.ReplaceAll(strings.TrimSuffix(example, "\n"), "\n", "\n    ") + "\n"
	table := "| key | needed | meaning |\n|---|---|---|\n" + strings.Join(rows("", reflect.TypeFor[keys]()), "")

	golden.Assert(t, "../../../docs/profile.md", introduction+indented+meaning+table)
}

func rows(path string, in reflect.Type) []string {
	var lines []string

	for field := range in.Fields() {
		key := strings.TrimPrefix(path+"."+field.Tag.Get("yaml"), ".")
		needed := ""

		if field.Tag.Get("required") == "true" {
			needed = "yes"
		}

		inner := field.Type
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			key, inner = key+"[]", inner.Elem()
		}

		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |\n", key, needed, field.Tag.Get("doc")))

		if inner.Kind() == reflect.Struct {
			lines = append(lines, rows(key, inner)...)
		}
	}

	return lines
}
