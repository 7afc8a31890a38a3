// Package belonging holds the checks of files that belong together: can they be read, are they for the declared nodes,
// and do they belong to one cluster?
package belonging

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	const inventory, configs = diagnosis.NeedsTalconfig, diagnosis.NeedsTalconfig | diagnosis.NeedsConfig

	return slices.Concat(
		reading(),
		[]check.Check{check.Whole(diagnosis.SharedConfig, check.Belonging, inventory, checkSharedConfigs)},
		readable(),
		[]check.Check{
			check.Whole(diagnosis.ConfigRole, check.Belonging, configs, checkRoles),
			check.Whole(diagnosis.ConfigHostname, check.Belonging, configs, checkHostnames),
			check.Whole(diagnosis.ConfigAddress, check.Belonging, configs, checkAddresses),
			check.Whole(diagnosis.ConfigCA, check.Belonging, configs, checkAuthorities).OfSecrets(),
			check.Whole(diagnosis.ConfigSecrets, check.Belonging, configs, checkSecrets).OfSecrets(),
			check.Whole(diagnosis.TalosconfigForeign, check.Belonging, inventory|diagnosis.NeedsTalosconfig,
				checkTalosconfigAuthority).OfSecrets(),
			check.Whole(diagnosis.SecretsFileMisnamed, check.Belonging, inventory, checkSecretsNames),
			check.Whole(diagnosis.SecretsAmbiguous, check.Belonging, inventory, checkSecretsFiles),
			check.Whole(diagnosis.ConfigCluster, check.Belonging, configs, checkClusters),
			check.Whole(diagnosis.RenderedDiffers, check.Belonging, configs, checkOutdated).OfSecrets().IdleIf(notCompared),
		},
	)
}

// readable are the rows of files that can't be read, or are not complete.
func readable() []check.Check {
	rows := check.Several(check.Belonging, diagnosis.NeedsTalconfig, checkReadable,
		diagnosis.ConfigMissing, diagnosis.TalosconfigMissing, diagnosis.ConfigUnreadable, diagnosis.ConfigPlaceholder,
		diagnosis.TalosconfigBroken)

	for i, why := range []func(*check.Input) string{notMade, notMade, noConfig, noConfig, noTalosconfig} {
		rows[i] = rows[i].IdleIf(why)
	}

	return rows
}

// noTalosconfig says that there is no talosconfig.
func noTalosconfig(in *check.Input) string {
	if in.TalosconfigFile == nil {
		return in.None("there is no talosconfig that can be used")
	}

	return ""
}

// notMade says why nothing of the folder of machine configs is there, where that is no trouble.
func notMade(in *check.Input) string {
	if in.NothingMade() != "" {
		return in.None("")
	}

	return ""
}

// notCompared says that the machine configs that are there were not made again: something else makes them, or files or
// secrets are missing.
func notCompared(in *check.Input) string {
	if in.Options.Made.Compared {
		return ""
	}

	return in.None("the machine configs could not be rendered again to be compared")
}

// checkOutdated tells which machine configs no longer fit what is declared.
func checkOutdated(r *check.Report, in *check.Input) {
	if outdated := in.Options.Made.Outdated; len(outdated) > 0 {
		r.OfCluster().Found(check.Place{}, machineconfig.HowToGenerate+", then mage applySequential -update",
			"machine configs in %s no longer fit what is declared: %s", in.Shown(in.Options.ConfigDir),
			strings.Join(outdated, ", "))
	}
}

func checkReadable(_ context.Context, r *check.Report, in *check.Input) {
	tried := map[string]bool{}

	for _, node := range in.Cluster.Nodes {
		if !tried[node.ConfigFile] {
			tried[node.ConfigFile] = true
			checkConfigFile(r, in, node)
		}
	}

	if notMade(in) == "" {
		r.About(nil).Passed(diagnosis.ConfigMissing, "%d machine configs are there for %d nodes", len(in.Configs),
			len(in.Cluster.Nodes))
	}

	checkTalosconfigFile(r.About(nil), in)
}

