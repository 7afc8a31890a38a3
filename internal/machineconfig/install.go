package machineconfig

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// How Talos gets on a disk stands in machine.install, or since Talos 1.14 in an UnattendedInstallConfig, which takes
// its place: Talos refuses both.

// install is the older section; nil if there is none.
func (c *Config) install() *v1alpha1.InstallConfig { return c.raw.MachineConfig.MachineInstall }

// HasInstall reports whether the config says how Talos is installed.
func (c *Config) HasInstall() bool { return c.install() != nil || c.IsUnattended() }

// IsUnattended reports whether a document says how Talos is installed: the node then installs while it boots, and no
// failure brings it back to maintenance.
func (c *Config) IsUnattended() bool { return c.Provider.UnattendedInstallConfig() != nil }

// InstallImage is the installer image with its tag; empty when Talos picks it.
func (c *Config) InstallImage() string {
	if unattended := c.Provider.UnattendedInstallConfig(); unattended != nil {
		return unattended.InstallerImage()
	}

	if install := c.install(); install != nil {
		return install.InstallImage
	}

	return ""
}

// namedDisk is how an UnattendedInstallConfig names a disk. Links to it are no paths in this sense: Talos compares with
// the disk's own.
var namedDisk = pattern.New(`^disk\.dev_path == "(/dev/[^/"]+)"$`)

// InstallDisk is the path of the disk that Talos is installed to; empty where a selector picks it.
func (c *Config) InstallDisk() string {
	switch install := c.install(); {
	case c.IsUnattended():
		if match := namedDisk.FindStringSubmatch(c.diskExpressionText()); match != nil {
			return match[1]
		}

		return ""
	case install != nil && install.InstallDiskSelector == nil:
		return install.InstallDisk
	default:
		return ""
	}
}

// DisplacedInstallDisk is the path of a disk that is named beside the selector that counts.
func (c *Config) DisplacedInstallDisk() string {
	if install := c.install(); install != nil && install.InstallDiskSelector != nil {
		return install.InstallDisk
	}

	return ""
}

// SaysInstallDisk reports whether a disk is named or a selector given. A document is not valid without one.
func (c *Config) SaysInstallDisk() bool {
	install := c.install()

	return c.IsUnattended() || install != nil && (install.InstallDisk != "" || install.InstallDiskSelector != nil)
}

// DiskExpression is the expression that picks the install disk; false where none does, or it can't be read.
func (c *Config) DiskExpression() (cel.Expression, bool) {
	if unattended := c.Provider.UnattendedInstallConfig(); unattended != nil {
		expression := unattended.VolumeSelector()

		return expression, !expression.IsZero()
	}

	install := c.install()
	if install == nil || install.InstallDiskSelector == nil {
		return cel.Expression{}, false
	}

	expression, err := install.DiskMatchExpression()
	if err != nil || expression == nil {
		return cel.Expression{}, false // Validate tells why
	}

	return *expression, true
}

// diskExpressionText is the expression on one line; long ones are broken into several.
func (c *Config) diskExpressionText() string {
	expression, has := c.DiskExpression()
	if !has {
		return ""
	}

	return strings.Join(strings.Fields(expression.String()), " ")
}

// DiskSelector is the expression that picks the install disk, on one line; empty where the disk is named, or nothing
// says it.
func (c *Config) DiskSelector() string {
	if c.InstallDisk() != "" {
		return ""
	}

	return c.diskExpressionText()
}

// ExtraKernelArgs are the kernel arguments of the install section; a document has none.
func (c *Config) ExtraKernelArgs() []string {
	if install := c.install(); install != nil {
		//nolint:staticcheck // old files have them, and Talos obeys them with GRUB
		return slices.Clone(install.InstallExtraKernelArgs)
	}

	return nil
}

// UsesUKICmdline reports whether the kernel's arguments are the image's own: always so where a document says how Talos
// is installed.
func (c *Config) UsesUKICmdline() bool {
	return c.IsUnattended() || c.install() != nil && c.install().GrubUseUKICmdline()
}

// DecidesUKICmdline reports whether the install section says whose arguments the kernel gets, as those of before Talos
// 1.12 do not.
func (c *Config) DecidesUKICmdline() bool {
	return c.install() != nil && c.install().InstallGrubUseUKICmdline != nil
}

// HasInstallExtensions reports whether the installer is to add extensions, which newer ones don't do.
func (c *Config) HasInstallExtensions() bool {
	return c.install() != nil && len(c.install().InstallExtensions) > 0 //nolint:staticcheck // old files have them
}

// SecureBootImage reports whether the installer image is made for SecureBoot: its name ends with "-secureboot".
func (c *Config) SecureBootImage() bool { return IsSecureBootImage(c.InstallImage()) }

// IsSecureBootImage reports whether an image reference, as in factory.talos.dev/metal-installer-secureboot/<id>:v1.13.9
// or ghcr.io/…/installer-secureboot:v1.13.9, is a SecureBoot installer.
func IsSecureBootImage(image string) bool {
	for part := range strings.SplitSeq(image, "/") {
		name, _, _ := strings.Cut(part, ":")
		name, _, _ = strings.Cut(name, "@")

		if strings.HasSuffix(name, "-secureboot") {
			return true
		}
	}

	return false
}

// InstallerVersion is the tag of the installer image, as in "v1.13.9"; empty if it has none.
func (c *Config) InstallerVersion() string {
	image, _, _ := strings.Cut(c.InstallImage(), "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")

	return tag
}
