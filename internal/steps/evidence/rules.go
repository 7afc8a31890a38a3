package evidence

import (
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// rule is what points to a cause. The place of a rule is its cause's rank.
type rule struct {
	ID diagnosis.ID
	// In are the kinds of lines that Pattern is looked for in; none for a cause that has its rank here alone.
	In      []Kind
	Pattern pattern.Pattern
	// Proves is set where a line is enough; without it others judge whether the cause holds, and lines speak for it.
	Proves bool
	// Always is set of what is wrong whether or not the node waits for anything.
	Always bool
	// Next is the command to type; the catalogue's remedy if it is empty. {talosctl} asks the node, {node} is its name.
	Next string
	// Source is where the text that is looked for comes from, and what it means.
	Source string
}

// Sources of the texts, in siderolabs/talos where no other repository is named.
const (
	sourceDiagnostics = "internal/app/machined/pkg/controllers/runtime/internal/diagnostics"
	sourceNTP         = "internal/pkg/ntp/ntp.go"
	sourcePull        = "internal/pkg/containers/image/pull.go; image-factory#456"
	sourceEtcd        = "internal/app/machined/pkg/system/services/etcd.go; talos#12898"
	sourceNodeIP      = "internal/app/machined/pkg/controllers/k8s/nodeip.go; talos#8882"
	sourceProbe       = "talos-mage: internal/talos/probe.go"
	sourceStage       = "internal/app/machined/pkg/controllers/runtime/machine_status.go"
	sourceInstall     = "internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer_tasks.go; talos#10315"
	sourceTPM         = "internal/pkg/secureboot/tpm2/unseal.go; talos#9415"
	sourceVolumes     = "internal/app/machined/pkg/controllers/block/internal/volumes/locate.go"
	sourceTLS         = "Go crypto/x509; talos#6493"
	sourceKernelDisk  = "Linux block/blk-core.c, drivers/nvme/host/pci.c, fs/xfs/xfs_message.c"
	sourceKernelOOM   = "Linux mm/oom_kill.c"
	sourceKubernetes  = "talos#7928; Kubernetes apimachinery validation"
)

var anyLog = []Kind{Kernel, Service, Log, Event}

// ranked is a cause that others judge.
func ranked(id diagnosis.ID, source string) rule { return rule{ID: id, Source: source} }

// rules is the table. What comes first explains what comes later: who it is that answers, then the clock, the disks,
// the configuration, images, nodes that are away, etcd, Kubernetes, and last what only says that it goes no further.
var rules = []rule{
	ranked(diagnosis.WrongMachine, "talos-mage: internal/check/nodes/identity.go"),
	ranked(diagnosis.NotTalos, sourceProbe),
	ranked(diagnosis.ForeignNode, sourceProbe),
	ranked(diagnosis.UnknownNodeCA, sourceProbe),
	ranked(diagnosis.NodesSwapped, "talos-mage: internal/steps/observe/config.go"),
	{ID: diagnosis.TalosconfigExpired, In: []Kind{Certificate}, Pattern: pattern.New(`talosconfig`), Source: sourceProbe},
	ranked(diagnosis.ClientRefused, sourceProbe),
	ranked(diagnosis.FingerprintMismatch, sourceProbe),
	ranked(diagnosis.CertificateName, sourceProbe),
	ranked(diagnosis.CallNotAllowed, sourceProbe),
	ranked(diagnosis.ProxyInTheWay, sourceProbe),
	ranked(diagnosis.LocalNetworkBlocked, sourceProbe),
	ranked(diagnosis.NameUnresolved, sourceProbe),

	{ID: diagnosis.NodeClock, In: anyLog, Pattern: pattern.New(`x509: certificate has expired or is not yet valid`),
		Proves: true, Source: sourceTLS},
	{ID: diagnosis.NodeClock, In: []Kind{Clock, Certificate}, Pattern: pattern.New(`node ` + "|node's"), Source: sourceProbe},
	{ID: diagnosis.TimeNotSynced, In: []Kind{Kernel, Clock, Status},
		Pattern: pattern.New(`time query error|error querying NTP server|error validating NTP response|` +
			`failed looking up server|time is not synced|^time: `), Source: sourceNTP},

	{ID: diagnosis.StorageFails, In: []Kind{Kernel},
		Pattern: pattern.New(`I/O error, dev |critical medium error|nvme\w*: (?:I/O .*timeout|.*controller is down)|` +
			`XFS \(.*\): .*(?:[Cc]orruption|metadata I/O error|log I/O error)`), Proves: true, Always: true,
		Next: "replace the disk; {talosctl} dmesg", Source: sourceKernelDisk},
	{ID: diagnosis.StorageFails, In: append([]Kind{Volume}, anyLog...),
		Pattern: pattern.New(`policy digest does not match|failed to open the encrypted|error unsealing`), Proves: true,
		Next: "undo the change of the firmware's settings, or reset the node", Source: sourceTPM},
	{ID: diagnosis.StorageFails, In: []Kind{Volume}, Pattern: pattern.New(`failed`), Proves: true, Always: true,
		Next: "{talosctl} get volumestatus", Source: sourceVolumes},
	{ID: diagnosis.StorageFails, In: anyLog, Pattern: pattern.New(`no space left on device`), Proves: true,
		Next: "free space: {talosctl} get volumestatus", Source: sourceVolumes},
	{ID: diagnosis.OutOfMemory, In: []Kind{Kernel}, Pattern: pattern.New(`[Oo]ut of memory: Kill|oom-kill:`),
		Proves: true, Always: true, Next: "{talosctl} memory", Source: sourceKernelOOM},

	{ID: diagnosis.AddressInClusterSubnet, In: []Kind{Diagnostic}, Pattern: pattern.New(`^address-overlap: `),
		Proves: true, Always: true, Source: sourceDiagnostics},
	{ID: diagnosis.NodeIPExcluded, In: anyLog, Pattern: pattern.New(`no suitable node IP found`), Proves: true,
		Source: sourceNodeIP},
	{ID: diagnosis.HostnameInvalid, In: anyLog, Pattern: pattern.New(`a lowercase RFC 1123 subdomain must consist of`),
		Proves: true, Source: sourceKubernetes},
	{ID: diagnosis.ConfigRefusedHere, In: []Kind{Event}, Pattern: pattern.New(`^Config(?:Load|Validation)ErrorEvent`),
		Proves: true, Source: "internal/app/machined/pkg/controllers/config/acquire.go; talm#132"},
	{ID: diagnosis.ConfigSecrets, In: []Kind{Log, Kernel},
		Pattern: pattern.New(`etcd: .*(?:tls: bad certificate|certificate signed by unknown authority)`), Proves: true,
		Source: "etcd server/etcdserver/api/rafthttp; talos#5942"},
	{ID: diagnosis.InstallDiskNoMatch, In: anyLog, Pattern: pattern.New(`no disks matched the expression`),
		Proves: true, Source: sourceInstall},
	{ID: diagnosis.InstallDiskAbsent, In: anyLog, Pattern: pattern.New(`specified install disk does not exist`),
		Proves: true, Source: sourceInstall},
	ranked(diagnosis.AddressInClusterSubnet, sourceNodeIP),
	{ID: diagnosis.ImagePullFails, In: anyLog, Pattern: pattern.New(`failed to pull image|[Ee]rrImagePull|` +
		`ImagePullBackOff|failed to resolve reference`), Proves: true, Source: sourcePull},
	{ID: diagnosis.InstallFailed, In: []Kind{Kernel, Event}, Pattern: pattern.New(`failed to run installer`), Proves: true,
		Next:   "correct the install disk or image (mage config:generate), then mage applySequential -node={node}",
		Source: "internal/app/machined/pkg/controllers/runtime/unattended_install.go"},

	{ID: diagnosis.NodeRefused, In: []Kind{Way}, Pattern: pattern.New(`.`), Source: sourceProbe},
	{ID: diagnosis.NodeSilent, In: []Kind{Way}, Pattern: pattern.New(`.`), Source: sourceProbe},

	ranked(diagnosis.EtcdSplit, "talos#5500"),
	ranked(diagnosis.EtcdStopped, sourceEtcd),
	{ID: diagnosis.EtcdNotBootstrapped, In: []Kind{Etcd, Kernel, Service},
		Pattern: pattern.New(`no etcd data|etcd is waiting to join the cluster`), Next: "mage bootstrap", Source: sourceEtcd},
	{ID: diagnosis.EtcdIncomplete, In: anyLog,
		Pattern: pattern.New(`failed to build initial etcd cluster|etcd is waiting to join the cluster`), Source: sourceEtcd},
	{ID: diagnosis.EtcdNotHealthy, In: []Kind{Etcd, Service}, Pattern: pattern.New(`etcd`), Source: sourceEtcd},

	{ID: diagnosis.ServingCertificate, In: []Kind{Diagnostic}, Pattern: pattern.New(`^kubelet-csr: `), Proves: true,
		Always: true, Next: "kubectl get csr", Source: sourceDiagnostics},
	{ID: diagnosis.NodeDiagnostic, In: []Kind{Diagnostic}, Pattern: pattern.New(`.`), Proves: true, Always: true,
		Source: sourceDiagnostics},

	ranked(diagnosis.APIForeign, "talos-mage: internal/kube/serves.go"),
	ranked(diagnosis.EndpointSilent, "talos#8640"),
	ranked(diagnosis.APINotReady, sourceStage),
	ranked(diagnosis.NotRegistered, sourceKubernetes),
	ranked(diagnosis.NodesNotReady, "talos#7967"),

	{ID: diagnosis.StageStuck, In: []Kind{Status, Service}, Pattern: pattern.New(`.`), Next: "{talosctl} dmesg",
		Source: sourceStage},
	ranked(diagnosis.WorkerJoining, "internal/app/machined/pkg/controllers/secrets/api.go"),
	ranked(diagnosis.StillMaintenance, "talos#9241"),
	ranked(diagnosis.ConfigDrifted, "talos-mage: internal/steps/observe/config.go"),
}

// fits reports whether the rule is about a line.
func (r rule) fits(line Line) bool {
	return slices.Contains(r.In, line.Kind) && r.Pattern.MatchString(line.Text)
}

// judge is the cause that lines prove, nil if they prove none, and the lines that are left.
func (r rule) judge(of Subject, lines []Line) (found *Cause, left []Line) {
	if !r.Proves || of.Well && !r.Always {
		return nil, lines
	}

	var fitting []Line
	for _, line := range lines {
		if r.fits(line) {
			fitting = append(fitting, line)
		} else {
			left = append(left, line)
		}
	}

	if len(fitting) == 0 {
		return nil, lines
	}

	entry, _ := diagnosis.Lookup(r.ID)

	next := r.Next
	if next == "" {
		next = entry.Remedy
	}

	return &Cause{diagnosis.Finding{
		ID: r.ID, Severity: entry.Severity, Node: of.Name, Address: of.Address,
		Cause: entry.Title + ": " + r.core(fitting[len(fitting)-1].Text),
		Next:  of.fill(next),
	}, last(fitting)}, left
}

// fill puts the node into a command.
func (s Subject) fill(command string) string {
	return strings.NewReplacer("{talosctl}", "talosctl -n "+s.Address+" -e "+s.Address, "{node}", s.Name).Replace(command)
}

// mostCore is how much of a line is quoted in a cause.
const mostCore = 120

// core is the part of a line that says it.
func (r rule) core(line string) string {
	begins := r.Pattern.FindAllStringIndex(line, 1)[0][0]

	core := []rune(line[begins:])
	if len(core) > mostCore {
		core = append(core[:mostCore-1], '…')
	}

	return string(core)
}
