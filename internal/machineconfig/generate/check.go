package generate

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/labels"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// image is a container image with its registry, and without tag and digest.
var image = pattern.New(`^[a-zA-Z0-9.-]+(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`)

// value adds a mistake about a value.
func (c *cluster) value(place *yaml.Node, format string, args ...any) {
	c.At(place, diagnosis.FileValue, format, args...)
}

// oneOf adds a mistake unless a value is empty or one of those allowed.
func (c *cluster) oneOf(place *yaml.Node, value string, allowed ...string) {
	if value == "" || slices.Contains(allowed, value) {
		return
	}

	mistake := c.Mistake(place, diagnosis.FileValue, "%q is none of %s", value, strings.Join(allowed, ", "))
	mistake.Suggestion = suggest.Word(value, allowed)
	c.Add(mistake)
}

func (c *cluster) checkCluster() {
	if c.config.KubernetesVersion == "" {
		c.value(yamlfile.PlaceOf(c.root, "kubernetesVersion"),
			"\"kubernetesVersion\" is needed: the images of Kubernetes are chosen by it")
	}

	if c.source.Cluster.Endpoint.Scheme != "https" {
		c.value(yamlfile.Field(c.root, "endpoint"),
			"\"endpoint\" must be a URL with https and a host, as https://192.0.2.10:6443")
	}

	if c.config.Domain != "" && !host.IsDNSName(c.config.Domain) {
		c.value(yamlfile.Field(c.root, "domain"), "%q is no DNS domain", c.config.Domain)
	}

	c.checkVersions()
	c.checkCNI()
	c.checkFactory()
	c.readInlineManifests()
}

func (c *cluster) checkVersions() {
	var err error

	declared := cmp.Or(c.config.TalosVersion, machineconfig.DefaultTalosVersion)
	c.talosVersion = release.WithV(declared)
	c.kubernetesVersion = strings.TrimPrefix(c.config.KubernetesVersion, "v")

	c.contract = c.source.Cluster.Contract

	if c.release, err = release.Minor(declared); err != nil {
		c.value(yamlfile.PlaceOf(c.root, "talosVersion"), "%s", err)

		return
	}

	if c.kubernetesVersion == "" {
		return
	}

	err = release.Fit(c.config.KubernetesVersion, c.talosVersion)
	if err != nil && !errors.Is(err, release.ErrNotTabled) {
		c.value(yamlfile.PlaceOf(c.root, "kubernetesVersion"), "%s", err)
	}
}

func (c *cluster) checkCNI() {
	cni, place := c.config.CNI, yamlfile.Field(c.root, "cniConfig")
	if cni == nil {
		return
	}

	if cni.CNIName == "" {
		c.value(place, "\"name\" is needed: flannel, none or custom")
	}

	c.oneOf(yamlfile.PlaceOf(place, "name"), cni.CNIName, "flannel", "none", "custom")

	if _, err := v1alpha1.ValidateCNI(cni); err != nil {
		c.value(yamlfile.PlaceOf(place, "urls"), "%s", oneLine(err))
	}
}

func (c *cluster) checkFactory() {
	place := yamlfile.Field(c.root, "imageFactory")
	c.oneOf(yamlfile.PlaceOf(place, "protocol"), c.config.ImageFactory.Protocol, "https", "http")
}

// check looks at an entry's own values; what machinery validates as a whole comes with the generated config.
func (e *entry) check() {
	e.checkNames()
	e.checkInstall()
	e.checkLabels()
	e.checkMachineSpec()

	for i, server := range e.settings.Nameservers {
		if !host.IsIP(server) {
			e.value(e.item(i, "nameservers"), "nameserver %q is no IP address", server)
		}
	}

	for i, file := range e.settings.MachineFiles {
		place := e.item(i, "machineFiles")
		e.oneOf(yamlfile.PlaceOf(place, "op"), file.Op, "create", "append", "overwrite")

		if file.Op == "" {
			e.value(place, "\"op\" is needed: create, append or overwrite")
		}

		if !path.IsAbs(file.Path) {
			e.value(yamlfile.PlaceOf(place, "path"), "%q is no absolute path", file.Path)
		}
	}

	e.readFiles()

	e.checkMachineDisks()
	e.checkFirewall()
	e.checkVolumes()
	e.checkDevices()
}

func (e *entry) checkNames() {
	if !host.IsName(e.Hostname) {
		e.value(e.placeOf("hostname"), "%q is no hostname: letters, digits, dots and dashes", e.Hostname)
	}

	e.file, _ = e.config.FileName(e.Node) // the inventory tells of a template that makes none

	if !filepath.IsLocal(e.file) {
		e.value(e.placeOf("filenameTmpl"), "%q is no name of a file in the folder of the machine configs", e.file)
	}
}

