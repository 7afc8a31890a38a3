package steps_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

func TestTheClosingErrorSaysACauseOnceAndNothingThatWasToldAbove(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, func(options *labcluster.Options) { options.Off = true })

	told := diagnosis.NewProblem("TM082", "its cluster is not known", "set TALOSCONFIG").In("preflight")
	refused := diagnosis.NewProblem("TM165", "it goes back", "declare it").In("upgrade")
	untold := diagnosis.NewProblem("TM116", "another run changes the cluster", "wait for it").In("apply")

	for name, tt := range map[string]struct {
		errs []error
		want string
	}{
		"nothing": {nil, ""},
		"a cause that stands above": {[]error{of(told, "cp1")},
			"cp1: preflight: failed, as told above [TM082]. Next: set TALOSCONFIG"},
		"one that kept a step from being begun": {[]error{of(refused, "cp1")},
			"cp1: upgrade: refused, as told above [TM165]. Next: declare it"},
		"one of several nodes": {[]error{of(told, "cp1"), of(told, "cp2"), of(told, "cp3")},
			"cp1, cp2 and cp3: preflight: failed, as told above [TM082]. Next: set TALOSCONFIG"},
		"one that stands nowhere": {[]error{of(untold, "cp1"), of(untold, "cp2")},
			"cp1 and cp2: apply: another run changes the cluster [TM116]. Next: wait for it"},
		"of different kinds": {[]error{of(told, ""), errors.New("a bug"), of(told, "cp1"), untold},
			"preflight: failed, as told above [TM082]. Next: set TALOSCONFIG\na bug\n" +
				"apply: another run changes the cluster [TM116]. Next: wait for it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := l.session(t)
			s.Recorder.Finding("preflight", told.Finding)
			s.Recorder.Result(report.Result{Node: "cp1", Step: "upgrade", Status: report.Refused, Err: of(refused, "cp1")})

			err := steps.Closing(s.Run, diagnosis.Join(tt.errs...))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}

			require.EqualError(t, err, tt.want)
			require.Equal(t, steps.CodeOf(diagnosis.Join(tt.errs...)), steps.CodeOf(err))
		})
	}
}

// of is the problem of a node.
func of(problem *diagnosis.Problem, node string) *diagnosis.Problem {
	own := *problem
	own.Node = node

	return &own
}
