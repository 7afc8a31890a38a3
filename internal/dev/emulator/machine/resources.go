package machine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	blockconfig "github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	metakeys "github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/cosi"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

// SystemPartitions are those of an installed machine, in order, with their sizes in bytes; the last takes the rest.
var SystemPartitions = []Volume{
	{Partition: constants.EFIPartitionLabel, Filesystem: "vfat", Label: constants.EFIPartitionLabel, Size: 2 << 30},
	{Partition: constants.MetaPartitionLabel, Filesystem: "talosmeta", Size: 1 << 20},
	{Partition: constants.StatePartitionLabel, Filesystem: "xfs", Label: constants.StatePartitionLabel, Size: 100 << 20},
	{Partition: constants.EphemeralPartitionLabel, Filesystem: "xfs", Label: constants.EphemeralPartitionLabel},
}

// resources are what a boot shows of itself.
type resources struct {
	boot *Boot

	State state.CoreState // as they are
	Own   state.State     // the same, for the node's own use
}

// put creates a resource or brings it up to date.
func (r *resources) put(item resource.Resource) {
	err := r.Own.Create(r.boot.Context, item)
	if !state.IsConflictError(err) {
		return
	}

	current, err := r.Own.Get(r.boot.Context, item.Metadata())
	if err != nil {
		return
	}

	item.Metadata().SetVersion(current.Metadata().Version())
	r.Own.Update(r.boot.Context, item) //nolint:errcheck // lost only to a newer update, or to the end of the boot
}

// putChanged is put for what tells its changes by its version: a resource that is as it should be stays as it is.
func (r *resources) putChanged(item resource.Resource) {
	current, err := r.Own.Get(r.boot.Context, item.Metadata())
	if err == nil && reflect.DeepEqual(current.Spec(), item.Spec()) {
		return
	}

	r.put(item)
}

// remove destroys a resource if it exists.
func (r *resources) remove(item resource.Resource) {
	r.Own.Destroy(r.boot.Context, item.Metadata()) //nolint:errcheck // gone is what was asked for
}

// prepare makes the boot's resources and shows what a kernel shows.
func (r *resources) prepare() error {
	core, err := r.boot.Release.newResources()
	if err != nil {
		return fmt.Errorf("make resource state: %w", err)
	}

	r.State = cosi.StaleBookmarks(core, r.boot.ID)
	r.Own = state.WrapCore(core)
	options := r.boot.Node.options

	r.boot.status.refresh()

	version := runtimeres.NewVersion()
	version.TypedSpec().Name, version.TypedSpec().Version = "Talos", r.boot.Version
	r.put(version)

	bootID := runtimeres.NewBootID() // which releases before Talos 1.14 do not let anybody read
	bootID.TypedSpec().BootID = r.boot.ID
	r.put(bootID)

	cmdline := runtimeres.NewKernelCmdline()
	cmdline.TypedSpec().Cmdline = options.Cmdline
	r.put(cmdline)

	platform := runtimeres.NewPlatformMetadataSpec(runtimeres.NamespaceName, runtimeres.PlatformMetadataID)
	platform.TypedSpec().Platform = "metal"
	r.put(platform)

	system := hardware.NewSystemInformation(hardware.SystemInformationID)
	system.TypedSpec().Manufacturer, system.TypedSpec().ProductName = options.Manufacturer, options.ProductName
	system.TypedSpec().SerialNumber, system.TypedSpec().UUID = options.SerialNumber, options.UUID
	r.put(system)

	security := runtimeres.NewSecurityStateSpec(runtimeres.NamespaceName)
	security.TypedSpec().SecureBoot, security.TypedSpec().BootedWithUKI = options.SecureBoot, options.UKI
	r.put(security)

	r.showExtensions()
	r.showMachineType()
	r.showTime()
	r.showDisks()
	r.showLinks()
	r.showSystemDisk()

	for key, value := range r.boot.Node.ReadDrive().Meta {
		r.ShowMeta(key, value)
	}

	token := runtimeres.NewUniqueMachineToken()
	token.TypedSpec().Token = r.boot.Node.ReadDrive().Meta[metakeys.UniqueMachineToken]
	r.put(token)

	return nil
}

