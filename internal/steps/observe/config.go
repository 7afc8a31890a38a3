package observe

import (
	"bytes"
	"context"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/throwaway"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// comparison is what came of comparing a node's config, and what it was compared with.
type comparison struct {
	running, declared, sent *machineconfig.Config
	relation                Relation
	owner                   string
}

// readConfig reads what the node runs and compares it with the inventory. A config that is the same as the last time is
// not judged again.
func (o *Observer) readConfig(ctx context.Context, seen *Observation, conn *talos.Conn) error {
	data, err := conn.MachineConfig(ctx)
	if err != nil {
		return err //nolint:wrapcheck // it says what was read where
	}

	declared := o.declared(seen.Node)
	facts := o.Facts(seen.Node)
	last := facts.compared
	switch {
	case declared != nil && bytes.Equal(declared.Bytes, data): // as most often
		seen.Config, seen.Relation = declared, ConfigSame
		return nil
	case last.running != nil && bytes.Equal(last.running.Bytes, data) && last.declared == declared &&
		last.sent == facts.Sent:
		seen.Config, seen.Relation, seen.Owner = last.running, last.relation, last.owner
		return nil
	}

	running, err := machineconfig.FromBytes("the config on "+seen.Node.Name, data)
	if err != nil {
		return err //nolint:wrapcheck // it names the config
	}

	seen.Config = running
	seen.Relation, seen.Owner = o.compare(seen.Node, running, facts.Sent)

	o.Note(seen.Node, func(facts *Facts) {
		facts.compared = comparison{running, declared, facts.Sent, seen.Relation, seen.Owner}
	})

	return nil
}

// declared is a node's config as the inventory has it; nil without one, and for one that was made with throwaway
// secrets, with which nothing is compared.
func (o *Observer) declared(node *inventory.Node) *machineconfig.Config {
	config := o.Configs[node.Name]
	if config == nil || throwaway.Made(config.Bytes) {
		return nil
	}

	return config
}

// compare relates the config that a node runs to the inventory's, and to the one that this run sent.
func (o *Observer) compare(node *inventory.Node, running, sent *machineconfig.Config) (is Relation, owner string) {
	declared := o.declared(node)
	if declared != nil && machineconfig.Same(running, declared) {
		return ConfigSame, ""
	}

	for _, other := range o.Cluster.Nodes {
		theirs := o.declared(other)
		if other == node || theirs == nil {
			continue
		}

		if machineconfig.Same(running, theirs) || running.Hostname() != "" && running.Hostname() == theirs.Hostname() {
			return ConfigSwapped, other.Name
		}
	}

	switch {
	case sent != nil && !machineconfig.Same(running, sent):
		return ConfigUnsent, ""
	case declared == nil:
		return ConfigUnread, ""
	default:
		return ConfigDrifted, ""
	}
}
