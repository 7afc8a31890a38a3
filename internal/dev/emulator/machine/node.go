package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/network"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/signal"
)

// Node is one emulated machine. Its methods are safe for concurrent use.
type Node struct {
	Lab     *Lab
	options NodeOptions
	// release is that of the machine's own version; an upgrade can make its boots run another.
	release *release
	NIC     *network.NIC

	ctx    context.Context //nolint:containedctx // the machine's life in the lab, which no single call has
	cancel context.CancelFunc
	done   chan struct{}

	// changed is raised when the faults or the power change, and at every change that the running boot makes.
	changed signal.Signal

	// wiring keeps two that carry out the power and the faults apart, so that the last one does it by what holds then.
	wiring sync.Mutex

	Recorder faults.Recorder

	mu     sync.Mutex
	faults faults.Faults
	on     bool
	boot   *Boot // the running boot; nil while the machine is off or between two boots
	boots  int
	drive  Drive
}

// Drive is what outlives a boot.
type Drive struct {
	Installed bool
	// SystemDisk is the name of the disk that Talos is on.
	SystemDisk string
	// config is the machine config in the STATE partition; empty if there is none.
	config []byte
	// Etcd is the member whose data /var/lib/etcd holds; nil when the directory is empty.
	Etcd *etcd.Member
	// Recovery is the snapshot of etcd that was sent for a later Bootstrap; nil if none was.
	Recovery []byte
	// identity is the node id in the STATE partition.
	identity string
	// Schematic is the image factory's id of the installed image.
	Schematic string
	Meta      map[uint8]string

	// Version is the Talos release that an upgrade wrote, and previous the one that it replaced; empty until there is one.
	Version, Previous string
	// PreviousSchematic is that of the replaced system.
	PreviousSchematic string
	// fallback is set after an upgrade until the new system was once up and ready: if a boot fails before, the machine
	// goes back to the replaced one.
	fallback bool
	// Staged is the installer image of an upgrade that the next boot is to do.
	Staged string
	// own are the volumes that have a partition of their own beside EPHEMERAL.
	own []string
	// unallocated is set once a partition is gone in whose place the next boot can make others.
	unallocated bool
	// registered reports whether kubelet has been in its Kubernetes cluster.
	registered bool
	// images are those that were pulled onto the disk.
	images map[imageStore]map[string]StoredImage
	// wiped are the disks that were cleared, as in "/dev/vdb".
	wiped []string
}

func newNode(lab *Lab, options NodeOptions) (*Node, error) {
	options = options.withDefaults()

	release, err := releaseOf(options.TalosVersion)
	if err != nil {
		return nil, err
	}

	node := &Node{
		Lab:     lab,
		options: options,
		release: release,
		NIC:     network.NewNIC(lab.network),
		done:    make(chan struct{}),
		faults:  options.Faults,
		on:      true,
		drive:   Drive{Meta: map[uint8]string{}},
	}

	node.faults.Calls = slices.Clone(options.Faults.Calls) // they are counted down
	node.ctx, node.cancel = context.WithCancel(lab.ctx)

	if options.Config != nil {
		if _, err := configloader.NewFromBytes(options.Config); err != nil {
			return nil, fmt.Errorf("load its machine config: %w", err)
		}
	}

	if options.Installed || options.Config != nil || options.EtcdData != NoEtcdData {
		if len(options.Disks) == 0 {
			return nil, errors.New("an installed machine needs a disk")
		}

		node.drive.Installed = true
		node.drive.SystemDisk = options.Disks[0].Name
		node.drive.config = options.Config
		node.drive.identity = identityOf(options.UUID)
		node.drive.Schematic = options.Schematic
	}

	if options.EtcdData != NoEtcdData {
		node.drive.Etcd = lab.etcd.Former(options.Name, options.Address, options.EtcdData == LostEtcdData,
			options.EtcdKubernetes)
	}

	return node, nil
}

