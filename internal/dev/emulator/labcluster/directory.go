package labcluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// usualDiskSize is what a machine's disk holds when its selector asks for nothing else, in bytes.
const usualDiskSize = 50_000_000_000

// FromDirectory starts a machine, in maintenance mode, for every node that the talconfig.yaml in dir declares.
// Addresses that are not loopback ones are played on addresses of the lab; Environ tells a client where. The machines
// have the declared MACs, UUIDs and disks. The machines find the cluster's endpoint in the lab too and never send
// anything elsewhere. A client has no such map of the endpoint: it looks for Kubernetes at the declared address or
// name. Of the options Lab, LabOptions, Timing and Edit are heeded.
func FromDirectory(dir string, environ []string, options Options) (*Cluster, error) {
	declared, err := inventory.Load(inventory.Options{TalosDir: dir, Environ: environ})
	if err != nil {
		return nil, fmt.Errorf("read inventory: %w", err)
	}

	options = options.withDefaults()
	options.LabOptions.Machines = max(options.LabOptions.Machines, len(declared.Nodes))

	cluster := &Cluster{Dir: dir, Lab: options.Lab, declared: map[string]string{}}

	if cluster.Lab == nil {
		if cluster.Lab, err = emulator.NewLab(options.LabOptions); err != nil {
			return nil, err
		}

		cluster.ownsLab = true
	}

	cluster.Scale = options.LabOptions.TimeScale

	if err := cluster.play(declared, options); err != nil {
		cluster.Close() //nolint:errcheck // the first error is the one that helps

		return nil, err
	}

	return cluster, nil
}

// play starts the declared machines.
func (c *Cluster) play(declared *inventory.Cluster, options Options) error {
	var controlPlanes []*emulator.Node

	for i, node := range declared.Nodes {
		machine, err := c.describe(node, c.Lab.MachineAddress(i))
		if err != nil {
			return err
		}

		machine.Timing = options.Timing

		if declared.TalosVersion != "" {
			machine.TalosVersion = declared.TalosVersion
		}

		if options.Edit != nil {
			options.Edit(&machine)
		}

		started, err := c.Lab.Start(machine)
		if err != nil {
			return err
		}

		c.Nodes = append(c.Nodes, started)
		c.declared[started.Name()] = node.Address

		if node.Role == inventory.ControlPlane {
			controlPlanes = append(controlPlanes, started)
		}
	}

	return c.playEndpoint(declared, controlPlanes)
}

// playEndpoint gives the cluster's endpoint an address of the lab: a virtual one, or a balancer's if it is no
// machine's.
func (c *Cluster) playEndpoint(declared *inventory.Cluster, controlPlanes []*emulator.Node) error {
	endpoint, err := netip.ParseAddr(declared.Endpoint.Hostname())
	if err != nil {
		return nil //nolint:nilerr // a name: whoever resolves it decides where it leads
	}

	if declared.HasVIP() {
		c.VIP = endpoint
	}

	for _, node := range c.Nodes {
		if node.Address() == endpoint {
			return nil
		}
	}

	if !endpoint.IsLoopback() {
		c.Lab.Map(endpoint, c.Lab.Address(vipHost))
	}

	if declared.HasVIP() {
		return nil
	}

	return c.Lab.Balance(endpoint, []uint16{emulator.KubernetesPort, emulator.TrustdPort, emulator.APIPort},
		controlPlanes...)
}

// describe makes a machine that fits its declaration and is found at an address of the lab.
func (c *Cluster) describe(node *inventory.Node, actual netip.Addr) (emulator.NodeOptions, error) {
	options := emulator.NodeOptions{Name: node.Name, Address: actual, UUID: node.UUID, SecureBoot: node.SecureBoot,
		UKI: node.SecureBoot}

	if address, err := netip.ParseAddr(node.Address); err == nil {
		options.Address = address

		if !address.IsLoopback() {
			c.Lab.Map(address, actual)
		}
	}

	for i, mac := range node.MACs {
		options.Links = append(options.Links, emulator.Link{Name: fmt.Sprintf("eth%d", i), MAC: mac})
	}

	disk := emulator.Disk{Name: "vda", Size: usualDiskSize, Transport: "virtio"}

	if node.InstallDisk != "" {
		disk.Name = filepath.Base(node.InstallDisk)

		if dir := filepath.Dir(node.InstallDisk); dir != "/dev" {
			disk.Name, disk.Symlinks = "vda", []string{node.InstallDisk}
		}
	}

	data, err := os.ReadFile(node.ConfigFile)
	if os.IsNotExist(err) {
		options.Disks = []emulator.Disk{disk}

		return options, nil
	} else if err != nil {
		return options, fmt.Errorf("read machine config: %w", err)
	}

	return c.fit(options, disk, data, actual)
}

