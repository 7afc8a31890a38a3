package generate

import (
	"errors"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// onlyOnControlPlanes is how Talos refuses a worker what only control planes have.
const onlyOnControlPlanes = "only allowed on control plane"

// refused tells that Talos does not take the entry's machine config: of each problem at the patch that brings it, or at
// the entry.
func (e *entry) refused(err error) {
	left := problemsOf(err)
	take := func(said []string) []string {
		isSaid := func(problem string) bool { return slices.Contains(said, problem) }
		taken := slices.DeleteFunc(slices.Clone(left), func(problem string) bool { return !isSaid(problem) })
		left = slices.DeleteFunc(left, isSaid)

		return taken
	}

	provider, err := e.base()
	if err != nil || provider == nil {
		e.tellRefused(nil, left)

		return
	}

	e.tellRefused(nil, take(e.objections(provider)))

	for _, one := range slices.Concat(e.patchRounds...) {
		if provider = e.apply(provider, []patch{one}); provider == nil {
			break
		}

		e.tellRefused(&one, take(e.objections(provider)))
	}

	e.tellRefused(nil, left)
}

// tellRefused tells of problems where a patch stands, or the entry if that is nil. One patch of all nodes is told of
// once, so that its mistake names none.
func (e *entry) tellRefused(one *patch, problems []string) {
	if len(problems) == 0 {
		return
	}

	text := strings.Join(problems, "; ")
	mistake := e.Mistake(e.place, diagnosis.FileValue, "Talos refuses the machine config of %s: %s", e.Hostname, text)

	if one != nil {
		name := "the patch"
		if one.file != nil {
			name += " " + one.file.Shown
		}

		mistake = e.Mistake(one.place, diagnosis.FileValue, "Talos refuses what %s makes of a node: %s", name, text)
	}

	mistake.Next = machineconfig.AdviceOn(text)
	if one != nil && !e.ControlPlane && strings.Contains(text, onlyOnControlPlanes) {
		mistake.Next = "move it to controlPlane.patches: workers get this one too"
	}

	e.Add(mistake)
}

// problemsOf are what a validation says, without the file's name.
func problemsOf(err error) []string {
	var invalid *machineconfig.ValidationError
	if errors.As(err, &invalid) {
		return slices.Clone(invalid.Problems)
	}

	return []string{err.Error()}
}

// objections are what Talos says against a config; none if it takes it.
func (e *entry) objections(provider talosconfig.Provider) []string {
	data, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil
	}

	made, err := machineconfig.FromBytes(e.file, data)
	if err == nil {
		err = e.accepted(made)
	}

	if err != nil {
		return problemsOf(err)
	}

	return nil
}