// checkConfigFile reads one machine config.
func checkConfigFile(r *check.Report, in *check.Input, node *inventory.Node) {
	_, err := in.Cluster.MachineConfig(node)
	shown := in.Shown(node.ConfigFile)
	missing := errors.Is(err, fs.ErrNotExist)

	file := in.Open(node.ConfigFile)
	if known := in.ConfigOf(node); known != nil {
		file = known.File
	}

	r.AtDeclared(node)

	// A file with placeholders often can't be decoded, and then they are the better explanation.
	if file != nil {
		if placeholders := machineconfig.Placeholders(file.Data); len(placeholders) > 0 {
			first := placeholders[0]
			r.As(diagnosis.ConfigPlaceholder).Found(file.Line(first.Line, first.Column).Masked(),
				"resolve or decrypt the secrets, then "+machineconfig.HowToGenerate, "%s: %s is %s%s", shown, first.Field,
				first.Kind,
				andMore(len(placeholders)-1, "field"))

			return
		}
	}

	switch {
	case missing && in.NothingMade() != "":
	case missing:
		r.As(diagnosis.ConfigMissing).Found(check.Place{}, machineconfig.HowToGenerate,
			"its machine config %s does not exist", shown)
	case err != nil:
		place, cause, next := in.Path(node.ConfigFile), err.Error(), machineconfig.HowToGenerate

		var broken *machineconfig.LoadError
		if errors.As(err, &broken) {
			cause, next = shown+": "+broken.Message, cmp.Or(broken.Next, next)

			if file != nil {
				place = file.Line(broken.Line, broken.Column).Masked()
			}
		}

		r.As(diagnosis.ConfigUnreadable).Found(place, next, "%s", cause)
	}
}

func andMore(count int, noun string) string {
	switch count {
	case 0:
		return ""
	case 1:
		return ", and 1 more " + noun
	default:
		return fmt.Sprintf(", and %d more %ss", count, noun)
	}
}

// checkTalosconfigFile looks whether the talosconfig can be used.
func checkTalosconfigFile(r *check.Report, in *check.Input) {
	shown := in.Shown(in.Options.Talosconfig)

	if in.TalosconfigFile == nil {
		switch missing := in.Options.Files.Open(in.Options.Talosconfig).Missing(); {
		case missing && in.NothingMade() != "":
		case missing:
			r.As(diagnosis.TalosconfigMissing).Found(in.Path(in.Options.Talosconfig),
				machineconfig.HowToGenerate+", or set TALOSCONFIG", "%s does not exist", shown)
		default:
			r.As(diagnosis.TalosconfigBroken).Found(in.Path(in.Options.Talosconfig), "give your user the right to read it",
				"%s can't be read", shown)
		}

		return
	}

	if placeholders := machineconfig.Placeholders(in.TalosconfigFile.Data); len(placeholders) > 0 {
		first := placeholders[0]
		r.As(diagnosis.ConfigPlaceholder).Found(in.TalosconfigFile.Line(first.Line, first.Column).Masked(),
			"resolve or decrypt the secrets, or "+machineconfig.HowToGenerate, "%s is %s%s", first.Field, first.Kind,
			andMore(len(placeholders)-1, "field"))

		return
	}

	if what := check.Once(in, readAuthority).what; what != "" {
		place := in.OfContext("ca").Masked()

		if line, column, message := in.TalosconfigFile.Places.SyntaxError(); message != "" {
			place, what = in.TalosconfigFile.Line(line, column).Masked(), what+": "+message
		}

		r.As(diagnosis.TalosconfigBroken).Found(place, machineconfig.HowToGenerate, "%s %s", shown, what)
	}
}

// clientAuthority is the certificate authority of the talosconfig's current context, or what is wrong with the file.
type clientAuthority struct {
	ca   []byte
	what string
}

func readAuthority(in *check.Input) clientAuthority {
	if in.TalosconfigFile == nil || len(machineconfig.Placeholders(in.TalosconfigFile.Data)) > 0 {
		return clientAuthority{}
	}

	config, err := talosconfig.Parse(in.TalosconfigFile.Data)
	if err != nil {
		return clientAuthority{what: "is no talosconfig"}
	}

	context := config.Contexts[config.Context]
	if context == nil {
		return clientAuthority{what: fmt.Sprintf("has no context %q, which it names as the current one", config.Context)}
	}

	ca, err := base64.StdEncoding.DecodeString(context.CA)
	if err != nil || len(ca) == 0 {
		return clientAuthority{what: fmt.Sprintf("has no certificate authority in its context %q", config.Context)}
	}

	return clientAuthority{ca: ca}
}

// complete are the machine configs without placeholders, one a file.
type complete []*check.Rendered

