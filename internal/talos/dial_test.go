package talos_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/talos"
)

// stub is a machine service behind a TLS setup of the test's own, for what no sound node does.
type stub struct {
	machine.UnimplementedMachineServiceServer

	address string
	// calls counts what got through TLS; connections what was accepted below it.
	calls, connections atomic.Int32
	// onCall runs in each call to ApplyConfiguration.
	onCall func()

	server *grpc.Server
}

func (s *stub) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	s.calls.Add(1)

	return &machine.VersionResponse{Messages: []*machine.Version{{Version: &machine.VersionInfo{Tag: "v1.13.9"}}}}, nil
}

func (s *stub) ApplyConfiguration(context.Context,
	*machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	s.calls.Add(1)

	if s.onCall != nil {
		s.onCall()
	}

	return &machine.ApplyConfigurationResponse{
		Messages: []*machine.ApplyConfiguration{{Mode: machine.ApplyConfigurationRequest_NO_REBOOT}}}, nil
}

type countingListener struct {
	net.Listener

	accepted *atomic.Int32
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}

	return conn, err
}

func serveStub(t *testing.T, config *tls.Config) *stub {
	t.Helper()

	var listening net.ListenConfig

	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)

	s := &stub{address: listener.Addr().String(),
		server: grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize))}
	machine.RegisterMachineServiceServer(s.server, s)

	go s.server.Serve(countingListener{listener, &s.connections}) //nolint:errcheck // ends with Stop

	t.Cleanup(s.server.Stop)

	return s
}

func TestMaintenanceTalksOnlyToMaintenance(t *testing.T) {
	t.Parallel()

	ours, boot := newAuthority(t), newAuthority(t)
	inMaintenance := serveStub(t, h2(boot.certificate(t, maintenance), tls.NoClientCert, nil))
	configured := serveStub(t, h2(ours.certificate(t), tls.RequireAndVerifyClientCert, ours))
	stranger := serveStub(t, h2(boot.certificate(t), tls.NoClientCert, nil))
	dialer := &talos.Dialer{Timeout: timeout}

	conn, err := dialer.Maintenance(t.Context(), inMaintenance.address)
	require.NoError(t, err)

	defer conn.Close()

	require.True(t, conn.Insecure())
	require.Equal(t, dialer.Probe(t.Context(), inMaintenance.address).Fingerprint, conn.Fingerprint())

	for name, other := range map[string]*stub{"configured": configured, "some other HTTPS service": stranger} {
		_, err = dialer.Maintenance(t.Context(), other.address)
		require.ErrorIs(t, err, talos.ErrNotMaintenance, name)
		require.Equal(t, talos.Retry, talos.Classify(talos.OpApply, err), name)
		require.Zero(t, other.calls.Load(), name)
	}
}

func TestMaintenanceRefusesAnUnlistedFingerprint(t *testing.T) {
	t.Parallel()

	boot := newAuthority(t)
	node := serveStub(t, h2(boot.certificate(t, maintenance), tls.NoClientCert, nil))
	fingerprint := (&talos.Dialer{Timeout: timeout}).Probe(t.Context(), node.address).Fingerprint

	pinned := &talos.Dialer{Timeout: timeout, Fingerprints: []string{"YWJj", fingerprint}}
	conn, err := pinned.Maintenance(t.Context(), node.address)
	require.NoError(t, err)
	conn.Close()
	require.True(t, pinned.Accepts(fingerprint))

	_, err = (&talos.Dialer{Timeout: timeout, Fingerprints: []string{"YWJj"}}).Maintenance(t.Context(), node.address)
	require.ErrorIs(t, err, talos.ErrFingerprint)
	require.Equal(t, talos.Final, talos.Classify(talos.OpApply, err))
	require.Contains(t, talos.Explain(err), fingerprint, "the fingerprint is needed to decide, and public")
}

