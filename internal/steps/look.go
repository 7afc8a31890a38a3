package steps

import (
	"bytes"
	"context"
	"net"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// How long a look waits for a node's other addresses after one has answered, or has refused: a closed port may be
// another machine's.
const (
	answeredGrace = 300 * time.Millisecond
	refusedGrace  = time.Second
)

// configIs says how the config that a configured node runs relates to the inventory.
type configIs int

const (
	configUnread  configIs = iota // not configured, or not readable with these credentials
	configSame                    // what the inventory declares for this node
	configDrifted                 // this node's, with differences
	configSwapped                 // another node's of this inventory
	configUnsent                  // not what this run sent
)

// sight is what one look at a node saw.
type sight struct {
	talos.Probed
	node *inventory.Node
	// asked is when the look began, at when the node had answered, or had not.
	asked, at time.Time

	// Of a node in maintenance or configured by us:
	status *talos.Status
	// Of a node configured by us:
	running  *machineconfig.Config
	config   configIs
	owner    string // whose config it is, when swapped
	services []talos.Service
	// wrong is set when it is not the declared machine.
	wrong *diagnosis.Finding
	// readErr is the first read that did not work.
	readErr error
}

func (s sight) stage() string {
	if s.status == nil {
		return ""
	}

	return s.status.Stage
}

// installed reports whether Talos has loaded the services of its boot sequence: before that, a stage `booting` is the
// way into the installer.
func (s sight) installed() bool {
	return s.hasService("kubelet") && (s.node.Role != inventory.ControlPlane || s.hasService("etcd"))
}

func (s sight) hasService(id string) bool {
	_, ok := s.service(id)

	return ok
}

func (s sight) service(id string) (talos.Service, bool) {
	for _, service := range s.services {
		if service.ID == id {
			return service, true
		}
	}

	return talos.Service{}, false
}

// unsynced reports whether the node says itself that its clock is not synced.
func (s sight) unsynced() bool {
	return s.status != nil && slices.ContainsFunc(s.status.Unmet,
		func(condition talos.Condition) bool { return condition.Name == "time" })
}

// stranger reports whether what answers is not ours to change: another machine, another cluster's node, no Talos, or a
// node that can't be told without a talosconfig.
func (s sight) stranger() bool {
	return s.wrong != nil || s.State != talos.Unreachable && s.State != talos.Maintenance && s.State != talos.Ours
}

// silent reports whether nothing answered at any of the node's addresses.
func (s sight) silent() bool { return s.State == talos.Unreachable }

// lacksNothing reports whether the node waits for nothing. Whether Kubernetes has it Ready is left aside: without a CNI
// no node is.
func (s sight) lacksNothing() bool {
	return s.status != nil && !slices.ContainsFunc(s.status.Unmet,
		func(condition talos.Condition) bool { return condition.Name != "nodeReady" })
}

// up reports whether the install is over and the node boots or runs with its config.
func (s sight) up() bool {
	return s.State == talos.Ours && (s.stage() == "booting" || s.stage() == "running") && s.installed()
}

// addresses are where a node may answer: where it is said to answer now, and where its machine config puts it.
// An address with a port is a way in of its own (a forwarded port), so nothing else is tried.
func (r *Run) addresses(node *inventory.Node) []string {
	now, given := r.addressNow(node)
	if !given {
		now = node.Address
	} else if _, _, err := net.SplitHostPort(now); err == nil {
		return []string{now}
	}

	addresses := []string{now}

	if config := r.Configs[node.Name]; config != nil {
		for _, prefix := range config.Addresses() {
			addresses = appendNew(addresses, prefix.Addr().String())
		}
	}

	if given && node.Address != "" && !r.isAnothers(node, node.Address) {
		addresses = appendNew(addresses, node.Address)
	}

	return addresses
}

// isAnothers reports whether the settings say of another node that it answers at this address now.
func (r *Run) isAnothers(node *inventory.Node, address string) bool {
	return slices.ContainsFunc(r.Cluster.Nodes, func(other *inventory.Node) bool {
		now, given := r.addressNow(other)

		return other != node && given && now == address
	})
}

// addressNow is where the settings say that a node answers now; they may call it by its name or by its declared
// address.
func (r *Run) addressNow(node *inventory.Node) (string, bool) {
	if now, given := r.Settings.NodeAddresses[node.Name]; given {
		return now, true
	}

	now, given := r.Settings.NodeAddresses[node.Address]

	return now, given
}

func appendNew(words []string, word string) []string {
	for _, have := range words {
		if have == word {
			return words
		}
	}

	return append(words, word)
}

// look asks a node what state it is in, at all its addresses at once, and reads what that state allows.
func (r *Run) look(ctx context.Context, node *inventory.Node) sight {
	return r.lookFurther(ctx, node, nil)
}

// lookFurther is a look that reads more of a node that is configured by us, on the connection of the look.
func (r *Run) lookFurther(ctx context.Context, node *inventory.Node, further func(*sight, *talos.Conn)) sight {
	seen := r.glanceFurther(ctx, node, further)
	if seen.State == talos.Maintenance {
		r.readMaintenance(ctx, &seen)
	}

	return seen
}

// glance is a look that reads nothing of a node in maintenance: whoever sends it its config reads what that takes on
// the connection that sends it.
func (r *Run) glance(ctx context.Context, node *inventory.Node) sight {
	return r.glanceFurther(ctx, node, nil)
}

func (r *Run) glanceFurther(ctx context.Context, node *inventory.Node, further func(*sight, *talos.Conn)) sight {
	asked := r.Clock.Now()
	probed, conn := r.reach(ctx, node)
	seen := sight{node: node, Probed: probed, asked: asked, at: r.Clock.Now()}

	memory := r.memory.of(node)
	memory.remember(func(facts *nodeFacts) { facts.noteAnswer(seen) })

	if seen.State == talos.Ours {
		r.readConfigured(ctx, &seen, conn, further)
	}

	memory.remember(func(facts *nodeFacts) { facts.noteConfig(seen) })

	return seen
}

// reach finds out what answers. A node that was ours at the last look most likely still is: the connection that will be
// read from tells that as well as a probe, in one handshake less. There is none if the node was probed.
func (r *Run) reach(ctx context.Context, node *inventory.Node) (talos.Probed, *talos.Conn) {
	if address := r.memory.of(node).recall().oursAt; address != "" {
		if conn, err := r.dialer().Secure(ctx, address); err == nil {
			return conn.Probed(), conn
		}
	}

	return r.probe(ctx, node), nil
}

// noteAnswer takes in whether and how a node answered.
func (f *nodeFacts) noteAnswer(seen sight) {
	switch {
	case !seen.silent():
		f.silentSince = time.Time{}
	case f.silentSince.IsZero():
		f.silentSince = seen.at
	}

	if seen.Silence == talos.Refused {
		f.refusedAt = seen.at
	}

	if f.sent != nil && seen.State != talos.Maintenance {
		f.leftMaintenance = true
	}
}

// noteConfig takes in whose config a node was seen with.
func (f *nodeFacts) noteConfig(seen sight) {
	f.oursAt = ""

	if seen.wrong != nil || seen.config != configSame && seen.config != configDrifted {
		return
	}

	f.leftMaintenance = true
	f.unsure = f.unsure && seen.config != configSame

	if seen.readErr == nil {
		f.oursAt = seen.Address
	}
}

// lookAll looks at many nodes at once, in order.
func (r *Run) lookAll(ctx context.Context, nodes []*inventory.Node) []sight {
	return fanout.Collect(ctx, probeLimit, nodes, r.look, unseen)
}

// unseen is the sight of a node that could not be looked at at all.
func unseen(node *inventory.Node, err error) sight {
	return sight{node: node, Probed: talos.Probed{State: talos.Unreachable, Silence: talos.NoAnswer, Err: err}}
}

// probe asks all the node's addresses at once and prefers the most telling answer.
func (r *Run) probe(ctx context.Context, node *inventory.Node) talos.Probed {
	addresses := r.addresses(node)
	dialer := r.dialer()

	probing, stop := context.WithCancel(ctx)
	defer stop()

	answers := make(chan talos.Probed, len(addresses))

	for _, address := range addresses {
		go func() { answers <- dialer.Probe(probing, address) }()
	}

	best := <-answers

	for range len(addresses) - 1 {
		grace := graceAfter(best)

		select {
		case answer := <-answers:
			best = moreTelling(best, answer, addresses)
		case <-grace:
			return best
		}
	}

	return best
}

// graceAfter is when it is time to be content with an answer; never (nil) without one.
func graceAfter(best talos.Probed) <-chan time.Time {
	switch {
	case best.State == talos.Ours:
		return time.After(0)
	case best.State != talos.Unreachable:
		return time.After(answeredGrace)
	case best.Silence == talos.Refused:
		return time.After(refusedGrace)
	default:
		return nil
	}
}

// moreTelling is the answer that says more about the node; of equal ones that of the address that comes first.
func moreTelling(a, b talos.Probed, addresses []string) talos.Probed {
	if rank(a) > rank(b) || rank(a) == rank(b) && slices.Index(addresses, a.Address) < slices.Index(addresses, b.Address) {
		return a
	}

	return b
}

func rank(answer talos.Probed) int {
	switch {
	case answer.State == talos.Ours:
		return 4
	case answer.State == talos.Maintenance:
		return 3
	case answer.State != talos.Unreachable:
		return 2
	case answer.Silence == talos.Refused:
		return 1
	default:
		return 0
	}
}

func (r *Run) readMaintenance(ctx context.Context, seen *sight) {
	conn, err := r.dialer().Maintenance(ctx, seen.Address)
	if err != nil {
		seen.readErr = err

		return
	}
	defer conn.Close()

	seen.identify(ctx, r, conn)
	seen.readStatus(ctx, conn)
}

// readConfigured reads what there is to know of a node configured by us, on the given connection or one of its own.
func (r *Run) readConfigured(ctx context.Context, seen *sight, conn *talos.Conn, further func(*sight, *talos.Conn)) {
	var err error

	if conn == nil {
		if conn, err = r.dialer().Secure(ctx, seen.Address); err != nil {
			seen.readErr = err

			return
		}
	}
	defer conn.Close()

	seen.identify(ctx, r, conn)
	seen.readStatus(ctx, conn)

	seen.services, err = conn.Services(ctx)
	seen.readErr = firstError(seen.readErr, err)

	err = seen.readConfig(ctx, r, conn)
	seen.readErr = firstError(seen.readErr, err)

	if further != nil {
		further(seen, conn)
	}
}

// readConfig reads what the node runs and compares it with the inventory. A config that is the same as at the last look
// is not judged again.
func (s *sight) readConfig(ctx context.Context, run *Run, conn *talos.Conn) error {
	data, err := conn.MachineConfig(ctx)
	if err != nil {
		return err
	}

	// Most often a node runs exactly what is declared.
	declared := run.Configs[s.node.Name]
	if declared != nil && bytes.Equal(declared.Bytes, data) {
		s.running, s.config = declared, configSame

		return nil
	}

	memory := run.memory.of(s.node)
	known := memory.recall()

	if last := known.compared; last.running != nil && bytes.Equal(last.running.Bytes, data) && last.declared == declared &&
		last.sent == known.sent {
		s.running, s.config, s.owner = last.running, last.config, last.owner

		return nil
	}

	if s.running, err = machineconfig.FromBytes("the config on "+s.node.Name, data); err != nil {
		return err
	}

	s.config, s.owner = run.compare(s.node, s.running)
	memory.remember(func(facts *nodeFacts) {
		facts.compared = comparison{running: s.running, declared: declared, sent: known.sent, config: s.config,
			owner: s.owner}
	})

	return nil
}

// comparison is what came of comparing a node's config, and what it was compared with.
type comparison struct {
	running, declared, sent *machineconfig.Config
	config                  configIs
	owner                   string
}

func (s *sight) readStatus(ctx context.Context, conn *talos.Conn) {
	status, err := conn.MachineStatus(ctx)
	if err != nil {
		s.readErr = firstError(s.readErr, err)

		return
	}

	s.status = &status
}

// compare relates the config that a node runs to the inventory's.
func (r *Run) compare(node *inventory.Node, running *machineconfig.Config) (configIs, string) {
	declared := r.Configs[node.Name]
	if declared != nil && machineconfig.Same(running, declared) {
		return configSame, ""
	}

	for _, other := range r.Cluster.Nodes {
		if other == node || r.Configs[other.Name] == nil {
			continue
		}

		theirs := r.Configs[other.Name]
		if machineconfig.Same(running, theirs) || running.Hostname() != "" && running.Hostname() == theirs.Hostname() {
			return configSwapped, other.Name
		}
	}

	if sent := r.memory.of(node).recall().sent; sent != nil && !machineconfig.Same(running, sent) {
		return configUnsent, ""
	}

	if declared == nil {
		return configUnread, ""
	}

	return configDrifted, ""
}
