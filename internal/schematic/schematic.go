// Package schematic names what the Image Factory builds: what a Talos image is made of, and where the image is pulled from.
//
// The factory's answer to a schematic is a hash of its canonical text, so nothing here needs the network. The fields, their order
// and the hash are those of github.com/siderolabs/image-factory v1.4.0, pkg/schematic; the names of images are those of its
// docs/api.md.
package schematic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/siderolabs/talos/pkg/machinery/imager/imageropts"
	"go.yaml.in/yaml/v4"
)

// Schematic is what a Talos image is made of beyond Talos itself. The order of the fields here and below is part of the id.
type Schematic struct {
	// Owner is the account that a schematic belongs to, in the factory's enterprise edition alone.
	Owner string `yaml:"owner,omitempty"`
	// Overlay adapts the image to a single board computer.
	Overlay Overlay `yaml:"overlay,omitempty"`
	// Customization is always written, even if it is empty.
	Customization Customization `yaml:"customization"`
}

// Overlay names what adapts an image to a board.
type Overlay struct {
	// Image is the overlay's container image, as siderolabs/sbc-raspberrypi.
	Image string `yaml:"image"`
	// Name is the overlay in that image, as rpi_generic.
	Name string `yaml:"name"`
	// Options are the overlay's own.
	Options map[string]any `yaml:"options,omitempty"`
}

// Customization is what goes into the image.
type Customization struct {
	// EmbeddedMachineConfiguration is a machine config that the image carries; it may hold secrets.
	EmbeddedMachineConfiguration string `yaml:"embeddedMachineConfiguration,omitempty"`
	// ExtraKernelArgs are appended to the kernel's command line.
	ExtraKernelArgs []string `yaml:"extraKernelArgs,omitempty"`
	// Meta are the first contents of the META partition.
	Meta []MetaValue `yaml:"meta,omitempty"`
	// SystemExtensions are the extensions in the image.
	SystemExtensions SystemExtensions `yaml:"systemExtensions,omitempty"`
	// Bootloader is "dual-boot", "sd-boot" or "grub"; the zero value leaves the choice to Talos.
	Bootloader imageropts.BootloaderKind `yaml:"bootloader,omitempty" enum:"none,dual-boot,sd-boot,grub"`
	// SecureBoot says how keys are enrolled.
	SecureBoot SecureBoot `yaml:"secureboot,omitempty"`
	// DiskImage describes a disk image.
	DiskImage DiskImage `yaml:"diskImage,omitempty"`
}

// MetaValue is one value of the META partition.
type MetaValue struct {
	Key   uint8  `yaml:"key"`
	Value string `yaml:"value"`
}

// SystemExtensions are extensions by name; the factory takes the version that fits Talos.
type SystemExtensions struct {
	OfficialExtensions []string `yaml:"officialExtensions,omitempty"`
}

// SecureBoot are the options of SecureBoot images.
type SecureBoot struct {
	// EnrollKeys is "off", "manual", "if-safe" or "force"; empty means "if-safe".
	EnrollKeys string `yaml:"enrollKeys,omitempty" enum:"off,manual,if-safe,force"`
	// IncludeWellKnownCertificates adds Microsoft's certificates to the keys.
	IncludeWellKnownCertificates bool `yaml:"includeWellKnownCertificates,omitempty"`
}

// DiskImage are the options of disk images.
type DiskImage struct {
	// SectorSize is in bytes; 0 means 512.
	SectorSize uint `yaml:"sectorSize,omitempty"`
}

// Parse reads a schematic as the factory does: an unknown key is an error, an empty text is an empty schematic.
func Parse(text []byte) (*Schematic, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)

	parsed := &Schematic{}

	if err := decoder.Decode(parsed); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("parse schematic: %w", err)
	}

	return parsed, nil
}

// Canonical is the text that the id is the hash of.
func (s *Schematic) Canonical() ([]byte, error) {
	text, err := yaml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write schematic: %w", err)
	}

	return text, nil
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

var id = regexp.MustCompile(`^[0-9a-f]{64}$`)

// IsID tells whether a text has the form of a schematic's id.
func IsID(text string) bool { return id.MatchString(text) }