// showExtensions shows the system extensions of the running image, and after them its schematic as if it were one, as
// the image factory does.
func (r *resources) showExtensions() {
	if schematic := r.boot.schematic(); schematic != "" {
		shown := runtimeres.NewImageFactorySchematic(runtimeres.NamespaceName, runtimeres.ImageFactorySchematicID)
		shown.TypedSpec().SchematicID, shown.TypedSpec().APIURL = schematic, "https://factory.talos.dev"
		r.put(shown)
	}

	for i, extension := range r.boot.extensions() {
		shown := runtimeres.NewExtensionStatus(runtimeres.NamespaceName, strconv.Itoa(i))
		shown.TypedSpec().Image = fmt.Sprintf("%d.sqsh", i)
		shown.TypedSpec().Metadata.Name, shown.TypedSpec().Metadata.Version = extension.Name, extension.Version
		r.put(shown)
	}
}

// extensions are those of the running image.
func (b *Boot) extensions() []Extension {
	all := slices.Clone(b.Node.options.Extensions)

	if schematic := b.schematic(); schematic != "" {
		all = append(all, Extension{Name: "schematic", Version: schematic})
	}

	return all
}

// schematic is that of the running image.
func (b *Boot) schematic() string {
	if drive := b.Node.ReadDrive(); drive.Installed {
		return drive.Schematic
	}

	return b.Node.options.Schematic
}

// ShowMeta shows a key of the META partition.
func (r *resources) ShowMeta(key uint8, value string) {
	entry := runtimeres.NewMetaKey(runtimeres.NamespaceName, metaID(key))
	entry.TypedSpec().Value = value
	r.put(entry)
}

// RemoveMeta takes it away.
func (r *resources) RemoveMeta(key uint8) {
	r.remove(runtimeres.NewMetaKey(runtimeres.NamespaceName, metaID(key)))
}

func metaID(key uint8) string { return fmt.Sprintf("0x%02x", key) }

func (r *resources) showMachineType() {
	kind := config.NewMachineType()
	kind.SetMachineType(r.boot.Config.Role())
	r.put(kind)
}

func (r *resources) showTime() {
	r.boot.mu.Lock()
	synced := r.boot.timeSynced
	r.boot.mu.Unlock()

	status := timeres.NewStatus()
	status.TypedSpec().Synced = synced
	r.put(status)
}

func (r *resources) showDisks() {
	for _, disk := range r.boot.Node.options.Disks {
		r.put(diskResource(disk))

		whole := block.NewDiscoveredVolume(block.NamespaceName, disk.Name)
		whole.TypedSpec().Type, whole.TypedSpec().DevPath = "disk", "/dev/"+disk.Name
		whole.TypedSpec().SetSize(disk.Size)
		r.put(whole)

		drive := r.boot.Node.ReadDrive()
		if disk.Name != drive.SystemDisk && !slices.Contains(drive.wiped, "/dev/"+disk.Name) {
			r.showVolumes(disk, disk.Volumes)
		}
	}
}

func diskResource(disk Disk) *block.Disk {
	shown := block.NewDisk(block.NamespaceName, disk.Name)
	spec := shown.TypedSpec()

	spec.DevPath = "/dev/" + disk.Name
	spec.SetSize(disk.Size)
	spec.IOSize, spec.SectorSize = 512, 512
	spec.Model, spec.Serial, spec.WWID, spec.Transport = disk.Model, disk.Serial, disk.WWID, disk.Transport
	spec.Rotational, spec.Readonly, spec.CDROM = disk.Rotational, disk.Readonly, disk.CDROM
	spec.Symlinks = disk.Symlinks
	spec.UUID, spec.Modalias = disk.UUID, disk.Modalias
	spec.BusPath = cmp.Or(disk.BusPath, "/pci0000:00/0000:00:01.0/"+disk.Name)
	spec.SubSystem = "/sys/class/block"

	return shown
}

