package emulator

import (
	"github.com/talos-mage/talos-mage/internal/dev/emulator/api"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// NewLab takes as many free blocks of loopback addresses as its machines need. Close gives them back.
func NewLab(options LabOptions) (*Lab, error) { return machine.NewLab(options, api.Serve) }

// CanPlay says why nodes of a Talos version can't be played; nil if they can.
func CanPlay(version string) error { return machine.CanPlay(version) }

// The parts of a lab.
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
	Call        = machine.Call
)

// What can be wrong with a node.
type (
	Faults         = machine.Faults
	Impostor       = machine.Impostor
	InstallFault   = machine.InstallFault
	Loss           = machine.Loss
	BootstrapFault = machine.BootstrapFault
	CallFault      = machine.CallFault
	When           = machine.When
	Mishap         = machine.Mishap
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

	NoImpostor        = machine.NoImpostor
	HTTPSImpostor     = machine.HTTPSImpostor
	SSHImpostor       = machine.SSHImpostor
	PlainHTTPImpostor = machine.PlainHTTPImpostor
	MuteImpostor      = machine.MuteImpostor
	HangUpImpostor    = machine.HangUpImpostor

	InstallWorks       = machine.InstallWorks
	InstallDiskMissing = machine.InstallDiskMissing
	InstallImagePull   = machine.InstallImagePull
	InstallDiskWrite   = machine.InstallDiskWrite
	InstallImageSlow   = machine.InstallImageSlow

	NotLost  = machine.NotLost
	LostLink = machine.LostLink
	LostDisk = machine.LostDisk

	BootstrapWorks          = machine.BootstrapWorks
	BootstrapTypeUnset      = machine.BootstrapTypeUnset
	BootstrapEtcdStuck      = machine.BootstrapEtcdStuck
	BootstrapEtcdStartFails = machine.BootstrapEtcdStartFails

	BeforeEffect = machine.BeforeEffect
	AfterEffect  = machine.AfterEffect

	Cut    = machine.Cut
	Hang   = machine.Hang
	Fail   = machine.Fail
	Freeze = machine.Freeze
)
