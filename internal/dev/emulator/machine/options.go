package machine

import (
	"net/netip"
	"time"

	"github.com/rs/zerolog"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/network"
)

// DefaultTalosVersion is the Talos release whose behaviour nodes show if nothing else is asked for.
const DefaultTalosVersion = "v1.13.9"

// LabOptions are the settings of a whole lab.
type LabOptions struct {
	// TimeScale is how many times faster than the wall clock time passes for the nodes. Default 1.
	TimeScale float64
	// Machines is how many machines there have to be addresses for. Default 240.
	Machines int
	// Discovery makes the nodes of a cluster find each other without its endpoint, as Talos' discovery service does.
	Discovery bool
	// SingleAddress puts all nodes on 127.0.0.1, differing by port: for systems without the rest of 127.0.0.0/8.
	// A node's real place is then Node.Endpoint.
	SingleAddress bool
	// Unsettled is which way nodes take where Talos' code leaves it to chance, or nobody has seen it.
	Unsettled Unsettled
	// Workloads are what runs on the lab's clusters beside their own pods.
	Workloads []kubernetes.Workload
	// ConfigMaps are what those clusters hold beside their own.
	ConfigMaps []kubernetes.ConfigMap
	// Logger gets the console of every node; none by default.
	Logger zerolog.Logger
	// Watch is told of every call to a node when it arrives. The call waits until Watch returns, before anything is done
	// with it.
	Watch func(node *Node, call faults.Call)
}

// Unsettled is which way nodes of Talos 1.14 take where their code leaves it to chance, or where nobody has seen it on
// real machines. The zero value is the likelier way.
type Unsettled struct {
	// StateBeforeReboot gives a machine its STATE partition, and with it the name and the API of a node that chooses its
	// own host name, as soon as an unattended install is done; otherwise after the reboot.
	StateBeforeReboot bool
	// CRIKnowsConfig makes the wait of the containers' runtime begin again with the machine config, so that the history of
	// the service names the sandbox and the unattended install that it waits for.
	CRIKnowsConfig bool
	// KubeletAfterBoot lets a boot end before kubelet is known, so that it does not wait for it.
	KubeletAfterBoot bool
}

// NodeOptions describe one machine. The zero value of every field but Name is usable.
type NodeOptions struct {
	// Name is what tests and logs call the machine; it has nothing to do with its hostname.
	Name string
	// Address is where the machine answers in maintenance mode. Default: the lab's next free address.
	// With a static address in its machine config it answers there afterwards.
	Address netip.Addr
	// TalosVersion is the Talos release that the machine runs, whatever installer its machine config names: v1.14.x
	// behaves as v1.14.1 does, v1.13.x as v1.13.9, and v1.12.x as v1.12.1. Others can't be played. Default
	// DefaultTalosVersion.
	TalosVersion string
	// UUID is the SMBIOS UUID; default: made from the name.
	UUID         string
	SerialNumber string
	Manufacturer string
	ProductName  string
	// Links default to one physical link, eth0, with a MAC made from the name.
	Links []Link
	// Disks default to one empty 50 GB virtio disk, vda.
	Disks      []Disk
	SecureBoot bool
	// UKI reports whether the machine was booted from a unified kernel image.
	UKI bool
	// Cmdline is the kernel command line. Default: that of the metal image.
	Cmdline string
	// Extensions are the system extensions of the image that the machine booted from.
	Extensions []Extension
	// Schematic is the image factory's id of that image; empty for an image from elsewhere. An install from a factory's
	// installer changes it.
	Schematic string
	// Agent machines run Talos as the agent of a fleet's management: they take no machine config.
	Agent bool
	// Installed machines have Talos on their first disk, and need no install.
	Installed bool
	// Config is a machine config that the machine already runs with. It implies Installed.
	Config []byte
	// EtcdData is what /var/lib/etcd holds from an earlier life. It implies Installed.
	EtcdData EtcdData
	// EtcdKubernetes is the Kubernetes that is kept in that etcd, "v1.35.0". Talos leaves its kube-proxy as it is.
	// Default: the newest.
	EtcdKubernetes string
	Timing         Timing
	Faults         faults.Faults
}

// Link is a network link of a machine.
type Link struct {
	Name string // "eth0"
	// MAC is the permanent hardware address.
	MAC string
	// Virtual reports whether it is no physical link, as bonds and bridges are.
	Virtual bool
	// Down reports whether it has no carrier.
	Down bool
	// Driver is the kernel's, "ixgbe". Default: "virtio_net".
	Driver string
	// BusPath is where the hardware is, "0000:03:00.0". Default: a place of its own.
	BusPath string
	// PCIID is what the hardware is, "8086:1572".
	PCIID string
}

// Extension is a system extension of an image.
type Extension struct {
	Name    string // "iscsi-tools"
	Version string // "v0.2.0"
}

