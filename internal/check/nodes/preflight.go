// Package preflight judges whether a cluster's files and its machines fit each other before anything is sent to a node.
//
// Every check is a small function over data: the inventory, the machine configs, and the facts that were read from a
// node. Reading happens in ReadFacts alone; what little else reaches out of the process (DNS, the VIP) comes in through
// Options.
package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Options are the settings of the checks, and their ways out of the process.
type Options struct {
	// AllowAmbiguousDisk turns a disk selector that matches several disks into a warning.
	AllowAmbiguousDisk bool
	// SkipChecks are shown as warnings where they would be failures.
	SkipChecks []diagnosis.ID
	// Now is the time that certificates are judged at.
	Now time.Time
	// LookupHost resolves a DNS name; an error or no address means that it does not resolve. Nil leaves names unresolved
	// and unjudged.
	LookupHost func(ctx context.Context, host string) ([]netip.Addr, error)
	// VIPAnswers asks the Kubernetes API's port of an address who answers there, and whether with a certificate of this
	// cluster's Kubernetes CA. Nil leaves the VIP unasked.
	VIPAnswers func(ctx context.Context, address netip.Addr) (answered, ours bool, err error)
}

// Check is one check of this package, as the table of all checks lists it.
type Check struct {
	// IDs are the kinds of trouble that it can find. The same id stands for a passed check (severity OK).
	IDs []diagnosis.ID
	// Needs is what it looks at.
	Needs diagnosis.Need

	cluster func(context.Context, whole) []diagnosis.Finding
	node    func(context.Context, subject) []diagnosis.Finding
}

// nodeChecks run for each node that answered, in the order in which people read their findings.
var nodeChecks = []Check{
	ofNode(checkProxy, 0, diagnosis.ThroughProxy),
	ofNode(checkUnread, 0, diagnosis.FactUnread),
	// the right machine?
	ofNode(checkIdentity, diagnosis.NeedsTalconfig, diagnosis.WrongMachine, diagnosis.IdentityUnread),
	// would it take the config?
	ofNode(checkConfigHere, diagnosis.NeedsConfig, diagnosis.ConfigRefusedHere),
	ofNode(checkTalosVersion, diagnosis.NeedsConfig, diagnosis.TalosVersionMismatch),       //
	ofNode(checkKubernetesVersion, diagnosis.NeedsConfig, diagnosis.KubernetesUnsupported), //
	// where would Talos go?
	ofNode(checkInstallDisk, diagnosis.NeedsConfig, diagnosis.InstallDiskNoMatch, diagnosis.InstallDiskAmbiguous,
		diagnosis.InstallDiskAbsent, diagnosis.InstallDiskHoldsData, diagnosis.AlreadyInstalled),
	ofNode(checkSecureBoot, diagnosis.NeedsConfig, diagnosis.InstallerSecureBoot),  // would it boot again?
	ofNode(checkTPM, diagnosis.NeedsConfig, diagnosis.TPMUnsealed),                 //
	ofNode(checkKernelArgs, diagnosis.NeedsConfig, diagnosis.KernelArgsIgnored),    //
	ofNode(checkLinks, diagnosis.NeedsConfig, diagnosis.LinkAbsent),                // would it be on the network?
	ofNode(checkLiveSubnet, diagnosis.NeedsConfig, diagnosis.VIPOutsideSubnet),     //
	ofNode(checkLiveHostname, diagnosis.NeedsTalconfig, diagnosis.HostnameInvalid), // under which name?
}

func ofNode(run func(context.Context, subject) []diagnosis.Finding, needs diagnosis.Need, ids ...diagnosis.ID) Check {
	return Check{IDs: ids, Needs: needs | diagnosis.NeedsFacts, node: run}
}

// NodeChecks are the checks of a node that answered.
func NodeChecks() []Check { return slices.Clone(nodeChecks) }

