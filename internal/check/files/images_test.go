package files_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// The schematics of these ids: siderolabs/qemu-guest-agent, and the same with
// talos.logging.kernel=udp://127.0.0.1:6050.
const (
	guestAgentID        = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	guestAgentLoggingID = "a7f294c4436e874167652f711750f9bc607c89f12f7c27f183584a25763a2bca"
	plainID             = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
	tunnelID            = "09dbcadc567d93b02a1610c70d651fadbe56aeac3aaca36bc488a38f3fffe99d" // siderolabs/cloudflared
	zfsID               = "4dd8e3a8b6203d3c14f049da8db4d3bb0d6d3e70c5e89dfcc1e709e81914f63c" // siderolabs/zfs
)

const guestAgent = "schematic:\n\tcustomization:\n\t\tsystemExtensions:\n\t\t\tofficialExtensions:\n\t\t\t\t- " +
	"siderolabs/qemu-guest-agent\n"

// imaged is a control plane with an installer image; more are further fields of machine.install.
func imaged(image string, more ...string) config {
	return installing("disk: /dev/vda\n\timage: " + image + "\n\t" + strings.Join(more, "\n\t"))
}

func factory(installer, id string) string {
	return "factory.talos.dev/" + installer + "/" + id + ":v1.13.9"
}

// declaring is a cluster of one node with further settings at its entry.
func declaring(settings string, configs ...config) files {
	return lab(configs...).replaced("talconfig.yaml", "    installDisk: /dev/vda\n",
		"    installDisk: /dev/vda\n"+indent(indent(settings)))
}

func TestKernelArgumentsOfImages(t *testing.T) {
	t.Parallel()

	const logging = "extraKernelArgs: ['talos.logging.kernel=udp://127.0.0.1:6050']"

	refused := imaged(factory("metal-installer", guestAgentID), "grubUseUKICmdline: true", logging)

	judge(t, diagnosis.KernelArgsRefused, map[string]trial{
		"both": {files: lab(refused), line: logging,
			cause:    "install.extraKernelArgs (talos.logging.kernel) and install.grubUseUKICmdline can't be used together",
			severity: diagnosis.Failure},
		"no image": {files: lab(installing("disk: /dev/vda\n\tgrubUseUKICmdline: true\n\textraKernelArgs: [a]")),
			line: "extraKernelArgs: [a]", cause: "(a)", severity: diagnosis.Failure},
		"a cloud": {files: lab(imaged(factory("nocloud-installer", guestAgentID), "grubUseUKICmdline: true", logging)),
			cause: "can't be used together", severity: diagnosis.Warning},
		"a board": {files: declaring("schematic:\n\toverlay: {name: rpi_generic, image: siderolabs/sbc-raspberrypi}",
			refused), cause: "can't be used together", severity: diagnosis.Warning},
		"disk image": {files: declaring("machineSpec: {bootMethod: disk-image}", refused), cause: "can't be used together",
			severity: diagnosis.Warning},
		"a patch": {files: inFile("machine:\n\tinstall:\n\t\textraKernelArgs:\n\t\t\t- a=b\n").without(
			"clusterconfig/lab-n2.yaml"), at: "patches/a.yaml", line: "- a=b",
			cause:    "sets install.extraKernelArgs for n2, and configs for Talos v1.13 have install.grubUseUKICmdline",
			severity: diagnosis.Failure},
		"patch, old": {files: talosVersion(inFile("machine:\n\tinstall:\n\t\textraKernelArgs: [a=b]\n").without(
			"clusterconfig/lab-n2.yaml"), "v1.11.6")},
		"patch, own": {files: inFile("machine:\n\tinstall:\n\t\tgrubUseUKICmdline: false\n\t\textraKernelArgs: [a=b]\n").without("clusterconfig/lab-n2.yaml")},
		"made since": {files: inFile("machine:\n\tinstall:\n\t\textraKernelArgs: [a=b]\n")},
		"its own":    {files: lab(imaged(factory("metal-installer", guestAgentID), "grubUseUKICmdline: false", logging))},
		"none":       {files: lab(imaged(factory("metal-installer", guestAgentID), "grubUseUKICmdline: true"))},
	})

	for name, made := range map[string]files{"by its id alone": lab(refused),
		"as it is declared": declaring(guestAgent, refused)} {
		found := findingsOf(table.Run(context.Background(), made.read(t)), diagnosis.KernelArgsRefused)
		require.Len(t, found, 1, name)
		require.Contains(t, found[0].Next, "the schematic's id is then "+guestAgentLoggingID, name)
		require.Equal(t, diagnosis.ExitBadInput, found[0].ExitCode())
	}

	unknown := lab(imaged(factory("metal-installer", strings.Repeat("0", 64)), "grubUseUKICmdline: true", logging))
	found := findingsOf(table.Run(context.Background(), unknown.read(t)), diagnosis.KernelArgsRefused)
	require.NotContains(t, found[0].Next, "id is then", "what the image holds is not known")

	judge(t, diagnosis.KernelArgsSecureBoot, map[string]trial{
		"SecureBoot": {files: lab(imaged(factory("metal-installer-secureboot", plainID), "extraKernelArgs: [a=b]")),
			line: "extraKernelArgs: [a=b]", cause: "install.extraKernelArgs (a) will be ignored"},
		"ordinary": {files: lab(imaged(factory("metal-installer", plainID), "extraKernelArgs: [a=b]"))},
		"no image": {files: lab(installing("disk: /dev/vda\n\textraKernelArgs: [a=b]"))},
	})
}