// Disk is a disk of a machine.
type Disk struct {
	Name       string // "vda"
	Size       uint64 // in bytes
	Model      string
	Serial     string
	WWID       string
	UUID       string
	Modalias   string
	BusPath    string // as "/pci0000:00/0000:00:1f.2/ata1"; empty for one that the name makes
	Transport  string // "virtio", "nvme", "sata"; empty for virtual devices
	Rotational bool
	Readonly   bool
	CDROM      bool
	Symlinks   []string
	// Volumes are what Talos finds on the disk before it is installed.
	Volumes []Volume
}

// Volume is a partition, or a file system on the whole disk.
type Volume struct {
	Name       string // "vda1"
	Filesystem string // "xfs", "ext4", "luks"
	Label      string // the file system's label
	Partition  string // the partition's label
	Size       uint64 // in bytes
}

// EtcdData is what a control plane's etcd directory holds from an earlier life.
type EtcdData int

// Kinds of etcd data.
const (
	// NoEtcdData is an empty directory.
	NoEtcdData EtcdData = iota
	// LostEtcdData belongs to a member of a cluster of three whose other members are gone: its etcd starts and never gets
	// healthy.
	LostEtcdData
	// WholeEtcdData belongs to a cluster of this one member: its etcd starts and is healthy.
	WholeEtcdData
)

// Timing is how long things take on the machine, in node time.
type Timing struct {
	// Boot is from power-on to the first answer. Default 5 s.
	Boot time.Duration
	// Apply is how long the machine takes over a machine config that it is sent, before it answers. The caller's deadline
	// does not shorten it. Default 0.
	Apply time.Duration
	// Install is the installer's run, at an upgrade as well. Default 30 s.
	Install time.Duration
	// Flush is how long a machine writes its META volume between an unattended install and the reboot. Default 200 ms.
	Flush time.Duration
	// Pull is how long it takes to fetch an image for an upgrade. Default 2 s.
	Pull time.Duration
	// Pods is how long a machine that runs pods waits for their end before it reboots; its API is there meanwhile. Default
	// 0.
	Pods time.Duration
	// Stop is from then to the kernel's end. Default 2 s.
	Stop time.Duration
	// Reboot is how long the machine is gone between two boots; its ports are refused. Default 10 s.
	Reboot time.Duration
	// SelfTest is the firmware's share of a reboot, in which the machine does not answer at all. Default 0.
	SelfTest time.Duration
	// Containers is how long containerd's CRI takes to come up in the boot sequence. Default 3 s.
	Containers time.Duration
	// Kubelet is how long kubelet takes after that. Default 5 s.
	Kubelet time.Duration
	// EtcdData is how long an etcd that makes a cluster runs before its directory has something in it, and one that joins
	// a cluster before the cluster knows its name. Default 1 s.
	EtcdData time.Duration
	// EtcdStart is from an etcd start to its first successful health check, at least the 5 s of Talos' health check.
	// Default 6 s.
	EtcdStart time.Duration
	// EtcdJoin is how long a new member takes to catch up. It stays a learner until the next attempt to promote it, of
	// which there is one every 15 s. Default 5 s.
	EtcdJoin time.Duration
	// ControlPlane is from a healthy etcd to an answering kube-apiserver. Default 10 s.
	ControlPlane time.Duration
	// TimeSync is how long the first time sync of a boot takes. Default 1 s.
	TimeSync time.Duration
	// BootLimit is when a boot whose services are not all up is given up, and the machine reboots. Default 0: never, since
	// scaled time can outrun a slow test; Talos has 70 min.
	BootLimit time.Duration
	// EtcdJoinLimit is how long an etcd tries to join its cluster before its service fails for good. Default 30 min, as in
	// Talos.
	EtcdJoinLimit time.Duration
}

func (t Timing) withDefaults() Timing {
	for field, fallback := range map[*time.Duration]time.Duration{
		&t.Boot:          5 * time.Second,
		&t.Install:       30 * time.Second,
		&t.Flush:         200 * time.Millisecond,
		&t.Pull:          2 * time.Second,
		&t.Stop:          2 * time.Second,
		&t.Reboot:        10 * time.Second,
		&t.Containers:    3 * time.Second,
		&t.Kubelet:       5 * time.Second,
		&t.EtcdData:      time.Second,
		&t.EtcdStart:     6 * time.Second,
		&t.EtcdJoin:      5 * time.Second,
		&t.ControlPlane:  10 * time.Second,
		&t.TimeSync:      time.Second,
		&t.EtcdJoinLimit: constants.EtcdJoinTimeout,
	} {
		if *field == 0 {
			*field = fallback
		}
	}

	return t
}

// Ports that a Talos node listens on.
const (
	APIPort        = network.APIPort        // the Talos API
	TrustdPort     = network.TrustdPort     // trustd, on control planes
	KubernetesPort = network.KubernetesPort // kube-apiserver, on control planes
)