// fit makes the machine what its machine config expects: a disk that the selector matches, and its static addresses in
// the lab.
func (c *Cluster) fit(options emulator.NodeOptions, disk emulator.Disk, data []byte,
	actual netip.Addr) (emulator.NodeOptions, error) {
	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		// What is wrong with the file is for the tool to find, not for its rehearsal.
		options.Disks = []emulator.Disk{disk}

		return options, nil //nolint:nilerr // as above
	}

	if raw := provider.RawV1Alpha1(); raw != nil && raw.MachineConfig != nil && raw.MachineConfig.MachineInstall != nil {
		selectDisk(&disk, raw.MachineConfig.MachineInstall.InstallDiskSelector)
	}

	if config, err := machineconfig.FromBytes("", data); err == nil {
		for _, prefix := range config.Addresses() {
			if !prefix.Addr().IsLoopback() {
				c.Lab.Map(prefix.Addr(), actual)
			}
		}

		options.Links = selectLinks(options.Links, config)
	}

	options.Disks = []emulator.Disk{disk}

	return options, nil
}

// selectDisk makes a disk that a selector matches; patterns lose their stars.
func selectDisk(disk *emulator.Disk, selector *v1alpha1.InstallDiskSelector) {
	if selector == nil {
		return
	}

	plain := func(pattern string) string { return strings.ReplaceAll(pattern, "*", "") }

	disk.Model, disk.Serial, disk.WWID = plain(selector.Model), plain(selector.Serial), plain(selector.WWID)

	switch strings.ToLower(string(selector.Type)) {
	case "nvme":
		disk.Name, disk.Transport = "nvme0n1", "nvme"
	case "hdd":
		disk.Name, disk.Transport, disk.Rotational = "sda", "sata", true
	case "ssd":
		disk.Name, disk.Transport = "sda", "sata"
	case "sd":
		disk.Name, disk.Transport = "mmcblk0", "mmc"
	}

	if selector.Size != nil {
		disk.Size = fittingSize(selector.Size.MatchData.Op, selector.Size.MatchData.Size)
	}
}

// fittingSize is a size that passes a comparison.
func fittingSize(operator string, size uint64) uint64 {
	const more = 1_000_000_000

	switch operator {
	case ">", ">=":
		return size + more
	case "<", "<=":
		return size - min(size, 1)
	default:
		return size
	}
}

// Environ is what a client needs in its environment to talk to the machines: where the files are (the talosconfig too,
// since a repository's Taskfile names its own), how fast time passes, and, for machines that do not answer at their
// declared addresses, where they answer: with the port, so that nothing is ever sent to the declared ones.
func (c *Cluster) Environ() []string {
	environ := []string{
		"TALOS_DIR=" + c.Dir,
		"TALOSCONFIG=" + c.Talosconfig(),
		"CLOCK_SCALE=" + strconv.FormatFloat(c.Scale, 'f', -1, 64),
	}

	var elsewhere []string

	for _, node := range c.Nodes {
		declared := c.declared[node.Name()]
		if declared == "" {
			declared = node.Options().Address.String()
		}

		if at := node.Endpoint(); at != net.JoinHostPort(declared, strconv.Itoa(emulator.APIPort)) {
			elsewhere = append(elsewhere, node.Name()+"="+at)
		}
	}

	if len(elsewhere) > 0 {
		environ = append(environ, "NODE_ADDRESSES="+strings.Join(elsewhere, ","))
	}

	return environ
}
