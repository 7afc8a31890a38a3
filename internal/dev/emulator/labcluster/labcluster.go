// Package labcluster makes a whole cluster for tests and rehearsals: its files, laid out as talhelper does, and its
// emulated machines.
package labcluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// Time scales that suit the default timing: a whole bring-up of six nodes takes about 90 s of node time.
const (
	// DemoScale makes it some seconds, slow enough to watch.
	DemoScale = 20
	// TestScale makes it a fraction of a second.
	TestScale = 200
)

// NewestTalos is the newest release that can be played: what rehearsals play unless they are told otherwise.
const NewestTalos = "v1.14.1"

// patience is a limit in node time that no test comes near, however busy its machine.
const patience = 24 * time.Hour

// vipHost is the host part of the VIP in the lab's first block; those of machines are the lab's to give.
const vipHost = 10

// EndpointKind is what a cluster's endpoint is.
type EndpointKind int

// Kinds of endpoints.
const (
	// VIP is a virtual address of the control planes. It answers only once etcd runs.
	VIP EndpointKind = iota
	// FirstControlPlane is the address of the first control plane.
	FirstControlPlane
)

// Options describe a cluster; the zero value is three control planes with a VIP, three workers and no CNI.
type Options struct {
	// Name is the cluster's name. Default "lab".
	Name string
	// ControlPlanes and Workers are how many there are; 0 means 3 each, less than 0 none.
	ControlPlanes, Workers int
	Endpoint               EndpointKind
	// TalosVersion is what the machines run and the files are for, Kubernetes' version included. Default
	// emulator.DefaultTalosVersion. Edit can give a machine another one.
	TalosVersion string
	// Contract is the release whose form the machine configs have, as in "v1.14". Default that of TalosVersion, at the
	// most v1.13.
	Contract string
	// CNI is "none" (the default), "flannel" or "custom".
	CNI string
	// AutoHostnames leaves the host names to the machines, as Talos' own generated configs do.
	AutoHostnames bool
	// NoMACs leaves the machines' hardware addresses out of the files, so that nothing tells the machines apart.
	NoMACs bool
	// DHCP leaves the addresses out of the machine configs.
	DHCP bool
	// Secrets default to a new cluster's of this process.
	Secrets *secrets.Bundle

	// Lab is the lab to start the machines in. By default the cluster makes one of its own, of these options.
	Lab        *emulator.Lab
	LabOptions emulator.LabOptions
	// Timing of every machine.
	Timing emulator.Timing
	// Edit changes a machine before it is started.
	Edit func(node *emulator.NodeOptions)
	// Off leaves the machines out: only the files are made.
	Off bool
}

// Cluster is a cluster's files and machines.
type Cluster struct {
	// Dir is the TALOS_DIR: talconfig.yaml, talenv.yaml and clusterconfig/.
	Dir string
	// Lab is where the machines are.
	Lab *emulator.Lab
	// Nodes are the machines, control planes first.
	Nodes []*emulator.Node
	// Generated is what the files were made from.
	Generated *clusterfiles.Files
	// VIP is the cluster's virtual address; invalid without one.
	VIP netip.Addr
	// Scale is how many times faster than the wall clock time passes for the machines.
	Scale float64

	ownsLab  bool
	declared map[string]string // what the inventory calls a machine's address, by name
}

// New makes the files of a cluster in dir and starts its machines in maintenance mode.
func New(dir string, options Options) (*Cluster, error) {
	options = options.withDefaults()
	cluster := &Cluster{Dir: dir, Lab: options.Lab, Scale: options.LabOptions.TimeScale, declared: map[string]string{}}

	if cluster.Lab == nil {
		lab, err := emulator.NewLab(options.LabOptions)
		if err != nil {
			return nil, err
		}

		cluster.Lab, cluster.ownsLab = lab, true
	}

	if err := cluster.make(options); err != nil {
		cluster.Close() //nolint:errcheck // the first error is the one that helps

		return nil, err
	}

	return cluster, nil
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = "lab"
	}

	if o.TalosVersion == "" {
		o.TalosVersion = emulator.DefaultTalosVersion
	}

	if o.CNI == "" {
		o.CNI = constants.NoneCNI
	}

	o.ControlPlanes, o.Workers = count(o.ControlPlanes), count(o.Workers)
	o.LabOptions.Machines = max(o.LabOptions.Machines, o.ControlPlanes+o.Workers)

	if o.LabOptions.TimeScale == 0 {
		o.LabOptions.TimeScale = TestScale
	}

	// So fast, Talos' 30 minutes are a few seconds, which a busy machine may be late by.
	if o.LabOptions.TimeScale >= TestScale && o.Timing.EtcdJoinLimit == 0 {
		o.Timing.EtcdJoinLimit = patience
	}

	return o
}

// OwnForm is the form that a release of Talos brought, which the files of a new cluster name in plain sight; empty for
// no release.
func OwnForm(talosVersion string) string {
	form, err := release.Minor(talosVersion)
	if err != nil {
		return ""
	}

	return form.String()
}

func count(asked int) int {
	const usual = 3

	switch {
	case asked == 0:
		return usual
	case asked < 0:
		return 0
	default:
		return asked
	}
}

