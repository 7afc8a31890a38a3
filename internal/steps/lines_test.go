package steps_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// board is what stood on the lines of a run, as "cp1: etcd waits to join" and node by node, whenever one changed.
type board struct {
	now  map[string]string
	past [][]string
}

func (b *board) Handle(event report.Event) {
	switch {
	case event.Started != nil, event.Finished != nil:
		b.now = map[string]string{}
	case event.Progress != nil && event.Progress.Text != "":
		b.now[event.Progress.Node] = event.Progress.Text
	case event.Progress != nil:
		delete(b.now, event.Progress.Node)
	case event.Result != nil:
		delete(b.now, event.Result.Node)
	}

	var lines []string
	for _, node := range slices.Sorted(maps.Keys(b.now)) {
		lines = append(lines, node+": "+b.now[node])
	}

	b.past = append(b.past, lines)
}

func (*board) Close() error { return nil }

// all is everything that was ever on the board.
func (b *board) all() string {
	var text strings.Builder
	for _, lines := range b.past {
		text.WriteString(strings.Join(lines, "\n") + "\n")
	}

	return text.String()
}

// with are the boards with a line that begins like this.
func (b *board) with(start string) [][]string {
	return slices.DeleteFunc(slices.Clone(b.past), func(lines []string) bool {
		return !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, start) })
	})
}

func TestLinesSayWhatIsSoNow(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.installed(t)
	l.Node("cp2").Set(func(f *emulator.Faults) { f.EtcdJoin = 10 * time.Minute }) // a look takes its time under load

	for _, name := range []string{"cp1", "cp2"} {
		l.Node(name).Set(func(f *emulator.Faults) { f.KubernetesDown = true })
	}

	s := l.session(t, seconds("API_TIMEOUT", 20))
	s.fails(t, diagnosis.ExitKubernetes, diagnosis.APINotReady, steps.Bootstrap{})

	require.Contains(t, s.lines.past,
		[]string{"cp1: etcd is healthy, waits for cp2", "cp2: etcd is a learner, catching up"})
	require.NotContains(t, s.out.String(), "not supported for learner")

	waiting := s.lines.with(": waiting for the Kubernetes API")
	require.NotEmpty(t, waiting)

	for _, lines := range waiting {
		require.Len(t, lines, 1, "etcd is whole, and no longer waited for")
	}
}
