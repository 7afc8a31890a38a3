package emulator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
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
)

// Partitions of an installed machine, in order, with their sizes in bytes; the last one takes the rest.
var systemPartitions = []Volume{
	{Partition: constants.EFIPartitionLabel, Filesystem: "vfat", Label: constants.EFIPartitionLabel, Size: 2 << 30},
	{Partition: constants.MetaPartitionLabel, Filesystem: "talosmeta", Size: 1 << 20},
	{Partition: constants.StatePartitionLabel, Filesystem: "xfs", Label: constants.StatePartitionLabel, Size: 100 << 20},
	{Partition: constants.EphemeralPartitionLabel, Filesystem: "xfs", Label: constants.EphemeralPartitionLabel},
}

// put creates a resource or brings it up to date.
func (b *boot) put(r resource.Resource) {
	err := b.resources.Create(b.ctx, r)
	if !state.IsConflictError(err) {
		return
	}

	current, err := b.resources.Get(b.ctx, r.Metadata())
	if err != nil {
		return
	}

	r.Metadata().SetVersion(current.Metadata().Version())
	b.resources.Update(b.ctx, r) //nolint:errcheck // lost only to a newer update, or to the end of the boot
}

// remove destroys a resource if it exists.
func (b *boot) remove(r resource.Resource) {
	b.resources.Destroy(b.ctx, r.Metadata()) //nolint:errcheck // gone is what was asked for
}

// prepare makes the boot's resources and shows what a kernel shows.
func (b *boot) prepare() error {
	core, err := b.release.newResources()
	if err != nil {
		return fmt.Errorf("make resource state: %w", err)
	}

	b.state = staleBookmarks(core, b.id)
	b.resources = state.WrapCore(core)
	options := b.node.options

	b.refresh()

	version := runtimeres.NewVersion()
	version.TypedSpec().Name, version.TypedSpec().Version = "Talos", b.version
	b.put(version)

	cmdline := runtimeres.NewKernelCmdline()
	cmdline.TypedSpec().Cmdline = options.Cmdline
	b.put(cmdline)

	platform := runtimeres.NewPlatformMetadataSpec(runtimeres.NamespaceName, runtimeres.PlatformMetadataID)
	platform.TypedSpec().Platform = "metal"
	b.put(platform)

	system := hardware.NewSystemInformation(hardware.SystemInformationID)
	system.TypedSpec().Manufacturer, system.TypedSpec().ProductName = options.Manufacturer, options.ProductName
	system.TypedSpec().SerialNumber, system.TypedSpec().UUID = options.SerialNumber, options.UUID
	b.put(system)

	security := runtimeres.NewSecurityStateSpec(runtimeres.NamespaceName)
	security.TypedSpec().SecureBoot, security.TypedSpec().BootedWithUKI = options.SecureBoot, options.UKI
	b.put(security)

	b.showExtensions()
	b.showMachineType()
	b.showTime()
	b.showDisks()
	b.showLinks()
	b.showSystemDisk()

	for key, value := range b.node.readDrive().meta {
		b.showMeta(key, value)
	}

	return nil
}

// showExtensions shows the system extensions of the running image, and after them its schematic as if it were one, as
// the image factory does.
func (b *boot) showExtensions() {
	all := slices.Clone(b.node.options.Extensions)
	schematic := b.node.options.Schematic

	if drive := b.node.readDrive(); drive.installed {
		schematic = drive.schematic
	}

	if schematic != "" {
		all = append(all, Extension{Name: "schematic", Version: schematic})
	}

	for i, extension := range all {
		shown := runtimeres.NewExtensionStatus(runtimeres.NamespaceName, strconv.Itoa(i))
		shown.TypedSpec().Image = fmt.Sprintf("%d.sqsh", i)
		shown.TypedSpec().Metadata.Name, shown.TypedSpec().Metadata.Version = extension.Name, extension.Version
		b.put(shown)
	}
}

func (b *boot) showMeta(key uint8, value string) {
	entry := runtimeres.NewMetaKey(runtimeres.NamespaceName, metaID(key))
	entry.TypedSpec().Value = value
	b.put(entry)
}

func (b *boot) removeMeta(key uint8) {
	b.remove(runtimeres.NewMetaKey(runtimeres.NamespaceName, metaID(key)))
}

func metaID(key uint8) string { return fmt.Sprintf("0x%02x", key) }

func (b *boot) showMachineType() {
	kind := config.NewMachineType()
	kind.SetMachineType(b.role())
	b.put(kind)
}

