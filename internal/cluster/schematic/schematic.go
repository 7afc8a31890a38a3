// Package schematic names what the Image Factory builds: what a Talos image is made of, and where the image is pulled
// from.
//
// The factory's answer to a schematic is a hash of its canonical text, so nothing here needs the network. The fields,
// their order and the hash are those of github.com/siderolabs/image-factory v1.4.0, pkg/schematic; the names of images
// are those of its docs/api.md.
package schematic

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/imager/imageropts"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Schematic is what a Talos image is made of beyond Talos itself. The order of the fields here and below is part of the
// id.
type Schematic struct {
	// Owner is the account that a schematic belongs to, in the factory's enterprise edition alone.
	Owner string `yaml:"owner,omitempty" doc:"The account that it belongs to, at a factory that has accounts."`
	// Overlay adapts the image to a single board computer.
	Overlay Overlay `yaml:"overlay,omitempty" doc:"What adapts the image to a single board computer."`
	// Customization is always written, even if it is empty.
	Customization Customization `yaml:"customization" doc:"What goes into the image."`
}

// Overlay names what adapts an image to a board.
type Overlay struct {
	// Image is the overlay's container image, as siderolabs/sbc-raspberrypi.
	Image string `yaml:"image" doc:"The overlay's container image, as siderolabs/sbc-raspberrypi."`
	// Name is the overlay in that image, as rpi_generic.
	Name string `yaml:"name" doc:"The overlay in it, as rpi_generic."`
	// Options are the overlay's own.
	Options map[string]any `yaml:"options,omitempty" doc:"The overlay's own."`
}

// Customization is what goes into the image.
type Customization struct {
	// EmbeddedMachineConfiguration is a machine config that the image carries; it may hold secrets.
	EmbeddedMachineConfiguration string `yaml:"embeddedMachineConfiguration,omitempty" doc:"A machine config that the image carries. It may hold secrets."`
	// ExtraKernelArgs are appended to the kernel's command line.
	ExtraKernelArgs []string `yaml:"extraKernelArgs,omitempty" doc:"Appended to the kernel's command line."`
	// Meta are the first contents of the META partition.
	Meta []MetaValue `yaml:"meta,omitempty" doc:"First contents of the META partition."`
	// SystemExtensions are the extensions in the image.
	SystemExtensions SystemExtensions `yaml:"systemExtensions,omitempty" doc:"Extensions in the image."`
	// Bootloader is "dual-boot", "sd-boot" or "grub"; the zero value leaves the choice to Talos.
	Bootloader imageropts.BootloaderKind `yaml:"bootloader,omitempty" enum:"none,dual-boot,sd-boot,grub" doc:"The bootloader. Default: Talos' choice."`
	// SecureBoot says how keys are enrolled.
	SecureBoot SecureBoot `yaml:"secureboot,omitempty" doc:"How keys are enrolled."`
	// DiskImage describes a disk image.
	DiskImage DiskImage `yaml:"diskImage,omitempty" doc:"The disk image."`
}

// MetaValue is one value of the META partition.
type MetaValue struct {
	Key   uint8  `yaml:"key" doc:"The value's key, as 0xa for network settings."`
	Value string `yaml:"value" doc:"The value."`
}

// SystemExtensions are extensions by name; the factory takes the version that fits Talos.
type SystemExtensions struct {
	OfficialExtensions []string `yaml:"officialExtensions,omitempty" doc:"Their names, as siderolabs/iscsi-tools; the factory takes the versions that fit."`
}

// SecureBoot are the options of SecureBoot images.
type SecureBoot struct {
	// EnrollKeys is "off", "manual", "if-safe" or "force"; empty means "if-safe".
	EnrollKeys string `yaml:"enrollKeys,omitempty" enum:"off,manual,if-safe,force" doc:"When keys are enrolled. Default: if-safe."`
	// IncludeWellKnownCertificates adds Microsoft's certificates to the keys.
	IncludeWellKnownCertificates bool `yaml:"includeWellKnownCertificates,omitempty" doc:"Adds Microsoft's certificates to the keys."`
}

// DiskImage are the options of disk images.
type DiskImage struct {
	// SectorSize is in bytes; 0 means 512.
	SectorSize uint `yaml:"sectorSize,omitempty" doc:"Size of its sectors in bytes. Default: 512."`
}

// Canonical is the text that the id is the hash of.
func (s *Schematic) Canonical() ([]byte, error) {
	text, err := yaml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write schematic: %w", err)
	}

	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read schematic: %w", err)
	}

	if !quoteAsFactory(&document) {
		return text, nil
	}

	if text, err = yaml.Marshal(&document); err != nil {
		return nil, fmt.Errorf("write schematic: %w", err)
	}

	return text, nil
}

// olderMeaning is of texts that YAML 1.1 takes for something else: a switch, a number to the base 60, a merge.
var olderMeaning = pattern.New(`^([yYnN]|[yY]es|YES|[nN]o|NO|[oO]n|ON|[oO]ff|OFF|<<|` +
	`[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$`)

// quoteAsFactory gives such texts the quotes that the Image Factory (v1.4.0) writes, whose encoder is an older one;
// false if there are none. Another text has another id, and no image has that.
func quoteAsFactory(node *yaml.Node) bool {
	quoted := node.Kind == yaml.ScalarNode && node.Style&yaml.SingleQuotedStyle != 0 &&
		olderMeaning.MatchString(node.Value)
	if quoted {
		node.Style = yaml.DoubleQuotedStyle
	}

	for _, child := range node.Content {
		quoted = quoteAsFactory(child) || quoted
	}

	return quoted
}

// ID is the schematic's name in the factory: 64 hexadecimal digits, the SHA-256 of its canonical text.
func (s *Schematic) ID() (string, error) {
	text, err := s.Canonical()
	if err != nil {
		return "", err
	}

	sum := sha256.Sum256(text)

	return hex.EncodeToString(sum[:]), nil
}

var id = pattern.New(`^[0-9a-f]{64}$`)

// IsID reports whether a text has the form of a schematic's id.
func IsID(text string) bool { return id.MatchString(text) }
