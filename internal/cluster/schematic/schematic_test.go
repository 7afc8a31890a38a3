package schematic_test

import (
	"strings"
	"testing"
	"text/template"

	"github.com/siderolabs/talos/pkg/machinery/imager/imageropts"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
)

const (
	guestAgentID = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	plainID      = schematic.PlainID
)

// The ids are those that the factory gave.
func TestIDIsTheOneThatTheFactoryGives(t *testing.T) {
	t.Parallel()

	tests := map[string]struct{ text, id string }{
		"nothing":             {"", plainID},
		"empty customization": {"customization: {extraKernelArgs: [], systemExtensions: {}}", plainID},
		"extension": {"customization: {systemExtensions: {officialExtensions: [siderolabs/qemu-guest-agent]}}",
			guestAgentID},
		"kernel log and extension": {`
customization:
  systemExtensions:
    officialExtensions:
      - siderolabs/qemu-guest-agent
  extraKernelArgs:
    - talos.logging.kernel=udp://127.0.0.1:6050
`, "a7f294c4436e874167652f711750f9bc607c89f12f7c27f183584a25763a2bca"},
		"meta": {"customization: {meta: [{key: 10, value: foo}]}",
			"d308a2a5ee2277bed5fbaa104fcbc8d59122abfa737df987a95b4ca763459a7f"},
		"secureboot": {"customization: {secureboot: {includeWellKnownCertificates: true}}",
			"fa8e05f142a851d3ee568eb0a8e5841eaf6b0ebc8df9a63df16ac5ed2c04f3e6"},
		"overlay": {"overlay: {name: rpi_generic, image: siderolabs/sbc-raspberrypi}",
			"ee21ef4a5ef808a9b7484cc0dda0f25075021691c8c09a276591eedb638ea1f9"},
		"sector size": {"customization: {diskImage: {sectorSize: 4096}}",
			"92833e9ddd9bb9e11b2464fa5525429f01866306d52ebd882ee08d7918f6d1ea"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var parsed schematic.Schematic
			require.NoError(t, yaml.Unmarshal([]byte(test.text), &parsed))

			id, err := parsed.ID()
			require.NoError(t, err)
			require.Equal(t, test.id, id)
			require.True(t, schematic.IsID(id))
		})
	}
}

func TestBootloaderIsReadByItsName(t *testing.T) {
	t.Parallel()

	var parsed schematic.Schematic
	require.NoError(t, yaml.Unmarshal([]byte("customization: {bootloader: sd-boot}"), &parsed))
	require.Equal(t, imageropts.BootLoaderKindSDBoot, parsed.Customization.Bootloader)

	text, err := parsed.Canonical()
	require.NoError(t, err)
	require.Equal(t, "customization:\n    bootloader: sd-boot\n", string(text))
}

func TestWhatTheFactoryRefusesIsRefused(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"customization: {bootloader: lilo}", "customization: {meta: [{key: 256}]}", "- a"} {
		var parsed schematic.Schematic
		require.Error(t, yaml.Unmarshal([]byte(text), &parsed), text)
	}
}

func TestIsIDRefusesOtherTexts(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", plainID[1:], plainID + "0", strings.ToUpper(plainID), strings.Repeat("g", 64)} {
		require.False(t, schematic.IsID(text), text)
	}
}

func TestInstallerIsNamedByPlatformVersionAndSecureBoot(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		image schematic.Image
		usual string
	}{
		"before v1.10":  {schematic.Image{Version: "v1.9.6"}, "factory.talos.dev/installer/ID:v1.9.6"},
		"from v1.10 on": {schematic.Image{Version: "v1.10.0"}, "factory.talos.dev/metal-installer/ID:v1.10.0"},
		"newest":        {schematic.Image{Version: "v1.13.9"}, "factory.talos.dev/metal-installer/ID:v1.13.9"},
		"platform": {schematic.Image{Version: "v1.13.9", Mode: "nocloud"},
			"factory.talos.dev/nocloud-installer/ID:v1.13.9"},
		"secure boot": {schematic.Image{Version: "v1.13.9", Secureboot: true},
			"factory.talos.dev/metal-installer-secureboot/ID:v1.13.9"},
		"secure boot, earlier": {schematic.Image{Version: "v1.9.6", Secureboot: true},
			"factory.talos.dev/installer-secureboot/ID:v1.9.6"},
		"registry": {schematic.Image{Version: "v1.13.9", RegistryURL: "images.example.net/factory"},
			"images.example.net/factory/metal-installer/ID:v1.13.9"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			test.image.ID = "ID"
			require.Equal(t, test.usual, test.image.UsualInstaller())
		})
	}

	require.Equal(t, "factory.talos.dev/metal-installer/ID:v1.9.6",
		schematic.Image{ID: "ID", Version: "v1.9.6"}.Installer())
}

