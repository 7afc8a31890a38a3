package documents

import (
	"errors"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Mildest is the kind of machine that refuses least: what it refuses, every machine refuses.
var Mildest = machineconfig.Mode{Metal: true, Installed: true, Release: config.TalosVersion1_13}

// checkConfigs validates each machine config as far as the file alone decides.
func checkConfigs(r *check.Report, in *check.Input) {
	nodes, mode := 0, Mildest
	if in.Cluster != nil {
		mode.Release = in.Release()
	}

	r.EachNode(func(node *inventory.Node, config *check.Rendered) {
		nodes++

		place, next, shown := config.At("machine"), in.Regenerate("correct "+node.Name), in.Shown(config.Path)
		warnings, err := config.Validate(mode)

		if err != nil {
			if advice := machineconfig.AdviceOn(strings.Join(Problems(err), "; ")); advice != "" {
				next = in.Regenerate(advice)
			}

			r.Found(place, next, "%s is not valid: %s", shown, strings.Join(Problems(err), "; "))

			return
		}

		for _, warning := range warnings {
			if !strings.Contains(warning, ".machine.install.extensions is deprecated") { // TM313 says where they stand
				r.Warn(place, next, "%s: %s", shown, warning)
			}
		}
	})

	r.Passed(diagnosis.ConfigInvalid, "%d machine configs are valid", nodes)
}

// Problems are the single problems of a validation error.
func Problems(err error) []string {
	var invalid *machineconfig.ValidationError

	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return slices.Clone(invalid.Problems)
	default:
		return []string{err.Error()}
	}
}