func TestImagesOfSchematics(t *testing.T) {
	t.Parallel()

	withArguments := strings.Replace(guestAgent, "customization:\n",
		"customization:\n\t\textraKernelArgs: ['talos.logging.kernel=udp://127.0.0.1:6050']\n", 1)
	old, renewed := imaged(factory("metal-installer", guestAgentID)),
		imaged(factory("metal-installer", guestAgentLoggingID))

	judge(t, diagnosis.SchematicDiffers, map[string]trial{
		"changed since": {files: declaring(withArguments, old), line: "image: " + factory("metal-installer", guestAgentID),
			cause: "the installer image is of schematic " + guestAgentID + ", and the schematic in the inventory is " +
				guestAgentLoggingID},
		"a role's": {files: lab(renewed).replaced("talconfig.yaml", "nodes:",
			"controlPlane:\n"+indent(guestAgent)+"nodes:"), cause: "is " + guestAgentID},
		"by its name": {files: declaring("talosImageURL: factory.talos.dev/metal-installer/"+guestAgentLoggingID, old),
			cause: "the image in the inventory is " + guestAgentLoggingID},
		"the same": {files: declaring(withArguments, renewed)},
		"another's": {files: declaring(withArguments, renewed, old).replaced("talconfig.yaml", "hostname: n2",
			"talosImageURL: factory.talos.dev/metal-installer/"+guestAgentID+"\n    hostname: n2")},
		"by a patch":   {files: declaring(withArguments+"patches: ['{machine: {install: {image: x}}}']", old)},
		"not declared": {files: lab(old)},
		"a profile's": {
			files: declaredProfile("1.13.9", nil).with("configs/demo-w1.yaml",
				config{role: "worker", machine: imaged(factory("metal-installer", plainID)).machine}.text()),
			at:    "configs/demo-w1.yaml",
			cause: "the installer image is of schematic " + plainID + ", and the image in the inventory is " + guestAgentID,
		},
	})

	judge(t, diagnosis.SchematicUnused, map[string]trial{
		"both": {files: declaring(withArguments+"talosImageURL: factory.talos.dev/metal-installer/"+guestAgentID, old),
			at: "talconfig.yaml", line: "talosImageURL: factory.talos.dev/metal-installer/" + guestAgentID,
			cause: "which is " + guestAgentLoggingID},
		"a role's": {files: declaring(withArguments, old).replaced("talconfig.yaml", "nodes:",
			"controlPlane:\n  talosImageURL: ghcr.io/siderolabs/installer\nnodes:"),
			line: "talosImageURL: ghcr.io/siderolabs/installer", cause: "talosImageURL of n1"},
		"the same": {files: declaring(guestAgent+"talosImageURL: factory.talos.dev/metal-installer/"+guestAgentID, old)},
	})
}

