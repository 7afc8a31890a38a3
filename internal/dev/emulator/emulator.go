package emulator

import (
	"github.com/talos-mage/talos-mage/internal/dev/emulator/api"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// NewLab takes as many free blocks of loopback addresses as its machines need. Close gives them back.
func NewLab(options LabOptions) (*Lab, error) { return machine.NewLab(options, api.Serve) }

// CanPlay says why nodes of a Talos version can't be played; nil if they can.
func CanPlay(version string) error { return machine.CanPlay(version) }

// Lab and its parts.
type (
	Lab         = machine.Lab
	LabOptions  = machine.LabOptions
	Node        = machine.Node
	NodeOptions = machine.NodeOptions
	Link        = machine.Link
	Disk        = machine.Disk
	Volume      = machine.Volume
	Extension   = machine.Extension
	EtcdData    = machine.EtcdData
	Timing      = machine.Timing
	Call        = faults.Call
)

// Faults and the kinds of what can be wrong with a node.
type (
	Faults         = faults.Faults
	Impostor       = faults.Impostor
	InstallFault   = faults.InstallFault
	Loss           = faults.Loss
	BootstrapFault = faults.BootstrapFault
	CallFault      = faults.CallFault
	When           = faults.When
	Mishap         = faults.Mishap
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

	NotLost  = faults.NotLost
	LostLink = faults.LostLink
	LostDisk = faults.LostDisk

	BootstrapWorks          = faults.BootstrapWorks
	BootstrapTypeUnset      = faults.BootstrapTypeUnset
	BootstrapEtcdStuck      = faults.BootstrapEtcdStuck
	BootstrapEtcdStartFails = faults.BootstrapEtcdStartFails

	BeforeEffect = faults.BeforeEffect
	AfterEffect  = faults.AfterEffect

	Cut    = faults.Cut
	Hang   = faults.Hang
	Fail   = faults.Fail
	Freeze = faults.Freeze
)
