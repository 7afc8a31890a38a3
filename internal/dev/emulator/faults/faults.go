// Package faults is what can go wrong with a machine and with the calls that it gets, and the record of these calls.
package faults

import (
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
)

// Faults are what can be wrong with a machine. All of them can be changed while it runs, with Node.Set; the zero value
// is a sound machine.
type Faults struct {
	// Refuse closes the API port: connections are refused, live ones reset.
	Refuse bool
	// Silence takes the machine off the network: no SYN is answered, live connections hang.
	Silence bool
	// StallAfter makes new connections go dead after so many bytes from the client; 0 means never.
	StallAfter int64
	// Impostor puts something else on the API port.
	Impostor Impostor
	// ResetRefused makes the machine reset the connection of a client that it refuses before the client can read why.
	ResetRefused bool
	// NewCertificates makes the machine show another certificate on every connection while it is in maintenance mode, as
	// one whose addresses come and go.
	NewCertificates bool
	// AddressAfter is where the machine answers once it has a machine config, as after another DHCP lease. The zero value
	// changes nothing.
	AddressAfter netip.Addr

	// Lost takes the machine off the network for good once it has a machine config.
	Lost Loss
	// Lingers is how much longer the machine stays in maintenance mode after it accepted a machine config, as if nothing
	// had come; at most until the fault is taken back.
	Lingers time.Duration

	// Install makes installs fail.
	Install InstallFault
	// InstallTimes is how many installs fail; 0 means all of them.
	InstallTimes int
	// InstallStall makes the installer wait for so long in addition, without a sign of life, or until it is taken back.
	InstallStall time.Duration
	// Forgets makes the machine's disk empty at every boot: what an install wrote is gone, and it comes back to
	// maintenance mode.
	Forgets bool
	// BootLoop makes every boot from disk end in another reboot.
	BootLoop bool
	// NewSystemFails makes the boots fail of a system that an upgrade wrote and that never came up whole, so that the
	// machine goes back to the one before.
	NewSystemFails bool
	// MetaNotReady keeps the META volume from getting ready: an ApplyConfiguration waits for it, even when its caller has
	// given up, and keeps others out.
	MetaNotReady bool

	// TimeUnsynced keeps the machine's time from being synced.
	TimeUnsynced bool
	// NameServersDown keeps the machine's name servers from answering it.
	NameServersDown bool
	// ClockOffset is how far the machine's clock is off; certificates that it makes and checks go by it.
	ClockOffset time.Duration

	// TrustdDown keeps trustd closed on a control plane.
	TrustdDown bool
	// Bootstrap makes Bootstrap fail for another reason than the state of the machine.
	Bootstrap BootstrapFault
	// EtcdImage keeps etcd's image from being pulled: its service does not get beyond its preparations.
	EtcdImage bool
	// EtcdNever keeps etcd from joining a cluster.
	EtcdNever bool
	// EtcdJoin is how much longer etcd takes to join.
	EtcdJoin time.Duration
	// EtcdUnhealthy lets etcd run without ever passing a health check.
	EtcdUnhealthy bool
	// SnapshotEnd is after how many bytes a snapshot of etcd ends as if it were whole: a node whose disk can't be read
	// says no more.
	SnapshotEnd int
	// RestoreFails makes the snapshot that etcd is restored from turn out to be damaged, which the call does not tell.
	RestoreFails bool
	// Reset makes resets end otherwise than asked.
	Reset ResetFault
	// KubernetesDown keeps the control plane's kube-apiserver from starting.
	KubernetesDown bool
	// KubeletDown keeps kubelet from getting healthy.
	KubeletDown bool
	// BudgetBlocks has the disruption budgets of what runs on the machine's node want all of its pods, so that none of
	// them can be evicted.
	BudgetBlocks bool

	// Says are lines that the machine says besides, each once in a boot.
	Says []Saying
	// Diagnostics are what the machine finds by itself to be wrong with it.
	Diagnostics []Diagnostic
	// FailedVolumes are volumes that the machine can't use.
	FailedVolumes []FailedVolume

	// Calls are those that go wrong, one by one; the first that fits a call acts on it.
	Calls []CallFault
}

// Saying is a line that a machine says.
type Saying struct {
	// Service is the one whose log has the line; without one the console has it.
	Service string
	// History puts the line into the history of the service instead, and so among the machine's events.
	History bool
	// Line is what is said.
	Line string
}

// FailedVolume is a volume that a machine can't use.
type FailedVolume struct {
	// ID is its name, as in "u-data".
	ID string
	// Message is why.
	Message string
}

// Diagnostic is something that a machine finds to be wrong with it.
type Diagnostic struct {
	// ID is the name of its kind, as in "address-overlap".
	ID string
	// Message is what it says.
	Message string
	// Details are the values that it is about.
	Details []string
}

// Impostor is what answers on the API port in the place of Talos.
type Impostor int

