package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/steps/evidence"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// How much is read of a node's logs.
const (
	kernelLines = 300
	eventCount  = 60
	logLines    = 100
)

// talosPort stands for any: nothing is sent there.
const talosPort = "50000"

// told is what a node told of itself beside what every step observes. What could not be read is missing, and named.
type told struct {
	version     string
	kernel      []string
	events      []talos.Event
	diagnostics []talos.Diagnostic
	volumes     []talos.VolumeState
	time        *talos.TimeCheck
	// logs are those of services that do not run, by the service; for a bundle those of all.
	logs map[string][]string
	// facts are the machine's disks, links and addresses, for a bundle.
	facts []string
	// way is how this computer reaches the node.
	way string
	// certificates are how long those of the node and of the talosconfig are good for.
	certificates []string
	// unread says why something could not be read, by its name.
	unread map[string]string
	// unexpected is a fault of this program.
	unexpected error
}

// gather reads all there is to read of a node that answers, at once. Of a machine that is not ours nothing is read.
func (d *doctor) gather(ctx context.Context, seen observe.Observation) told {
	gathered := told{unread: map[string]string{}, logs: map[string][]string{}}
	gathered.way = wayTo(ctx, d.observer.Addresses(seen.Node)[0])
	gathered.certificates = d.certificates(seen)

	if seen.NotOurs() || seen.Silent() {
		return gathered
	}

	conn, err := d.observer.Dialer().Open(ctx, seen.Probed)
	if err != nil || conn == nil {
		gathered.unread["everything"] = talos.Explain(err)
		return gathered
	}
	defer conn.Close()

	var (
		reading sync.WaitGroup
		mu      sync.Mutex
	)

	read := func(what string, from func() error) {
		reading.Go(func() {
			if err := from(); err != nil {
				mu.Lock()
				defer mu.Unlock()

				gathered.unread[what] = talos.Explain(err)
			}
		})
	}

	read("version", func() (err error) { gathered.version, err = conn.Version(ctx); return err })
	read("dmesg", func() (err error) { gathered.kernel, err = conn.KernelLog(ctx, kernelLines); return err })
	read("events", func() (err error) { gathered.events, err = conn.PastEvents(ctx, eventCount); return err })
	read("diagnostics", func() (err error) { gathered.diagnostics, err = conn.Diagnostics(ctx); return err })
	read("volumes", func() (err error) { gathered.volumes, err = conn.VolumeStates(ctx); return err })
	read("time", func() error {
		check, err := conn.CheckTime(ctx)
		if err == nil {
			gathered.time = &check
		}

		return err
	})

	for _, service := range seen.Services {
		if service.Running() && !d.Settings.Bundle {
			continue
		}

		reading.Go(func() {
			// One that has not begun has no log.
			lines, _ := conn.ServiceLog(ctx, service.ID, logLines) //nolint:errcheck // as above

			mu.Lock()
			defer mu.Unlock()

			gathered.logs[service.ID] = lines
		})
	}

	if d.Settings.Bundle {
		read("facts", func() error { gathered.facts = factLines(check.ReadFacts(ctx, conn)); return nil })
	}

	reading.Wait()

	return gathered
}

// factLines are what a machine consists of.
func factLines(facts check.Facts) []string {
	lines := []string{"hostname " + facts.Hostname, "schematic " + facts.Schematic, "system disk " + facts.SystemDisk}
	for _, address := range facts.Addresses {
		lines = append(lines, "address "+address.String())
	}

	for _, link := range facts.Links {
		lines = append(lines, fmt.Sprintf("link %s %s up=%v", link.Name, link.MAC, link.Up))
	}

	for _, disk := range facts.Disks {
		spec := disk.TypedSpec()
		lines = append(lines, fmt.Sprintf("disk %s %s %s %s", disk.Metadata().ID(), sizeText(int64(spec.Size)), //nolint:gosec // it fits
			spec.Transport, spec.Model))
	}

	for _, volume := range facts.Volumes {
		lines = append(lines, fmt.Sprintf("volume %s on %s: %s %s %s", volume.ID, volume.Disk, volume.Name, volume.Label,
			sizeText(int64(volume.Size)))) //nolint:gosec // it fits
	}

	return lines
}

