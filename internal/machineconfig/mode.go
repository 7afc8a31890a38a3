package machineconfig

import "github.com/siderolabs/talos/pkg/machinery/config/validation"

var _ validation.RuntimeMode = Mode{}

// Mode says what kind of machine a config is validated for.
type Mode struct {
	// Installed machines ignore the install section.
	Installed bool
	// Metal machines install Talos on a disk; clouds boot an image that holds it already.
	Metal bool
}

// String is the platform mode's name as Talos puts it in its messages.
func (m Mode) String() string {
	if m.Metal {
		return "metal"
	}

	return "cloud"
}

// RequiresInstall is true for a metal machine without Talos on a disk.
func (m Mode) RequiresInstall() bool { return m.Metal && !m.Installed }

// InContainer is always false: containers can't be brought up over the network.
func (m Mode) InContainer() bool { return false }