// addresses are the machines of the entry.
func (e *entry) addresses() []string {
	var addresses []string

	for text := range strings.SplitSeq(e.IPAddress, ",") {
		addresses = append(addresses, strings.TrimSpace(text))
	}

	return addresses
}

func (e *entry) checkInstall() {
	if e.InstallDisk == "" && e.InstallDiskSelector == nil {
		e.value(e.place, "\"installDisk\" or \"installDiskSelector\" is needed: where Talos is installed")
	}

	if e.InstallDiskSelector != nil {
		install := v1alpha1.InstallConfig{InstallDiskSelector: e.InstallDiskSelector}
		if _, err := install.DiskMatchExpression(); err != nil {
			e.value(e.placeOf("installDiskSelector"), "no disk can be selected by this: %s", oneLine(err))
		}
	}

	if url := e.settings.TalosImageURL; url != "" && !image.MatchString(url) {
		e.value(e.placeOf("talosImageURL"),
			"%q is no image without a tag, as factory.talos.dev/metal-installer/<schematic>: the tag is talosVersion", url)
	}
}

func (e *entry) checkLabels() {
	for _, field := range []struct {
		key    string
		values map[string]string
		check  func(map[string]string) error
	}{
		{"nodeLabels", e.settings.NodeLabels, labels.Validate},
		{"nodeAnnotations", e.settings.NodeAnnotations, labels.ValidateAnnotations},
		{"nodeTaints", e.settings.NodeTaints, labels.ValidateTaints},
	} {
		for _, name := range slices.Sorted(maps.Keys(field.values)) {
			if text := field.values[name]; field.key != "nodeTaints" && isTemplate(text) {
				continue
			} else if err := field.check(map[string]string{name: text}); err != nil {
				e.value(e.placeOf(field.key, name), "%s", oneLine(err))
			}
		}
	}
}

func (e *entry) checkMachineSpec() {
	spec := e.settings.MachineSpec

	e.oneOf(e.placeOf("machineSpec", "bootMethod"), spec.BootMethod, "iso", "disk-image", "pxe")
	e.oneOf(e.placeOf("machineSpec", "arch"), spec.Arch, "amd64", "arm64")

	switch spec.BootMethod {
	case "", "iso":
		e.oneOf(e.placeOf("machineSpec", "imageSuffix"), spec.ImageSuffix, "iso")
	case "disk-image":
		e.oneOf(e.placeOf("machineSpec", "imageSuffix"), spec.ImageSuffix, "raw.zst", "raw.xz", "raw.tar.gz", "vhd.xz",
			"raw.gz", "ova", "qcow2")
	case "pxe":
		if spec.ImageSuffix != "" {
			e.value(e.placeOf("machineSpec", "imageSuffix"), "a PXE boot has no \"imageSuffix\"")
		}
	}

	if factory := e.config.ImageFactory.RegistryURL; !e.settings.NoSchematicValidate &&
		(factory == "" || factory == schematic.DefaultRegistry) {
		e.checkSchematic("schematic", e.settings.Schematic)
		e.checkSchematic("imageSchematic", e.settings.ImageSchematic)
	}
}

// checkSchematic finds what the public Image Factory refuses. Which extensions and overlays it has for a release only
// it knows.
func (e *entry) checkSchematic(key string, declared *schematic.Schematic) {
	if declared == nil {
		return
	}

	used := map[string]bool{}

	for i, extension := range declared.Customization.SystemExtensions.OfficialExtensions {
		place := e.item(i, key, "customization", "systemExtensions", "officialExtensions")

		if owner, name, _ := strings.Cut(extension, "/"); owner == "" || name == "" || strings.ContainsAny(name, "/:@ ") {
			e.value(place, "%q is no official extension, as siderolabs/qemu-guest-agent", extension)
		}

		if used[extension] {
			e.At(place, diagnosis.FileDuplicate, "extension %s is listed twice", extension)
		}

		used[extension] = true
	}

	if overlay := declared.Overlay; (overlay.Image == "") != (overlay.Name == "") {
		e.value(e.placeOf(key, "overlay"), "an overlay needs both \"image\" and \"name\"")
	}
}

func (e *entry) checkMachineDisks() {
	for i, disk := range e.settings.MachineDisks {
		for j, partition := range disk.DiskPartitions {
			if partition.DiskSize == 0 && j < len(disk.DiskPartitions)-1 {
				e.value(yamlfile.Item(yamlfile.PlaceOf(e.item(i, "machineDisks"), "partitions"), j),
					"a partition without \"size\" takes the rest of the disk, so it must be the last one")
			}
		}
	}
}