func TestBootImageIsNamedByMethod(t *testing.T) {
	t.Parallel()

	tests := map[string]schematic.Image{
		"metal-amd64.iso":                {},
		"metal-arm64.raw.xz":             {Arch: "arm64", BootMethod: "disk-image"},
		"nocloud-amd64.qcow2":            {Mode: "nocloud", BootMethod: "disk-image", Suffix: ".qcow2"},
		"metal-amd64-secureboot.iso":     {Secureboot: true},
		"metal-amd64-secureboot-uki.efi": {Secureboot: true, UseUKI: true},
		"metal-amd64":                    {BootMethod: "pxe"},
	}

	for want, image := range tests {
		image.ID, image.Version = "ID", "v1.13.9"
		require.Equal(t, "https://factory.talos.dev/image/ID/v1.13.9/"+want, image.Boot())
	}
}

func TestTemplatesNameAnImage(t *testing.T) {
	t.Parallel()

	image := schematic.Image{ID: "ID", Version: "v1.13.9", Secureboot: true}

	name, err := image.Fill("{{ .RegistryURL }}/{{ upper .Mode }}{{ if .Secureboot }}-signed{{ end }}/{{ .ID }}:{{ "+
		".Version }}", template.FuncMap{"upper": strings.ToUpper})
	require.NoError(t, err)
	require.Equal(t, "factory.talos.dev/METAL-signed/ID:v1.13.9", name)

	for _, pattern := range []string{"{{ .Registry }}", "{{", "{{ if false }}x{{ end }}", "{{ lower .Mode }}"} {
		_, err := image.Fill(pattern, nil)
		require.Error(t, err, pattern)
	}
}

func TestReferencesAreTakenApart(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		schematic.Reference

		official, secureBoot, plain bool
		platform                    string
	}{
		"factory.talos.dev/metal-installer-secureboot/" + plainID + ":v1.13.9": {
			Reference: schematic.Reference{Registry: "factory.talos.dev", Repository: "metal-installer-secureboot",
				Schematic: plainID, HasSchematic: true, Tag: "v1.13.9"},
			official: true, secureBoot: true, plain: true, platform: "metal",
		},
		"factory.talos.dev/installer/:v1.13.9": {
			Reference: schematic.Reference{Registry: "factory.talos.dev", Repository: "installer", HasSchematic: true,
				Tag: "v1.13.9"}, official: true, platform: "metal",
		},
		"images.example.net:5000/factory/nocloud-installer/" + guestAgentID: {
			Reference: schematic.Reference{Registry: "images.example.net:5000", Repository: "factory/nocloud-installer",
				Schematic: guestAgentID, HasSchematic: true},
			official: true, platform: "nocloud",
		},
		"ghcr.io/siderolabs/installer:v1.13.9": {
			Reference: schematic.Reference{Registry: "ghcr.io", Repository: "siderolabs/installer", Tag: "v1.13.9"},
			official:  true, plain: true,
		},
		"registry.example.net/talos@sha256:00": {
			Reference: schematic.Reference{Registry: "registry.example.net", Repository: "talos", Digest: "sha256:00"},
		},
	}

	for text, want := range tests {
		parsed := schematic.ParseReference(text)

		require.Equal(t, want.Reference, parsed, text)
		require.Equal(t, want.official, parsed.Official(), text)
		require.Equal(t, want.secureBoot, parsed.SecureBoot(), text)
		require.Equal(t, want.plain, parsed.Plain(), text)
		require.Equal(t, want.platform, parsed.Platform(), text)
	}
}
