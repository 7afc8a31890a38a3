package schematic

import (
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/siderolabs/talos/pkg/machinery/imager/quirks"
)

// Defaults of an image's name.
const (
	DefaultRegistry = "factory.talos.dev"
	DefaultPlatform = "metal"
	DefaultArch     = "amd64"
	DefaultProtocol = "https"
)

// Image says which of a schematic's images is meant. Its fields are what a template of talhelper's imageFactory can
// use.
type Image struct {
	// RegistryURL is the factory's host, and a path if it has one; no scheme. Empty means DefaultRegistry.
	RegistryURL string
	// Protocol is "https" or "http", for what is not pulled as a container image. Empty means DefaultProtocol.
	Protocol string
	// ID is the schematic's.
	ID string
	// Version is that of Talos, with its v.
	Version string
	// Mode is the platform. Empty means DefaultPlatform.
	Mode string
	// Arch is "amd64" or "arm64". Empty means DefaultArch.
	Arch string
	// Secureboot chooses the images that are signed.
	Secureboot bool
	// UseUKI chooses the kernel as one file (.efi) in place of an ISO; only with Secureboot.
	UseUKI bool
	// BootMethod is "iso" (or empty), "disk-image" or "pxe".
	BootMethod string
	// Suffix replaces what BootMethod means for the end of the name; with its dot.
	Suffix string
}

// Installer is the container image that installs and upgrades Talos, <platform>-installer. Talos below v1.10 knows it
// by that name as well as by LegacyInstaller's. Source: image-factory, docs/api.md.
func (i Image) Installer() string {
	i = i.withDefaults()

	return i.installer(i.Mode + "-installer")
}

// LegacyInstaller is the same image for platform metal, by the name that it had before Talos v1.10.
func (i Image) LegacyInstaller() string { return i.withDefaults().installer("installer") }

// UsualInstaller is the name that the factory's own web page shows for a Talos version: LegacyInstaller below v1.10,
// else Installer. Source: image-factory internal/frontend/http/ui.go, machinery imager/quirks
// (SupportsUnifiedInstaller).
func (i Image) UsualInstaller() string {
	if quirks.New(i.Version).SupportsUnifiedInstaller() {
		return i.Installer()
	}

	return i.LegacyInstaller()
}

func (i Image) installer(name string) string {
	if i.Secureboot {
		name += "-secureboot"
	}

	return fmt.Sprintf("%s/%s/%s:%s", i.RegistryURL, name, i.ID, i.Version)
}

// Boot is the URL of what a machine is first started with: an ISO, a disk image, a UKI, or the PXE script's stem.
func (i Image) Boot() string {
	i = i.withDefaults()

	name := i.Mode + "-" + i.Arch
	if i.Secureboot {
		name += "-secureboot"
	}

	if i.Secureboot && i.UseUKI {
		name += "-uki.efi"
	} else {
		name += i.Suffix
	}

	return fmt.Sprintf("%s://%s/image/%s/%s/%s", i.Protocol, i.RegistryURL, i.ID, i.Version, name)
}

// Fill executes a template for the name of an image, as talhelper's imageFactory.installerURLTmpl; functions are what
// it can call beside text/template's own.
func (i Image) Fill(pattern string, functions template.FuncMap) (string, error) {
	parsed, err := template.New("image").Funcs(functions).Parse(pattern)
	if err != nil {
		return "", fmt.Errorf("parse template of an image's name: %w", err)
	}

	var name strings.Builder

	if err := parsed.Execute(&name, i.withDefaults()); err != nil {
		return "", fmt.Errorf("fill template of an image's name: %w", err)
	}

	if name.Len() == 0 {
		return "", errors.New("fill template of an image's name: it gives an empty text")
	}

	return name.String(), nil
}

func (i Image) withDefaults() Image {
	for _, field := range []struct {
		value    *string
		fallback string
	}{
		{&i.RegistryURL, DefaultRegistry},
		{&i.Protocol, DefaultProtocol},
		{&i.Mode, DefaultPlatform},
		{&i.Arch, DefaultArch},
		{&i.Suffix, i.usualSuffix()},
	} {
		if *field.value == "" {
			*field.value = field.fallback
		}
	}

	return i
}

// usualSuffix is the end of a boot image's name. Source: image-factory docs/api.md.
func (i Image) usualSuffix() string {
	switch {
	case i.BootMethod == "pxe":
		return ""
	case i.BootMethod == "disk-image":
		return ".raw.xz"
	case i.Secureboot && i.UseUKI:
		return ".efi"
	default:
		return ".iso"
	}
}
