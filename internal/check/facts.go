package check

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Node is a node that answered, with all that is known about it.
type Node struct {
	*inventory.Node

	Cluster *inventory.Cluster
	// Config is its machine config; nil without one, which is a finding of its own.
	Config   *machineconfig.Config
	Facts    Facts
	Settings Settings
}

// Facts are what one node told about itself. A field that could not be read has its zero value, and its name in Unread.
type Facts struct {
	// Address is where the node was asked.
	Address string
	// Proxy is what the connection went through; nil for none.
	Proxy *talos.Proxy
	// State is what the probe found; ReadFacts does not know it.
	State talos.State
	// Version is the running Talos version, as in "v1.13.9".
	Version string
	// Disks are in the order in which Talos looks at them.
	Disks []*block.Disk
	// Installed is set when Talos is on a disk; SystemDisk is its device path.
	Installed  bool
	SystemDisk string
	// Volumes are what was found on the disks.
	Volumes []talos.Volume
	Links   []talos.Link
	System  talos.SystemInfo
	// Security is nil when unread.
	Security *talos.Security
	// Cmdline holds the kernel arguments that the node booted with.
	Cmdline string
	// Schematic is the image factory schematic that the node booted from; empty when it did not come from an image
	// factory.
	Schematic string
	Hostname  string
	Addresses []netip.Prefix
	// Unread are the reads that failed.
	Unread []Unread
}

// Unread is one read that a node refused or did not answer.
type Unread struct {
	// What was to be read, in plain words.
	What string
	Err  error
}

// The names of the reads that checks ask about.
const (
	FactDisks   = "disks"
	FactLinks   = "links"
	FactSystem  = "system information"
	FactCmdline = "kernel arguments"
)

// Lacks reports whether a read failed.
func (f Facts) Lacks(what string) bool {
	for _, unread := range f.Unread {
		if unread.What == what {
			return true
		}
	}

	return false
}

// ReadFacts reads all that the checks need from a node, in maintenance or configured. The reads run at once, each with
// the connection's own deadline, so that a node that stops answering costs one of them; a read that fails is recorded,
// and fatal only to its check.
func ReadFacts(ctx context.Context, conn *talos.Conn) Facts {
	facts := Facts{Address: conn.Address(), Proxy: talos.ProxyFor(conn.Address())}

	read := func(ctx context.Context, read factRead) readFact {
		store, err := read.from(ctx, conn)

		return readFact{store: store, err: err}
	}
	broken := func(_ factRead, err error) readFact { return readFact{err: err} }

	for i, fact := range fanout.Collect(ctx, len(factReads), factReads, read, broken) {
		if fact.err != nil {
			facts.Unread = append(facts.Unread,
				Unread{What: factReads[i].what, Err: fmt.Errorf("read %s: %w", factReads[i].what, fact.err)})

			continue
		}

		fact.store(&facts)
	}

	return facts
}

// readFact is what came of one read.
type readFact struct {
	store func(*Facts)
	err   error
}

// factRead fetches one thing and returns how to store it.
type factRead struct {
	what string
	from func(context.Context, *talos.Conn) (store func(*Facts), err error)
}

var factReads = []factRead{
	{"Talos version", func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		version, err := conn.Version(ctx)

		return func(f *Facts) { f.Version = version }, err
	}},
	{FactDisks, func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		disks, err := conn.Disks(ctx)

		return func(f *Facts) { f.Disks = disks }, err
	}},
	{"system disk", func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		path, installed, err := conn.SystemDisk(ctx)

		return func(f *Facts) { f.SystemDisk, f.Installed = path, installed }, err
	}},
	{"volumes", func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		volumes, err := conn.DiscoveredVolumes(ctx)

		return func(f *Facts) { f.Volumes = volumes }, err
	}},
	{FactLinks, func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		links, err := conn.Links(ctx)

		return func(f *Facts) { f.Links = links }, err
	}},
	{FactSystem, func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		system, err := conn.SystemInformation(ctx)

		return func(f *Facts) { f.System = system }, err
	}},
	{"security state", func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		security, err := conn.SecurityState(ctx)

		return func(f *Facts) { f.Security = &security }, err
	}},
	{FactCmdline, func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		cmdline, err := conn.KernelCmdline(ctx)

		return func(f *Facts) { f.Cmdline = cmdline }, err
	}},
	{"schematic", func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		schematic, err := conn.Schematic(ctx)

		return func(f *Facts) { f.Schematic = schematic }, err
	}},
	{"hostname", func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		hostname, err := conn.Hostname(ctx)
		if errors.Is(err, talos.ErrNotFound) {
			err = nil // in maintenance a node has none unless DHCP gave it one
		}

		return func(f *Facts) { f.Hostname = hostname }, err
	}},
	{"addresses", func(ctx context.Context, conn *talos.Conn) (func(*Facts), error) {
		addresses, err := conn.Addresses(ctx)

		return func(f *Facts) { f.Addresses = addresses }, err
	}},
}

// Interrupted reports whether some reads failed for a reason of the connection's, so that another connection may do
// better.
func (f Facts) Interrupted() bool {
	return slices.ContainsFunc(f.Unread,
		func(unread Unread) bool { return talos.Classify(talos.OpRead, unread.Err) == talos.Retry })
}

// IdentityUnread is why the machine's identity could not be read; nil when it was.
func (f Facts) IdentityUnread() error {
	for _, unread := range f.Unread {
		if unread.What == FactLinks || unread.What == FactSystem {
			return unread.Err
		}
	}

	return nil
}
