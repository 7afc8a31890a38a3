package steps_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// diagnose is what the target finds, and the code that it ends with.
func (l *lab) diagnose(t *testing.T, environ ...string) (steps.Diagnosis, diagnosis.ExitCode) {
	t.Helper()

	step := &steps.Diagnose{}
	s := l.session(t, append(environ, seconds("CLOCK_SCALE", scale))...).do(t, step)
	require.NotNil(t, step.Found, s.out)

	return *step.Found, steps.CodeOf(s.err)
}

// instants are times and what follows from them, which differ each time.
var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\d+h\d+m\d+s|\b\d+m\d+s\b`)

// page is a diagnosis as people read it, with the lab's addresses as documentation addresses.
func (l *lab) page(found steps.Diagnosis) string {
	text := strings.ReplaceAll(found.Text()+"next: "+found.Next+"\n", l.folder, "/home/op/lab")
	text = strings.ReplaceAll(text, strings.TrimSuffix(l.Lab.Prefix().Addr().String(), "0"), "192.0.2.")

	return instants.ReplaceAllString(text, "…")
}

// firstOf is the id of the most likely cause for a node, or for the cluster.
func firstOf(found steps.Diagnosis, name string) diagnosis.ID {
	causes := found.Cluster
	for _, node := range found.Nodes {
		if node.Seen.Node.Name == name {
			causes = node.Causes
		}
	}

	if len(causes) == 0 {
		return ""
	}

	return causes[0].ID
}

func TestADiagnosisNamesTheCauseInEveryState(t *testing.T) {
	t.Parallel()

	shows := func(t *testing.T, l *lab, name string, code diagnosis.ExitCode, environ ...string) {
		t.Helper()

		found, got := l.diagnose(t, environ...)
		require.Equal(t, code, got, found.Text())
		golden.Assert(t, filepath.Join("testdata", "diagnose", name+".txt"), l.page(found))
	}

	t.Run("on the way up", func(t *testing.T) {
		t.Parallel()

		l := newLab(t, 1, 1)
		l.Node("cp1").Set(func(f *emulator.Faults) { f.TimeUnsynced = true })

		l.Node("worker1").PowerOff()
		wait(t, l.Node("cp1"), inStage("maintenance"))
		shows(t, l, "off", diagnosis.ExitVerify)

		l.Node("worker1").PowerOn()
		l.untilMaintenance(t)
		shows(t, l, "maintenance", diagnosis.ExitOK)

		l.installed(t)
		require.Eventually(t, func() bool {
			found, _ := l.diagnose(t)
			return firstOf(found, "cp1") == diagnosis.TimeNotSynced
		}, labcluster.Deadline, labcluster.Deadline/100)
		shows(t, l, "unsynced", diagnosis.ExitVerify, "NODE=cp1")

		l.Node("cp1").Set(func(f *emulator.Faults) { f.TimeUnsynced = false })
		l.waitForEtcdToAsk(t)
		shows(t, l, "before-bootstrap", diagnosis.ExitVerify, "NODE=cp1")

		l.session(t).succeeds(t, steps.Bootstrap{}, steps.VerifyWorkers{}, steps.Kubeconfig{})
		shows(t, l, "up", diagnosis.ExitOK)

		shows(t, l, "no-talosconfig", diagnosis.ExitVerify, "TALOSCONFIG="+filepath.Join(l.folder, "missing"))

		found, _ := l.diagnose(t, "TALOSCONFIG="+filepath.Join(l.folder, "missing"))

		var document struct {
			Nodes []struct {
				Node   string
				Causes []struct{ ID, Next string }
			}
			Next string
		}

		require.NoError(t, json.Unmarshal([]byte(found.JSON()), &document))
		require.Len(t, document.Nodes, 2)
		require.Equal(t, string(diagnosis.UnknownNodeCA), document.Nodes[0].Causes[0].ID)
		require.Equal(t, document.Next, document.Nodes[0].Causes[0].Next)
	})
}
