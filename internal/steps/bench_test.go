package steps_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// BenchmarkCost is what a step costs this program for each node above the node's own time. The machines live in another
// process, and what goes to them and back is counted on its way.
func BenchmarkCost(b *testing.B) {
	for name, step := range map[string]steps.Step{"preflight": steps.Preflight{}, "apply": steps.Apply{}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()

				away := startLab(b)
				s := away.session(b, "LOG_LEVEL=error", "NODE_ADDRESSES="+away.addresses)

				b.StartTimer()

				before, cpu := away.bytes(b), processorTime(b)
				s.succeeds(b, step)

				b.ReportMetric(float64((processorTime(b)-cpu).Microseconds())/1000/awayNodes, "cpu-ms/node")
				b.ReportMetric(float64(away.bytes(b)-before)/awayNodes, "bytes/node")
			}
		})
	}
}

const (
	// labFolder is the variable that makes this program be the other process.
	labFolder = "TALOS_MAGE_BENCHMARK_LAB"
	awayNodes = 20
)

// awayLab is a lab in another process.
type awayLab struct {
	*lab
	addresses string // NODE_ADDRESSES of the counting forwarders
	ask       io.Writer
	answers   *bufio.Reader
}

func startLab(b *testing.B) *awayLab {
	b.Helper()

	folder := b.TempDir()
	command := exec.CommandContext(context.WithoutCancel(b.Context()), os.Args[0]) // it ends with its input
	command.Env = append(os.Environ(), labFolder+"="+folder)
	command.Stderr = os.Stderr

	ask, err := command.StdinPipe()
	require.NoError(b, err)

	answers, err := command.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, command.Start())
	b.Cleanup(func() {
		require.NoError(b, ask.Close())
		require.NoError(b, command.Wait())
	})

	away := &awayLab{
		lab: &lab{&labcluster.Cluster{Dir: filepath.Join(folder, "talos"), Scale: 1}, folder},
		ask: ask, answers: bufio.NewReader(answers),
	}
	away.addresses = away.line(b)

	return away
}

func (a *awayLab) line(b *testing.B) string {
	b.Helper()

	text, err := a.answers.ReadString('\n')
	require.NoError(b, err)

	return strings.TrimSpace(text)
}

// bytes is how many went through the forwarders so far, in both directions.
func (a *awayLab) bytes(b *testing.B) int64 {
	b.Helper()

	_, err := fmt.Fprintln(a.ask, "bytes")
	require.NoError(b, err)

	count, err := strconv.ParseInt(a.line(b), 10, 64)
	require.NoError(b, err)

	return count
}

// serveLab is the other process: it says where its machines are reached, then answers each line with the bytes so far,
// until its input ends.
func serveLab(folder string) int {
	cluster, err := labcluster.New(filepath.Join(folder, "talos"), labcluster.Options{
		ControlPlanes: 3, Workers: awayNodes - 3, LabOptions: emulator.LabOptions{TimeScale: 1},
		Timing: emulator.Timing{Boot: 100 * time.Millisecond, Install: time.Hour},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}
	defer cluster.Close() //nolint:errcheck // the process ends

	var (
		count     atomic.Int64
		addresses []string
	)

	for _, node := range cluster.Nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // lives as long as the process
		if err != nil {
			fmt.Fprintln(os.Stderr, err)

			return 1
		}

		go forward(listener, node.Endpoint(), &count)

		addresses = append(addresses, node.Name()+"="+listener.Addr().String())
	}

	for _, node := range cluster.Nodes {
		for node.Stage() != "maintenance" {
			time.Sleep(time.Millisecond)
		}
	}

	fmt.Println(strings.Join(addresses, ","))

	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		fmt.Println(count.Load())
	}

	return 0
}

// forward relays connections and counts what goes through.
func forward(listener net.Listener, to string, count *atomic.Int64) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}

		far, err := net.Dial("tcp", to) //nolint:noctx // as above
		if err != nil {
			near.Close() //nolint:errcheck // refused on behalf of the machine

			continue
		}

		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			go func() {
				io.Copy(way[0], io.TeeReader(way[1], counter{count})) //nolint:errcheck // an end is an end
				way[0].Close()                                        //nolint:errcheck // as above
			}()
		}
	}
}

type counter struct{ count *atomic.Int64 }

func (c counter) Write(data []byte) (int, error) {
	c.count.Add(int64(len(data)))

	return len(data), nil
}

// BenchmarkFirstPacket is the time from the start of the compiled program to its first packet to a node, beside that of
// the same program listing its targets.
func BenchmarkFirstPacket(b *testing.B) {
	folder := b.TempDir()
	program := filepath.Join(folder, "talos-mage")

	compile := exec.CommandContext(b.Context(), "go", "build", "-o", program, "./cmd/talos-mage")
	compile.Dir = filepath.Join("..", "..")
	text, err := compile.CombinedOutput()
	require.NoError(b, err, string(text))

	node, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	require.NoError(b, err)

	defer node.Close() //nolint:errcheck // the benchmark is over

	cluster, err := labcluster.New(filepath.Join(folder, "talos"),
		labcluster.Options{ControlPlanes: 1, Workers: -1, Off: true})
	require.NoError(b, err)

	defer cluster.Close() //nolint:errcheck // as above

	var list, packet time.Duration

	for b.Loop() {
		began := time.Now()
		require.NoError(b, exec.CommandContext(b.Context(), program, "-l").Run())
		list += time.Since(began)

		status := exec.CommandContext(b.Context(), program, "status")
		status.Env = append(os.Environ(), "ROOT_DIR="+folder, "TALOS_DIR="+cluster.Dir, "DIAL_TIMEOUT=1ms",
			"NODE_ADDRESSES=cp1="+node.Addr().String())
		began = time.Now()

		require.NoError(b, status.Start())

		require.NoError(b, node.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)))

		conn, err := node.Accept()
		require.NoError(b, err)

		packet += time.Since(began)

		require.NoError(b, conn.Close())
		require.NoError(b, status.Wait())
	}

	b.Logf("ideal: the program's own start, as -l shows it")
	b.ReportMetric(float64(packet.Microseconds())/1000/float64(b.N), "ms/first-packet")
	b.ReportMetric(float64(packet)/float64(list), "×start")
}