func findComplete(in *check.Input) complete {
	return slices.DeleteFunc(slices.Clone(in.Configs),
		func(config *check.Rendered) bool { return len(machineconfig.Placeholders(config.Bytes)) > 0 })
}

// eachComplete goes over the nodes whose machine config has no placeholders, and says what there is to say if nothing
// is found.
func eachComplete(r *check.Report, in *check.Input, id diagnosis.ID, passed string,
	visit func(*inventory.Node, *check.Rendered)) {
	configs := check.Once(in, findComplete)

	r.EachNode(func(node *inventory.Node, config *check.Rendered) {
		if slices.Contains(configs, config) {
			r.AtDeclared(node)
			visit(node, config)
		}
	})

	if len(configs) > 0 {
		r.Passed(id, "%s", passed)
	}
}

func checkRoles(r *check.Report, in *check.Input) {
	eachComplete(r, in, diagnosis.ConfigRole, "roles in the machine configs are those of the inventory",
		func(node *inventory.Node, config *check.Rendered) {
			role := config.Role()
			if role == machine.TypeInit {
				role = inventory.ControlPlane
			}

			if role != node.Role {
				r.Found(config.At("machine.type"), machineconfig.HowToGenerate,
					"the inventory declares a %s, and machine.type in %s is %s", node.Role, in.Shown(node.ConfigFile), role)
			}
		})
}

func checkHostnames(r *check.Report, in *check.Input) {
	eachComplete(r, in, diagnosis.ConfigHostname, "hostnames in the machine configs are those of the inventory",
		func(node *inventory.Node, config *check.Rendered) {
			static, shown := config.Hostname(), in.Shown(node.ConfigFile)

			switch {
			case node.IgnoreHostname || sameHostname(static, node.Hostname):
			case config.HasBothHostnames(): // that is another finding
			case static == "":
				r.Warn(config.HostnamePlace(""), machineconfig.HowToGenerate,
					"%s sets no hostname, so the node will not be called %s; set `ignoreHostname: true` if that is meant", shown,
					node.Hostname)
			case in.Declares(config, static):
				r.Warn(config.HostnamePlace(static), "declare the name as hostname, or take it out of the patch",
					"a patch calls it %q", static)
			default:
				r.Found(config.HostnamePlace(static), machineconfig.HowToGenerate, "%s sets the hostname %q", shown, static)
			}
		})
}

// sameHostname takes a short name and the full one for the same.
func sameHostname(a, b string) bool {
	shortA, _, fullA := strings.Cut(strings.ToLower(a), ".")
	shortB, _, fullB := strings.Cut(strings.ToLower(b), ".")

	if fullA && fullB {
		return strings.EqualFold(a, b)
	}

	return shortA == shortB
}

func checkAddresses(r *check.Report, in *check.Input) {
	eachComplete(r, in, diagnosis.ConfigAddress, "declared addresses fit the machine configs",
		func(node *inventory.Node, config *check.Rendered) { checkAddress(r, in, node, config) })
}

func checkAddress(r *check.Report, in *check.Input, node *inventory.Node, config *check.Rendered) {
	declared, err := netip.ParseAddr(node.Address)
	if err != nil {
		return // a DNS name: what it stands for is for the checks of names to find out
	}

	shown, static := in.Shown(node.ConfigFile), reachableAddresses(config)

	if slices.Contains(config.VIPs(), declared) {
		r.Found(in.Entry(node, "ipAddress"), "declare the machine's own address as ipAddress",
			"its declared address is the virtual one of %s, which no machine has before the cluster is up", shown)

		return
	}

	isDeclared := func(prefix netip.Prefix) bool { return prefix.Addr().Unmap() == declared.Unmap() }
	if len(static) == 0 || slices.ContainsFunc(static, isDeclared) {
		return
	}

	severity := diagnosis.Failure

	// An address that is not in the config can still come from the network, best on another link than the static ones.
	if !check.AnyContains(static, declared) {
		switch {
		case learnsAddress(config, declared):
			return
		case config.UsesDHCP():
			severity = diagnosis.Warning
		}
	}

	r.Add(severity, in.Entry(node, "ipAddress"), "correct ipAddress, or "+machineconfig.HowToGenerate,
		"its declared address is none of the static ones in %s: %s", shown, check.Join(static))
}