func (c *Cluster) make(options Options) error {
	specs, endpoint := c.plan(options)

	generated, err := clusterfiles.Make(clusterfiles.Options{
		ClusterName:   options.Name,
		Endpoint:      "https://" + netip.AddrPortFrom(endpoint, emulator.KubernetesPort).String(),
		VIP:           c.VIP,
		CNI:           options.CNI,
		TalosVersion:  options.TalosVersion,
		Contract:      options.Contract,
		AutoHostnames: options.AutoHostnames,
		Secrets:       options.Secrets,
		Nodes:         specs,
	})
	if err != nil {
		return err
	}

	c.Generated = generated

	if err := generated.Write(c.Dir); err != nil {
		return fmt.Errorf("write cluster files: %w", err)
	}

	if options.Off {
		return nil
	}

	for i, spec := range specs {
		node := emulator.NodeOptions{
			Name:    spec.Name,
			Address: c.Lab.MachineAddress(i),
			Links:   Links(spec),
			Timing:  options.Timing,

			TalosVersion: options.TalosVersion,
		}

		if options.Edit != nil {
			options.Edit(&node)
		}

		started, err := c.Lab.Start(node)
		if err != nil {
			return err
		}

		c.Nodes = append(c.Nodes, started)
		c.declared[started.Name()] = spec.Declared
	}

	return nil
}

// Links are the network links of a spec's machine: one with the declared address, or, where none is declared, what a
// machine has by itself.
func Links(spec clusterfiles.Node) []emulator.Link {
	if spec.MAC == "" {
		return nil
	}

	return []emulator.Link{{Name: "eth0", MAC: spec.MAC}}
}

// plan gives every machine a name, an address and a MAC.
func (c *Cluster) plan(options Options) ([]clusterfiles.Node, netip.Addr) {
	var specs []clusterfiles.Node

	add := func(role machine.Type, prefix string, number int) {
		address := c.Lab.MachineAddress(len(specs))
		last := address.As4()

		spec := clusterfiles.Node{
			Name:     fmt.Sprintf("%s%d", prefix, number),
			Role:     role,
			Declared: address.String(),
			MAC:      net.HardwareAddr{0x52, 0x54, 0x00, last[1], last[2], last[3]}.String(),
		}

		if options.NoMACs {
			spec.MAC = ""
		}

		if !options.DHCP {
			spec.Address = netip.PrefixFrom(address, c.Lab.Prefix().Bits())
		}

		specs = append(specs, spec)
	}

	for i := range options.ControlPlanes {
		add(machine.TypeControlPlane, "cp", i+1)
	}

	for i := range options.Workers {
		add(machine.TypeWorker, "worker", i+1)
	}

	if options.Endpoint == FirstControlPlane {
		return specs, c.Lab.MachineAddress(0)
	}

	c.VIP = c.Lab.Address(vipHost)

	return specs, c.VIP
}

// Close switches the machines off, unless they are in somebody else's lab.
func (c *Cluster) Close() error {
	if !c.ownsLab || c.Lab == nil {
		return nil
	}

	return c.Lab.Close()
}

// Booted waits until all machines can be asked, in maintenance mode.
func (c *Cluster) Booted(ctx context.Context) error {
	for _, node := range c.Nodes {
		if err := node.WaitFor(ctx, func(node *emulator.Node) bool { return node.Stage() == "maintenance" }); err != nil {
			return fmt.Errorf("wait for %s to boot: %w", node.Name(), err)
		}
	}

	return nil
}

// ConfigDir is the folder with the machine configs and the talosconfig.
func (c *Cluster) ConfigDir() string { return filepath.Join(c.Dir, "clusterconfig") }

// Talosconfig is the path of the cluster's talosconfig.
func (c *Cluster) Talosconfig() string { return filepath.Join(c.ConfigDir(), "talosconfig") }

// Client is machinery's own, with the rights of the talosconfig, as another tool would call a machine. The caller
// closes it.
func (c *Cluster) Client(ctx context.Context, name string) (*client.Client, error) {
	talosconfig, err := clientconfig.Open(c.Talosconfig())
	if err != nil {
		return nil, fmt.Errorf("open talosconfig: %w", err)
	}

	return client.New(ctx, client.WithConfig(talosconfig), client.WithEndpoints(c.Node(name).Endpoint()))
}

// ConfigFile is the path of a machine's config.
func (c *Cluster) ConfigFile(name string) string {
	return filepath.Join(c.ConfigDir(), c.Generated.Options.ClusterName+"-"+name+".yaml")
}

// Config is a machine's config as it is on disk.
func (c *Cluster) Config(name string) ([]byte, error) {
	data, err := os.ReadFile(c.ConfigFile(name))
	if err != nil {
		return nil, fmt.Errorf("read machine config: %w", err)
	}

	return data, nil
}

// Node is a machine by its name; nil if there is none.
func (c *Cluster) Node(name string) *emulator.Node { return c.Lab.Node(name) }

// Deadline is a wall-clock limit that no bring-up of this cluster comes near, for tests that would otherwise hang.
const Deadline = 2 * time.Minute
