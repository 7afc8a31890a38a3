package migrate

import (
	"fmt"
	"sync"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	machinery "github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/rewrite"
)

// strategic is a JSON patch as a strategic merge patch, if both make the same of a config that is one document: Talos
// applies JSON patches to no other.
func (m *migration) strategic(one *unit) (string, error) {
	text, err := rewrite.Operations(one.text)
	if err != nil {
		return "", err //nolint:wrapcheck // it names the operation
	}

	for role, gets := range map[machine.Type]bool{machine.TypeControlPlane: one.controlPlanes(),
		machine.TypeWorker: one.workers()} {
		if !gets {
			continue
		}

		first, err := m.patched(role, one.text)
		if err != nil {
			return "", fmt.Errorf("apply JSON patch: %w", err)
		}

		second, err := m.patched(role, text)
		if err != nil || !machineconfig.Same(first, second) {
			return "", fmt.Errorf("a strategic merge patch of the same values makes another config: it adds to lists and " +
				"mappings that the JSON patch replaces")
		}
	}

	return text, nil
}

// patched is a generated config of one document with a patch.
func (m *migration) patched(role machine.Type, text string) (*machineconfig.Config, error) {
	base, err := m.oneDocument(role)
	if err != nil {
		return nil, err
	}

	patch, err := configpatcher.LoadPatch([]byte(text))
	if err != nil {
		return nil, err //nolint:wrapcheck // its caller says of what
	}

	output, err := configpatcher.Apply(configpatcher.WithBytes(base), []configpatcher.Patch{patch})
	if err != nil {
		return nil, err //nolint:wrapcheck // its caller says of what
	}

	data, err := output.Bytes()
	if err != nil {
		return nil, err //nolint:wrapcheck // its caller says of what
	}

	return machineconfig.FromBytes("", data) //nolint:wrapcheck // its caller says of what
}

// oneDocument is a config as Talos 1.11 has it, the last release whose configs are one document.
func (m *migration) oneDocument(role machine.Type) ([]byte, error) {
	if m.bases[role] == nil {
		m.bases[role] = sync.OnceValues(func() ([]byte, error) {
			input, err := machinery.NewInput(m.cluster.Name, m.cluster.Endpoint.String(), "1.34.0",
				machinery.WithVersionContract(talosconfig.TalosVersion1_11), machinery.WithSecretsBundle(m.Secrets))
			if err != nil {
				return nil, err
			}

			config, err := input.Config(role)
			if err != nil {
				return nil, err
			}

			return config.EncodeBytes()
		})
	}

	return m.bases[role]()
}
