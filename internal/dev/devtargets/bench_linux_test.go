package devtargets

import (
	"testing"

	"github.com/magefile/mage/mg"
	"github.com/stretchr/testify/require"
)

func TestBenchRefusesWhatItCanNotMeasure(t *testing.T) {
	t.Setenv("PATH", t.TempDir())

	write, none := true, 0

	for name, tt := range map[string]struct {
		nodes string
		write *bool
		scale *int
		why   string
	}{
		"no number":            {nodes: "6,many", why: `"many" is none`},
		"no cluster":           {nodes: "1", why: "-nodes takes numbers from 2 on"},
		"no scale":             {nodes: "6", scale: &none, why: "-scale takes a number from 1 on"},
		"no place on the page": {nodes: "6,12", write: &write, why: "has no place for 12 nodes"},
		"a PATH with no loop":  {nodes: "6", why: "there is no talosctl on the PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Bench(t.Context(), &tt.nodes, tt.scale, tt.write)
			require.ErrorContains(t, err, tt.why)
			require.Equal(t, 2, mg.ExitStatus(err))
		})
	}
}