func (b *boot) showTime() {
	b.mu.Lock()
	synced := b.timeSynced
	b.mu.Unlock()

	status := timeres.NewStatus()
	status.TypedSpec().Synced = synced
	b.put(status)
}

func (b *boot) showDisks() {
	for _, disk := range b.node.options.Disks {
		b.put(diskResource(disk))

		whole := block.NewDiscoveredVolume(block.NamespaceName, disk.Name)
		whole.TypedSpec().Type, whole.TypedSpec().DevPath = "disk", "/dev/"+disk.Name
		whole.TypedSpec().SetSize(disk.Size)
		b.put(whole)

		if drive := b.node.readDrive(); disk.Name != drive.systemDisk && !slices.Contains(drive.wiped, "/dev/"+disk.Name) {
			b.showVolumes(disk, disk.Volumes)
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
	spec.BusPath = "/pci0000:00/0000:00:01.0/" + disk.Name
	spec.SubSystem = "/sys/class/block"

	return shown
}

func (b *boot) showVolumes(disk Disk, volumes []Volume) {
	for i, volume := range volumes {
		name := volume.Name
		if name == "" {
			name = partitionName(disk.Name, i+1)
		}

		shown := block.NewDiscoveredVolume(block.NamespaceName, name)
		spec := shown.TypedSpec()

		spec.Type, spec.Parent, spec.ParentDevPath, spec.DevPath = "partition", disk.Name, "/dev/"+disk.Name, "/dev/"+name
		spec.Name, spec.Label, spec.PartitionLabel = volume.Filesystem, volume.Label, volume.Partition
		spec.PartitionIndex = uint(i + 1) //nolint:gosec // a few
		spec.SetSize(volume.Size)
		b.put(shown)
	}
}

// hideVolumes takes away what was found on a disk that is empty now.
func (b *boot) hideVolumes(disk string) {
	volumes, err := safe.StateListAll[*block.DiscoveredVolume](b.ctx, b.resources)
	if err != nil {
		return // the boot is over
	}

	for volume := range volumes.All() {
		if volume.TypedSpec().Parent == disk {
			b.remove(volume)
		}
	}
}

// partitionName is how Linux names a partition: with a "p" when the disk's own name ends in a digit.
func partitionName(disk string, number int) string {
	if last := disk[len(disk)-1]; last >= '0' && last <= '9' {
		return disk + "p" + strconv.Itoa(number)
	}

	return disk + strconv.Itoa(number)
}

// showSystemDisk shows where Talos is installed, if it is.
func (b *boot) showSystemDisk() {
	drive := b.node.readDrive()
	if !drive.installed {
		return
	}

	system := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
	system.TypedSpec().DiskID, system.TypedSpec().DevPath = drive.systemDisk, "/dev/"+drive.systemDisk
	b.put(system)

	for _, disk := range b.node.options.Disks {
		if disk.Name != drive.systemDisk {
			continue
		}

		partitions := append([]Volume(nil), systemPartitions...)
		rest := disk.Size

		for _, partition := range partitions {
			rest -= min(rest, partition.Size)
		}

		partitions[len(partitions)-1].Size = rest
		b.showVolumes(disk, partitions)
		b.showVolumeStatuses(disk, partitions)
	}
}

func (b *boot) showVolumeStatuses(disk Disk, partitions []Volume) {
	for i, partition := range partitions {
		if partition.Partition == constants.EFIPartitionLabel {
			continue
		}

		status := block.NewVolumeStatus(block.NamespaceName, partition.Partition)
		spec := status.TypedSpec()

		spec.Phase, spec.Type = block.VolumePhaseReady, block.VolumeTypePartition
		spec.Location, spec.ParentLocation = "/dev/"+partitionName(disk.Name, i+1), "/dev/"+disk.Name
		spec.MountLocation, spec.PartitionIndex = spec.Location, i+1
		spec.SetSize(partition.Size)
		b.put(status)
	}
}

func (b *boot) showLinks() {
	for i, link := range b.node.options.Links {
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
		}

		if mac, err := net.ParseMAC(link.MAC); err == nil {
			spec.HardwareAddr = nethelpers.HardwareAddr(mac)

			if !link.Virtual {
				spec.PermanentAddr = nethelpers.HardwareAddr(mac)
			}
		}

		b.put(shown)
	}
}

// linkOf is the first physical link that is up.
func (b *boot) firstLink() string {
	for _, link := range b.node.options.Links {
		if !link.Virtual && !link.Down {
			return link.Name
		}
	}

	return "lo"
}

// showNetwork shows the node's addresses, its host name and how far its network is.
func (b *boot) showNetwork() {
	var prefixes []netip.Prefix

	for _, address := range b.addresses() {
		prefix := netip.PrefixFrom(address, 24)
		prefixes = append(prefixes, prefix)
		link := b.firstLink()

		status := network.NewAddressStatus(network.NamespaceName, network.AddressID(link, prefix))
		status.TypedSpec().Address, status.TypedSpec().LinkName = prefix, link
		status.TypedSpec().Family, status.TypedSpec().Scope = nethelpers.FamilyInet4, nethelpers.ScopeGlobal
		b.put(status)
	}

	for _, id := range []string{network.NodeAddressDefaultID, network.NodeAddressCurrentID,
		network.NodeAddressAccumulativeID} {
		shown := network.NewNodeAddress(network.NamespaceName, id)
		shown.TypedSpec().Addresses = prefixes
		b.put(shown)
	}

	b.hideAddresses(prefixes)

	hostname := b.hostname()
	name := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	name.TypedSpec().Hostname = hostname

	if hostname != "" {
		b.put(name)
	} else {
		b.remove(name)
	}

	ready := network.NewStatus(network.NamespaceName, network.StatusID)
	ready.TypedSpec().AddressReady, ready.TypedSpec().ConnectivityReady, ready.TypedSpec().EtcFilesReady = true, true, true
	ready.TypedSpec().HostnameReady = hostname != ""
	b.put(ready)
}

// hideAddresses takes away the addresses that the machine has no more.
func (b *boot) hideAddresses(kept []netip.Prefix) {
	shown, err := safe.StateListAll[*network.AddressStatus](b.ctx, b.resources)
	if err != nil {
		return // the boot is over
	}

	for address := range shown.All() {
		if !slices.Contains(kept, address.TypedSpec().Address) {
			b.remove(address)
		}
	}
}

// showConfig shows a machine config under its id.
func (b *boot) showConfig(id resource.ID, provider talosconfig.Provider) {
	b.put(config.NewMachineConfigWithID(provider, id))
}

func (b *boot) showEtcdMember(id uint64) {
	member := etcd.NewMember(etcd.NamespaceName, etcd.LocalMemberID)
	member.TypedSpec().MemberID = etcd.FormatMemberID(id)
	b.put(member)
}

// showNodename shows the name that the node has in Kubernetes.
func (b *boot) showNodename() {
	name := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	name.TypedSpec().Nodename, name.TypedSpec().SkipNodeRegistration = b.hostname(), !b.registers()
	b.put(name)

	if !b.role().IsControlPlane() {
		return
	}

	manifests := k8s.NewBootstrapManifestsConfig()
	manifests.TypedSpec().CNIName = b.settings().Cluster().Network().CNI().Name()
	b.put(manifests)
}

// showNodeStatus shows what the node's kubelet sees of its own Kubernetes object.
func (b *boot) showNodeStatus() {
	known, ready := b.nodeReady()
	if !known {
		return
	}

	status := k8s.NewNodeStatus(k8s.NamespaceName, b.hostname())
	status.TypedSpec().Nodename, status.TypedSpec().NodeReady = b.hostname(), ready
	status.TypedSpec().Unschedulable = b.cordoned()
	b.put(status)
}

// showIdentity shows the node id, which the STATE partition keeps.
func (b *boot) showIdentity() {
	id := b.node.readDrive().identity
	if id == "" {
		return
	}

	identity := cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity)
	identity.TypedSpec().NodeID = id
	b.put(identity)
}

// followMembers keeps the members up to date; without discovery a node knows of itself alone.
func (b *boot) followMembers(ctx context.Context) {
	for {
		changed := b.node.lab.changed.wait()

		b.showMembers()

		if !b.node.lab.options.Discovery {
			return
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// showMembers shows the cluster's members; a node whose config wants no discovery does not even know itself.
func (b *boot) showMembers() {
	if !b.settings().Cluster().Discovery().Enabled() {
		return
	}

	members := []*boot{b}
	if b.node.lab.options.Discovery {
		members = b.node.lab.running()
	}

	for _, other := range members {
		if other.clusterID() != b.clusterID() || other.hostname() == "" {
			continue
		}

		member := cluster.NewMember(cluster.NamespaceName, other.hostname())
		spec := member.TypedSpec()

		spec.Hostname, spec.NodeID, spec.Addresses = other.hostname(), other.node.readDrive().identity, other.addresses()
		spec.MachineType = other.role()
		spec.OperatingSystem = "Talos (" + other.version + ")"

		if spec.MachineType != machine.TypeWorker {
			spec.ControlPlane = &cluster.ControlPlane{APIServerPort: KubernetesPort}
		}

		b.put(member)
	}
}
