package discover_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// inside tells a test that its process has a network of its own.
const inside = "TALOS_MAGE_TEST_OWN_NETWORK"

// inOwnNetwork has the test run once more in a process with a network namespace of its own, and reports whether this is
// that process. Where that is not allowed the test is skipped.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()

	if os.Getenv(inside) != "" {
		return true
	}

	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the program ip")
	}

	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this test
	again.Env = append(os.Environ(), inside+"=yes")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}

	output, err := again.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("network namespaces are not allowed here")
	}

	require.NoError(t, err, "%s", output)

	return false
}

// subnetBehind is a namespace whose machines are on a subnet with this process.
type subnetBehind struct {
	t   *testing.T
	run chan func() // on the thread that is in it
}

// newSubnet is a cable between this namespace, at 10.99.0.1 and fd99::1, and another one.
func newSubnet(t *testing.T) subnetBehind {
	t.Helper()

	s := subnetBehind{t, make(chan func())}
	thread := make(chan int)

	go func() {
		// The thread ends with the goroutine, as it is never unlocked.
		runtime.LockOSThread()

		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			close(thread)
			return
		}

		thread <- unix.Gettid()

		for do := range s.run {
			do()
		}
	}()

	number, ok := <-thread
	if !ok {
		t.Skip("network namespaces are not allowed here")
	}

	t.Cleanup(func() { close(s.run) })

	ip(t, "link set lo up")
	ip(t, "link add here type veth peer name there")
	ip(t, "link set there netns "+strconv.Itoa(number))
	ip(t, "addr add 10.99.0.1/24 dev here")
	ip(t, "addr add fd99::1/64 dev here nodad")
	ip(t, "link set here up")
	s.do(func() {
		ip(t, "link set lo up")
		ip(t, "link set there up")
	})

	return s
}

// do has something done in the namespace.
func (s subnetBehind) do(what func()) {
	done := make(chan struct{})
	s.run <- func() {
		defer close(done)
		what()
	}
	<-done
}

// add has a machine answer at an address of the subnet.
func (s subnetBehind) add(address, endpoint string) {
	var (
		listener net.Listener
		err      error
	)

	s.do(func() {
		ip(s.t, "addr add "+address+" dev there"+map[bool]string{true: " nodad"}[strings.Contains(address, ":")])
		host, _, _ := strings.Cut(address, "/")
		listener, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(talos.DefaultPort)))
	})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { listener.Close() })

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go forward(conn, endpoint)
		}
	}()
}

func forward(conn net.Conn, endpoint string) {
	defer conn.Close()

	machine, err := net.Dial("tcp", endpoint)
	if err != nil {
		return
	}

	defer machine.Close()

	go func() {
		_, _ = io.Copy(machine, conn)
		machine.Close()
	}()

	_, _ = io.Copy(conn, machine)
}

func ip(t *testing.T, words string) {
	t.Helper()

	output, err := exec.CommandContext(t.Context(), "ip", strings.Fields(words)...).CombinedOutput()
	if err != nil {
		t.Errorf("ip %s: %v: %s", words, err, output)
	}
}

// On a real subnet nobody answers for the other addresses, not even that they do not exist.
func TestMachinesOnASubnetOfSilentAddresses(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}

	subnet := newSubnet(t)
	lab := newLab(t, labcluster.Options{ControlPlanes: 1, Workers: 1})
	subnet.add("10.99.0.17/24", lab.Nodes[0].Endpoint())
	subnet.add("10.99.0.200/24", lab.Nodes[1].Endpoint())
	subnet.add("fd99::17/64", lab.Nodes[0].Endpoint())

	// It is heard of as soon as somebody talks to it, on whatever port.
	_, err := net.Dial("tcp", "[fd99::17]:1")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	networks, err := discover.Around([]netip.Prefix{netip.MustParsePrefix("10.99.0.10/24"),
		netip.MustParsePrefix("fd99::10/64")}, false)
	require.NoError(t, err)

	var last discover.Progress

	found, err := discover.Search{Networks: networks, Dialer: &talos.Dialer{Timeout: patience},
		Progress: func(p discover.Progress) { last = p }}.Machines(t.Context())
	require.NoError(t, err)

	require.Equal(t, 3, last.Answers)
	require.NotZero(t, last.Refused, "this computer")
	require.Equal(t, last.Total, last.Asked)

	require.Len(t, found, 2)
	require.Equal(t, addresses("10.99.0.17", "fd99::17"), found[0].Addresses)
	require.Equal(t, addresses("10.99.0.200"), found[1].Addresses)

	for _, machine := range found {
		require.Equal(t, talos.Maintenance, machine.State)
		require.NoError(t, machine.Err)
	}
}