func TestSecureNamesWhatIsWrongWithTheNode(t *testing.T) {
	t.Parallel()

	ours, theirs, boot := newAuthority(t), newAuthority(t), newAuthority(t)
	verify := tls.RequireAndVerifyClientCert
	mine := ours.credentials(t)

	for _, test := range []struct {
		name        string
		node        *tls.Config
		credentials *talos.Credentials
		err         error
		class       talos.Class
		says        string
	}{
		{name: "ours", node: h2(ours.certificate(t), verify, ours), credentials: mine, class: talos.Done},
		{
			name: "maintenance", node: h2(boot.certificate(t, maintenance), tls.NoClientCert, nil), credentials: mine,
			err: talos.ErrInMaintenance, class: talos.Retry, says: "maintenance mode",
		},
		{
			name: "another cluster's", node: h2(theirs.certificate(t), verify, theirs), credentials: mine,
			err: talos.ErrForeignCA, class: talos.Final, says: "another cluster",
		},
		{
			name: "called at another address", node: h2(ours.certificate(t, elsewhere), verify, ours), credentials: mine,
			err: talos.ErrCertificateName, class: talos.Final, says: "192.0.2.5, cp1",
		},
		{
			name: "clock behind", node: h2(ours.certificate(t, expired), verify, ours), credentials: mine,
			class: talos.Retry, says: "expired 2h",
		},
		{
			name: "clock ahead", node: h2(ours.certificate(t, notYetValid), verify, ours), credentials: mine,
			class: talos.Retry, says: "becomes valid only in",
		},
		{
			name: "client certificate of another cluster", node: h2(ours.certificate(t), verify, ours),
			credentials: ours.credentialsSignedBy(t, theirs), class: talos.Retry, says: "doesn't accept this client certificate",
		},
		{
			name: "no talosconfig", node: h2(ours.certificate(t), verify, ours),
			err: talos.ErrNoCredentials, class: talos.Final, says: "no talosconfig",
		},
		{
			name: "expired talosconfig", node: h2(ours.certificate(t), verify, ours), credentials: ours.credentials(t, expired),
			err: talos.ErrCredentialsExpired, class: talos.Final, says: "expired on 20",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			node := serveStub(t, test.node)
			conn, err := (&talos.Dialer{Credentials: test.credentials, Timeout: timeout}).Secure(t.Context(), node.address)

			require.Equal(t, test.class, talos.Classify(talos.OpBootstrap, err), "%v", err)

			if test.class == talos.Done {
				defer conn.Close()

				version, err := conn.Version(t.Context())
				require.NoError(t, err)
				require.Equal(t, "v1.13.9", version)

				return
			}

			require.Contains(t, talos.Explain(err), test.says)
			require.Zero(t, node.calls.Load())

			if test.err != nil {
				require.ErrorIs(t, err, test.err)
			}
		})
	}
}

func TestAConnNeverReconnects(t *testing.T) {
	t.Parallel()

	boot := newAuthority(t)
	config := h2(boot.certificate(t, maintenance), tls.NoClientCert, nil)
	node := serveStub(t, config)

	conn, err := (&talos.Dialer{Timeout: timeout}).Maintenance(t.Context(), node.address)
	require.NoError(t, err)

	defer conn.Close()

	_, err = conn.Version(t.Context())
	require.NoError(t, err)

	node.server.Stop()

	// Another machine takes over the address.
	var listening net.ListenConfig

	listener, err := listening.Listen(t.Context(), "tcp", node.address)
	require.NoError(t, err)

	successor := &stub{}
	successor.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	machine.RegisterMachineServiceServer(successor.server, successor)

	go successor.server.Serve(countingListener{listener, &successor.connections}) //nolint:errcheck // ends with Stop

	defer successor.server.Stop()

	require.Never(t, func() bool {
		_, err := conn.Apply(t.Context(), []byte("machine: {}"), talos.ApplyOptions{})

		return err == nil
	}, 400*time.Millisecond, 20*time.Millisecond)

	_, err = conn.Apply(t.Context(), []byte("machine: {}"), talos.ApplyOptions{})
	require.ErrorIs(t, err, talos.ErrConnectionLost)
	require.Equal(t, talos.Retry, talos.Classify(talos.OpApply, err), "nothing was sent")
	require.Zero(t, successor.connections.Load())
}

func TestALostReplyLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()

	boot := newAuthority(t)

	never := make(chan struct{})
	t.Cleanup(func() { close(never) })

	for name, test := range map[string]struct {
		limit  time.Duration
		onCall func(*stub)
	}{
		"the connection breaks": {timeout, func(s *stub) { go s.server.Stop(); <-never }},
		"no reply in time":      {200 * time.Millisecond, func(*stub) { <-never }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			node := serveStub(t, h2(boot.certificate(t, maintenance), tls.NoClientCert, nil))
			node.onCall = func() { test.onCall(node) }

			conn, err := (&talos.Dialer{Timeout: timeout}).Maintenance(t.Context(), node.address)
			require.NoError(t, err)

			defer conn.Close()

			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			defer cancel()

			_, err = conn.Apply(ctx, []byte("machine: {}"), talos.ApplyOptions{})
			require.Error(t, err)
			require.Equal(t, talos.UnknownOutcome, talos.Classify(talos.OpApply, err), "%v", err)
			require.EqualValues(t, 1, node.calls.Load(), "sent exactly once")
		})
	}
}

func TestCredentialsTellAboutTheTalosconfig(t *testing.T) {
	t.Parallel()

	ours, theirs := newAuthority(t), newAuthority(t)
	credentials := ours.credentials(t)

	require.Equal(t, "homelab", credentials.ContextName())
	require.Equal(t, []string{"192.0.2.11"}, credentials.Endpoints())
	require.Equal(t, []string{"192.0.2.11", "192.0.2.12"}, credentials.Nodes())
	require.Equal(t, []string{string(role.Admin)}, credentials.Roles())
	require.Contains(t, string(credentials.CA()), "BEGIN CERTIFICATE")
	require.True(t, credentials.NotBefore().Before(time.Now()))
	require.True(t, credentials.NotAfter().After(time.Now()))
	require.Len(t, credentials.ClusterHash(), 64)
	require.Equal(t, credentials.ClusterHash(), ours.credentials(t).ClusterHash(),
		"another client certificate, the same cluster")
	require.NotEqual(t, credentials.ClusterHash(), theirs.credentials(t).ClusterHash())
}

func TestABrokenTalosconfigIsNamedAndNeverQuoted(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ text, says string }{
		"not YAML":          {"\t:secretsecret", "not a talosconfig"},
		"empty":             {"", "not a talosconfig"},
		"no contexts":       {"context: a", "no contexts"},
		"unknown context":   {"context: a\ncontexts: {b: {ca: secretsecret}}", `"a"`},
		"no key":            {"context: b\ncontexts: {b: {ca: c2VjcmV0c2VjcmV0}}", "lacks"},
		"ca not base64":     {"context: b\ncontexts: {b: {ca: '!secretsecret', crt: a, key: b}}", "not base64"},
		"ca no certificate": {"context: b\ncontexts: {b: {ca: c2VjcmV0c2VjcmV0, crt: a, key: b}}", "no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := talos.ParseCredentials([]byte(test.text))
			require.ErrorContains(t, err, test.says)
			require.NotContains(t, err.Error(), "secretsecret")
		})
	}
}

// A port can close between a look at a node and the dial that follows, above all when somebody else configures the node
// in that moment.
func TestARefusedDialIsWorthAnotherTry(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	closed := listener.Addr().String()
	require.NoError(t, listener.Close())

	_, err = (&talos.Dialer{Timeout: time.Minute}).Maintenance(t.Context(), closed)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	for _, op := range []talos.Operation{talos.OpDial, talos.OpApply, talos.OpBootstrap} {
		require.Equal(t, talos.Retry, talos.Classify(op, err), "%v", err)
	}
}

// What follows would otherwise wait for the node until its time is over.
func TestAConnectionThatIsLostAsSoonAsItStandsIsToldAtOnce(t *testing.T) {
	t.Parallel()

	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // the first HTTP/2 frame of a node

	config := h2(newAuthority(t).certificate(t, maintenance), tls.NoClientCert, nil)
	address := listen(t, func(conn net.Conn) {
		session := tls.Server(conn, config)
		if session.HandshakeContext(context.Background()) == nil {
			session.Write([]byte(settings)) //nolint:errcheck // the client reads it or not
			session.Close()                 //nolint:errcheck // as above
		}
	})

	conn, err := (&talos.Dialer{Timeout: time.Hour}).Maintenance(t.Context(), address)
	if err == nil {
		defer conn.Close()

		_, err = conn.Links(t.Context())
	}

	require.Error(t, err)
}