// lines are all that was seen of a node, as evidence.
func (n NodeDiagnosis) lines() []evidence.Line {
	var lines []evidence.Line

	add := func(kind evidence.Kind, format string, values ...any) {
		lines = append(lines, evidence.Line{Kind: kind, Text: fmt.Sprintf(format, values...)})
	}

	if n.Seen.Status != nil {
		for _, condition := range n.Seen.Status.Unmet {
			add(evidence.Status, "%s: %s", condition.Name, condition.Reason)
		}
	}

	if n.Seen.ReadErr != nil {
		add(evidence.Status, "not all could be read: %s", talos.Explain(n.Seen.ReadErr))
	}

	for _, service := range n.Seen.Services {
		if service.ID == "etcd" && service.State == "Running" && n.etcd != nil {
			continue // its own line says more
		}

		for _, text := range describeService(service) {
			add(evidence.Service, "%s", text)
		}
	}

	if n.etcd != nil && n.Seen.State == talos.Ours {
		add(evidence.Etcd, "%s", n.etcd.Text())
	}

	return append(lines, n.told.lines()...)
}

func (t told) lines() []evidence.Line {
	var lines []evidence.Line

	add := func(kind evidence.Kind, text string) { lines = append(lines, evidence.Line{Kind: kind, Text: text}) }

	for _, diagnostic := range t.diagnostics {
		add(evidence.Diagnostic, strings.Join(append([]string{diagnostic.ID + ": " + diagnostic.Message},
			diagnostic.Details...), "; "))
	}

	for _, volume := range t.volumes {
		if volume.Failure != "" {
			add(evidence.Volume, volume.ID+" "+volume.Phase+": "+volume.Failure)
		}
	}

	for _, event := range t.events {
		if event.Failure != "" {
			add(evidence.Event, event.Text())
		}
	}

	for _, line := range t.kernel {
		add(evidence.Kernel, line)
	}

	for _, service := range slices.Sorted(maps.Keys(t.logs)) {
		for _, line := range t.logs[service] {
			add(evidence.Log, service+": "+line)
		}
	}

	if t.time != nil {
		add(evidence.Clock, fmt.Sprintf("node %s, its time server %s %s, this computer %s", clockText(t.time.Node),
			t.time.Server, clockText(t.time.Right), clockText(t.time.Asked)))
	} else if why := t.unread["time"]; why != "" {
		add(evidence.Clock, why)
	}

	for _, certificate := range t.certificates {
		add(evidence.Certificate, certificate)
	}

	add(evidence.Way, t.way)

	return lines
}

// certificates say how long the node's certificate and the talosconfig's are good for.
func (d *doctor) certificates(seen observe.Observation) []string {
	var lines []string

	if leaf := seen.Leaf; leaf != nil {
		lines = append(lines, fmt.Sprintf("the node's is good from %s to %s", clockText(leaf.NotBefore),
			clockText(leaf.NotAfter)))
	}

	if d.Credentials != nil {
		lines = append(lines, "the talosconfig's is good until "+clockText(d.Credentials.NotAfter()))
	}

	return lines
}

// wayTo says from which of this computer's addresses packets to a node go, and through what. Nothing is sent for it.
func wayTo(ctx context.Context, address string) string {
	if proxy := talos.ProxyFor(address); proxy != nil {
		return fmt.Sprintf("this computer reaches %s through the proxy %s", address, proxy)
	}

	host := address
	if only, _, err := net.SplitHostPort(address); err == nil {
		host = only
	}

	conn, err := new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(host, talosPort))
	if err != nil {
		var lookup *net.DNSError
		if errors.As(err, &lookup) {
			return fmt.Sprintf("the name %s does not resolve here", host)
		}

		return "this computer has no route to " + host
	}

	defer conn.Close() //nolint:errcheck // nothing was written

	own, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	link, near := linkOf(own.Addr(), conn.RemoteAddr().String())

	if near {
		return fmt.Sprintf("this computer asks %s from %s%s, in the same network", host, own.Addr(), link)
	}

	return fmt.Sprintf("this computer asks %s from %s%s, through a router", host, own.Addr(), link)
}

// linkOf names the link that has an address of this computer, and tells whether the remote one is in its network.
func linkOf(own netip.Addr, remote string) (name string, near bool) {
	links, err := net.Interfaces()
	if err != nil {
		return "", false
	}

	there, _ := netip.ParseAddrPort(remote)

	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			continue
		}

		for _, address := range addresses {
			prefix, err := netip.ParsePrefix(address.String())
			if err == nil && prefix.Addr() == own {
				return " (" + link.Name + ")", prefix.Contains(there.Addr())
			}
		}
	}

	return "", false
}
