package steps

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/discover/leases"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// ProbeMachines asks machines by address alone whether they answer as Talos nodes. It gives a table, header first, and
// the names of those that do not.
func ProbeMachines(ctx context.Context, settings *settings.Settings, found leases.Leases,
	machines []inventory.Machine) (rows [][]string, failing []string) {
	credentials, err := talos.LoadCredentials(settings.Talosconfig)
	if err != nil {
		credentials = nil
	}

	dialer := &talos.Dialer{Credentials: credentials, Timeout: settings.DialTimeout}
	rows = [][]string{{"NODE", "ADDRESS", "STATE"}}

	probed := fanout.Collect(ctx, observe.Limit, machines, func(ctx context.Context,
		machine inventory.Machine) talos.Probed {
		lease, _ := found.Of(machine.Name)
		address, said := observe.AddressNow(settings.NodeAddresses, lease, machine.Name, machine.Address)
		if !said {
			address = machine.Address
		}

		return dialer.Probe(ctx, address)
	}, func(machine inventory.Machine, err error) talos.Probed {
		return talos.Probed{State: talos.Unreachable, Silence: talos.NoAnswer, Address: machine.Address, Err: err}
	})

	for index, answer := range probed {
		state := answer.State.String()

		if answer.State == talos.Unreachable {
			state = answer.Silence.String()
		}

		if answer.State == talos.Unreachable || answer.State == talos.NotTalos {
			failing = append(failing, machines[index].Name)
		}

		rows = append(rows, []string{machines[index].Name, answer.Address, state})
	}

	return rows, failing
}