func TestImagesThatAreDeclaredAlone(t *testing.T) {
	t.Parallel()

	url := func(url string) files {
		return declaring("talosImageURL: "+url, config{}).without("clusterconfig/lab-n1.yaml")
	}

	judge(t, diagnosis.InstallerReference, map[string]trial{
		"no schematic": {files: url("factory.talos.dev/installer/"), at: "talconfig.yaml",
			line: "talosImageURL: factory.talos.dev/installer/", cause: "the schematic id is missing",
			severity: diagnosis.Failure},
		"too short": {files: url("factory.talos.dev/metal-installer/" + plainID[1:]),
			cause: "is not 64 hexadecimal digits"},
		"with a tag": {files: url("factory.talos.dev/metal-installer/" + plainID + ":v1.13.9"),
			cause: "talosVersion is added to it"},
		"a role's": {files: lab(config{}).without("clusterconfig/lab-n1.yaml").replaced("talconfig.yaml", "nodes:",
			"controlPlane:\n  talosImageURL: factory.talos.dev/installer\nnodes:"),
			line: "talosImageURL: factory.talos.dev/installer", cause: "the schematic id is missing"},
		"sound":        {files: url("factory.talos.dev/metal-installer/" + plainID)},
		"own registry": {files: url("registry.example.net/talos")},
	})
}

func TestSecureBootOfImages(t *testing.T) {
	t.Parallel()

	signed, ordinary := imaged(factory("metal-installer-secureboot", plainID)), imaged(factory("metal-installer", plainID))

	judge(t, diagnosis.SecureBootDeclared, map[string]trial{
		"ordinary": {files: declaring("machineSpec: {secureboot: true}", ordinary),
			line: "image: " + factory("metal-installer", plainID), cause: "n1 is declared with SecureBoot",
			severity: diagnosis.Failure},
		"a role's": {files: lab(ordinary).replaced("talconfig.yaml", "nodes:",
			"controlPlane:\n  machineSpec: {secureboot: true}\nnodes:"), cause: "would not boot again",
			severity: diagnosis.Failure},
		"no config": {files: declaring("machineSpec: {secureboot: true}\ntalosImageURL: factory.talos.dev/installer/"+plainID,
			ordinary).without("clusterconfig/lab-n1.yaml"), at: "talconfig.yaml",
			line: "talosImageURL: factory.talos.dev/installer/" + plainID, cause: "would not boot again"},
		"signed": {files: declaring("machineSpec: {arch: amd64}", signed), cause: "names a boot image that is not",
			severity: diagnosis.Warning},
		"both":    {files: declaring("machineSpec: {secureboot: true}", signed)},
		"neither": {files: declaring("machineSpec: {arch: amd64}", ordinary)},
		"unsaid":  {files: lab(signed)},
		"own names": {files: declaring("machineSpec: {secureboot: true}",
			imaged("registry.example.net/installer/"+plainID+":v1.13.9")).replaced("talconfig.yaml", "nodes:",
			"imageFactory: {installerURLTmpl: 'registry.example.net/installer/{{ .ID }}:{{ .Version }}'}\nnodes:")},
		"own image": {files: declaring("machineSpec: {secureboot: true}", imaged("registry.example.net/talos:v1.13.9"))},
	})

	tpm := func(image, options string) config {
		made := imaged(image)
		made.documents = []string{"kind: VolumeConfig\nname: STATE\nencryption:\n\tprovider: luks2\n\tkeys: [{slot: " +
			"0, tpm: {" + options + "}}]"}

		return made
	}

	inOldStyle := imaged(factory("metal-installer", plainID))
	inOldStyle.machine += "\nsystemDiskEncryption:\n\tephemeral: {provider: luks2, keys: [{slot: 0, tpm: " +
		"{checkSecurebootStatusOnEnroll: true}}]}"

	judge(t, diagnosis.TPMWithoutSecureBoot, map[string]trial{
		"document": {files: lab(tpm(factory("metal-installer", plainID), "")),
			line: "image: " + factory("metal-installer", plainID), cause: "disks are encrypted with TPM keys",
			severity: diagnosis.Warning},
		"checked": {files: lab(tpm(factory("metal-installer", plainID), "checkSecurebootStatusOnEnroll: true")),
			line: "encryption:", cause: "made only with SecureBoot", severity: diagnosis.Failure},
		"old style": {files: lab(inOldStyle),
			line:  "ephemeral: {provider: luks2, keys: [{slot: 0, tpm: {checkSecurebootStatusOnEnroll: true}}]}",
			cause: "made only with SecureBoot", severity: diagnosis.Failure},
		"signed":    {files: lab(tpm(factory("metal-installer-secureboot", plainID), "checkSecurebootStatusOnEnroll: true"))},
		"own image": {files: lab(tpm("registry.example.net/talos:v1.13.9", ""))},
	})
}

