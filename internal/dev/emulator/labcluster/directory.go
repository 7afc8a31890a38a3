package labcluster

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
)

// FromDirectory starts a machine, in maintenance mode, for every node that the talconfig.yaml in dir declares.
// Addresses that are not loopback ones are played on addresses of the lab; Environ tells a client where. The machines
// have the declared MACs and UUIDs, and disks that fit the machine configs, rendered or not. They find the cluster's
// endpoint in the lab too and never send anything elsewhere. A client has no such map of the endpoint: it looks for
// Kubernetes at the declared address or name. Of the options TalosVersion,
// Lab, LabOptions, Timing and Edit are heeded; by default the machines run what is declared.
func FromDirectory(dir string, environ []string, options Options) (*Cluster, error) {
	declared, err := inventory.Load(inventory.Options{TalosDir: dir, Environ: environ})
	if err != nil {
		return nil, fmt.Errorf("read inventory: %w", err)
	}

	options.TalosVersion = cmp.Or(options.TalosVersion, declared.TalosVersion)
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

	rendered := render(declared)

	for i, node := range declared.Nodes {
		machine := c.describe(node, c.Lab.MachineAddress(i), rendered)
		machine.Timing = options.Timing

		machine.TalosVersion = options.TalosVersion

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
func (c *Cluster) describe(node *inventory.Node, actual netip.Addr, rendered map[string][]byte) emulator.NodeOptions {
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

	config := configOf(node, rendered)
	if config == nil {
		// What is wrong with the files is for the tool to find, not for its rehearsal.
		options.Disks = []emulator.Disk{installDisk(node.InstallDisk)}

		return options
	}

	options.Disks = disksFor(node.InstallDisk, config.Provider)

	for _, prefix := range config.Addresses() {
		if !prefix.Addr().IsLoopback() {
			c.Lab.Map(prefix.Addr(), actual)
		}
	}

	options.Links = selectLinks(options.Links, config)

	return options
}

// configOf is a node's machine config as it lies there, else as it would be rendered; nil if neither can be had.
func configOf(node *inventory.Node, rendered map[string][]byte) *machineconfig.Config {
	if config, err := machineconfig.Load(node.ConfigFile); err == nil {
		return config
	}

	config, err := machineconfig.FromBytes(node.ConfigFile, rendered[filepath.Base(node.ConfigFile)])
	if err != nil {
		return nil
	}

	return config
}

// render makes the machine configs with secrets that nobody uses; none if they can't be made.
func render(declared *inventory.Cluster) map[string][]byte {
	configs := map[string][]byte{}

	bundle, err := throwaway.Secrets()
	if err != nil {
		return configs
	}

	output, err := generate.Configs(generate.Source{Cluster: declared, Secrets: bundle, Now: time.Now()})
	if err != nil {
		return configs
	}

	for _, config := range output.Configs {
		configs[config.File] = config.Bytes
	}

	return configs
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
			elsewhere = append(elsewhere, node.Name()+"="+wayIn(at, declared))
		}
	}

	if len(elsewhere) > 0 {
		environ = append(environ, "NODE_ADDRESSES="+strings.Join(elsewhere, ","))
	}

	return environ
}

// EnvironIn is Environ with root as the repository that the files lie in, and as the place of the kubeconfig.
func (c *Cluster) EnvironIn(root string) []string {
	return append(c.Environ(), "ROOT_DIR="+root, "KUBECONFIG="+filepath.Join(root, "kubeconfig"))
}

// wayIn is where operators are told to find a machine. With its port it is the only address that they try: a machine of
// somebody's files has one there, on the real network. One that moves to its declared address on loopback is followed.
func wayIn(endpoint, declared string) string {
	address, err := netip.ParseAddr(declared)
	if err != nil || !address.IsLoopback() {
		return endpoint
	}

	return strings.TrimSuffix(endpoint, ":"+strconv.Itoa(emulator.APIPort))
}
