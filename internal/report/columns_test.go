package report_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/report"
)

func TestATableIsReadableInEveryWidth(t *testing.T) {
	t.Parallel()

	rows := [][]string{
		{"NODE", "ROLE", "STAGE", "ETCD"},
		{"cp1", "controlplane", "running, waits for föö", "healthy, 3 members"},
		{"w1", "worker", "booting", "-"},
	}

	for width, want := range map[int]string{
		0: `NODE  ROLE          STAGE                   ETCD
cp1   controlplane  running, waits for föö  healthy, 3 members
w1    worker        booting                 -
`,
		// A part is as wide as it may be.
		42: `NODE  ROLE          STAGE
cp1   controlplane  running, waits for föö
w1    worker        booting

NODE  ETCD
cp1   healthy, 3 members
`,
		// What does not fit by itself stands by itself.
		10: `NODE  ROLE
cp1   controlplane
w1    worker

NODE  STAGE
cp1   running, waits for föö
w1    booting

NODE  ETCD
cp1   healthy, 3 members
`,
	} {
		require.Equal(t, want, report.Columns(rows, width, nil), width)
	}

	require.Equal(t, "NODE\ncp1\n", report.Columns([][]string{{"NODE"}, {"cp1"}}, 80, nil))
	require.Empty(t, report.Columns(nil, 80, nil))

	for line := range strings.Lines(report.Columns(rows, 42, nil)) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(line)), 42)
	}
}