func extensions(names ...string) string {
	return "schematic:\n\tcustomization:\n\t\tsystemExtensions:\n\t\t\tofficialExtensions:\n\t\t\t\t- " +
		strings.Join(names, "\n\t\t\t\t- ") + "\n"
}

func TestExtensionsOfSchematics(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.ExtensionName, map[string]trial{
		"with a tag": {files: declaring(extensions("ghcr.io/siderolabs/zfs:v1"), config{}), at: "talconfig.yaml",
			line: "- ghcr.io/siderolabs/zfs:v1", cause: "is no official extension", severity: diagnosis.Failure},
		"no owner": {files: declaring(extensions("zfs"), config{}), line: "- zfs", cause: "is no official extension",
			severity: diagnosis.Failure},
		"misspelt": {files: declaring(extensions("siderolabs/zfs", "siderolabs/qemu-guest-agnet"), config{}),
			line: "- siderolabs/qemu-guest-agnet", cause: "siderolabs/qemu-guest-agnet is not known here",
			severity: diagnosis.Warning},
		"twice": {files: declaring(extensions("siderolabs/zfs", "siderolabs/zfs"), config{}),
			cause: "siderolabs/zfs is listed twice", severity: diagnosis.Warning},
		"a role's": {files: lab(config{}).replaced("talconfig.yaml", "nodes:",
			"worker:\n"+indent(extensions("zfs"))+"nodes:"), line: "- zfs", cause: "no official extension"},
		"boot image's": {files: declaring(strings.Replace(extensions("zfs"), "schematic", "imageSchematic", 1), config{}),
			line: "- zfs", cause: "no official extension"},
		"right": {files: declaring(extensions("siderolabs/zfs", "siderolabs/something-new", "example/own"), config{})},
		"own factory": {files: declaring(extensions("siderolabs/zfss"), config{}).replaced("talconfig.yaml", "nodes:",
			"imageFactory: {registryURL: factory.example.net}\nnodes:")},
		"unvalidated": {files: declaring(extensions("siderolabs/zfss")+"noSchematicValidate: true", config{})},
	})

	judge(t, diagnosis.ExtensionsContradict, map[string]trial{
		"two series": {files: declaring(extensions("siderolabs/nonfree-kmod-nvidia-lts",
			"siderolabs/nvidia-container-toolkit-production"), config{}), at: "talconfig.yaml",
			line: "- siderolabs/nvidia-container-toolkit-production", cause: "are of different series"},
		"two drivers": {files: declaring(extensions("siderolabs/nonfree-kmod-nvidia-lts",
			"siderolabs/nvidia-open-gpu-kernel-modules-lts"), config{}), cause: "are drivers for the same devices"},
		"a board": {files: declaring("machineSpec: {arch: amd64}\nschematic:\n\toverlay: {name: rpi_generic, image: "+
			"siderolabs/sbc-raspberrypi}", config{}), line: "overlay: {name: rpi_generic, image: siderolabs/sbc-raspberrypi}",
			cause: "for boards with arm64"},
		"GRUB": {files: declaring("machineSpec: {secureboot: true}\nschematic:\n\tcustomization: {bootloader: grub}",
			config{}), cause: "asks for GRUB"},
		"one series": {files: declaring(extensions("siderolabs/nonfree-kmod-nvidia-lts",
			"siderolabs/nvidia-container-toolkit-lts"), config{})},
		"arm64": {files: declaring("machineSpec: {arch: arm64}\nschematic:\n\toverlay: {name: rpi_generic, image: "+
			"siderolabs/sbc-raspberrypi}", config{})},
	})

	judge(t, diagnosis.SchematicTooNew, map[string]trial{
		"extension": {files: talosVersion(declaring(extensions("siderolabs/nfs-utils"), config{}), "v1.11.6"),
			line: "- siderolabs/nfs-utils", cause: "siderolabs/nfs-utils came with Talos v1.12, and talosVersion is v1.11.6"},
		"overlay": {files: talosVersion(declaring(
			"schematic:\n\toverlay: {name: rpi_generic, image: siderolabs/sbc-raspberrypi}", config{}), "v1.6.8"),
			cause: "overlays came with Talos v1.7"},
		"embedded": {files: talosVersion(declaring("schematic:\n\tcustomization: {embeddedMachineConfiguration: x}",
			config{}), "v1.11.6"), cause: "came with Talos v1.12"},
		"known": {files: talosVersion(declaring(extensions("siderolabs/nfs-utils", "siderolabs/iscsi-tools"), config{}),
			"v1.12.1")},
	})
}

