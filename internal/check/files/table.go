package audit

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	preflight "github.com/talos-mage/talos-mage/internal/check/nodes"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Table lists every check, by kind and then by id. A check of another package stands in it as well.
func Table() []Check { return slices.Clone(table()) }

var table = sync.OnceValue(func() []Check {
	kinds := map[Kind]int{}
	for i, kind := range Kinds() {
		kinds[kind] = i
	}

	rows := slices.Concat(
		readingChecks(), belongingChecks(), preflightChecks(),
		addressChecks, endpointChecks, networkChecks, nameChecks, interfaceChecks, diskChecks, secretChecks,
		credentialChecks, trackedChecks, firewallChecks, roleChecks, patchChecks, documentChecks, imageChecks, versionChecks,
		secretsFileChecks, kubeconfigChecks,
		linkNameChecks, interopChecks(),
		liveRows(),
	)

	for i := range rows {
		if rows[i].Area == "" {
			rows[i].Area = areasOfOthers[rows[i].ID]
		}
	}

	slices.SortStableFunc(rows, func(a, b Check) int {
		return cmp.Or(cmp.Compare(kinds[a.Kind], kinds[b.Kind]), cmp.Compare(a.ID, b.ID))
	})

	return rows
})

// readingChecks are what reading the files finds.
func readingChecks() []Check {
	shared := &look{run: func(_ context.Context, in *Input) []diagnosis.Finding { return in.unreadable }}

	var rows []Check

	for _, id := range []diagnosis.ID{
		diagnosis.FileMissing, diagnosis.FileUnreadable, diagnosis.FileSyntax, diagnosis.FileKey, diagnosis.FileType,
		diagnosis.FileVariable,
		diagnosis.FileValue, diagnosis.FileAddress, diagnosis.FileDuplicate, diagnosis.FileNoNodes,
	} {
		rows = append(rows, Check{ID: id, Kind: Reading, idle: unreadInventory(id), look: shared})
	}

	return rows
}

// unreadInventory says what of the inventory could not be looked at.
func unreadInventory(id diagnosis.ID) func(*Input) string {
	return func(in *Input) string {
		switch {
		case id == diagnosis.FileMissing || id == diagnosis.FileUnreadable:
			return ""
		case in.Talconfig == nil && in.Cluster == nil, in.Cluster == nil && id != diagnosis.FileSyntax:
			return "the inventory can't be read"
		default:
			return ""
		}
	}
}

// noConfig says that there is no machine config.
func noConfig(in *Input) string {
	if len(in.Configs) == 0 {
		return in.none("there is no machine config that can be read")
	}

	return ""
}

// noTalosconfig says that there is no talosconfig.
func noTalosconfig(in *Input) string {
	if in.TalosconfigFile == nil {
		return in.none("there is no talosconfig that can be used")
	}

	return ""
}

// notMade says why nothing of the folder of machine configs is there, where that is no trouble.
func notMade(in *Input) string {
	if in.nothingMade() {
		return in.none("")
	}

	return ""
}

// filesToMake are the ids of files that are missing from the folder of machine configs.
var filesToMake = []diagnosis.ID{diagnosis.ConfigMissing, diagnosis.TalosconfigMissing}

