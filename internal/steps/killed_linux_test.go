package steps_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/folderwatch"
)

// A renewal is nothing but a file that is written: it is killed with each change of a file in its folder, until it ends
// before that comes. On a busy computer it may do so by being faster than the kill, so that it gets three tries, and
// more until it was killed at all.
func TestARenewalThatIsKilledLeavesTheOldTalosconfigOrTheNewOne(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, filesOnly)
	l.withSecrets(t, l.Generated.Options.Secrets)

	var killer killer

	folderwatch.Watch(t, func(string) { killer.changed() }, filepath.Dir(l.Talosconfig()))

	const tries, triesAtFirst = 3, 30

	number := 0

	for missed := 0; missed < tries || number == 0 && missed < triesAtFirst; {
		l.signClient(t, role.MakeSet(role.Admin), 48*time.Hour, time.Hour)
		require.NoError(t, os.Chmod(l.Talosconfig(), 0o600))

		old := readFile(t, l.Talosconfig())

		killed, _ := killer.mayKill(t, l, "config:rotate", moment{file: true, number: number})
		require.Equal(t, withoutClient(old), withoutClient(readFile(t, l.Talosconfig())))
		l.wholeFiles(t)

		l.session(t).succeeds(t, steps.Rotate{})
		l.isTidy(t)
		require.Greater(t, time.Until(l.clientCertificate(t).NotAfter), year-time.Hour)

		if killed {
			number, missed = number+1, 0
		} else {
			missed++
		}
	}

	require.Positive(t, number, "it was never killed")
}
