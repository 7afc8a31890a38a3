package generate

import (
	"fmt"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// profileConfigs makes the machine configs of a cluster profile, cluster.yaml. For Talos up to 1.11 they mean what
// these steps give: `talosctl gen config` with discovery off and with patches that set the pods' and services' subnets,
// and `talosctl apply-config` with a patch that has each node's hostname, address, route, name servers and VIP. Talos
// from 1.12 on refuses such patches, and here the hostname is a document of its own. The user's own patches of
// patches_dir come last. An error is one of the profile's files.
func profileConfigs(source Source) (*Output, error) {
	declared := source.Cluster.Profile

	patches, err := readProfilePatches(declared, source.Cluster.Files)
	if err != nil {
		return nil, err
	}

	input, err := profileInput(declared, source)
	if err != nil {
		return nil, fmt.Errorf("prepare generation: %w", err)
	}

	output := &Output{Cluster: declared.Name}

	for _, node := range declared.Machines {
		text, err := profileConfig(input, declared, node, patches.of(node))
		if err != nil {
			return nil, err
		}

		output.Configs = append(output.Configs, Config{Node: node.Name, File: declared.ConfigFile(node), Bytes: text})
	}

	output.GitIgnore = gitIgnore(output.Configs)
	output.Talosconfig, err = source.talosconfig(declared.Name, declared.ControlPlanes(), declared.Addresses())

	return output, err
}

func profileImages(declared *profile.Profile) []Images {
	all := make([]Images, 0, len(declared.Machines))

	for _, node := range declared.Machines {
		all = append(all, Images{
			Node:          node.Name,
			Schematic:     declared.Image.ID,
			Installer:     declared.Installer(),
			BootSchematic: declared.Image.ID,
			Boot:          declared.Image.Boot(),
		})
	}

	return all
}

func profileInput(declared *profile.Profile, source Source) (*generate.Input, error) {
	input, err := generate.NewInput(declared.Name, declared.Endpoint.String(),
		strings.TrimPrefix(declared.KubernetesVersion, "v"),
		generate.WithVersionContract(declared.Contract),
		generate.WithSecretsBundle(source.Secrets),
		generate.WithInstallDisk(declared.InstallDisk),
		generate.WithInstallImage(declared.Installer()),
		generate.WithDNSDomain(constants.DefaultDNSDomain),
		generate.WithClusterDiscovery(false),
	)
	if err != nil {
		return nil, err
	}

	if declared.PodSubnet.IsValid() {
		input.PodNet = []string{declared.PodSubnet.String()}
	}

	if declared.ServiceSubnet.IsValid() {
		input.ServiceNet = []string{declared.ServiceSubnet.String()}
	}

	return input, nil
}

// profileConfig is a node's machine config, after Talos' own word on it.
func profileConfig(input *generate.Input, declared *profile.Profile, node profile.Machine,
	patches []profilePatch) ([]byte, error) {
	text, err := patchedConfig(input, declared, node, patches)
	if err != nil {
		return nil, err
	}

	if err = refusal(text, declared, node); err == nil {
		return text, nil
	}

	for i := range patches {
		text, patchErr := patchedConfig(input, declared, node, patches[:i+1])
		if patchErr == nil && refusal(text, declared, node) != nil {
			return nil, patches[i].refused(node, err)
		}
	}

	return nil, err
}

// refusal is what Talos says against a machine config: that it is not valid, or that it is for a newer release.
func refusal(text []byte, declared *profile.Profile, node profile.Machine) error {
	made, err := machineconfig.FromBytes(declared.ConfigFile(node), text)
	if err == nil {
		_, err = made.Validate(machineconfig.Mode{Metal: true, Release: declared.Release()})
	}

	if err != nil {
		return fmt.Errorf("validate machine config of %s: %w", node.Name, err)
	}

	// Of what is older than 1.5 nothing is known, and nothing is asked.
	if needed := made.TalosContract(); needed.Greater(declared.Release()) && needed.Greater(talosconfig.TalosVersion1_5) {
		return fmt.Errorf("the machine config of %s needs Talos %s or newer, and talos.version is %s", node.Name, needed,
			declared.TalosVersion)
	}

	return nil
}

func patchedConfig(input *generate.Input, declared *profile.Profile, node profile.Machine,
	patches []profilePatch) ([]byte, error) {
	config, err := input.Config(node.Role)
	if err != nil {
		return nil, fmt.Errorf("generate machine config of %s: %w", node.Name, err)
	}

	if declared.Contract.MultidocKubernetesConfigSupported() {
		return configInDocuments(config, declared, node, patches, input.Options.SecretsBundle)
	}

	own := nodeNetwork(declared, node)
	own.leaveTo(patches)

	multidoc := declared.Contract.MultidocNetworkConfigSupported()

	if config, err = own.addTo(config, multidoc); err != nil {
		return nil, fmt.Errorf("set network of %s: %w", node.Name, err)
	}

	for _, one := range patches {
		if config, err = patched(config, one.loaded); err != nil {
			return nil, one.refused(node, err)
		}
	}

	if multidoc { // a patch may have brought one back
		if config, err = moveHostname(config); err != nil {
			return nil, fmt.Errorf("set hostname of %s: %w", node.Name, err)
		}
	}

	return encoded(config, node)
}

func encoded(config talosconfig.Provider, node profile.Machine) ([]byte, error) {
	text, err := config.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("write machine config of %s: %w", node.Name, err)
	}

	return text, nil
}