func (o NodeOptions) withDefaults() NodeOptions {
	digest := sha256.Sum256([]byte(o.Name + o.Address.String()))
	hexed := hex.EncodeToString(digest[:])

	setDefault(&o.TalosVersion, DefaultTalosVersion)
	setDefault(&o.UUID, fmt.Sprintf("%s-%s-4%s-8%s-%s", hexed[:8], hexed[8:12], hexed[13:16], hexed[17:20], hexed[20:32]))
	setDefault(&o.SerialNumber, "SN-"+hexed[32:40])
	setDefault(&o.Manufacturer, "Example Machines")
	setDefault(&o.ProductName, "Loopback 1")
	setDefault(&o.Cmdline, "talos.platform=metal console=tty0 init_on_alloc=1 slab_nomerge pti=on consoleblank=0 "+
		"nvme_core.io_timeout=4294967295 printk.devkmsg=on selinux=1 module.sig_enforce=1")

	if o.Links == nil {
		o.Links = []Link{{Name: "eth0", MAC: net.HardwareAddr(append([]byte{0x52, 0x54, 0x00}, digest[29:]...)).String()}}
	}

	if o.Disks == nil {
		o.Disks = []Disk{{Name: "vda", Size: 50_000_000_000, Transport: "virtio"}}
	}

	o.Timing = o.Timing.withDefaults()

	return o
}

func setDefault(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}

// bootedRelease is the Talos release that the machine boots. One that can't be played is played as the machine's own
// line.
func (n *Node) bootedRelease() (string, *release) {
	version := n.options.TalosVersion
	if drive := n.ReadDrive(); drive.Installed && drive.Version != "" {
		version = drive.Version
	}

	found, err := releaseOf(version)
	if err != nil {
		found = n.release
	}

	return version, found
}

// TalosVersion is the Talos release that the machine boots.
func (n *Node) TalosVersion() string {
	version, _ := n.bootedRelease()

	return version
}

// identityOf makes the node id that the STATE partition keeps.
func identityOf(seed string) string {
	digest := sha256.Sum256([]byte("identity of " + seed))

	return hex.EncodeToString(digest[:])[:43]
}

// start brings the machine's address up and switches it on.
func (n *Node) start() error {
	if err := n.NIC.SetAddresses(n.options.Address); err != nil {
		close(n.done)
		n.NIC.Close()

		return err
	}

	if err := n.reservePort(); err != nil {
		close(n.done)
		n.NIC.Close()

		return err
	}

	n.applyNetworkFaults()

	go n.run()

	return nil
}

// reservePort settles the API's port before the machine answers, so that Endpoint can tell it; elsewhere it proves that
// the port is free.
func (n *Node) reservePort() error {
	return n.Lab.network.Reserve(netip.AddrPortFrom(n.options.Address, APIPort))
}

// run boots the machine again and again until the lab closes.
func (n *Node) run() {
	defer close(n.done)

	for n.ctx.Err() == nil {
		if err := n.changed.Until(n.ctx, n.poweredOn); err != nil {
			return
		}

		if n.Faults().Forgets {
			n.Wipe()
		}

		b := newBoot(n)

		n.mu.Lock()
		n.boot = b
		n.boots++
		n.mu.Unlock()

		end := b.run()

		n.mu.Lock()
		n.boot = nil

		if end == endPowerOff {
			n.on = false
		}
		n.mu.Unlock()

		n.applyNetworkFaults()
		n.changed.Raise()
		n.Lab.changed.Raise()

		if end == endReboot {
			n.restart()
		}
	}
}

// restart is the time between two boots: first the ports are refused, then, during the firmware's self-test, nothing
// answers.
func (n *Node) restart() {
	ctx, cancel := n.whilePowered()
	defer cancel()

	if n.Lab.clock.Sleep(ctx, n.options.Timing.Reboot) != nil || n.options.Timing.SelfTest == 0 {
		return
	}

	n.NIC.SetSilent(true)
	n.Lab.clock.Sleep(ctx, n.options.Timing.SelfTest) //nolint:errcheck // cut short by a power cut
	n.applyNetworkFaults()
}

