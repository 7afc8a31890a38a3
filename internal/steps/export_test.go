package steps

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// UpgradePlan is the part of an upgrade that only looks.
type UpgradePlan struct{}

func (UpgradePlan) Name() string             { return "upgrade" }
func (UpgradePlan) Exit() diagnosis.ExitCode { return diagnosis.ExitApply }

func (s UpgradePlan) Run(ctx context.Context, run *Run) error {
	work := begin(run, s)

	plan, err := work.planUpgrade(ctx, run.Nodes())
	if err != nil {
		return err
	}

	return work.showUpgrade(plan)
}