func (r *resources) showVolumes(disk Disk, volumes []Volume) {
	for i, volume := range volumes {
		name := volume.Name
		if name == "" {
			name = PartitionName(disk.Name, i+1)
		}

		shown := block.NewDiscoveredVolume(block.NamespaceName, name)
		spec := shown.TypedSpec()

		spec.Type, spec.Parent, spec.ParentDevPath, spec.DevPath = "partition", disk.Name, "/dev/"+disk.Name, "/dev/"+name
		spec.Name, spec.Label, spec.PartitionLabel = volume.Filesystem, volume.Label, volume.Partition
		spec.PartitionIndex = uint(i + 1) //nolint:gosec // a few
		spec.SetSize(volume.Size)
		r.put(shown)
	}
}

// HideVolumes takes away what was found on a disk that is empty now.
func (r *resources) HideVolumes(disk string) {
	volumes, err := safe.StateListAll[*block.DiscoveredVolume](r.boot.Context, r.Own)
	if err != nil {
		return // the boot is over
	}

	for volume := range volumes.All() {
		if volume.TypedSpec().Parent == disk {
			r.remove(volume)
		}
	}
}

// PartitionName is how Linux names a partition: with a "p" when the disk's own name ends in a digit.
func PartitionName(disk string, number int) string {
	if last := disk[len(disk)-1]; last >= '0' && last <= '9' {
		return disk + "p" + strconv.Itoa(number)
	}

	return disk + strconv.Itoa(number)
}

// showSystemDisk shows where Talos is installed, if it is.
func (r *resources) showSystemDisk() {
	drive := r.boot.Node.ReadDrive()
	if !drive.Installed {
		r.showMissingVolumes()

		return
	}

	system := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
	system.TypedSpec().DiskID, system.TypedSpec().DevPath = drive.SystemDisk, "/dev/"+drive.SystemDisk
	r.put(system)

	for _, disk := range r.boot.Node.options.Disks {
		if disk.Name != drive.SystemDisk {
			continue
		}

		partitions := append([]Volume(nil), SystemPartitions...)
		for _, label := range drive.own {
			partitions = slices.Insert(partitions, len(partitions)-1, Volume{Partition: label, Filesystem: "xfs", Size: 1 << 30})
		}

		rest := disk.Size

		for _, partition := range partitions {
			rest -= min(rest, partition.Size)
		}

		partitions[len(partitions)-1].Size = rest
		r.showVolumes(disk, partitions)
		r.showVolumeStatuses(disk, partitions)
	}

	r.showDirectories()
}

// promotable are the volumes that are directories of EPHEMERAL, as long as no document makes partitions of them.
var promotable = []string{constants.EtcdDataVolumeID, constants.KubeletDataVolumeID, constants.CRIContainerdVolumeID,
	constants.LogVolumeID}

// ownPartitions are those of them that a document of the machine config makes partitions of.
func (i *installer) ownPartitions() []string {
	active := i.boot.Config.Active()
	if active == nil || !i.boot.Release.NestedVolumes {
		return nil
	}

	var own []string
	for _, name := range promotable {
		if volume, declared := active.Volumes().ByName(name); declared &&
			blockconfig.ProvisioningRequested(volume.Provisioning()) {
			own = append(own, name)
		}
	}

	return own
}

// provision makes the partitions that the machine config asks for and that a reset has taken away, or never let be.
func (i *installer) provision() {
	if !i.boot.Node.ReadDrive().unallocated {
		i.boot.Resources.showDirectories()

		return
	}

	own := i.ownPartitions()

	i.boot.Node.EditDrive(func(d *Drive) {
		for _, name := range own {
			if !slices.Contains(d.own, name) {
				d.own = append(slices.Clone(d.own), name)
			}
		}

		d.unallocated = false
	})

	i.boot.Resources.showSystemDisk()
}