// Node runs the checks of one node that answered. A nil config leaves out what needs it: the missing file is another
// finding. Findings are in the order of the checks, with SkipChecks applied.
func Node(
	ctx context.Context, cluster *inventory.Cluster, node *inventory.Node, config *machineconfig.Config, facts Facts,
	options Options,
) []diagnosis.Finding {
	s := subject{cluster: cluster, node: node, config: config, facts: facts, options: options}

	var findings []diagnosis.Finding

	for _, check := range nodeChecks {
		findings = append(findings, check.node(ctx, s)...)
	}

	return Skip(findings, options.SkipChecks)
}

// clusterChecks look at the files, and at what DNS and the VIP say.
var clusterChecks = []Check{
	ofCluster(checkConfigs, diagnosis.NeedsConfig, diagnosis.ConfigInvalid),
	ofCluster(checkClientCertificate, diagnosis.NeedsTalosconfig, diagnosis.ClientCertificate),
	ofCluster(checkTalosconfigEndpoints, diagnosis.NeedsTalconfig|diagnosis.NeedsTalosconfig,
		diagnosis.TalosconfigEndpoint),
	ofCluster(checkControlPlaneCount, diagnosis.NeedsTalconfig, diagnosis.EvenControlPlanes),
	ofCluster(checkHostnames, diagnosis.NeedsTalconfig, diagnosis.HostnameInvalid, diagnosis.HostnameNotUnique),
	ofCluster(checkClusterSubnets, diagnosis.NeedsTalconfig, diagnosis.AddressInClusterSubnet),
	ofCluster(checkNodeIPs, diagnosis.NeedsConfig, diagnosis.NodeIPExcluded),
	ofCluster(checkVIP, diagnosis.NeedsConfig, diagnosis.VIPOutsideSubnet, diagnosis.VIPTaken),
	ofCluster(checkVIPAnswers, diagnosis.NeedsTalconfig|diagnosis.NeedsNetwork, diagnosis.VIPForeign),
	ofCluster(checkEndpoint, diagnosis.NeedsTalconfig, diagnosis.EndpointUnusable, diagnosis.EndpointElsewhere),
	ofCluster(checkNames, diagnosis.NeedsConfig, diagnosis.NameNotCertified),
	ofCluster(checkResolution, diagnosis.NeedsTalconfig|diagnosis.NeedsNetwork, diagnosis.NameUnresolved,
		diagnosis.NameAmbiguous),
	ofCluster(checkDeclaredKubernetes, diagnosis.NeedsTalconfig, diagnosis.KubernetesUnsupported),
	ofCluster(checkImages, diagnosis.NeedsConfig, diagnosis.InstallerReference, diagnosis.InstallerVersion),
	ofCluster(checkLinkDeclarations, diagnosis.NeedsConfig, diagnosis.LinkDeclaredTwice),
}

func ofCluster(run func(context.Context, whole) []diagnosis.Finding, needs diagnosis.Need, ids ...diagnosis.ID) Check {
	return Check{IDs: ids, Needs: needs, cluster: run}
}

// ClusterChecks are the checks that need no node.
func ClusterChecks() []Check { return slices.Clone(clusterChecks) }

// Files are a cluster's files, with the names in them looked up, for Check.OfFiles.
type Files struct{ whole }

// NewFiles looks the names up that the options allow.
func NewFiles(
	ctx context.Context, cluster *inventory.Cluster, configs map[string]*machineconfig.Config,
	credentials *talos.Credentials, options Options,
) Files {
	return Files{whole{
		cluster: cluster, configs: configs, credentials: credentials, options: options,
		names: resolveNames(ctx, cluster, credentials, options),
	}}
}

// OfFiles runs one of ClusterChecks. SKIP_CHECKS is not applied.
func (c Check) OfFiles(ctx context.Context, files Files) []diagnosis.Finding {
	return c.cluster(ctx, files.whole)
}

// Cluster runs the checks that need no node. Whether the files belong together (roles, hostnames, secrets, certificate
// authority) is inventory's CrossCheck to say. Configs are by node name; a node without one is left out of what needs
// it. Nil credentials mean that there is no talosconfig, which is a finding of the node probe. SkipChecks are applied.
func Cluster(
	ctx context.Context, cluster *inventory.Cluster, configs map[string]*machineconfig.Config,
	credentials *talos.Credentials, options Options,
) []diagnosis.Finding {
	files := NewFiles(ctx, cluster, configs, credentials, options)

	var findings []diagnosis.Finding

	for _, check := range clusterChecks {
		findings = append(findings, check.OfFiles(ctx, files)...)
	}

	return Skip(findings, options.SkipChecks)
}

