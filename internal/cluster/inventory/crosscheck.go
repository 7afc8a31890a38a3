package inventory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos/talosconfig"
)

// CrossCheck compares the inventory with the machine configs and the talosconfig: do the files exist, are they for the
// declared nodes, and do they belong to one cluster? Each check that passes is a finding too, with severity OK. No node
// is asked.
func (c *Cluster) CrossCheck(talosconfigPath string) []diagnosis.Finding {
	check := &crossCheck{cluster: c, configs: map[string]*machineconfig.Config{}}

	check.loadConfigs()
	check.perNode()
	check.sharedFiles()
	check.secrets(talosconfigPath)
	check.secretsFile()

	return check.findings
}

type crossCheck struct {
	cluster *Cluster
	// configs are those that could be loaded, by path.
	configs  map[string]*machineconfig.Config
	findings []diagnosis.Finding
}

func (x *crossCheck) shown(path string) string { return x.cluster.Files.Shown(path) }

// found adds a finding about a node, or about the cluster if node is nil.
func (x *crossCheck) found(id diagnosis.ID, severity diagnosis.Severity, node *Node, next, cause string, args ...any) {
	finding := diagnosis.Finding{
		ID: id, Severity: severity, Cause: fmt.Sprintf(cause, args...), Next: next, Exit: diagnosis.ExitBadInput,
	}

	if node != nil {
		finding.Node, finding.Address = node.Name, node.Address
	}

	if severity == diagnosis.OK {
		finding.Exit = diagnosis.ExitOK
	}

	x.findings = append(x.findings, finding)
}

// standsIn says which file the last finding is about.
func (x *crossCheck) standsIn(path string) { x.findings[len(x.findings)-1].At.Path = x.shown(path) }

// passed adds the good news about a check, unless it found something since there were so many findings.
func (x *crossCheck) passed(since int, id diagnosis.ID, cause string, args ...any) {
	if len(x.findings) == since {
		x.found(id, diagnosis.OK, nil, "", cause, args...)
	}
}

// loadConfigs reads each node's machine config once.
func (x *crossCheck) loadConfigs() {
	before := len(x.findings)
	tried := map[string]bool{}

	for _, node := range x.cluster.Nodes {
		if tried[node.ConfigFile] {
			continue
		}

		tried[node.ConfigFile] = true
		x.loadConfig(node)
	}

	x.passed(before, diagnosis.ConfigMissing, "%d machine configs are there for %d nodes", len(x.configs),
		len(x.cluster.Nodes))
}

func (x *crossCheck) loadConfig(node *Node) {
	shown := x.shown(node.ConfigFile)
	config, err := x.cluster.MachineConfig(node)

	// A file with placeholders often can't be decoded, and then they are the better explanation.
	if placeholders := machineconfig.Placeholders(x.content(node, config)); len(placeholders) > 0 {
		first := placeholders[0]
		x.found(diagnosis.ConfigPlaceholder, diagnosis.Failure, node,
			"resolve or decrypt the secrets, then "+machineconfig.HowToGenerate,
			"%s:%d:%d: %s is %s%s", shown, first.Line, first.Column, first.Field, first.Kind,
			andMore(len(placeholders)-1, "field"))

		return
	}

	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.found(diagnosis.ConfigMissing, diagnosis.Failure, node, machineconfig.HowToGenerate,
			"its machine config %s does not exist", shown)
	case err != nil:
		explained, next := err, machineconfig.HowToGenerate

		var loadError *machineconfig.LoadError
		if errors.As(err, &loadError) {
			short := *loadError
			short.Path = shown
			explained, next = &short, cmp.Or(loadError.Next, next)
		}

		x.found(diagnosis.ConfigUnreadable, diagnosis.Failure, node, next, "%s", explained)
	default:
		x.configs[node.ConfigFile] = config
	}
}