// showDirectories shows those that are no partitions. Without a machine config Talos knows nothing of them.
func (r *resources) showDirectories() {
	if !r.boot.Release.NestedVolumes || r.boot.Config.Active() == nil || !r.boot.Node.Installed() {
		return
	}

	own := r.boot.Node.ReadDrive().own

	for _, name := range promotable {
		if slices.Contains(own, name) {
			continue
		}

		status := block.NewVolumeStatus(block.NamespaceName, name)
		status.TypedSpec().Phase, status.TypedSpec().Type = block.VolumePhaseReady, block.VolumeTypeDirectory
		status.TypedSpec().MountSpec.ParentID = constants.EphemeralPartitionLabel
		r.put(status)
	}
}

// showMissingVolumes shows the volumes that Talos looks for on every machine, and does not find before an install.
func (r *resources) showMissingVolumes() {
	for _, label := range []string{constants.MetaPartitionLabel, constants.StatePartitionLabel} {
		status := block.NewVolumeStatus(block.NamespaceName, label)
		status.TypedSpec().Phase, status.TypedSpec().Type = block.VolumePhaseMissing, block.VolumeTypePartition
		r.put(status)
	}
}

func (r *resources) showVolumeStatuses(disk Disk, partitions []Volume) {
	for i, partition := range partitions {
		if partition.Partition == constants.EFIPartitionLabel {
			continue
		}

		status := block.NewVolumeStatus(block.NamespaceName, partition.Partition)
		spec := status.TypedSpec()

		spec.Phase, spec.Type = block.VolumePhaseReady, block.VolumeTypePartition
		spec.Location, spec.ParentLocation = "/dev/"+PartitionName(disk.Name, i+1), "/dev/"+disk.Name
		spec.MountLocation, spec.PartitionIndex = spec.Location, i+1
		spec.SetSize(partition.Size)
		r.put(status)
	}
}

func (r *resources) showLinks() {
	for i, link := range r.boot.Node.options.Links {
		shown := network.NewLinkStatus(network.NamespaceName, link.Name)
		spec := shown.TypedSpec()

		spec.Index = uint32(i + 2) //nolint:gosec // a few
		spec.Type, spec.MTU = nethelpers.LinkEther, 1500
		spec.LinkState, spec.OperationalState = !link.Down, nethelpers.OperStateUp

		if link.Down {
			spec.OperationalState = nethelpers.OperStateDown
		}

		if link.Virtual {
			spec.Kind = "dummy"
		} else {
			spec.Driver, spec.PCIID = cmp.Or(link.Driver, "virtio_net"), link.PCIID
			spec.BusPath = cmp.Or(link.BusPath, fmt.Sprintf("0000:00:%02x.0", i+3))
		}

		if mac, err := net.ParseMAC(link.MAC); err == nil {
			spec.HardwareAddr = nethelpers.HardwareAddr(mac)

			if !link.Virtual {
				spec.PermanentAddr = nethelpers.HardwareAddr(mac)
			}
		}

		r.put(shown)
	}
}

// linkOf is the first physical link that is up.
func (r *resources) firstLink() string {
	for _, link := range r.boot.Node.options.Links {
		if !link.Virtual && !link.Down {
			return link.Name
		}
	}

	return "lo"
}

// showNetwork shows the node's addresses, its host name and how far its network is.
func (r *resources) showNetwork() {
	var prefixes []netip.Prefix

	for _, address := range r.boot.Addresses() {
		prefix := netip.PrefixFrom(address, 24)
		prefixes = append(prefixes, prefix)
		link := r.firstLink()

		status := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, prefix))
		status.TypedSpec().Address, status.TypedSpec().LinkName = prefix, link
		status.TypedSpec().Family, status.TypedSpec().Scope = nethelpers.FamilyInet4, nethelpers.ScopeGlobal
		r.put(status)
	}

	for _, id := range []string{network.NodeAddressDefaultID, network.NodeAddressCurrentID,
		network.NodeAddressAccumulativeID} {
		shown := network.NewNodeAddress(network.NamespaceName, id)
		shown.TypedSpec().Addresses = prefixes
		r.put(shown)
	}

	r.hideAddresses(prefixes)

	hostname := r.boot.Config.Hostname()
	name := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	name.TypedSpec().Hostname = hostname

	if hostname != "" {
		r.put(name)
	} else {
		r.remove(name)
	}

	ready := network.NewStatus(network.NamespaceName, network.StatusID)
	ready.TypedSpec().AddressReady, ready.TypedSpec().ConnectivityReady, ready.TypedSpec().EtcFilesReady = true, true, true
	ready.TypedSpec().HostnameReady = hostname != ""
	r.put(ready)
}

