package talos_test

import (
	"crypto/tls"
	"strconv"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// What people meet in a bring-up that fails and look up in lists of errors: what is done about each, under which id it
// is told, and what is said to be the fix.
func TestTheErrorsOfAFailedBringUpHaveAFix(t *testing.T) {
	t.Parallel()

	before, after := newAuthority(t), newAuthority(t)

	dialed := func(t *testing.T, address string, credentials *talos.Credentials) error {
		t.Helper()

		_, err := (&talos.Dialer{Credentials: credentials, Timeout: timeout}).Secure(t.Context(), address)
		require.Error(t, err)

		return err
	}
	answered := func(code codes.Code, text string) func(*testing.T) error {
		return func(*testing.T) error { return status.Error(code, text) }
	}

	for name, test := range map[string]struct {
		op    talos.Operation
		err   func(*testing.T) error
		class talos.Class
		// says is what a person is told of it, id where the catalogue explains it, and remedy part of the explanation.
		says   string
		id     diagnosis.ID
		remedy []string
		// ofStep is set where the step that met it chooses the id.
		ofStep bool
	}{
		"certificates: the secrets were made anew after the node got its config": {
			op: talos.OpRead,
			err: func(t *testing.T) error {
				t.Helper()

				node := serveStub(t, h2(before.certificate(t), tls.RequireAndVerifyClientCert, before))

				return dialed(t, node.address, after.credentials(t))
			},
			class: talos.Final, says: "another cluster's CA", id: diagnosis.ForeignNode,
			remedy: []string{"If the secrets were made anew, restore the earlier talosconfig and secrets file"},
		},
		"certificates: the talosconfig is too old": {
			op: talos.OpRead,
			err: func(t *testing.T) error {
				t.Helper()

				node := serveStub(t, h2(before.certificate(t), tls.RequireAndVerifyClientCert, before))

				return dialed(t, node.address, before.credentials(t, expired))
			},
			class: talos.Final, says: "expired on", id: diagnosis.TalosconfigExpired,
			remedy: []string{"from the cluster's secrets"},
		},
		"connection refused": {
			op: talos.OpApply,
			err: func(t *testing.T) error {
				t.Helper()

				return dialed(t, closedPort(t), before.credentials(t))
			},
			class: talos.Retry, says: "connection refused: its API is closed (installing, booting or restarting)",
			id: diagnosis.NodeRefused, ofStep: true,
			remedy: []string{"50000 from here to every node", "50001 from workers to control planes"},
		},
		"the install disk selector matches no disk": {
			op: talos.OpApply, err: answered(codes.InvalidArgument,
				"runtime configuration validation failed: 1 error occurred:\n\t* no disks matched the expression\n\n"),
			class: talos.Final, says: "no disks matched the expression", id: diagnosis.InstallDiskNoMatch, ofStep: true,
			remedy: []string{"Correct the selector with the values of the table"},
		},
		"bootstrap: it has happened before": {
			op: talos.OpBootstrap, err: answered(codes.AlreadyExists, "etcd data directory is not empty"),
			class: talos.Done, says: "etcd data directory is not empty", id: diagnosis.BootstrapBlocked, ofStep: true,
			remedy: []string{"Bring the node up"},
		},
		"bootstrap: another one is under way": {
			op: talos.OpBootstrap, err: answered(codes.Unknown, "etcd data directory is not empty"),
			class: talos.UnknownOutcome, says: "etcd data directory is not empty", id: diagnosis.EtcdStopped, ofStep: true,
			remedy: []string{"Reboot that node, then mage bootstrap"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := test.err(t)
			require.Equal(t, test.class, talos.Classify(test.op, err), "%v", err)
			require.Contains(t, talos.Explain(err), test.says)

			if !test.ofStep {
				id, known := talos.Diagnose(err)
				require.True(t, known)
				require.Equal(t, test.id, id)
			}

			entry, known := diagnosis.Lookup(test.id)
			require.True(t, known)

			for _, part := range test.remedy {
				require.Contains(t, entry.Remedy, part)
			}
		})
	}
}

// Older lists have the API of a configured node on port 50001. It is on one port in both modes; 50001 is trustd's.
func TestTheAPIHasOnePortInBothModes(t *testing.T) {
	t.Parallel()

	entry, _ := diagnosis.Lookup(diagnosis.NodeRefused)
	require.Contains(t, entry.Title, strconv.Itoa(constants.ApidPort))
	require.Contains(t, entry.Cause,
		"The API is on port "+strconv.Itoa(constants.ApidPort)+" in maintenance mode and with a config alike")
	require.Contains(t, entry.Cause, strconv.Itoa(constants.TrustdPort)+" is trustd")
	require.Equal(t, 50000, constants.ApidPort)
	require.Equal(t, 50001, constants.TrustdPort)
}
