package drain_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// kubectl's own package says which pods have to go.
func TestADrainChoosesThePodsThatKubectlWould(t *testing.T) {
	t.Parallel()

	program := tool.Find(t, "kubectldrain")

	for seed := range uint64(12) {
		lab := newLab(t, drawWork(rand.New(rand.NewPCG(seed, 0)))...)

		// Some pods end while we look, and some of those that have ended are still there.
		lab.cluster.Drain([]string{"cp1", "worker1", "worker2"}[seed%3])
		lab.cluster.Restore("worker2")

		file := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(file, lab.kubeconfig, 0o600))

		output, err := exec.CommandContext(t.Context(), program, file, "cp1", "worker1", "worker2").Output()
		require.NoError(t, err)

		var ours strings.Builder

		for _, node := range []string{"cp1", "worker1", "worker2"} {
			chosen, err := lab.drainer.Chosen(t.Context(), node)
			require.NoError(t, err)

			for _, pod := range chosen {
				fmt.Fprintf(&ours, "%s %s\n", node, pod)
			}
		}

		require.Equal(t, string(output), ours.String(), "seed %d", seed)
		require.NotEmpty(t, ours.String())
	}
}

// drawWork is what somebody may run.
func drawWork(random *rand.Rand) []kubernetes.Workload {
	work := make([]kubernetes.Workload, 0, 8)

	for n := range cap(work) {
		work = append(work, kubernetes.Workload{
			Name:     fmt.Sprint("work", n),
			Kind:     kubernetes.Kind(random.IntN(int(kubernetes.Bare) + 1)),
			Replicas: 1 + random.IntN(3),
			Node:     []string{"", "", "cp1", "worker1"}[random.IntN(4)],
			EmptyDir: random.IntN(2) == 0,
			Ending:   time.Duration(random.IntN(2)) * time.Hour,
			Budget:   random.IntN(2),
			Orphaned: random.IntN(4) == 0,
		})
	}

	return work
}
