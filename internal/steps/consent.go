package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// consent is what a person has to agree to.
type consent struct {
	// Name is what is typed: the node's or the cluster's name.
	Name string
	// Losses are what will be lost or risked, a line each.
	Losses []string
}

// consent has a person agree to a loss. A dry run only tells of it. Else -yes agrees, or the name that is typed on a
// terminal; without both nobody has agreed.
func (w *work) consent(ctx context.Context, asked consent) error {
	if w.Settings.DryRun || w.Settings.Yes || w.Ask == nil {
		for _, loss := range asked.Losses {
			w.Log.Warn().Str("step", w.step.Name()).Msg("this can't be taken back: " + loss)
		}
	}

	switch {
	case w.Settings.DryRun, w.Settings.Yes:
		return nil
	case w.Agree != nil:
		return w.ofStep(ctx, w.Agree(asked.Name))
	case w.Ask == nil:
		return w.notAgreed("nobody can be asked whether that may be lost: there is no terminal",
			"the same command with -yes agrees to it")
	}

	answer, err := w.Ask(ctx, asked.question())

	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, w.step.Name())
	case err != nil:
		return w.notAgreed("the answer could not be read: "+err.Error(), "the same command with -yes agrees to it")
	case answer != asked.Name:
		return w.notAgreed(fmt.Sprintf("%s was not typed", asked.Name), "nothing, or the same command again")
	default:
		return nil
	}
}

func (c consent) question() string {
	return fmt.Sprintf("\nThis can't be taken back:\n  %s\nType %s to go on: ", strings.Join(c.Losses, "\n  "), c.Name)
}

// notAgreed is the problem of a loss that nobody agreed to: nothing was lost.
func (w *work) notAgreed(why, next string) error {
	return diagnosis.NewProblem(diagnosis.NotAgreed, why+"; nothing was changed", next).In(w.step.Name())
}