// content is the text of a machine config, also of one that could not be decoded; empty if there is none.
func (x *crossCheck) content(node *Node, config *machineconfig.Config) []byte {
	if config != nil {
		return config.Bytes
	}

	return x.cluster.Files.Open(node.ConfigFile).Data
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

// perNode compares what talconfig.yaml says about a node with its machine config.
func (x *crossCheck) perNode() {
	for _, check := range []struct {
		id     diagnosis.ID
		run    func(*Node, *machineconfig.Config)
		passed string
	}{
		{diagnosis.ConfigRole, x.role, "roles in the machine configs are those of the inventory"},
		{diagnosis.ConfigHostname, x.hostname, "hostnames in the machine configs are those of the inventory"},
		{diagnosis.ConfigAddress, x.address, "declared addresses fit the machine configs"},
		{diagnosis.ConfigCluster, x.clusterIdentity, "the machine configs name this cluster and its endpoint"},
	} {
		before := len(x.findings)

		for _, node := range x.cluster.Nodes {
			if config := x.configs[node.ConfigFile]; config != nil {
				check.run(node, config)
			}
		}

		if len(x.configs) > 0 {
			x.passed(before, check.id, "%s", check.passed)
		}
	}
}

func (x *crossCheck) role(node *Node, config *machineconfig.Config) {
	role := config.Role()
	if role == machine.TypeInit {
		role = ControlPlane
	}

	if role != node.Role {
		x.found(diagnosis.ConfigRole, diagnosis.Failure, node, machineconfig.HowToGenerate,
			"the inventory declares a %s, and machine.type in %s is %s", node.Role, x.shown(node.ConfigFile), role)
	}
}

func (x *crossCheck) hostname(node *Node, config *machineconfig.Config) {
	static := config.Hostname()

	switch {
	case node.IgnoreHostname || sameHostname(static, node.Hostname):
	case static == "":
		x.found(diagnosis.ConfigHostname, diagnosis.Warning, node, machineconfig.HowToGenerate,
			"%s sets no hostname, so the node will not be called %s; set `ignoreHostname: true` if that is meant",
			x.shown(node.ConfigFile), node.Hostname)
	default:
		x.found(diagnosis.ConfigHostname, diagnosis.Failure, node, machineconfig.HowToGenerate,
			"%s sets the hostname %q", x.shown(node.ConfigFile), static)
	}
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

func (x *crossCheck) address(node *Node, config *machineconfig.Config) {
	declared, err := netip.ParseAddr(node.Address)
	if err != nil {
		return // a DNS name: what it stands for is preflight's to find out
	}

	shown, static := x.shown(node.ConfigFile), config.Addresses()

	if slices.Contains(config.VIPs(), declared) {
		x.found(diagnosis.ConfigAddress, diagnosis.Failure, node, "declare the machine's own address as ipAddress",
			"its declared address is the virtual one of %s, which no machine has before the cluster is up", shown)

		return
	}

	isDeclared := func(prefix netip.Prefix) bool { return prefix.Addr().Unmap() == declared.Unmap() }
	if len(static) == 0 || slices.ContainsFunc(static, isDeclared) {
		return
	}

	// An address that is not in the config can still come from DHCP, on another link than the static ones.
	severity := diagnosis.Failure
	sameSubnet := slices.ContainsFunc(static, func(prefix netip.Prefix) bool { return prefix.Masked().Contains(declared) })

	if !sameSubnet && config.UsesDHCP() {
		severity = diagnosis.Warning
	}

	x.found(diagnosis.ConfigAddress, severity, node, "correct ipAddress, or "+machineconfig.HowToGenerate,
		"its declared address is none of the static ones in %s: %s", shown, joinPrefixes(static))
}

func joinPrefixes(prefixes []netip.Prefix) string {
	texts := make([]string, 0, len(prefixes))
	for _, prefix := range prefixes {
		texts = append(texts, prefix.String())
	}

	return strings.Join(texts, ", ")
}

func (x *crossCheck) clusterIdentity(node *Node, config *machineconfig.Config) {
	shown := x.shown(node.ConfigFile)

	if name := config.ClusterName(); name != "" && name != x.cluster.Name {
		x.found(diagnosis.ConfigCluster, diagnosis.Failure, node, machineconfig.HowToGenerate,
			"%s is of cluster %q, and the inventory of %q", shown, name, x.cluster.Name)
	}

	if endpoint := config.Endpoint(); endpoint != nil && x.cluster.Endpoint != nil &&
		endpoint.String() != x.cluster.Endpoint.String() {
		x.found(diagnosis.ConfigCluster, diagnosis.Failure, node, machineconfig.HowToGenerate,
			"%s has the endpoint %s, and the inventory %s", shown, endpoint.Redacted(), x.cluster.Endpoint.Redacted())
	}
}

// sharedFiles looks for what only one machine can have in a config that several get.
func (x *crossCheck) sharedFiles() {
	users := map[string][]*Node{}
	for _, node := range x.cluster.Nodes {
		users[node.ConfigFile] = append(users[node.ConfigFile], node)
	}

	for _, path := range slices.Sorted(maps.Keys(users)) {
		config := x.configs[path]
		if config == nil || len(users[path]) < 2 {
			continue
		}

		const next = "give each machine an entry of its own, or leave names and addresses to DHCP"

		if hostname := config.Hostname(); hostname != "" {
			x.found(diagnosis.SharedConfig, diagnosis.Failure, nil, next,
				"%d machines would get the hostname %q: %s is for all of %s", len(users[path]), hostname, x.shown(path),
				names(users[path]))
			x.standsIn(path)
		}

		if static := config.Addresses(); len(static) > 0 {
			x.found(diagnosis.SharedConfig, diagnosis.Failure, nil, next,
				"%d machines would get the address %s: %s is for all of %s", len(users[path]), joinPrefixes(static), x.shown(path),
				names(users[path]))
			x.standsIn(path)
		}
	}
}

func names(nodes []*Node) string {
	list := make([]string, 0, len(nodes))
	for _, node := range nodes {
		list = append(list, node.Name)
	}

	return strings.Join(list, ", ")
}

// secrets finds the files that belong to another set of secrets than most.
func (x *crossCheck) secrets(talosconfigPath string) {
	talosconfigCA, usable := x.readTalosconfig(talosconfigPath)

	paths := slices.Sorted(maps.Keys(x.configs))
	if len(paths) == 0 {
		return
	}

	x.comparePlainSecrets(paths)

	before := len(x.findings)
	common := x.commonCA(paths, talosconfigCA)

	for _, path := range paths {
		if config := x.configs[path]; !config.Trusts(common) {
			x.found(diagnosis.ConfigCA, diagnosis.Failure, x.nodeOf(path), machineconfig.HowToGenerate,
				"%s trusts another certificate authority (%s) than the other files (%s): they come from two sets of secrets",
				x.shown(path), shortSum(config.CA()), shortSum(common))
		}
	}

	x.passed(before, diagnosis.ConfigCA, "%d machine configs trust one certificate authority (%s)", len(paths),
		shortSum(common))
	x.compareSecrets(paths, common)

	switch {
	case !usable:
	case trustedByAny(x.configs, common, talosconfigCA):
		x.found(diagnosis.TalosconfigForeign, diagnosis.OK, nil, "", "%s is this cluster's", x.shown(talosconfigPath))
	default:
		x.found(diagnosis.TalosconfigForeign, diagnosis.Failure, nil,
			"set TALOSCONFIG to this cluster's file, or "+machineconfig.HowToGenerate,
			"%s trusts another certificate authority (%s) than the machine configs (%s): it is another cluster's",
			x.shown(talosconfigPath), shortSum(talosconfigCA), shortSum(common))
	}
}

// commonCA is the CA of most configs; of several equally common ones the talosconfig's.
func (x *crossCheck) commonCA(paths []string, talosconfigCA []byte) []byte {
	votes := map[string]int{}
	for _, path := range paths {
		votes[string(x.configs[path].CA())] += 2
	}

	if _, known := votes[string(talosconfigCA)]; known {
		votes[string(talosconfigCA)]++
	}

	best := ""

	for _, path := range paths {
		if ca := string(x.configs[path].CA()); best == "" || votes[ca] > votes[best] {
			best = ca
		}
	}

	return []byte(best)
}

// trustedByAny reports whether the configs of the common CA accept another one too.
func trustedByAny(configs map[string]*machineconfig.Config, common, ca []byte) bool {
	for _, config := range configs {
		if config.Trusts(common) && config.Trusts(ca) {
			return true
		}
	}

	return false
}

// compareSecrets looks at tokens, ids and the Kubernetes CA, of the files that trust the common CA.
func (x *crossCheck) compareSecrets(paths []string, common []byte) {
	before := len(x.findings)

	paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return !x.configs[path].Trusts(common) })
	if len(paths) == 0 {
		return
	}

	// Nearly all files hold the same secrets, so it is those that are compared, however many files there are.
	holders := map[machineconfig.SharedSecrets]int{}
	for _, path := range paths {
		holders[x.configs[path].SharedSecrets()]++
	}

	differing := func(path string) int {
		mine, count := x.configs[path].SharedSecrets(), 0

		for others, files := range holders {
			if len(mine.Differing(others)) > 0 {
				count += files
			}
		}

		return count
	}

	// The file that agrees with most is right; the first of several.
	reference := slices.MinFunc(paths, func(a, b string) int { return differing(a) - differing(b) })
	right := x.configs[reference].SharedSecrets()

	for _, path := range paths {
		if different := right.Differing(x.configs[path].SharedSecrets()); len(different) > 0 {
			x.found(diagnosis.ConfigSecrets, diagnosis.Failure, x.nodeOf(path), machineconfig.HowToGenerate,
				"%s differs from %s in %s: they come from two sets of secrets", x.shown(path), x.shown(reference),
				strings.Join(different, ", "))
		}
	}

	x.passed(before, diagnosis.ConfigSecrets, "the machine configs share the cluster's secrets")
}