// hideAddresses takes away the addresses that the machine has no more.
func (r *resources) hideAddresses(kept []netip.Prefix) {
	shown, err := safe.StateListAll[*network.AddressStatus](r.boot.Context, r.Own)
	if err != nil {
		return // the boot is over
	}

	for address := range shown.All() {
		if !slices.Contains(kept, address.TypedSpec().Address) {
			r.remove(address)
		}
	}
}

// showConfig shows a machine config under its id.
func (r *resources) showConfig(id resource.ID, provider talosconfig.Provider) {
	r.put(config.NewMachineConfigWithID(provider, id))
}

func (r *resources) showEtcdMember(id uint64) {
	member := etcd.NewMember(etcd.NamespaceName, etcd.LocalMemberID)
	member.TypedSpec().MemberID = etcd.FormatMemberID(id)
	r.put(member)
}

// showNodename shows the name that the node has in Kubernetes, and which version of its host name it was made from.
func (r *resources) showNodename() {
	name := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	name.TypedSpec().Nodename = r.boot.Config.Hostname()
	name.TypedSpec().SkipNodeRegistration = !r.boot.Kubelet.registers()

	if hostname, err := safe.StateGetByID[*network.HostnameStatus](r.boot.Context, r.Own, network.HostnameID); err == nil {
		name.TypedSpec().HostnameVersion = hostname.Metadata().Version().String()
	}

	r.put(name)
	r.showKubelet()

	if r.boot.Config.Role().IsControlPlane() {
		r.showBootstrapManifests()
	}
}

// showKubelet shows what kubelet is started with, if it is.
func (r *resources) showKubelet() {
	if !r.boot.runsKubelet() {
		return
	}

	settings := r.boot.Config.Settings()

	config := k8s.NewKubeletConfig(k8s.NamespaceName, k8s.KubeletID)
	config.TypedSpec().Image = kubeletImage(settings)
	config.TypedSpec().ClusterDomain = clusterNetwork(settings).DNSDomain()
	r.put(config)

	spec := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	spec.TypedSpec().Image = kubeletImage(settings)
	spec.TypedSpec().ExpectedNodename = r.boot.Config.Hostname()
	r.putChanged(spec)
}

// showBootstrapManifests shows what the manifests are made from that a bootstrap applies. Source: Talos
// internal/app/machined/pkg/controllers/k8s/control_plane.go.
func (r *resources) showBootstrapManifests() {
	settings := r.boot.Config.Settings()
	network := cni(settings)

	if network == constants.CustomCNI && r.boot.Release.flannelOrNone {
		network = constants.NoneCNI
	}

	manifests := k8s.NewBootstrapManifestsConfig()
	*manifests.TypedSpec() = k8s.BootstrapManifestsConfigSpec{
		Server:                 apiForPods(settings),
		ClusterDomain:          clusterNetwork(settings).DNSDomain(),
		PodCIDRs:               subnetTexts(clusterNetwork(settings).PodCIDRs()),
		ProxyEnabled:           proxy(settings),
		ProxyImage:             proxyImage(settings),
		CoreDNSEnabled:         coreDNS(settings),
		CoreDNSImage:           coreDNSImage(settings),
		FlannelEnabled:         network == constants.FlannelCNI,
		TalosAPIServiceEnabled: settings.K8sTalosAPIAccessConfig() != nil,
		CNIName:                network,
	}

	for _, address := range dnsAddresses(settings) {
		if address.Is4() {
			manifests.TypedSpec().DNSServiceIP = address.String()
		} else {
			manifests.TypedSpec().DNSServiceIPv6 = address.String()
		}
	}

	r.put(manifests)
	r.showManifests(manifests.TypedSpec())
	r.showStaticPodConfigs()
}

