package emulator_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// listen opens a stream of events, past its hello.
func listen(t *testing.T, c *client.Client, request *machineapi.EventsRequest) machineapi.MachineService_EventsClient {
	t.Helper()

	stream, err := c.MachineClient.Events(deadline(t), request)
	require.NoError(t, err)

	hello, err := stream.Recv()
	require.NoError(t, err)
	require.Empty(t, hello.GetData().GetTypeUrl())
	require.Len(t, hello.GetId(), 20)
	require.Equal(t, request.GetWithActorId(), hello.GetActorId())

	return stream
}

// ids are those of the next events of a stream.
func ids(t *testing.T, stream machineapi.MachineService_EventsClient, count int) []string {
	t.Helper()

	var found []string

	for range count {
		event, err := stream.Recv()
		require.NoError(t, err)

		found = append(found, event.GetId())
	}

	return found
}

func TestClaim_7_06_TheHistoryCanBeAskedForInThreeWays(t *testing.T) {
	t.Parallel()

	cluster, node := waiting(t)
	c := secure(t, cluster.Talosconfig(), node)

	last := ids(t, listen(t, c, &machineapi.EventsRequest{TailEvents: 5}), 5)
	require.IsIncreasing(t, last)
	require.Equal(t, last[2:], ids(t, listen(t, c, &machineapi.EventsRequest{TailEvents: 3}), 3))
	require.Equal(t, last[2:], ids(t, listen(t, c, &machineapi.EventsRequest{TailId: last[1]}), 3), "after that one")

	first := ids(t, listen(t, c, &machineapi.EventsRequest{TailEvents: -1}), 3)
	require.Equal(t, first, ids(t, listen(t, c, &machineapi.EventsRequest{TailEvents: 900}), 3), "no more than there are")
	require.Equal(t, first, ids(t, listen(t, c, &machineapi.EventsRequest{TailSeconds: 1_000_000}), 3))

	const (
		withID      = "WithTailID can't be specified at the same time with WithTailEvents or WithTailDuration"
		withSeconds = "WithTailDuration can't be specified at the same time with WithTailEvents or WithTailID"
	)

	for _, test := range []struct {
		request *machineapi.EventsRequest
		text    string
	}{
		{&machineapi.EventsRequest{TailEvents: 1, TailId: last[0]}, withID},
		{&machineapi.EventsRequest{TailEvents: 1, TailSeconds: 1}, withSeconds},
		{&machineapi.EventsRequest{TailId: last[0], TailSeconds: 1}, withSeconds},
		{&machineapi.EventsRequest{TailId: "nonsense"}, "error parsing tail_id: xid: invalid ID"},
	} {
		_, err := listen(t, c, test.request).Recv()
		requireStatus(t, err, codes.Unknown, test.text)
	}
}

func TestClaim_7_07_EventsCanBeAskedForByWhoCausedThem(t *testing.T) {
	t.Parallel()

	_, node, c := ready(t, labcluster.Options{Timing: emulator.Timing{Pods: 1000 * time.Hour}})
	waitStage(t, node, "running")

	reply, err := c.MachineClient.Reboot(deadline(t), &machineapi.RebootRequest{})
	require.NoError(t, err)

	actor := reply.GetMessages()[0].GetActorId()
	require.Len(t, actor, 36)

	stream := listen(t, c, &machineapi.EventsRequest{TailEvents: -1, WithActorId: actor})

	event, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, actor, event.GetActorId())

	sequence, ok := payload(t, event).(*machineapi.SequenceEvent)
	require.True(t, ok)
	require.Equal(t, "reboot", sequence.GetSequence())
	require.Equal(t, machineapi.SequenceEvent_START, sequence.GetAction())
}

