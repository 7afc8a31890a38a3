package diagnosis

// What the audit finds about images: TM290 to TM301, TM313 and TM314.
const (
	KernelArgsRefused    ID = "TM290"
	KernelArgsSecureBoot ID = "TM291"
	SchematicDiffers     ID = "TM292"
	SecureBootDeclared   ID = "TM293"
	TPMWithoutSecureBoot ID = "TM294"
	SchematicUnused      ID = "TM295"
	ExtensionName        ID = "TM296"
	ExtensionsContradict ID = "TM297"
	ExtensionService     ID = "TM298"
	InstallerPlatform    ID = "TM299"
	SchematicTooNew      ID = "TM300"
	ModuleWithoutImage   ID = "TM301"
	InstallExtensions    ID = "TM313"
	AgentElsewhere       ID = "TM314"
)

const (
	factorySource = "siderolabs/image-factory internal/profile/profile.go, docs/api.md"
	serviceSource = "siderolabs/extensions, the services' depends; Talos documentation, ExtensionServiceConfig"
)

var imageEntries = []Entry{
	{
		ID: KernelArgsRefused, Title: "install.extraKernelArgs together with grubUseUKICmdline", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "grubUseUKICmdline, which configs from 1.12 on have, takes the kernel arguments from the image. " +
			"Talos refuses the two together on a machine where it has to install, and the installer refuses the " +
			"config at the next upgrade.",
		Remedy: "Put the arguments into the image's schematic and take install.extraKernelArgs out.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go; siderolabs/talos " +
			"cmd/installer/cmd/installer/install.go; siderolabs/talos#10519; budimanjojo/talhelper#1000",
	},
	{
		ID: KernelArgsSecureBoot, Title: "install.extraKernelArgs with a SecureBoot image", Severity: Warning,
		Cause: "A SecureBoot image is one signed file with its kernel arguments: systemd-boot takes no " +
			"arguments from the machine config.",
		Remedy: "Put the arguments into the image's schematic and take install.extraKernelArgs out.",
		Source: "siderolabs/talos#10519, #10339, #13967; budimanjojo/talhelper#1000",
	},
	{
		ID: SchematicDiffers, Title: "The installer image is not the one that the inventory declares", Severity: Warning,
		Cause: "A schematic's id is the hash of its text. The machine config has another one than the inventory's " +
			"schematic or talosImageURL: it was made before the last change, and the node gets other extensions or kernel " +
			"arguments.",
		Remedy: "Make the machine configs again: mage config:generate.",
		Source: factorySource + "; pkg/schematic",
	},
	{
		ID: SecureBootDeclared, Title: "The installer image does not fit the declared SecureBoot", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "A machine with SecureBoot starts only what is signed. After an install or an upgrade with an " +
			"ordinary installer it does not boot, and with TPM encryption its data is lost. The reverse, a " +
			"SecureBoot installer where the declared boot image is an ordinary one, is a warning.",
		Remedy: "Use the -secureboot installer with machineSpec.secureboot: true, and the ordinary one without.",
		Source: "siderolabs/talos#12152, #9482; budimanjojo/talhelper#304; onedr0p/cluster-template#1634",
	},
	{
		ID: TPMWithoutSecureBoot, Title: "TPM keys with an installer that is not for SecureBoot", Severity: Warning,
		Cause: "A key that the TPM seals says that the machine booted what was measured; without SecureBoot a later boot " +
			"may not open the disk. With checkSecurebootStatusOnEnroll the key is not made at all, and the node never " +
			"finishes its install.",
		Remedy: "Use the -secureboot installer, or other encryption keys.",
		Source: "siderolabs/talos internal/pkg/encryption/keys/tpm2.go; siderolabs/talos#9415, #8995, #10205",
	},
	{
		ID: SchematicUnused, Title: "A schematic is not used", Severity: Warning,
		Cause: "talosImageURL names the installer, so the schematic beside it has no effect: its extensions and " +
			"kernel arguments are not in the image.",
		Remedy: "Take talosImageURL out, or use the schematic's own id in it.",
		Source: "talhelper v3.1.16, pkg/talos",
	},
	{
		ID: ExtensionName, Title: "A schematic names an extension that the image factory does not have", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "The factory takes official extensions by name, such as siderolabs/iscsi-tools, without registry " +
			"and tag. It builds no image with one that it does not know. A name that looks misspelt is a " +
			"warning: extensions are added with each release.",
		Remedy: "Correct the name.",
		Source: factorySource + "; talhelper v3.1.16, pkg/config/schemas/talos-extensions.json",
	},
	{
		ID: ExtensionsContradict, Title: "Parts of a schematic exclude each other", Severity: Warning,
		Cause: "NVIDIA's drivers and container toolkit must be of one series, lts or production, and one kind " +
			"of driver. Overlays are for arm64 boards. A SecureBoot image boots only with systemd-boot.",
		Remedy: "Keep one of the two.",
		Source: "Talos documentation, NVIDIA GPU; Image Factory; siderolabs/overlays",
	},
	{
		ID: ExtensionService, Title: "An extension's service and its configuration don't go together", Severity: Warning,
		Cause: "The service of an extension waits forever for its ExtensionServiceConfig. An " +
			"ExtensionServiceConfig has no effect if the image lacks the extension.",
		Remedy: "Add the extension to the schematic, or the ExtensionServiceConfig to the node.",
		Source: serviceSource,
	},
	{
		ID: InstallerPlatform, Title: "The installer image is for another platform than the inventory declares",
		Severity: Warning,
		Cause: "From 1.10 on an installer has the platform in its name and in its kernel arguments: the installed node " +
			"looks for its config and network settings elsewhere than the booted one.",
		Remedy: "Use the installer of machineSpec.mode, such as nocloud-installer.",
		Source: factorySource,
	},
	{
		ID: SchematicTooNew, Title: "A schematic needs a newer Talos version than the declared one", Severity: Failure,
		Exit: ExitBadInput,
		Cause: "Extensions, overlays (1.7) and embedded machine configs (1.12) came with a later release than " +
			"talosVersion: the factory builds no such image, and the node can't pull it.",
		Remedy: "Raise talosVersion, or take it out of the schematic.",
		Source: factorySource + "; machinery imager/quirks/quirks.go; talhelper v3.1.16, " +
			"pkg/config/schemas/talos-extensions.json",
	},
	{
		ID: ModuleWithoutImage, Title: "A kernel module to load is not in the image", Severity: Warning,
		Cause: "The module is part of an extension, and the installer image lacks that extension: Talos tries " +
			"to load it again and again.",
		Remedy: "Add the extension to the schematic.",
		Source: "siderolabs/extensions; Talos documentation, machine.kernel.modules",
	},
	{
		ID: InstallExtensions, Title: "install.extensions in a machine config", Severity: Warning,
		Cause: "Extensions are part of the image since Talos 1.5, and the field is deprecated: newer installers " +
			"don't read it, so the node lacks them.",
		Remedy: "Put the extensions into the image's schematic and take install.extensions out.",
		Source: "machinery config/types/v1alpha1/v1alpha1_validation.go (RuntimeValidate); Talos documentation, Boot Assets",
	},
	{
		ID: AgentElsewhere, Title: "The image has the guest agent of another hypervisor", Severity: Warning,
		Cause: "A guest agent talks to one kind of hypervisor. On another kind, or without one, its service " +
			"fails and restarts again and again.",
		Remedy: "Take the extension out of the schematic of these machines.",
		Source: "siderolabs/extensions, guest-agents",
	},
}