// whilePowered is done when the machine loses its power or its lab.
func (n *Node) whilePowered() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(n.ctx)

	go func() {
		defer cancel()

		n.changed.Until(ctx, func() bool { return !n.poweredOn() }) //nolint:errcheck // either way it is over
	}()

	return ctx, cancel
}

func (n *Node) stop() {
	n.cancel()
	<-n.done
	n.NIC.Close()
}

func (n *Node) poweredOn() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.on
}

// applyNetworkFaults makes the network card what power and faults ask for.
func (n *Node) applyNetworkFaults() {
	n.wiring.Lock()
	defer n.wiring.Unlock()

	n.mu.Lock()
	faults, on := n.faults, n.on
	n.mu.Unlock()

	n.NIC.SetStall(faults.StallAfter)
	n.NIC.Refuse(APIPort, faults.Refuse)
	n.NIC.SetSilent(faults.Silence || !on || n.isLost())
}

// isLost reports whether the running boot is held because the machine is lost.
func (n *Node) isLost() bool {
	n.mu.Lock()
	b := n.boot
	n.mu.Unlock()

	return b != nil && b.lost.Load()
}

// Wipe empties the machine's disks, as a rescue system does. The machine must be off, or it writes what it has again.
func (n *Node) Wipe() {
	n.EditDrive(func(d *Drive) { *d = Drive{Meta: map[uint8]string{}} })
}

// LoseEtcd empties the machine's etcd directory, as a disk does that is broken. The machine must be off.
func (n *Node) LoseEtcd() {
	n.EditDrive(func(d *Drive) { d.Etcd, d.Recovery = nil, nil })
}

// Name is the name that the machine was started with.
func (n *Node) Name() string { return n.options.Name }

// Options are the machine's options with all defaults filled in.
func (n *Node) Options() NodeOptions { return n.options }

// Address is the address that the machine has now.
func (n *Node) Address() netip.Addr {
	if address := n.NIC.Address(); address.IsValid() {
		return address
	}

	return n.options.Address
}

// Endpoint is where a client on this system reaches the machine's API, as host:port.
func (n *Node) Endpoint() string {
	at, _ := n.Lab.network.Socket(netip.AddrPortFrom(n.Address(), APIPort))

	return at.String()
}

// PowerOff cuts the power: connections hang, no SYN is answered.
func (n *Node) PowerOff() { n.power(false) }

// PowerOn switches the machine on.
func (n *Node) PowerOn() { n.power(true) }

func (n *Node) power(on bool) {
	n.mu.Lock()
	n.on = on
	b := n.boot
	n.mu.Unlock()

	n.applyNetworkFaults()

	if !on && b != nil {
		b.cut(errPowerCut)
	}

	n.changed.Raise()
}

// Set changes the machine's faults.
func (n *Node) Set(change func(*faults.Faults)) {
	n.mu.Lock()
	change(&n.faults)
	n.mu.Unlock()

	n.applyNetworkFaults()
	n.changed.Raise()
	n.Lab.changed.Raise()
}

// Refuse opens or closes the API port.
func (n *Node) Refuse(refuse bool) { n.Set(func(f *faults.Faults) { f.Refuse = refuse }) }

// Silence takes the machine off the network or brings it back.
func (n *Node) Silence(silent bool) { n.Set(func(f *faults.Faults) { f.Silence = silent }) }

// Faults are the faults the machine has now.
func (n *Node) Faults() faults.Faults {
	n.mu.Lock()
	defer n.mu.Unlock()

	faults := n.faults
	faults.Calls = slices.Clone(faults.Calls)

	return faults
}

// Stage is the stage of the machine's status: "maintenance", "running" and so on; "off" without power, "rebooting"
// between two boots.
func (n *Node) Stage() string {
	n.mu.Lock()
	b, on := n.boot, n.on
	n.mu.Unlock()

	switch {
	case !on:
		return "off"
	case b == nil:
		return "rebooting"
	default:
		return b.status.stageName()
	}
}