// belongingChecks are the inventory's, which compare the files with each other.
func belongingChecks() []Check {
	shared := &look{run: func(_ context.Context, in *Input) []diagnosis.Finding {
		findings := slices.DeleteFunc(in.Cluster.CrossCheck(in.Options.Talosconfig), func(finding diagnosis.Finding) bool {
			return in.nothingMade() && slices.Contains(filesToMake, finding.ID)
		})
		for i := range findings {
			in.place(&findings[i])
		}

		return findings
	}}

	var rows []Check

	for _, row := range []struct {
		id    diagnosis.ID
		needs diagnosis.Need
	}{
		{diagnosis.SharedConfig, diagnosis.NeedsTalconfig},
		{diagnosis.ConfigMissing, diagnosis.NeedsTalconfig},
		{diagnosis.ConfigUnreadable, diagnosis.NeedsTalconfig},
		{diagnosis.ConfigRole, diagnosis.NeedsTalconfig | diagnosis.NeedsConfig},
		{diagnosis.ConfigHostname, diagnosis.NeedsTalconfig | diagnosis.NeedsConfig},
		{diagnosis.ConfigAddress, diagnosis.NeedsTalconfig | diagnosis.NeedsConfig},
		{diagnosis.ConfigCA, diagnosis.NeedsTalconfig | diagnosis.NeedsConfig},
		{diagnosis.ConfigSecrets, diagnosis.NeedsTalconfig | diagnosis.NeedsConfig},
		{diagnosis.ConfigPlaceholder, diagnosis.NeedsTalconfig},
		{diagnosis.TalosconfigMissing, diagnosis.NeedsTalconfig},
		{diagnosis.TalosconfigBroken, diagnosis.NeedsTalconfig},
		{diagnosis.TalosconfigForeign, diagnosis.NeedsTalconfig | diagnosis.NeedsTalosconfig},
		{diagnosis.SecretsFileMisnamed, diagnosis.NeedsTalconfig},
		{diagnosis.SecretsAmbiguous, diagnosis.NeedsTalconfig},
		{diagnosis.ConfigCluster, diagnosis.NeedsTalconfig | diagnosis.NeedsConfig},
	} {
		check := Check{ID: row.id, Kind: Belonging, Needs: row.needs, look: shared}

		switch row.id {
		case diagnosis.ConfigMissing, diagnosis.TalosconfigMissing:
			check.idle = notMade
		case diagnosis.ConfigUnreadable, diagnosis.ConfigPlaceholder:
			check.idle = noConfig
		case diagnosis.TalosconfigBroken:
			check.idle = noTalosconfig
		}

		rows = append(rows, check)
	}

	return rows
}

// preflightKinds say what preflight's checks of files are about.
var preflightKinds = map[diagnosis.ID]Kind{
	diagnosis.ConfigInvalid:          Documents,
	diagnosis.ClientCertificate:      Secrets,
	diagnosis.TalosconfigEndpoint:    Addresses,
	diagnosis.EvenControlPlanes:      Roles,
	diagnosis.HostnameInvalid:        Names,
	diagnosis.HostnameNotUnique:      Names,
	diagnosis.AddressInClusterSubnet: Networks,
	diagnosis.NodeIPExcluded:         Networks,
	diagnosis.VIPOutsideSubnet:       Endpoints,
	diagnosis.VIPTaken:               Endpoints,
	diagnosis.VIPForeign:             Endpoints,
	diagnosis.EndpointUnusable:       Endpoints,
	diagnosis.EndpointElsewhere:      Endpoints,
	diagnosis.NameNotCertified:       Addresses,
	diagnosis.NameUnresolved:         Names,
	diagnosis.NameAmbiguous:          Names,
	diagnosis.KubernetesUnsupported:  Versions,
	diagnosis.InstallerReference:     Images,
	diagnosis.InstallerVersion:       Versions,
	diagnosis.LinkDeclaredTwice:      Interfaces,
}

// preflightChecks are those that preflight makes of the files.
func preflightChecks() []Check {
	var rows []Check

	for _, check := range preflight.ClusterChecks() {
		shared := &look{run: func(ctx context.Context, in *Input) []diagnosis.Finding {
			if in.Cluster == nil {
				return nil
			}

			findings := check.OfFiles(ctx, in.preflightFiles(ctx))
			for i := range findings {
				in.place(&findings[i])
			}

			return findings
		}}

		for _, id := range check.IDs {
			rows = append(rows, Check{ID: id, Kind: preflightKinds[id], Needs: check.Needs | diagnosis.NeedsTalconfig,
				look: shared})
		}
	}

	return rows
}

// preflightFiles are the files as preflight's checks take them; names are looked up once.
func (in *Input) preflightFiles(ctx context.Context) preflight.Files {
	in.lookups.Do(func() {
		in.looked = preflight.NewFiles(ctx, in.Cluster, in.configsByNode(), in.Credentials, in.Options.Checks)
	})

	return in.looked
}

