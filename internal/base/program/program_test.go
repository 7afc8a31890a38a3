package program_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/program"
)

// A Ctrl-C reaches the program and this process, in either order.
func TestAProgramThatASignalStoppedEndsWithItsContext(t *testing.T) {
	t.Parallel()

	for name, script := range map[string]string{
		"interrupted":              "kill -INT $$",
		"terminated":               "kill -TERM $$",
		"interrupted, and told so": "exit 130",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(200*time.Millisecond, cancel)

			_, err := (program.Runner{Environ: os.Environ()}).Run(ctx, nil, "sh", "-c", script)

			require.Error(t, err)
			require.ErrorIs(t, ctx.Err(), context.Canceled)
		})
	}
}