// Ready reports whether the machine is running and all conditions for being ready are met.
func (n *Node) Ready() bool {
	n.mu.Lock()
	b := n.boot
	n.mu.Unlock()

	return b != nil && b.status.isReady()
}

// ServesKubernetes reports whether the machine's kube-apiserver answers.
func (n *Node) ServesKubernetes() bool {
	n.mu.Lock()
	b := n.boot
	n.mu.Unlock()

	return b != nil && b.controlPlane.serves()
}

// Registered reports whether the machine has registered itself in Kubernetes in its running boot.
func (n *Node) Registered() bool {
	k := n.kubelet()
	if k == nil {
		return false
	}

	known, _ := k.nodeReady()

	return known
}

// Cordon is an administrator who keeps new pods off the machine's Kubernetes node, or lets them on it again.
func (n *Node) Cordon(cordoned bool) {
	if k := n.kubelet(); k != nil {
		k.cordon(cordoned)
	}
}

// Cordons are the nodes of the machine's Kubernetes that take no new pods, each with its annotations; nil while the
// machine is not registered there.
func (n *Node) Cordons() map[string]map[string]string {
	k := n.kubelet()
	if k == nil || k.cluster() == nil {
		return nil
	}

	return k.cluster().Kubernetes.Cordons()
}

// KubernetesNodes are the names of the nodes of the machine's Kubernetes; nil while it is not registered there.
func (n *Node) KubernetesNodes() []string {
	k := n.kubelet()
	if k == nil || k.cluster() == nil {
		return nil
	}

	return k.cluster().Kubernetes.Nodes()
}

// kubelet is that of the running boot; nil for a machine that is off.
func (n *Node) kubelet() *kubelet {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.boot == nil {
		return nil
	}

	return &n.boot.Kubelet
}

// Impostor is what listens on the API port in Talos' place right now.
func (n *Node) Impostor() faults.Impostor {
	n.mu.Lock()
	b := n.boot
	n.mu.Unlock()

	if b == nil {
		return faults.NoImpostor
	}

	return b.api.impostor()
}

// Config is the machine config the machine runs with, or has on its disk while it is down; nil if there is none.
func (n *Node) Config() []byte {
	n.mu.Lock()
	b, config := n.boot, n.drive.config
	n.mu.Unlock()

	if b != nil {
		if active := b.Config.Active(); active != nil {
			if data, err := active.Bytes(); err == nil {
				return data
			}
		}
	}

	return slices.Clone(config)
}

// Installed reports whether Talos is on a disk of the machine.
func (n *Node) Installed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.drive.Installed
}

// Boots counts the boots so far.
func (n *Node) Boots() int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.boots
}

// Console is what the machine printed in its running boot, one line an entry; nil while it is off.
func (n *Node) Console() []string {
	n.mu.Lock()
	b := n.boot
	n.mu.Unlock()

	if b == nil {
		return nil
	}

	return b.KernelLog.Lines()
}

// Meta are the values of the META partition by key.
func (n *Node) Meta() map[uint8]string {
	n.mu.Lock()
	defer n.mu.Unlock()

	return maps.Clone(n.drive.Meta)
}

// WaitFor waits until the condition holds; it looks again at every change of the machine.
func (n *Node) WaitFor(ctx context.Context, condition func(*Node) bool) error {
	if err := n.changed.Until(ctx, func() bool { return condition(n) }); err != nil {
		return fmt.Errorf("wait for node %s in stage %s: %w", n.options.Name, n.Stage(), err)
	}

	return nil
}

// EditDrive changes what is on the machine's disks.
func (n *Node) EditDrive(edit func(*Drive)) {
	n.mu.Lock()
	edit(&n.drive)
	n.mu.Unlock()
}

// ReadDrive is what is on the machine's disks.
func (n *Node) ReadDrive() Drive {
	n.mu.Lock()
	defer n.mu.Unlock()

	d := n.drive
	d.Meta = maps.Clone(d.Meta)

	return d
}