// Skip turns failures with one of the ids into warnings that say that they were skipped. Identity and certificate
// authority can't be skipped.
func Skip(findings []diagnosis.Finding, ids []diagnosis.ID) []diagnosis.Finding {
	skipped := slices.Clone(findings)

	for i := range skipped {
		finding := &skipped[i]

		if finding.Severity != diagnosis.Failure || !slices.Contains(ids, finding.ID) {
			continue
		}

		if entry, ok := diagnosis.Lookup(finding.ID); ok && !entry.Unskippable {
			finding.Severity = diagnosis.Warning
			finding.Skipped = true
		}
	}

	return skipped
}

// subject is one node with all that is known about it.
type subject struct {
	cluster *inventory.Cluster
	node    *inventory.Node
	config  *machineconfig.Config
	facts   Facts
	options Options
}

func (s subject) finding(id diagnosis.ID, severity diagnosis.Severity, next, cause string,
	args ...any) []diagnosis.Finding {
	return []diagnosis.Finding{{
		ID:       id,
		Severity: severity,
		Node:     s.node.Name,
		Address:  s.facts.Address,
		Cause:    fmt.Sprintf(cause, args...),
		Next:     next,
	}}
}

func (s subject) ok(id diagnosis.ID, cause string, args ...any) []diagnosis.Finding {
	return s.finding(id, diagnosis.OK, "", cause, args...)
}

func (s subject) warn(id diagnosis.ID, next, cause string, args ...any) []diagnosis.Finding {
	return s.finding(id, diagnosis.Warning, next, cause, args...)
}

func (s subject) fail(id diagnosis.ID, next, cause string, args ...any) []diagnosis.Finding {
	return s.finding(id, diagnosis.Failure, next, cause, args...)
}

// rerun is the command that checks this node again.
func (s subject) rerun() string { return "mage preflight -node=" + s.node.Name }

// regenerate is what to do about a machine config: it is never edited by hand, as the next generation would undo that.
func (s subject) regenerate(change string) string {
	return inInventory(s.cluster, change, s.rerun())
}

// whole is the cluster with its files.
type whole struct {
	cluster     *inventory.Cluster
	configs     map[string]*machineconfig.Config
	credentials *talos.Credentials
	options     Options
	// names is nil when DNS is not to be asked.
	names names
}

// about makes a finding about a node's files, or about the cluster when node is nil.
func (w whole) about(
	node *inventory.Node, id diagnosis.ID, severity diagnosis.Severity, next, cause string, args ...any,
) []diagnosis.Finding {
	finding := diagnosis.Finding{ID: id, Severity: severity, Cause: fmt.Sprintf(cause, args...), Next: next}

	if node != nil {
		finding.Node = node.Name
	}

	return []diagnosis.Finding{finding}
}

func (w whole) ok(id diagnosis.ID, cause string, args ...any) []diagnosis.Finding {
	return w.about(nil, id, diagnosis.OK, "", cause, args...)
}

// okUnless reports that a check passed, unless it found something.
func (w whole) okUnless(found []diagnosis.Finding, id diagnosis.ID, cause string, args ...any) []diagnosis.Finding {
	if len(found) > 0 {
		return found
	}

	return w.ok(id, cause, args...)
}

func (w whole) regenerate(change string) string {
	return inInventory(w.cluster, change, "mage preflight")
}

func inInventory(cluster *inventory.Cluster, change, rerun string) string {
	return fmt.Sprintf("in %s, %s; then `%s` and `%s`", source(cluster), change, generateCommand, rerun)
}

// generateCommand renders the machine configs again from the inventory.
const generateCommand = "task talos:generate-config"

// source names the inventory's file for people.
func source(cluster *inventory.Cluster) string {
	if cluster.Source == "" {
		return "the inventory"
	}

	return cluster.Source
}