// showManifests shows the objects that Talos applies.
func (r *resources) showManifests(from *k8s.BootstrapManifestsConfigSpec) {
	options := kubernetes.ManifestOptions{Flannel: from.FlannelEnabled, Server: from.Server}

	if from.ProxyEnabled {
		options.ProxyImage = from.ProxyImage
	}

	if from.CoreDNSEnabled {
		options.DNSImage = from.CoreDNSImage
	}

	for _, manifest := range kubernetes.Manifests(options) {
		shown := k8s.NewManifest(k8s.ControlPlaneNamespaceName, manifest.Name)
		for _, object := range manifest.Objects {
			shown.TypedSpec().Items = append(shown.TypedSpec().Items, k8s.SingleManifest{Object: object})
		}

		r.putChanged(shown)
	}
}

// showStaticPodConfigs shows what the static pods are made from.
func (r *resources) showStaticPodConfigs() {
	settings := r.boot.Config.Settings()
	prefixes := []string{""}

	if r.boot.Release.finalConfigs {
		prefixes = append(prefixes, k8s.FinalPrefix)
	}

	for _, prefix := range prefixes {
		server := k8s.NewAPIServerConfig(prefix + k8s.APIServerID)
		server.TypedSpec().Image = componentImage(settings, k8s.APIServerID)
		r.putChanged(server)

		manager := k8s.NewControllerManagerConfig(prefix + k8s.ControllerManagerID)
		manager.TypedSpec().Enabled = true
		manager.TypedSpec().Image = componentImage(settings, k8s.ControllerManagerID)
		r.putChanged(manager)

		scheduler := k8s.NewSchedulerConfig(prefix + k8s.SchedulerID)
		scheduler.TypedSpec().Enabled = true
		scheduler.TypedSpec().Image = componentImage(settings, k8s.SchedulerID)
		r.putChanged(scheduler)
	}
}

// showNodeStatus shows what the node's kubelet sees of its own Kubernetes object.
func (r *resources) showNodeStatus() {
	known, ready := r.boot.Kubelet.nodeReady()
	if !known {
		return
	}

	status := k8s.NewNodeStatus(k8s.NamespaceName, r.boot.Config.Hostname())
	status.TypedSpec().Nodename, status.TypedSpec().NodeReady = r.boot.Config.Hostname(), ready
	status.TypedSpec().Unschedulable = r.boot.Kubelet.cordoned()
	r.put(status)
}

// showIdentity shows the node id, which the STATE partition keeps.
func (r *resources) showIdentity() {
	id := r.boot.Node.ReadDrive().identity
	if id == "" {
		return
	}

	identity := cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity)
	identity.TypedSpec().NodeID = id
	r.put(identity)
}

// follow keeps the members up to date; without discovery a node knows of itself alone.
func (m *membership) follow(ctx context.Context) {
	for {
		changed := m.boot.Node.Lab.changed.Wait()

		m.show()

		if !m.boot.Node.Lab.options.Discovery {
			return
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// show shows the cluster's members; a node whose config wants no discovery does not even know itself.
func (m *membership) show() {
	if !discovers(m.boot.Config.Settings()) {
		return
	}

	members := []*Boot{m.boot}
	if m.boot.Node.Lab.options.Discovery {
		members = m.boot.Node.Lab.running()
	}

	for _, other := range members {
		if other.Members.clusterID() != m.clusterID() || other.Config.Hostname() == "" {
			continue
		}

		member := cluster.NewMember(cluster.NamespaceName, other.Config.Hostname())
		spec := member.TypedSpec()

		spec.Hostname, spec.NodeID = other.Config.Hostname(), other.Node.ReadDrive().identity
		spec.Addresses = other.Addresses()
		spec.MachineType = other.Config.Role()
		spec.OperatingSystem = "Talos (" + other.Version + ")"

		if spec.MachineType != machine.TypeWorker {
			spec.ControlPlane = &cluster.ControlPlane{APIServerPort: KubernetesPort}
		}

		m.boot.Resources.put(member)
	}
}
