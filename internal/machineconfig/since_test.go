package machineconfig_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// newer lists "line: name (version)" of what a text has that a version does not know.
func newer(text string, version *talosconfig.VersionContract) []string {
	var found []string

	for _, root := range machineconfig.NewPlaces([]byte(text)).Roots() {
		for _, key := range machineconfig.NewerKeys(root, version) {
			found = append(found, fmt.Sprintf("%d:%d %s (%s)", key.Line, key.Column, key.Name, key.Since))
		}
	}

	return found
}

func TestKeysThatAVersionDoesNotKnow(t *testing.T) {
	t.Parallel()

	const text = `machine:
  install:
    grubUseUKICmdline: true
  network:
    interfaces:
      - interface: eth0
      - deviceSelector:
          physical: true
          permanentAddr: 02:00:00:00:00:01
  registries:
    mirrors:
      docker.io:
        skipFallback: true
---
kind: VolumeConfig
name: STATE
encryption:
  keys:
    - tpm:
        options: {}
---
kind: VRFConfig
name: blue
table: 1
`

	require.Equal(t, []string{
		"3:5 machine.install.grubUseUKICmdline (v1.12)", "8:11 machine.network.interfaces[].deviceSelector.physical (v1.7)",
		"9:11 machine.network.interfaces[].deviceSelector.permanentAddr (v1.9)",
		"13:9 machine.registries.mirrors.docker.io.skipFallback (v1.9)",
		"15:1 kind: VolumeConfig (v1.8)", "22:1 kind: VRFConfig (v1.13)",
	}, newer(text, talosconfig.TalosVersion1_6))
	require.Equal(t, []string{
		"3:5 machine.install.grubUseUKICmdline (v1.12)", "20:9 encryption.keys[].tpm.options (v1.12)",
		"22:1 kind: VRFConfig (v1.13)",
	}, newer(text, talosconfig.TalosVersion1_11))
	require.Empty(t, newer(text, talosconfig.TalosVersion1_13))
	require.Empty(t, newer(text, nil))
}

func TestConfigsAreKnownToTheVersionThatTheyAreGeneratedFor(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.6.0", "v1.8.0", "v1.11.6", "v1.12.1", "v1.13.9"} {
		made, err := clusterfiles.Make(clusterfiles.Options{
			ClusterName: "lab", Endpoint: "https://192.0.2.10:6443", TalosVersion: version,
			Nodes: []clusterfiles.Node{{Name: "n1", Role: machine.TypeControlPlane, Declared: "192.0.2.11"}},
		})
		require.NoError(t, err, version)

		contract, err := talosconfig.ParseContractFromVersion(version)
		require.NoError(t, err)
		require.Empty(t, newer(string(made.Configs[0].Bytes), contract), version)
	}
}

func TestKindsAreThoseOfMachinery(t *testing.T) {
	t.Parallel()

	for _, kind := range machineconfig.Kinds() {
		_, err := configloader.NewFromBytes([]byte("apiVersion: v1alpha1\nkind: " + kind + "\n"))

		if err != nil { // what else is wrong with a document without anything is no matter
			require.NotContains(t, err.Error(), "not registered", kind)
		}
	}
}

// The kinds are those that machinery registers, each with the release that brought it.
func TestEveryKindOfMachineryIsKnown(t *testing.T) {
	t.Parallel()

	folder, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}",
		reflect.TypeFor[v1alpha1.Config]().PkgPath()).Output()
	require.NoError(t, err)

	types := filepath.Dir(strings.TrimSpace(string(folder)))
	registered := regexp.MustCompile(`registry\.Register\((\w+),`)
	named := regexp.MustCompile(`(?m)^(?:const |\t)(\w+)\s+= "(\w+)"`)

	kinds, constants := map[string]bool{}, map[string]string{}

	require.NoError(t, filepath.WalkDir(types, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		text, err := os.ReadFile(path)
		for _, match := range registered.FindAllStringSubmatch(string(text), -1) {
			kinds[match[1]] = true
		}

		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			constants[match[1]] = match[2]
		}

		return err
	}))

	require.Greater(t, len(kinds), len(machineconfig.Kinds())/2)

	for constant := range kinds {
		if kind := constants[constant]; kind != "v1alpha1" {
			require.Contains(t, machineconfig.Kinds(), kind, constant)
		}
	}
}

func TestDocumentsThatExcludeEachOtherHaveAPlace(t *testing.T) {
	t.Parallel()

	_, err := machineconfig.FromBytes("a.yaml",
		[]byte("machine: {}\ncluster: {}\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: v1\n---\napiVersion: "+
			"v1alpha1\nkind: DummyLinkConfig\nname: v1\n"))
	require.EqualError(t, err,
		"a.yaml:8:1: has the documents LinkConfig/v1 and DummyLinkConfig/v1, which exclude each other")
}
