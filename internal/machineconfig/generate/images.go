package generate

import (
	"cmp"
	"fmt"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
)

// Images are the images of an entry's machines.
type Images struct {
	// Node is the entry's hostname.
	Node string
	// Schematic is the id of what the installer is made of; empty if talosImageURL names the installer.
	Schematic string
	// Installer is the container image that installs Talos.
	Installer string
	// BootSchematic is the id of what the boot image is made of: imageSchematic, or else the installer's.
	BootSchematic string
	// Boot is the URL of the image that the machine is started with first.
	Boot string
}

// NameImages names the images of every entry of a cluster's talconfig.yaml, or every node of its profile.
func NameImages(declared *inventory.Cluster) ([]Images, error) {
	if declared.Profile != nil {
		return profileImages(declared.Profile), nil
	}

	cluster, err := load(Source{Cluster: declared})
	if err != nil {
		return nil, err
	}

	var all []Images

	for _, entry := range cluster.entries {
		images, err := entry.images()
		if err != nil {
			return nil, fmt.Errorf("name images of %s: %w", entry.Hostname, err)
		}

		all = append(all, images)
	}

	return all, nil
}

func (e *entry) images() (Images, error) {
	images := Images{Node: e.Hostname}

	var err error
	if images.Schematic, images.Installer, err = e.installer(); err != nil {
		return images, err
	}

	images.BootSchematic, images.Boot, err = e.image(e.bootSpec(),
		cmp.Or(e.settings.ImageSchematic, e.settings.Schematic), e.config.ImageFactory.ImageURLTmpl, schematic.Image.Boot)

	return images, err
}

// bootSpec is the machine as its boot image is chosen: of the platform that talosImageURL is for, where nothing else
// says one. Most clouds start from disk images.
func (e *entry) bootSpec() talconfig.MachineSpec {
	spec := e.settings.MachineSpec
	platform := schematic.ParseReference(e.settings.TalosImageURL).Platform()

	if spec.Mode != "" || platform == "" || platform == schematic.DefaultPlatform {
		return spec
	}

	spec.Mode = platform

	if platform != "nocloud" && spec.ImageSuffix == "" {
		spec.BootMethod = cmp.Or(spec.BootMethod, "disk-image")
	}

	return spec
}

// installer gives the schematic's id and the container image: talosImageURL as it is, or what the factory makes of the
// schematic.
func (e *entry) installer() (id, name string, err error) {
	if declared := e.settings.TalosImageURL; declared != "" {
		return "", declared + ":" + e.talosVersion, nil
	}

	return e.image(e.settings.MachineSpec, e.settings.Schematic, e.config.ImageFactory.InstallerURLTmpl,
		schematic.Image.Installer)
}

// image names one of a schematic's images, by a template or as usual.
func (e *entry) image(spec talconfig.MachineSpec, made *schematic.Schematic, pattern string,
	usual func(schematic.Image) string) (id, name string, err error) {
	factory := e.config.ImageFactory

	image := schematic.Image{
		RegistryURL: factory.RegistryURL, Protocol: factory.Protocol, Version: e.talosVersion,
		Mode: spec.Mode, Arch: spec.Arch, Secureboot: spec.SecureBoot, UseUKI: spec.UseUKI, BootMethod: spec.BootMethod,
	}

	if spec.ImageSuffix != "" {
		image.Suffix = "." + spec.ImageSuffix
	}

	if image.ID, err = cmp.Or(made, &schematic.Schematic{}).ID(); err != nil {
		return "", "", err
	}

	if pattern == "" {
		return image.ID, usual(image), nil
	}

	name, err = image.Fill(pattern, e.templates.functions)

	return image.ID, name, err
}
