package steps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/discover/match"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// discoverName is the step's name.
const discoverName = "discover"

// Discover looks for machines in the networks that the settings name, else in those of the run's nodes. It changes
// nothing.
type Discover struct {
	// Found is set once it was run, and found machines.
	Found *Discovery
}

// Discovery is what a search for machines came to.
type Discovery struct {
	// Networks were asked; Progress says how many addresses that were, and how many answered.
	Networks discover.Networks
	Progress discover.Progress
	Machines []discover.Machine
	// Matched says which machine is which node's, Proposals what to add to the files for those that nothing says it of.
	Matched   match.Result
	Proposals []match.Proposal
	// Next is how to go on.
	Next string
}

// Name is the step's name.
func (*Discover) Name() string { return discoverName }

// Exit is the code where a node's machine is not found, or not told from another.
func (*Discover) Exit() diagnosis.ExitCode { return diagnosis.ExitPreflight }

// Run asks every address.
func (d *Discover) Run(ctx context.Context, run *Run) error {
	began := time.Now()

	found, err := run.search(ctx)

	switch {
	case err != nil:
		return err
	case len(found.Machines) == 0:
		return nobodyAnswers(found)
	}

	options, err := run.matchOptions(ctx)
	if err != nil {
		return err
	}

	if len(run.Cluster.Nodes) > 0 {
		found.Matched = begin(run, d).assign(found.Machines, options)
		found.Proposals = match.Propose(run.Cluster, found.Matched)
	}

	found.Next = found.next(run.Settings.SaveFound)
	d.Found = &found

	if run.Settings.SaveFound {
		if err := run.keep(found.Matched.Pairs); err != nil {
			return err
		}
	}

	run.Report.Result(report.Result{Step: discoverName, Status: report.OK, Detail: found.summary(),
		Duration: time.Since(began)})

	return found.unmatched(run)
}

// search asks every address of the networks to look in.
func (r *Run) search(ctx context.Context) (Discovery, error) {
	networks, err := networksOf(ctx, r)
	if err != nil {
		return Discovery{}, err
	}

	found := Discovery{Networks: networks}
	signs := searchSigns{run: r, since: r.Clock.Now()}

	found.Machines, err = discover.Search{
		Networks: networks,
		Dialer:   r.observer.Dialer(),
		Progress: func(progress discover.Progress) {
			found.Progress = progress
			signs.tell(progress)
		},
	}.Machines(ctx)

	r.Report.Idle(discoverName, "")

	switch {
	case ctx.Err() != nil:
		return found, context.Cause(ctx)
	case err != nil:
		return found, diagnosis.NewProblem(diagnosis.NothingAnswers, fmt.Sprintf("%s: no address can be asked from here: %s",
			networks, talos.Explain(errors.Unwrap(err))), "look at this computer's network, then mage discover").From(err)
	default:
		return found, nil
	}
}

// networksOf is where to look.
func networksOf(ctx context.Context, run *Run) (discover.Networks, error) {
	const setting = "DISCOVER_CIDR"

	if named := run.Settings.DiscoverCIDR; len(named) > 0 {
		networks, err := discover.ParseNetworks(named, run.Settings.Wide)
		if err != nil {
			given := run.Settings.NameOf(setting)
			return nil, diagnosis.NewProblem(diagnosis.BadSetting, given+": "+err.Error(), "correct "+given).From(err)
		}

		return networks, nil
	}

	networks, err := discover.Around(knownAddresses(ctx, run), run.Settings.Wide)

	switch {
	case err != nil:
		return nil, diagnosis.NewProblem(diagnosis.BadSetting,
			"the nodes have IPv6 addresses, and which machines are near is not known: "+err.Error(),
			"name addresses, or ranges of them, with -cidr").From(err)
	case len(networks) == 0:
		return nil, diagnosis.NewProblem(diagnosis.BadSetting, "no file says in which networks to look",
			"name them, as in mage discover -cidr=192.168.1.0/24")
	default:
		return networks, nil
	}
}

