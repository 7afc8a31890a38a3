package emulator

import (
	"github.com/talos-mage/talos-mage/internal/dev/emulator/api"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// NewLab takes as many free blocks of loopback addresses as its machines need. Close gives them back.
func NewLab(options LabOptions) (*Lab, error) { return machine.NewLab(options, api.Serve) }

// CanPlay says why nodes of a Talos version can't be played; nil if they can.
func CanPlay(version string) error { return machine.CanPlay(version) }

type (
	// Lab is a set of emulated machines on loopback, with the networks between them.
	Lab = machine.Lab
	// LabOptions say which machines a lab has, and what they share.
	LabOptions = machine.LabOptions
	// Unsettled is which way nodes take where Talos' code leaves it to chance, or nobody has seen it.
	Unsettled = machine.Unsettled
	// Node is one emulated machine.
	Node = machine.Node
	// NodeOptions describe a machine: its hardware, its release of Talos, its faults.
	NodeOptions = machine.NodeOptions
	// Link is a network card.
	Link = machine.Link
	// Disk is a disk, as a machine's firmware finds it.
	Disk = machine.Disk
	// Volume is a partition, or a file system on the whole disk.
	Volume = machine.Volume
	// Extension is a system extension of a machine's image.
	Extension = machine.Extension
	// EtcdData is what a control plane's etcd directory holds from an earlier life.
	EtcdData = machine.EtcdData
	// Timing says how long machines take for what they do.
	Timing = machine.Timing
	// DeprecatedAPI is one of Kubernetes that clients have used although a later release does not serve it.
	DeprecatedAPI = kubernetes.DeprecatedAPI
	// Call is one RPC that a machine received, whatever became of it.
	Call = faults.Call
)

type (
	// Faults are what is wrong with a node.
	Faults = faults.Faults
	// Impostor is what answers at a node's port in place of Talos.
	Impostor = faults.Impostor
	// InstallFault is why an install fails.
	InstallFault = faults.InstallFault
	// Loss is why a machine that has its config does not come back.
	Loss = faults.Loss
	// BootstrapFault is why a Bootstrap fails.
	BootstrapFault = faults.BootstrapFault
	// Saying is a line that a node says besides.
	Saying = faults.Saying
	// Diagnostic is what a node finds to be wrong with it.
	Diagnostic = faults.Diagnostic
	// FailedVolume is a volume that a node can't use.
	FailedVolume = faults.FailedVolume
	// ResetFault is how a reset ends that goes wrong.
	ResetFault = faults.ResetFault
	// CallFault is what goes wrong with calls of the API.
	CallFault = faults.CallFault
	// When is the moment of a call at which it goes wrong.
	When = faults.When
	// Mishap is what happens to a call.
	Mishap = faults.Mishap
)

// Their values.
const (
	DefaultTalosVersion = machine.DefaultTalosVersion

	APIPort        = machine.APIPort
	TrustdPort     = machine.TrustdPort
	KubernetesPort = machine.KubernetesPort

	NoEtcdData    = machine.NoEtcdData
	LostEtcdData  = machine.LostEtcdData
	WholeEtcdData = machine.WholeEtcdData

	NoImpostor        = faults.NoImpostor
	HTTPSImpostor     = faults.HTTPSImpostor
	SSHImpostor       = faults.SSHImpostor
	PlainHTTPImpostor = faults.PlainHTTPImpostor
	MuteImpostor      = faults.MuteImpostor
	HangUpImpostor    = faults.HangUpImpostor

	InstallWorks       = faults.InstallWorks
	InstallDiskMissing = faults.InstallDiskMissing
	InstallImagePull   = faults.InstallImagePull
	InstallDiskWrite   = faults.InstallDiskWrite
	InstallImageSlow   = faults.InstallImageSlow
	InstallImageStalls = faults.InstallImageStalls

	NotLost  = faults.NotLost
	LostLink = faults.LostLink
	LostDisk = faults.LostDisk

	BootstrapWorks          = faults.BootstrapWorks
	BootstrapTypeUnset      = faults.BootstrapTypeUnset
	BootstrapEtcdStuck      = faults.BootstrapEtcdStuck
	BootstrapEtcdStartFails = faults.BootstrapEtcdStartFails

	ResetWorks     = faults.ResetWorks
	ResetWipeFails = faults.ResetWipeFails
	ResetPowersOff = faults.ResetPowersOff

	BeforeEffect = faults.BeforeEffect
	AfterEffect  = faults.AfterEffect

	Cut    = faults.Cut
	Hang   = faults.Hang
	Fail   = faults.Fail
	Freeze = faults.Freeze
)