// Impostors.
const (
	// NoImpostor is Talos itself.
	NoImpostor Impostor = iota
	// HTTPSImpostor is an HTTPS server with a certificate of its own.
	HTTPSImpostor
	// SSHImpostor greets with an SSH banner.
	SSHImpostor
	// PlainHTTPImpostor speaks HTTP without TLS.
	PlainHTTPImpostor
	// MuteImpostor accepts connections and never says anything.
	MuteImpostor
	// HangUpImpostor accepts connections and closes them, as a forwarder with nothing behind it does.
	HangUpImpostor
)

// InstallFault is why an install fails.
type InstallFault int

// Reasons for a failing install.
const (
	// InstallWorks is no fault.
	InstallWorks InstallFault = iota
	// InstallDiskMissing is an install disk that does not exist.
	InstallDiskMissing
	// InstallImagePull is an installer image that can't be pulled.
	InstallImagePull
	// InstallDiskWrite is a disk that fails while it is written.
	InstallDiskWrite
	// InstallImageSlow is an installer image whose pull takes longer than a machine waits for it.
	InstallImageSlow
	// InstallImageStalls is an installer image whose pull, one that a client asks for, stands still halfway: the machine
	// goes on telling so.
	InstallImageStalls
)

// Loss is why a machine that has its machine config is never heard of again.
type Loss int

// Losses.
const (
	// NotLost is no fault.
	NotLost Loss = iota
	// LostLink is a machine config whose links the machine does not have. It is off the network from the apply on, and the
	// install does not go on.
	LostLink
	// LostDisk is a disk that can't be unlocked, as after a change of the firmware's settings: every boot from it hangs
	// before the network is up.
	LostDisk
)

// String is what the machine's console says about it.
func (l Loss) String() string {
	switch l {
	case LostLink:
		return "no link of the machine config exists"
	case LostDisk:
		return "failed to open the encrypted STATE volume: sealing policy digest does not match"
	default:
		return "ok"
	}
}

// BootstrapFault is why a Bootstrap fails.
type BootstrapFault int

// Reasons for a failing Bootstrap.
const (
	// BootstrapWorks is no fault.
	BootstrapWorks BootstrapFault = iota
	// BootstrapTypeUnset is a machine that does not know yet what it is.
	BootstrapTypeUnset
	// BootstrapEtcdStuck is an etcd that does not stop. It stays as it is.
	BootstrapEtcdStuck
	// BootstrapEtcdStartFails is an etcd that stops and does not start again. Another Bootstrap works once the fault is
	// gone.
	BootstrapEtcdStartFails
)

// ResetFault is how a reset ends that goes wrong.
type ResetFault int

// Ends of a reset.
const (
	// ResetWorks is no fault.
	ResetWorks ResetFault = iota
	// ResetWipeFails is a partition that can't be opened: nothing is wiped, and the machine reboots as it was.
	ResetWipeFails
	// ResetPowersOff is a machine that is off after it was wiped, though it was to reboot.
	ResetPowersOff
)

// CallFault makes a call go wrong.
type CallFault struct {
	// Method is the RPC's name without its service, as in "ApplyConfiguration", or with it, as in
	// "/machine.MachineService/List"; "*" is every call.
	Method string
	// Resource, if given, is the type of resource that the call reads, as in "MachineStatuses.runtime.talos.dev".
	Resource string
	// Mutating spares the calls that change nothing, as dry runs.
	Mutating bool
	// When reports whether the call takes effect first.
	When When
	// What happens to it.
	Do Mishap
	// Code and Text are the status of a Fail.
	Code codes.Code
	Text string
	// After is how many calls go well before that.
	After int
	// Times is how many calls go wrong; 0 means all of them.
	Times int
}

// When is the moment of a call at which it goes wrong.
type When int

// Moments of a call.
const (
	// BeforeEffect is after the request arrived, before it did anything.
	BeforeEffect When = iota
	// AfterEffect is after it did everything, before the reply.
	AfterEffect
)

// Mishap is what happens to a call.
type Mishap int

// Mishaps.
const (
	// Cut resets the connection.
	Cut Mishap = iota
	// Hang never answers; the connection stays open.
	Hang
	// Fail answers with Code and Text.
	Fail
	// Freeze makes the whole connection half open: nothing that is sent on it arrives any more.
	Freeze
)

// concerns reports whether the fault is one of this call.
func (f CallFault) concerns(call *Call) bool {
	return (f.Method == call.Name() || f.Method == call.Method || f.Method == "*") &&
		(f.Resource == "" || f.Resource == call.Resource) && (call.Mutating || !f.Mutating)
}

// Take finds the fault for a call and counts it down.
func (f *Faults) Take(call *Call, when When) (CallFault, bool) {
	for i := range f.Calls {
		fault := &f.Calls[i]
		if fault.When != when || fault.Times < 0 || !fault.concerns(call) {
			continue
		}

		if fault.After > 0 {
			fault.After--

			continue
		}

		taken := *fault

		switch fault.Times {
		case 0:
		case 1:
			fault.Times = -1 // used up
		default:
			fault.Times--
		}

		return taken, true
	}

	return CallFault{}, false
}