// places are where preflight's and the inventory's findings about a node stand: in the machine config, or in the node's
// entry of the talconfig.
var places = map[diagnosis.ID]struct{ config, document, entry string }{
	diagnosis.ConfigRole:             {config: "machine.type"},
	diagnosis.ConfigHostname:         {document: "HostnameConfig", config: "hostname"},
	diagnosis.ConfigAddress:          {entry: "ipAddress"},
	diagnosis.ConfigCA:               {config: "machine.ca"},
	diagnosis.ConfigSecrets:          {config: "machine.token"},
	diagnosis.ConfigCluster:          {config: "cluster.clusterName"},
	diagnosis.ConfigInvalid:          {config: "machine"},
	diagnosis.AddressInClusterSubnet: {entry: "ipAddress"},
	diagnosis.NodeIPExcluded:         {config: "machine.kubelet.nodeIP.validSubnets"},
	diagnosis.VIPOutsideSubnet:       {entry: "networkInterfaces"},
	diagnosis.VIPTaken:               {entry: "networkInterfaces"},
	diagnosis.HostnameInvalid:        {entry: "hostname"},
	diagnosis.HostnameNotUnique:      {entry: "hostname"},
	diagnosis.NameNotCertified:       {entry: "ipAddress"},
	diagnosis.NameUnresolved:         {entry: "ipAddress"},
	diagnosis.NameAmbiguous:          {entry: "ipAddress"},
	diagnosis.InstallerReference:     {config: "machine.install.image"},
	diagnosis.InstallerVersion:       {config: "machine.install.image"},
	diagnosis.LinkDeclaredTwice:      {config: "machine.network.interfaces"},
}

// clusterPlaces are where findings about the cluster as a whole stand in the talconfig.
var clusterPlaces = map[diagnosis.ID]string{
	diagnosis.EndpointUnusable:      "endpoint",
	diagnosis.EndpointElsewhere:     "endpoint",
	diagnosis.KubernetesUnsupported: "kubernetesVersion",
	diagnosis.EvenControlPlanes:     "nodes",
}

// talosconfigFindings are about the talosconfig as a whole.
var talosconfigFindings = []diagnosis.ID{
	diagnosis.TalosconfigMissing, diagnosis.TalosconfigBroken, diagnosis.TalosconfigForeign, diagnosis.TalosconfigEndpoint,
	diagnosis.ClientCertificate,
}

// place adds where it stands to a finding of another package, if that is known, and shortens the paths in it.
func (in *Input) place(finding *diagnosis.Finding) {
	if root := in.Options.Root; root != "" {
		finding.Cause = strings.ReplaceAll(finding.Cause, root+string(filepath.Separator), "")
		finding.Next = strings.ReplaceAll(finding.Next, root+string(filepath.Separator), "")
	}

	if finding.At.Path != "" || finding.Severity == diagnosis.OK {
		in.completePlace(finding)

		return
	}

	node := in.Cluster.Node(finding.Node)
	if slices.Contains(talosconfigFindings, finding.ID) {
		in.placeInTalosconfig(finding)

		return
	}

	if finding.Node == "" || node == nil {
		in.placeVIP(finding)

		if path, known := clusterPlaces[finding.ID]; known && in.Talconfig != nil {
			finding.At = in.locate(in.Talconfig.at(path))
		}

		return
	}

	if in.placeInText(finding, node) && finding.At.Line > 0 {
		return
	}

	where, known := places[finding.ID]

	config := in.byNode[node]
	if place, exact := in.pinpoint(*finding, config); exact && !declares(node, where.entry, finding.Cause) {
		finding.At = in.locate(place)

		return
	}

	switch {
	case !known:
	case where.entry != "":
		finding.At = in.locate(in.node(node).field(where.entry))
	case config != nil:
		finding.At = in.locate(config.File.in(where.document, where.config))
	}
}

// placeInText takes the place out of a cause that begins with it: of files that can't be decoded.
func (in *Input) placeInText(finding *diagnosis.Finding, node *inventory.Node) bool {
	shown := in.shown(node.ConfigFile)

	rest, begins := strings.CutPrefix(finding.Cause, shown+":")
	if !begins {
		return false
	}

	at := diagnosis.Location{Path: shown}

	for _, number := range []*int{&at.Line, &at.Column} {
		digits, after, found := strings.Cut(rest, ":")

		value, err := strconv.Atoi(digits)
		if err != nil || !found {
			break
		}

		*number, rest = value, after
	}

	if file := in.open(node.ConfigFile); file != nil {
		at.Text = file.places.Key(at.Line)
	}

	finding.At, finding.Cause = at, shown+": "+strings.TrimSpace(rest)

	return true
}
