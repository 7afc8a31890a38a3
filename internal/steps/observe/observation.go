package observe

import (
	"errors"
	"slices"
	"time"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Relation says how the config that a configured node runs relates to the inventory.
type Relation int

// Relations.
const (
	ConfigUnread  Relation = iota // not configured, or not readable with these credentials
	ConfigSame                    // what the inventory declares for this node
	ConfigDrifted                 // this node's, with differences
	ConfigSwapped                 // another node's of this inventory
	ConfigUnsent                  // not what this run sent
)

// Observation is what was seen of a node at one time.
type Observation struct {
	talos.Probed
	Node *inventory.Node
	// Asked is when it began, At when the node had answered, or had not.
	Asked, At time.Time

	// Of a node in maintenance or configured by us:
	Status *talos.Status
	// Boot tells the machine's boots apart; empty if it could not be read.
	Boot string
	// Of a node configured by us:
	Config   *machineconfig.Config
	Relation Relation
	Owner    string // whose config it is, when swapped
	Services []talos.Service
	// Install is how far an unattended install is; nil on a node whose config asks for none.
	Install *talos.Install
	// InstallFailure is why such an install has failed so far; empty once it is over.
	InstallFailure string
	// Wrong is set when it is not the declared machine.
	Wrong *diagnosis.Finding
	// ReadErr is the first read that did not work.
	ReadErr error
}

// Stage is the node's stage; empty if it could not be read.
func (s Observation) Stage() string {
	if s.Status == nil {
		return ""
	}

	return s.Status.Stage
}

// Installing reports whether an install is not over: in the stage of its own that it had before Talos 1.14, or
// unattended, beside the boot.
func (s Observation) Installing() bool {
	return s.Stage() == talos.StageInstalling || s.Install != nil && !s.Install.Over()
}

// Installed reports whether Talos has loaded the services of its boot sequence: before that, a stage `booting` is the
// way into the installer. Talos 1.14 may load kubelet after the boot has ended.
func (s Observation) Installed() bool {
	if s.Installing() {
		return false
	}

	_, kubelet := s.Service("kubelet")
	_, etcd := s.Service("etcd")
	return kubelet && (etcd || s.Node.Role != inventory.ControlPlane)
}

// Service is a service by its id, if the node has loaded it.
func (s Observation) Service(id string) (talos.Service, bool) {
	index := slices.IndexFunc(s.Services, func(service talos.Service) bool { return service.ID == id })
	if index < 0 {
		return talos.Service{}, false
	}

	return s.Services[index], true
}

// Unsynced reports whether the node says itself that its clock is not synced.
func (s Observation) Unsynced() bool {
	return s.Status != nil && slices.ContainsFunc(s.Status.Unmet,
		func(condition talos.Condition) bool { return condition.Name == "time" })
}

// NotOurs reports whether what answers is not ours to change: another machine, another cluster's node, no Talos, or a
// node that can't be told without a talosconfig.
func (s Observation) NotOurs() bool {
	return s.Wrong != nil || s.State != talos.Unreachable && s.State != talos.Maintenance && s.State != talos.Ours
}

// Silent reports whether nothing answered at any of the node's addresses.
func (s Observation) Silent() bool { return s.State == talos.Unreachable }

// Complete reports whether the node waits for nothing. Whether Kubernetes has it Ready is left aside: without a CNI
// no node is.
func (s Observation) Complete() bool {
	return s.Status != nil && !slices.ContainsFunc(s.Status.Unmet,
		func(condition talos.Condition) bool { return condition.Name != "nodeReady" })
}

// Up reports whether the install is over and the node boots or runs with its config.
func (s Observation) Up() bool {
	return s.State == talos.Ours && (s.Stage() == talos.StageBooting || s.Stage() == talos.StageRunning) && s.Installed()
}

// FailedForGood reports whether reading failed for a reason that no waiting heals.
func (s Observation) FailedForGood() bool {
	return errors.Is(s.ReadErr, talos.ErrCertificateName) || errors.Is(s.ReadErr, talos.ErrCredentialsExpired) ||
		errors.Is(s.ReadErr, talos.ErrFingerprint)
}

// Unobserved stands for a node that could not be observed at all.
func Unobserved(node *inventory.Node, err error) Observation {
	return Observation{Node: node, Probed: talos.Probed{State: talos.Unreachable, Silence: talos.NoAnswer, Err: err}}
}