func (e *entry) checkFirewall() {
	firewall := e.settings.IngressFirewall
	if firewall == nil {
		return
	}

	for i, rule := range firewall.Rules {
		place := e.item(i, "ingressFirewall", "rules")

		if rule.Name == "" {
			e.value(place, "\"name\" of the rule is needed")
		}

		if !rule.PortSelector.Protocol.IsAProtocol() {
			e.value(yamlfile.PlaceOf(place, "portSelector"), "\"protocol\" is needed: tcp, udp, icmp or icmpv6")
		}

		if err := rule.PortSelector.Ports.Validate(); err != nil {
			e.value(yamlfile.PlaceOf(place, "portSelector"), "%s", oneLine(err))
		}
	}
}

// checkVolumes finds names that are used twice; the rest is machinery's to validate.
func (e *entry) checkVolumes() {
	e.unique("volumes", len(e.settings.Volumes), func(i int) string { return e.settings.Volumes[i].Name })
	e.unique("userVolumes", len(e.settings.UserVolumes), func(i int) string { return e.settings.UserVolumes[i].Name })
	e.unique("extensionServices", len(e.settings.ExtensionServices),
		func(i int) string { return e.settings.ExtensionServices[i].Name })

	for i, volume := range e.settings.Volumes {
		e.checkEncryption(e.item(i, "volumes"), volume.Encryption)
	}

	for i, volume := range e.settings.UserVolumes {
		e.checkEncryption(e.item(i, "userVolumes"), volume.Encryption)
	}

	if firewall := e.settings.IngressFirewall; firewall != nil {
		names := map[string]bool{}

		for i, rule := range firewall.Rules {
			if rule.Name != "" && names[rule.Name] {
				e.At(yamlfile.PlaceOf(e.item(i, "ingressFirewall", "rules"), "name"), diagnosis.FileDuplicate,
					"%q is the name of two rules", rule.Name)
			}

			names[rule.Name] = true
		}
	}
}

func (e *entry) checkEncryption(place *yaml.Node, declared block.EncryptionSpec) {
	if declared.EncryptionAllowDiscards != nil && talosconfig.TalosVersion1_14.Greater(e.release) {
		e.value(yamlfile.PlaceOf(yamlfile.PlaceOf(place, "encryption"), "allowDiscards"),
			"\"allowDiscards\" needs Talos v1.14 or newer")
	}
}

func (e *entry) unique(key string, count int, name func(i int) string) {
	used := map[string]bool{}

	for i := range count {
		place := e.item(i, key)

		switch {
		case name(i) == "":
			e.value(place, "\"name\" is needed")
		case used[name(i)]:
			e.At(yamlfile.PlaceOf(place, "name"), diagnosis.FileDuplicate, "%q is in %s twice", name(i), key)
		}

		used[name(i)] = true
	}
}

// oneLine is an error's text without line breaks and the bullets of multierrors.
func oneLine(err error) string {
	var parts []string

	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "* ")
		if line != "" && !strings.HasSuffix(line, "occurred:") {
			parts = append(parts, line)
		}
	}

	return strings.Join(parts, "; ")
}

// manifests are the cluster's inline manifests, their files read.
type manifests = v1alpha1.ClusterInlineManifests

func (c *cluster) readInlineManifests() {
	list := yamlfile.Field(c.root, "inlineManifests")

	for i, declared := range c.config.InlineManifests {
		place := yamlfile.Item(list, i)

		if declared.Name == "" {
			c.value(place, "\"name\" of the manifest is needed")
		}

		c.manifests = append(c.manifests, v1alpha1.ClusterInlineManifest{
			InlineManifestName:     declared.Name,
			InlineManifestContents: c.content(yamlfile.PlaceOf(place, "contents"), declared.Contents, declared.SkipEnvsubst),
		})
	}

	if err := c.manifests.Validate(); err != nil {
		c.value(list, "%s", oneLine(err))
	}
}

// readFiles reads what the entry refers to, so that all that is missing is told at once.
func (e *entry) readFiles() {
	for i, file := range e.settings.MachineFiles {
		e.machineFiles = append(e.machineFiles, &v1alpha1.MachineFile{
			FileContent:     e.content(yamlfile.PlaceOf(e.item(i, "machineFiles"), "content"), file.Content, file.SkipEnvsubst),
			FilePermissions: file.Permissions, FilePath: file.Path, FileOp: file.Op,
		})
	}

	// The patches of the group are the first of all, those of the cluster the last.
	e.patchRounds = [][]patch{e.nodePatches(), e.clusterPatches()}
	e.extraManifests = e.readManifests()
}