func TestExtensionsThatNodesConfigure(t *testing.T) {
	t.Parallel()

	service := func(image, name string) config {
		made := imaged(image)
		made.documents = []string{"kind: ExtensionServiceConfig\nname: " + name + "\nenvironment: [A=b]"}

		return made
	}

	tunnel := extensions("siderolabs/cloudflared")

	judge(t, diagnosis.ExtensionService, map[string]trial{
		"no extension": {files: lab(service(factory("metal-installer", plainID), "tailscale")), line: "name: tailscale",
			cause: "without the extension siderolabs/tailscale"},
		"another": {files: lab(service(factory("metal-installer", guestAgentID), "nut-client")),
			cause: "siderolabs/nut-client"},
		"from ghcr": {files: lab(service("ghcr.io/siderolabs/installer:v1.13.9", "tailscale")),
			cause: "siderolabs/tailscale"},
		"no configuration": {files: declaring(tunnel, imaged(factory("metal-installer", tunnelID))),
			line:  "image: " + factory("metal-installer", tunnelID),
			cause: "the extension siderolabs/cloudflared is in the installer image"},
		"together":      {files: declaring(tunnel, service(factory("metal-installer", tunnelID), "cloudflared"))},
		"unknown image": {files: lab(service(factory("metal-installer", strings.Repeat("0", 64)), "tailscale"))},
		"own service":   {files: lab(service(factory("metal-installer", plainID), "own"))},
	})

	modules := func(image, name string) config {
		made := imaged(image)
		made.machine += "\nkernel:\n\tmodules:\n\t\t- name: br_netfilter\n\t\t- name: " + name

		return made
	}

	judge(t, diagnosis.InstallExtensions, map[string]trial{
		"by the installer": {files: lab(imaged(factory("metal-installer", plainID),
			"extensions: [{image: 'ghcr.io/siderolabs/gvisor:v1'}]")), cause: "install.extensions is deprecated"},
		"in the image": {files: lab(imaged(factory("metal-installer", guestAgentID)), config{})},
	})

	judge(t, diagnosis.ModuleWithoutImage, map[string]trial{
		"plain": {files: lab(modules(factory("metal-installer", plainID), "drbd")), line: "- name: drbd",
			cause: "the module drbd is part of the extension siderolabs/drbd"},
		"guest agent":   {files: lab(modules(factory("metal-installer", guestAgentID), "nvidia_uvm")), cause: "nvidia"},
		"there":         {files: declaring(extensions("siderolabs/zfs"), modules(factory("metal-installer", zfsID), "zfs"))},
		"unknown image": {files: lab(modules(factory("metal-installer", strings.Repeat("0", 64)), "zfs"))},
		"Talos' own":    {files: lab(modules(factory("metal-installer", plainID), "nbd"))},
	})
}

func TestPlatformsOfImages(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.InstallerPlatform, map[string]trial{
		"metal": {files: declaring("machineSpec: {mode: nocloud}", imaged(factory("metal-installer", plainID))),
			line:  "image: " + factory("metal-installer", plainID),
			cause: "is for platform metal, and machineSpec.mode of n1 is nocloud"},
		"no config": {files: declaring("machineSpec: {mode: metal}\ntalosImageURL: factory.talos.dev/aws-installer/"+plainID,
			config{}).without("clusterconfig/lab-n1.yaml"), at: "talconfig.yaml", cause: "is for platform aws"},
		"the same": {files: declaring("machineSpec: {mode: nocloud}",
			imaged(factory("nocloud-installer-secureboot", plainID)))},
		"for all": {files: declaring("machineSpec: {mode: nocloud}",
			imaged("factory.talos.dev/installer/"+plainID+":v1.9.6"))},
	})
}