// nodeOf is the node that a config is for; nil if there are several.
func (x *crossCheck) nodeOf(path string) *Node {
	var found *Node

	for _, node := range x.cluster.Nodes {
		if node.ConfigFile == path {
			if found != nil {
				return nil
			}

			found = node
		}
	}

	return found
}

// shortSum names a certificate by the start of its SHA-256 sum.
func shortSum(pem []byte) string {
	if len(pem) == 0 {
		return "none"
	}

	sum := sha256.Sum256(bytes.TrimSpace(pem))

	return "sha256 " + hex.EncodeToString(sum[:4])
}

// readTalosconfig is the CA of the talosconfig's current context; false if the file can't be used, which is a finding.
func (x *crossCheck) readTalosconfig(path string) ([]byte, bool) {
	shown := x.shown(path)

	data, err := x.cluster.readFile(path)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.found(diagnosis.TalosconfigMissing, diagnosis.Failure, nil, machineconfig.HowToGenerate+", or set TALOSCONFIG",
			"%s does not exist", shown)

		return nil, false
	case err != nil:
		x.found(diagnosis.TalosconfigBroken, diagnosis.Failure, nil, "give your user the right to read it",
			"%s can't be read", shown)

		return nil, false
	}

	broken := func(cause string, args ...any) ([]byte, bool) {
		x.found(diagnosis.TalosconfigBroken, diagnosis.Failure, nil, machineconfig.HowToGenerate, "%s %s", shown,
			fmt.Sprintf(cause, args...))

		return nil, false
	}

	if placeholders := machineconfig.Placeholders(data); len(placeholders) > 0 {
		first := placeholders[0]
		x.found(diagnosis.ConfigPlaceholder, diagnosis.Failure, nil,
			"resolve or decrypt the secrets, or "+machineconfig.HowToGenerate,
			"%s is %s%s", first.Field, first.Kind, andMore(len(placeholders)-1, "field"))
		x.findings[len(x.findings)-1].At = diagnosis.Location{Path: shown, Line: first.Line, Column: first.Column}

		return nil, false
	}

	config, err := talosconfig.Parse(data)
	if err != nil {
		ca, usable := broken("is no talosconfig")

		if line, column, message := machineconfig.NewPlaces(data).SyntaxError(); message != "" {
			last := &x.findings[len(x.findings)-1]
			last.At = diagnosis.Location{Path: shown, Line: line, Column: column}
			last.Cause += ": " + message
		}

		return ca, usable
	}

	context := config.Contexts[config.Context]
	if context == nil {
		return broken("has no context %q, which it names as the current one", config.Context)
	}

	ca, err := base64.StdEncoding.DecodeString(context.CA)
	if err != nil || len(ca) == 0 {
		return broken("has no certificate authority in its context %q", config.Context)
	}

	return ca, true
}

