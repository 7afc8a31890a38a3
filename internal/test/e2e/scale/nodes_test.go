//go:build linux

package scale_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// Variables that tell the process of the nodes what to play.
const (
	nodesFolder = "TALOS_MAGE_SCALE_FOLDER"
	nodesCount  = "TALOS_MAGE_SCALE_NODES"
	nodesApply  = "TALOS_MAGE_SCALE_APPLY"
)

const controlPlanes = 3

// quick is how long everything else takes: what is measured is how well the program uses the time of the applies.
const quick = 200 * time.Millisecond

// nodes is a lab in another process, with the files for it.
type nodes struct {
	folder  string
	end     io.Closer
	answers *json.Decoder
	command *exec.Cmd
}

// startNodes starts so many nodes in another process, that take so long over an apply, and waits until they are in
// maintenance.
func startNodes(tb testing.TB, count int, apply time.Duration) *nodes {
	tb.Helper()

	folder := tb.TempDir()
	command := exec.Command(os.Args[0]) //nolint:gosec,noctx // this program; it ends with its input
	command.Env = append(os.Environ(), role+"=nodes", nodesFolder+"="+folder, nodesCount+"="+strconv.Itoa(count),
		nodesApply+"="+apply.String())
	command.Stderr = os.Stderr

	end, err := command.StdinPipe()
	require.NoError(tb, err)

	answers, err := command.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, command.Start())

	n := &nodes{folder: folder, end: end, answers: json.NewDecoder(bufio.NewReader(answers)), command: command}

	tb.Cleanup(func() { n.close() })
	require.NoError(tb, n.answers.Decode(new(string)), "the nodes did not come up")

	return n
}

// stop ends the nodes and tells what they used.
func (n *nodes) stop(tb testing.TB) usage {
	tb.Helper()

	var used usage

	require.NoError(tb, n.end.Close())
	require.NoError(tb, n.answers.Decode(&used))
	require.NoError(tb, n.command.Wait())

	return used
}

// close is for tests that broke off.
func (n *nodes) close() {
	n.end.Close()    //nolint:errcheck // closed already in all other tests
	n.command.Wait() //nolint:errcheck // as above
}

// serveNodes is the process of the nodes: it says when all are in maintenance, and after its input has ended what it
// used.
func serveNodes() error {
	// They have the machine to share with the program, and memory in plenty.
	debug.SetGCPercent(400)

	count, err := strconv.Atoi(os.Getenv(nodesCount))
	if err != nil {
		return fmt.Errorf("read how many nodes there are: %w", err)
	}

	apply, err := time.ParseDuration(os.Getenv(nodesApply))
	if err != nil {
		return fmt.Errorf("read how long an apply takes: %w", err)
	}

	cluster, err := labcluster.New(filepath.Join(os.Getenv(nodesFolder), "talos"), labcluster.Options{
		ControlPlanes: controlPlanes, Workers: count - controlPlanes,
		// so that workers get their certificates, and are verified, before bootstrap
		Endpoint:   labcluster.FirstControlPlane,
		LabOptions: emulator.LabOptions{TimeScale: 1},
		Timing: emulator.Timing{
			Apply: apply, Boot: quick, TimeSync: quick, Install: quick, Stop: quick, Reboot: quick, Containers: quick,
			Kubelet: quick,
		},
	})
	if err != nil {
		return err
	}

	for _, node := range cluster.Nodes {
		for node.Stage() != "maintenance" {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a process that has nothing else to do
		}
	}

	encoder := json.NewEncoder(os.Stdout)
	if err := encoder.Encode("in maintenance"); err != nil {
		return err
	}

	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}

	used, err := used()
	if err != nil {
		return err
	}

	return errors.Join(encoder.Encode(used), cluster.Close())
}