// reachableAddresses are the static addresses that others may know a node by: neither on a link of its own nor of one
// cable.
func reachableAddresses(config *check.Rendered) []netip.Prefix {
	var addresses []netip.Prefix

	for _, link := range config.Links() {
		for _, address := range link.Addresses {
			if address.Prefix.IsValid() && !link.IsLocal() && !address.Prefix.Addr().IsLinkLocalUnicast() {
				addresses = append(addresses, address.Prefix)
			}
		}
	}

	return addresses
}

// learnsAddress reports whether a node has a link that gets its addresses of a family from the network
// alone: by DHCP or, of IPv6, from what routers announce.
func learnsAddress(config *check.Rendered, addr netip.Addr) bool {
	return addr.Is6() || slices.ContainsFunc(config.Links(),
		func(link *check.Link) bool { return link.DHCP && !link.HasFamily(addr) })
}

func checkClusters(r *check.Report, in *check.Input) {
	eachComplete(r, in, diagnosis.ConfigCluster, "the machine configs name this cluster and its endpoint",
		func(node *inventory.Node, config *check.Rendered) {
			shown := in.Shown(node.ConfigFile)

			if name := config.ClusterName(); name != "" && name != in.Cluster.Name && !in.Declares(config, name) {
				r.Found(config.At("cluster.clusterName"), machineconfig.HowToGenerate,
					"%s is of cluster %q, and the inventory of %q", shown, name, in.Cluster.Name)
			}

			if endpoint := config.Endpoint(); endpoint != nil && in.Cluster.Endpoint != nil &&
				endpoint.String() != in.Cluster.Endpoint.String() && !in.Declares(config, endpoint.String()) {
				r.Found(config.At("cluster.controlPlane.endpoint"), machineconfig.HowToGenerate,
					"%s has the endpoint %s, and the inventory %s", shown, endpoint.Redacted(), in.Cluster.Endpoint.Redacted())
			}
		})
}

// checkSharedConfigs looks for what only one machine can have in a config that several get.
func checkSharedConfigs(r *check.Report, in *check.Input) {
	for _, config := range check.Once(in, findComplete) {
		if len(config.Nodes) < 2 {
			continue
		}

		tell := func(place check.Place, what, value string) {
			names := make([]string, 0, len(config.Nodes))
			for _, node := range config.Nodes {
				names = append(names, node.Name)
			}

			r.OfCluster().Found(place, "give each machine an entry of its own, or leave names and addresses to DHCP",
				"%d machines would get the %s %s: %s is for all of %s", len(names), what, value, in.Shown(config.Path),
				strings.Join(names, ", "))
		}

		if hostname := config.Hostname(); hostname != "" {
			tell(config.HostnamePlace(hostname), "hostname", fmt.Sprintf("%q", hostname))
		}

		if static := config.Addresses(); len(static) > 0 {
			place, _ := config.AddressPlace(static[0].Addr())
			tell(place, "address", check.Join(static))
		}
	}
}

// commonCA is the certificate authority of most configs; of several equally common ones the talosconfig's.
func commonCA(in *check.Input) []byte {
	votes := map[string]int{}
	configs := check.Once(in, findComplete)

	for _, config := range configs {
		votes[string(config.CA())] += 2
	}

	if theirs := string(check.Once(in, readAuthority).ca); votes[theirs] > 0 {
		votes[theirs]++
	}

	best := ""

	for _, config := range configs {
		if ca := string(config.CA()); best == "" || votes[ca] > votes[best] {
			best = ca
		}
	}

	return []byte(best)
}

// checkAuthorities finds the files that belong to another set of secrets than most.
func checkAuthorities(r *check.Report, in *check.Input) {
	configs := check.Once(in, findComplete)
	if len(configs) == 0 {
		return
	}

	checkPlainSecrets(r, in)

	before, common := r.Count(), commonCA(in)

	for _, config := range configs {
		if !config.Trusts(common) {
			about(r, config).Found(config.At("machine.ca"), machineconfig.HowToGenerate,
				"%s trusts another certificate authority (%s) than the other files (%s): they come from two sets of secrets",
				in.Shown(config.Path), shortSum(config.CA()), shortSum(common))
		}
	}

	if r.Count() == before {
		r.About(nil).Seen("%d machine configs trust one certificate authority (%s)", len(configs), shortSum(common))
	}
}

