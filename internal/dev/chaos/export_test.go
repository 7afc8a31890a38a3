package chaos

import "github.com/talos-mage/talos-mage/internal/dev/emulator"

// Kinds are the names of all kinds of trouble.
func Kinds() []string {
	var names []string
	for _, kind := range troubles() {
		names = append(names, kind.name)
	}

	return names
}

// Operations are the names of all that is done with a cluster that is up.
func Operations() []string {
	var names []string
	for _, kind := range operationKinds {
		names = append(names, kind.name)
	}

	return names
}

// Looks are the names of all that only looks at a cluster.
func Looks() []string {
	var names []string
	for _, kind := range lookKinds {
		names = append(names, kind.name)
	}

	return names
}

// Turn makes of a machine's faults what they are while the incident lasts, as far as it is a matter of its own knobs.
func (i Incident) Turn(faults *emulator.Faults) {
	if i.on != nil {
		i.on(faults)
	}
}
