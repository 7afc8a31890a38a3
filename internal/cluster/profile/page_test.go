package profile

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

const introduction = `# Cluster profiles

<!-- Made from internal/cluster/profile: go test ./internal/cluster/profile -update -->

A ` + "`cluster.yaml`" + ` in TALOS_DIR describes a cluster in one file. It replaces calls of ` + "`talosctl gen config`" + `, and of ` + "`talosctl apply-config`" + ` with
a patch for each node. ` + "`mage config:generate`" + ` makes the configs, and the recipe does the rest. If the folder also has a talconfig.yaml, that
one is read, unless CLUSTER_SOURCE=profile. This one is [in the examples](../examples/profile/cluster.yaml), with
its patches:

`

const meaning = `
[The schema](schemas/cluster.schema.json) lets editors complete and check the file; ` + "`mage config:schema -of=cluster.yaml`" + ` prints it too. A
mistake is reported with file, line, column and key before anything is done.

## What the machine configs contain

| from | comes |
|---|---|
| ` + "`talos.factory`" + ` | the installer image, ` + "`factory.talos.dev/installer/<schematic>:<version>`" + `; with a platform ` + "`<platform>-installer`" + `; with secureboot ` + "`…-secureboot`" + ` |
| ` + "`network.pod_cidr`" + `, ` + "`network.service_cidr`" + ` | the subnets, instead of Talos' own |
| an assignment | hostname, address with prefix, default route and name servers, on the node's interface, without DHCP |
| ` + "`talos.vip`" + ` | the VIP, on control planes only |
| always | cluster discovery off |

Up to Talos 1.11 the result means the same as that of these commands. A test compares it with what talosctl makes:

    talosctl gen config <name> https://<api_endpoint>:6443 --with-secrets <secrets_file> --install-image <installer> \
      --kubernetes-version <kubernetes_version> --with-cluster-discovery=false --config-patch <JSON patch of both subnets>
    talosctl apply-config --insecure --nodes <ip> --file controlplane.yaml --config-patch @<patches_dir>/<node>.yaml

From 1.12 on Talos refuses both. The first fails with ` + "`JSON6902 patches are not supported for multi-document machine configuration`" + `, the second with
` + "`static hostname is already set in v1alpha1 config`" + `. Here the hostname is then in a document of its own, HostnameConfig with ` + "`auto: off`" + `. The
rest means the same.

With ` + "`contract: v1.14`" + ` all of it is in the documents that Talos has since 1.14: ` + "`UnattendedInstallConfig`, `LinkConfig`, `Layer2VIPConfig`,\n`ResolverConfig`" + ` and so on. Without a contract a profile keeps the form of 1.13, which later releases take too, so that an upgrade
changes nothing by itself. Nodes have to run 1.14 already when they get a config of that form.

## Your own patches

Files in ` + "`patches_dir`" + ` are merged on top, in this order: ` + "`all.yaml`" + `, then ` + "`controlplane.yaml`" + ` or ` + "`worker.yaml`" + `, then ` + "`<node>.yaml`" + `. Each is a part
of a machine config (` + "`$patch: delete`" + ` removes things) or further documents. Up to Talos 1.11 it may also be a list of operations (JSON6902). A
patch that has no node's name is a mistake.

You can keep the patches from those commands. If a patch sets what the profile sets too, only the patch counts: its name servers, the node's
address, a default route of the same interface. If it gives the node's address to another interface, the VIP
moves there too. This holds for ` + "`machine.network`" + ` and for documents such as LinkConfig and ResolverConfig. From Talos 1.12 on a hostname in ` + "`machine.network`" + ` becomes that of the
HostnameConfig.

## Secrets

` + "`secrets_file`" + ` is a bundle made by ` + "`talosctl gen secrets`" + ` or talhelper. With ` + "`regenerate_secrets: true`" + ` the recipe makes a missing bundle. It never
replaces an existing one. To start over, move the old bundle away first.

## Keys

The program that makes the machines may keep keys of its own in this file. So an unknown key is ignored at the top level, in a group and in an
assignment, unless it looks like a misspelt one. Elsewhere every unknown key is a mistake.

`

// The page shows a profile that works, and every key.
func TestPageOfTheProfile(t *testing.T) {
	t.Parallel()

	file := reading.New("", nil).Open(filepath.Join("..", "..", "..", "examples", "profile", FileName))
	_, err := Read(file, "")
	require.NoError(t, err)

	example := string(file.Data)

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