// checkPlainSecrets compares the CA of a secrets file that is not encrypted with the configs'.
func checkPlainSecrets(r *check.Report, in *check.Input) {
	for _, path := range in.Cluster.SecretsPaths() {
		file := in.Open(path)
		if file == nil || len(file.Places.Roots()) == 0 {
			continue
		}

		crt := check.Follow(file.Places.Roots()[0], "certs", "os", "crt")
		if crt == nil {
			continue
		}

		ca, err := base64.StdEncoding.DecodeString(crt.Value)
		if err != nil {
			continue // encrypted
		}

		if !slices.ContainsFunc(check.Once(in, findComplete),
			func(config *check.Rendered) bool { return config.Trusts(ca) }) {
			r.Found(file.Line(crt.Line, crt.Column).Masked(), machineconfig.HowToGenerate,
				"%s holds another certificate authority (%s) than every machine config", file.Shown, shortSum(ca))
		}
	}
}

// about is for findings about the node that a config is for; about the cluster if there are several.
func about(r *check.Report, config *check.Rendered) *check.Report {
	if len(config.Nodes) == 1 {
		return r.AtDeclared(config.Nodes[0])
	}

	return r.OfCluster()
}

// checkTalosconfigAuthority looks for a talosconfig of another cluster. Configs of a rotation accept two authorities.
func checkTalosconfigAuthority(r *check.Report, in *check.Input) {
	configs, ours := check.Once(in, findComplete), check.Once(in, readAuthority).ca
	if len(configs) == 0 || ours == nil {
		return
	}

	common, shown := commonCA(in), in.Shown(in.Options.Talosconfig)

	if slices.ContainsFunc(configs,
		func(config *check.Rendered) bool { return config.Trusts(common) && config.Trusts(ours) }) {
		r.Seen("%s is this cluster's", shown)

		return
	}

	r.Found(in.OfContext("ca").Masked(), "set TALOSCONFIG to this cluster's file, or "+machineconfig.HowToGenerate,
		"the talosconfig trusts another certificate authority (%s) than the machine configs (%s): it is another cluster's",
		shortSum(ours), shortSum(common))
}

// checkSecrets looks at tokens, ids and the Kubernetes CA, of the files that trust the common CA.
func checkSecrets(r *check.Report, in *check.Input) {
	common := commonCA(in)

	configs := slices.DeleteFunc(slices.Clone(check.Once(in, findComplete)),
		func(config *check.Rendered) bool { return !config.Trusts(common) })
	if len(configs) == 0 {
		return
	}

	// Nearly all files hold the same secrets, so it is those that are compared, however many files there are.
	holders := map[machineconfig.SharedSecrets]int{}
	for _, config := range configs {
		holders[config.SharedSecrets()]++
	}

	differing := func(config *check.Rendered) int {
		mine, count := config.SharedSecrets(), 0

		for others, files := range holders {
			if len(mine.Differing(others)) > 0 {
				count += files
			}
		}

		return count
	}

	// The file that agrees with most is right; the first of several.
	reference := slices.MinFunc(configs, func(a, b *check.Rendered) int { return differing(a) - differing(b) })
	right := reference.SharedSecrets()

	for _, config := range configs {
		if different := right.Differing(config.SharedSecrets()); len(different) > 0 {
			about(r, config).Found(config.At(different[0]), machineconfig.HowToGenerate,
				"%s differs from %s in %s: they come from two sets of secrets", in.Shown(config.Path), in.Shown(reference.Path),
				strings.Join(different, ", "))
		}
	}

	r.About(nil).Passed(diagnosis.ConfigSecrets, "the machine configs share the cluster's secrets")
}

// shortSum names a certificate by the start of its SHA-256 sum.
func shortSum(pem []byte) string {
	if len(pem) == 0 {
		return "none"
	}

	sum := sha256.Sum256(bytes.TrimSpace(pem))

	return "sha256 " + hex.EncodeToString(sum[:4])
}

// checkSecretsNames warns if the secrets seem to be in a file that nothing finds.
func checkSecretsNames(r *check.Report, in *check.Input) {
	for _, name := range in.Cluster.MisnamedSecrets() {
		proper := in.Cluster.ProperSecretsName(name)
		r.Found(in.Path(filepath.Join(filepath.Dir(in.Cluster.Source), name)), "rename it to "+proper,
			"%s is a name that nothing reads, and there is no %s: machine configs can't be made", name, proper)
	}
}

// checkSecretsFiles warns if there are several that may be the cluster's.
func checkSecretsFiles(r *check.Report, in *check.Input) {
	r.Put(in.Cluster.AmbiguousSecrets()...)
}