// knownAddresses are those that the run's nodes have now or will have, each with the length of its network's prefix if
// that is known, else as a whole one.
func knownAddresses(ctx context.Context, run *Run) []netip.Prefix {
	var known []netip.Prefix

	nodes := run.Nodes()
	for _, node := range nodes {
		if node.Network.IsValid() {
			known = append(known, node.Network)
		}
	}

	for _, node := range nodes {
		for _, name := range []string{node.Address, run.Settings.NodeAddresses[node.Name]} {
			for _, address := range resolved(ctx, name) {
				known = append(known, inNetworkOf(known, address))
			}
		}
	}

	return known
}

// inNetworkOf is an address with the prefix length of the known network that it is in; a whole one if it is in none.
func inNetworkOf(known []netip.Prefix, address netip.Addr) netip.Prefix {
	at := slices.IndexFunc(known, func(network netip.Prefix) bool { return network.Contains(address) })
	if at < 0 {
		return netip.PrefixFrom(address, address.BitLen())
	}

	return netip.PrefixFrom(address, known[at].Bits())
}

// resolved are the addresses of a host, which may have a port; none if there is no such name.
func resolved(ctx context.Context, name string) []netip.Addr {
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}

	if address, err := netip.ParseAddr(name); err == nil || name == "" {
		return slices.DeleteFunc([]netip.Addr{address.Unmap()}, func(a netip.Addr) bool { return !a.IsValid() })
	}

	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil
	}

	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}

	return addresses
}

// searchSigns tells how far a search is, as often as somebody may look.
type searchSigns struct {
	run   *Run
	since time.Time
	last  time.Time // on the wall clock
}

// between is the shortest time between two signs of a search, by the wall clock: they are about readers.
const between = 250 * time.Millisecond

func (s *searchSigns) tell(progress discover.Progress) {
	if time.Since(s.last) < between && progress.Asked < progress.Total {
		return
	}

	s.last = time.Now()
	s.run.Report.Progress(discoverName, report.Progress{
		Text: fmt.Sprintf("asking %s: %d done, %s", text.CountedOf(progress.Total, "address", "addresses"),
			progress.Asked, answering(progress.Answers)),
		Since: s.since, Left: progress.Left,
	})
}

func answering(answers int) string {
	if answers == 1 {
		return "1 answers"
	}

	return fmt.Sprintf("%d answer", answers)
}

// summary is the search in a line.
func (d Discovery) summary() string {
	line := fmt.Sprintf("%s at %d of %s in %s", text.Counted(len(d.Machines), "machine"), d.Progress.Answers,
		text.CountedOf(d.Progress.Total, "address", "addresses"), d.Networks)

	return line + d.besides()
}

// besides are the addresses that neither answered nor were silent.
func (d Discovery) besides() string {
	var line string

	switch refused := d.Progress.Refused; {
	case refused == 0:
	case refused > 1 && refused*10 >= d.Progress.Total*9: // so many machines without Talos are rare
		line += fmt.Sprintf("; %d refused: a router or firewall may do so for them", refused)
	default:
		line += fmt.Sprintf("; %d refused: up, without Talos or still installing it", refused)
	}

	if d.Progress.Unasked > 0 {
		line += fmt.Sprintf("; %d could not be asked: %s", d.Progress.Unasked, talos.Explain(d.Progress.Why))
	}

	return line
}

func nobodyAnswers(found Discovery) *diagnosis.Problem {
	return diagnosis.NewProblem(diagnosis.NothingAnswers, fmt.Sprintf("none of %s in %s answers on port %d%s",
		text.CountedOf(found.Progress.Total, "address", "addresses"), found.Networks, talos.DefaultPort, found.besides()),
		"boot the machines from a Talos image, or name their network; then mage discover -cidr=<network>")
}

// next is how to go on, with where the machines are kept or not.
func (d Discovery) next(kept bool) string {
	if len(d.Matched.Pairs) > 0 {
		return d.matchedNext(kept)
	}

	waiting := filtered(d.Machines, func(machine discover.Machine) bool { return machine.State == talos.Maintenance })
	if len(waiting) == 0 {
		return "boot machines from a Talos image: none of these waits for a config; then mage discover"
	}

	return "say which node is where with NODE_ADDRESSES=<name>=" + waiting[0].Address().String() +
		",…; then mage preflight"
}