// secretsFile warns if the secrets seem to be in a file that nothing finds, or in more than one.
func (x *crossCheck) secretsFile() {
	for _, name := range x.cluster.MisnamedSecrets() {
		proper := x.cluster.ProperSecretsName(name)
		x.found(diagnosis.SecretsFileMisnamed, diagnosis.Warning, nil, "rename it to "+proper,
			"%s is a name that nothing reads, and there is no %s: machine configs can't be made", name, proper)
		x.standsIn(filepath.Join(filepath.Dir(x.cluster.Source), name))
	}

	x.findings = append(x.findings, x.cluster.AmbiguousSecrets()...)
}

// AmbiguousSecrets warns of each file that may hold the cluster's secrets beside the one that is read.
func (c *Cluster) AmbiguousSecrets() []diagnosis.Finding {
	var findings []diagnosis.Finding

	for _, path := range c.PassedOverSecrets() {
		read, other := c.Files.Shown(c.SecretsPath()), c.Files.Shown(path)

		findings = append(findings, diagnosis.Finding{
			ID: diagnosis.SecretsAmbiguous, Severity: diagnosis.Warning, Exit: diagnosis.ExitBadInput,
			Cause: fmt.Sprintf("%s and %s are both there: %s is read, as talhelper does, and the other one is not", read, other,
				read),
			Next: "keep the one that the nodes' configs were made from, and move the other one away",
			At:   diagnosis.Location{Path: other},
		})
	}

	return findings
}

// comparePlainSecrets compares the CA of a secrets file that is not encrypted with the configs'.
func (x *crossCheck) comparePlainSecrets(paths []string) {
	for _, path := range x.cluster.secretsPaths() {
		quiet := yamlfile.Source{Mistakes: &yamlfile.Mistakes{}}

		crt := yamlfile.Field(yamlfile.Field(yamlfile.Field(quiet.Parse(x.cluster.Files.Open(path).Data), "certs"), "os"), "crt")
		if crt == nil {
			continue
		}

		ca, err := base64.StdEncoding.DecodeString(crt.Value)
		if err != nil {
			continue // encrypted
		}

		if !slices.ContainsFunc(paths, func(path string) bool { return x.configs[path].Trusts(ca) }) {
			x.found(diagnosis.ConfigCA, diagnosis.Failure, nil, machineconfig.HowToGenerate,
				"%s holds another certificate authority (%s) than every machine config", x.shown(path), shortSum(ca))
			x.standsIn(path)
			x.findings[len(x.findings)-1].At.Line, x.findings[len(x.findings)-1].At.Column = crt.Line, crt.Column
		}
	}
}