func TestClaim_7_08_TheHistoryHas990EventsAndSlowReadersAreLetGo(t *testing.T) {
	t.Parallel()

	// While it installs, each call for a reboot leaves one event and nothing else.
	cluster, node, c := stillInstalling(t, labcluster.Options{})

	// With a fixed window a client gets no more than that before it reads.
	const window = 1 << 16

	conn, err := grpc.NewClient(node.Endpoint(),
		grpc.WithTransportCredentials(credentials.NewTLS(signedTLS(t, cluster, x509.Organization(string(role.Reader))))),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	require.NoError(t, err)

	defer conn.Close() //nolint:errcheck // the test is over

	slow, err := machineapi.NewMachineServiceClient(conn).Events(deadline(t), &machineapi.EventsRequest{})
	require.NoError(t, err)

	_, err = slow.Recv()
	require.NoError(t, err)

	const callers, calls = 4, 650 // more than the ring and what is on its way to a client that does not read

	var all sync.WaitGroup

	for range callers {
		all.Go(func() {
			for range calls {
				_, err := c.MachineClient.Reboot(deadline(t), &machineapi.RebootRequest{})
				if err != nil {
					t.Errorf("reboot: %s", err)

					return
				}
			}
		})
	}

	all.Wait()

	// All of them are told: nothing else happens on the machine.
	var last string

	eventually(t, func() error {
		newest := ids(t, listen(t, c, &machineapi.EventsRequest{TailEvents: 1}), 1)[0]
		settled := newest == last
		last = newest

		return until(settled)
	})

	stream, count := listen(t, c, &machineapi.EventsRequest{TailEvents: -1}), 1
	for ids(t, stream, 1)[0] != last {
		count++
	}

	require.Equal(t, 990, count)

	read := 0

	for {
		_, err := slow.Recv()
		if err != nil {
			require.ErrorIs(t, err, io.EOF, "without an error, after %d events", read)

			break
		}

		read++
	}

	require.Less(t, read, callers*calls)
}

// next is what comes next on a channel: of a watch, or of a call that was made meanwhile.
func next[T any](t *testing.T, channel <-chan T) T {
	t.Helper()

	select {
	case it := <-channel:
		return it
	case <-time.After(labcluster.Deadline):
		require.Fail(t, "nothing comes")

		return *new(T)
	}
}

func TestClaim_7_09_AWatchBeginsWithWhatThereIs(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	eventually(t, func() error { return timeSynced(t, node) })

	c := insecure(t, node)
	clock, disk := make(chan state.Event, 10), make(chan state.Event, 10)

	require.NoError(t, c.COSI.Watch(deadline(t), timeres.NewStatus().Metadata(), clock))
	require.NoError(t, c.COSI.Watch(deadline(t), block.NewSystemDisk(block.NamespaceName, block.SystemDiskID).Metadata(),
		disk))

	require.Equal(t, state.Created, next(t, clock).Type)
	require.Equal(t, state.Destroyed, next(t, disk).Type, "there is none")

	node.Set(func(f *emulator.Faults) { f.TimeUnsynced = true })
	require.Equal(t, state.Updated, next(t, clock).Type)

	err := c.COSI.Watch(deadline(t), config.NewMachineConfigWithID(nil, config.ActiveID).Metadata(),
		make(chan state.Event))
	requireStatus(t, err, codes.PermissionDenied, "not authorized")
}

func TestClaim_7_10_OnlyAWatchThatHadAnUpdateSurvivesItsConnection(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	eventually(t, func() error { return timeSynced(t, node) })

	quiet, lively := make(chan state.Event, 10), make(chan state.Event, 10)
	require.NoError(t, insecure(t, node).COSI.Watch(deadline(t),
		block.NewSystemDisk(block.NamespaceName, block.SystemDiskID).Metadata(), quiet))
	require.NoError(t, insecure(t, node).COSI.Watch(deadline(t), timeres.NewStatus().Metadata(), lively))
	next(t, quiet)
	next(t, lively)

	node.Set(func(f *emulator.Faults) { f.TimeUnsynced = true })
	require.NotEmpty(t, next(t, lively).Bookmark)

	node.Refuse(true)
	refused(t, node)

	ended := next(t, quiet)
	require.Equal(t, state.Errored, ended.Type)
	require.Equal(t, codes.Unavailable, client.StatusCode(ended.Error))

	// The other one says nothing until it is there again.
	node.Refuse(false)
	node.Set(func(f *emulator.Faults) { f.TimeUnsynced = false })

	again := next(t, lively)
	require.Equal(t, state.Updated, again.Type)

	status, err := safe.StateGetByID[*timeres.Status](deadline(t), insecure(t, node).COSI, timeres.StatusID)
	require.NoError(t, err)
	require.True(t, status.TypedSpec().Synced)

	// After a reboot its bookmark is worth nothing.
	node.Refuse(true)
	node.PowerOff()
	node.PowerOn()
	require.NoError(t, node.WaitFor(deadline(t), func(n *emulator.Node) bool { return n.Boots() == 2 }))
	node.Refuse(false)

	over := next(t, lively)
	require.Equal(t, state.Errored, over.Type)
	require.ErrorContains(t, over.Error, "invalid watch bookmark")
}

func TestClaim_7_11_PingsMoreOftenThanEveryFiveMinutesEndAConnection(t *testing.T) {
	t.Parallel()

	_, node := idle(t)

	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}). //nolint:gosec // maintenance mode has no CA
														DialContext(deadline(t), "tcp", node.Endpoint())
	require.NoError(t, err)

	defer conn.Close() //nolint:errcheck // the test is over

	require.NoError(t, conn.SetDeadline(time.Now().Add(labcluster.Deadline)))

	// Frames of HTTP/2 (RFC 9113): the preface, empty settings, and pings.
	const settings, ping, goAway = 4, 6, 7

	frame := func(kind byte, body []byte) []byte {
		return append([]byte{0, 0, byte(len(body)), kind, 0, 0, 0, 0, 0}, body...)
	}

	hello := bytes.Join([][]byte{[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, nil)}, nil)
	for range 5 {
		hello = append(hello, frame(ping, make([]byte, 8))...)
	}

	_, err = conn.Write(hello)
	require.NoError(t, err)

	for {
		header := make([]byte, 9)
		_, err := io.ReadFull(conn, header)
		require.NoError(t, err, "the connection ended without a reason")

		body := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
		_, err = io.ReadFull(conn, body)
		require.NoError(t, err)

		if header[3] != goAway {
			continue
		}

		const enhanceYourCalm = 0xb

		require.EqualValues(t, enhanceYourCalm, binary.BigEndian.Uint32(body[4:8]))
		require.Equal(t, "too_many_pings", string(body[8:]))

		return
	}
}
