package emulator_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// configured is a control plane that has booted with its config, before any Bootstrap.
func configured(t *testing.T, options labcluster.Options) (*labcluster.Cluster, *emulator.Node) {
	t.Helper()

	cluster, node := alone(t, options)
	applyOwn(t, cluster, "cp1")
	installed(t, node)
	eventually(t, func() error { _, _, err := handshake(t, node, 0); return err })

	return cluster, node
}

// signedTLS is how a client with a certificate of the cluster's machine CA connects.
func signedTLS(t *testing.T, cluster *labcluster.Cluster, options ...x509.Option) *tls.Config {
	t.Helper()

	bundle := cluster.Generated.Options.Secrets

	return &tls.Config{
		RootCAs: pool(t, bundle.Certs.OS.Crt), Certificates: []tls.Certificate{clientCertificate(t, bundle, options...)},
		MinVersion: tls.VersionTLS13,
	}
}

func pool(t *testing.T, certificates []byte) *stdx509.CertPool {
	t.Helper()

	roots := stdx509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(certificates))

	return roots
}

// clientCertificate is one that a cluster's machine CA signed.
func clientCertificate(t *testing.T, bundle *secrets.Bundle, options ...x509.Option) tls.Certificate {
	t.Helper()

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	require.NoError(t, err)

	pair, err := x509.NewKeyPair(ca, append([]x509.Option{
		x509.NotAfter(time.Now().Add(time.Hour)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}),
	}, options...)...)
	require.NoError(t, err)

	return *pair.Certificate
}

// signed is a client with a certificate of the cluster's machine CA.
func signed(t *testing.T, cluster *labcluster.Cluster, node *emulator.Node, options ...x509.Option) *client.Client {
	t.Helper()

	return withTLS(t, node, signedTLS(t, cluster, options...))
}

func withTLS(t *testing.T, node *emulator.Node, config *tls.Config) *client.Client {
	t.Helper()

	c, err := client.New(t.Context(), client.WithEndpoints(node.Endpoint()), client.WithTLSConfig(config))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over

	return c
}

func foreignSecrets(t *testing.T) *secrets.Bundle {
	t.Helper()

	bundle, err := clusterfiles.ForeignSecrets()
	require.NoError(t, err)

	return bundle
}

func foreignTalosconfig(t *testing.T) string {
	t.Helper()

	other, err := labcluster.New(t.TempDir(), labcluster.Options{Secrets: foreignSecrets(t), Name: "other", Off: true})
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() }) //nolint:errcheck // the test is over

	return other.Talosconfig()
}

func TestClaim_3_01_AConfiguredNodeDemandsAClientCertificate(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{})

	state, asked, err := handshake(t, node, tls.VersionTLS13)
	require.NoError(t, err, "in TLS 1.3 the refusal comes after the handshake")
	require.True(t, asked)
	require.Equal(t, "cp1", state.PeerCertificates[0].Subject.CommonName)

	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.Generated.Options.Secrets.Certs.OS.Crt)
	_, err = state.PeerCertificates[0].Verify(stdx509.VerifyOptions{Roots: roots, DNSName: node.Address().String()})
	require.NoError(t, err)
}

func TestClaim_3_02_TheCertificateIsForClientAuthenticationAlone(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{})
	admin := x509.Organization(string(role.Admin))

	_, err := signed(t, cluster, node, admin).Version(deadline(t))
	require.NoError(t, err)

	_, err = signed(t, cluster, node, admin,
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth, stdx509.ExtKeyUsageServerAuth})).
		Version(deadline(t))
	require.Equal(t, codes.Unavailable, client.StatusCode(err))
}

func TestClaim_3_11_TheNodesCertificateNamesItAndNothingElse(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{})
	_, err := apply(t, insecure(t, node), edited(t, cluster, "cp1", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineCertSANs = []string{"192.0.2.9", "node.example"}
	}), modeAuto)
	require.NoError(t, err)
	installed(t, node)
	eventually(t, func() error { _, _, err := handshake(t, node, 0); return err })

	shown, _, err := handshake(t, node, tls.VersionTLS13)
	require.NoError(t, err)
	require.Len(t, shown.PeerCertificates, 1)

	leaf := shown.PeerCertificates[0]
	require.Equal(t, "O=talos", leaf.Issuer.String())
	require.Equal(t, "cp1", leaf.Subject.CommonName)
	require.Equal(t, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}, leaf.ExtKeyUsage)
	require.Equal(t, 24*time.Hour, leaf.NotAfter.Sub(leaf.NotBefore))

	for _, name := range []string{node.Address().String(), "127.0.0.1", "cp1", "192.0.2.9", "node.example"} {
		require.NoError(t, leaf.VerifyHostname(name))
	}

	require.Error(t, leaf.VerifyHostname(cluster.VIP.String()))

	_, _, err = handshake(t, node, tls.VersionTLS12)
	require.ErrorContains(t, err, "protocol version")
}

func TestClaim_3_04_EveryMismatchIsUnavailableWithOneOfItsTexts(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{})
	maintenance, err := cluster.Lab.Start(emulator.NodeOptions{Name: "spare", Address: cluster.Lab.Address(150)})
	require.NoError(t, err)
	waitStage(t, maintenance, "maintenance")

	foreign := foreignTalosconfig(t)
	admin := x509.Organization(string(role.Admin))

	races := []string{"broken pipe", "connection reset by peer", "EOF", "use of closed network connection",
		"write: connection was aborted"}

	for name, test := range map[string]struct {
		client func(t *testing.T) *client.Client
		// sure is the text that must be seen at least once; others may come instead of it if the case is a race.
		sure string
		race bool
	}{
		"insecure on a configured node": {
			func(t *testing.T) *client.Client { t.Helper(); return insecure(t, node) }, "tls: certificate required", true,
		},
		"expired certificate": {
			func(t *testing.T) *client.Client {
				t.Helper()

				return signed(t, cluster, node, admin, x509.NotBefore(time.Now().Add(-2*time.Hour)),
					x509.NotAfter(time.Now().Add(-time.Hour)))
			}, "tls: expired certificate", true,
		},
		"another cluster's client certificate": {
			func(t *testing.T) *client.Client {
				t.Helper()

				config := signedTLS(t, cluster, admin)
				config.Certificates = []tls.Certificate{clientCertificate(t, foreignSecrets(t), admin)}

				return withTLS(t, node, config)
			}, "tls: unknown certificate authority", true,
		},
		"another fingerprint": {
			func(t *testing.T) *client.Client {
				t.Helper()

				other, err := x509.ParseFingerprint("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
				require.NoError(t, err)

				return withTLS(t, maintenance, &tls.Config{
					InsecureSkipVerify: true, //nolint:gosec // the fingerprint is what is looked at
					VerifyConnection:   x509.MatchSPKIFingerprints(other),
				})
			}, "transport: authentication handshake failed: leaf peer certificate doesn't match the provided " +
				"fingerprints: [AAAA", false,
		},
		"both key usages": {
			func(t *testing.T) *client.Client {
				t.Helper()

				return signed(t, cluster, node, admin,
					x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth, stdx509.ExtKeyUsageServerAuth}))
			}, "tls: bad certificate", true,
		},
		"talosconfig on maintenance": {
			func(t *testing.T) *client.Client { t.Helper(); return secure(t, cluster.Talosconfig(), maintenance) },
			"tls: failed to verify certificate: x509: certificate signed by unknown authority", false,
		},
		"foreign talosconfig": {
			func(t *testing.T) *client.Client { t.Helper(); return secure(t, foreign, node) },
			`(possibly because of "x509: Ed25519 verification failure" while trying to verify candidate authority certificate "talos")`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			seen := false

			for range 200 {
				_, err := test.client(t).Version(deadline(t))
				require.Equal(t, codes.Unavailable, client.StatusCode(err))

				if strings.Contains(strings.ReplaceAll(err.Error(), `\`, ""), test.sure) {
					seen = true

					break
				}

				require.True(t, test.race, "%v", err)
				require.True(t, containsAny(err.Error(), races), "%v", err)
			}

			require.True(t, seen, "never saw %q", test.sure)
		})
	}
}

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}

	return false
}

func TestClaim_3_05_AnAddressOutsideTheCertificateIsRefused(t *testing.T) {
	t.Parallel()

	cluster, node := configured(t, labcluster.Options{})

	elsewhere := cluster.Lab.Address(200)
	require.NoError(t, cluster.Lab.Balance(elsewhere, []uint16{emulator.APIPort}, node))

	config, err := clientconfig.Open(cluster.Talosconfig())
	require.NoError(t, err)

	c, err := client.New(t.Context(), client.WithConfig(config), client.WithEndpoints(elsewhere.String()))
	require.NoError(t, err)

	defer c.Close() //nolint:errcheck // the test is over

	_, err = c.Version(deadline(t))
	require.ErrorContains(t, err, "x509: certificate is valid for")
	require.ErrorContains(t, err, "not "+elsewhere.String())
}

func TestClaim_3_06_AWorkerHasNoAPIUntilTrustdSignsIts(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		options labcluster.Options
		config  func(*v1alpha1.Config)
		heal    func(*labcluster.Cluster)
	}{
		"VIP before bootstrap": {
			labcluster.Options{}, func(*v1alpha1.Config) {}, func(*labcluster.Cluster) {},
		},
		"trustd closed": {
			labcluster.Options{Endpoint: labcluster.FirstControlPlane,
				Edit: func(o *emulator.NodeOptions) { o.Faults.TrustdDown = true }},
			func(*v1alpha1.Config) {},
			func(c *labcluster.Cluster) { c.Node("cp1").Set(func(f *emulator.Faults) { f.TrustdDown = false }) },
		},
		"wrong clock": {
			labcluster.Options{Endpoint: labcluster.FirstControlPlane, Edit: func(o *emulator.NodeOptions) {
				if o.Name == "worker1" {
					o.Faults.ClockOffset = -1000 * time.Hour
				}
			}},
			func(*v1alpha1.Config) {},
			func(c *labcluster.Cluster) { c.Node("worker1").Set(func(f *emulator.Faults) { f.ClockOffset = 0 }) },
		},
		"wrong token": {
			labcluster.Options{Endpoint: labcluster.FirstControlPlane},
			func(c *v1alpha1.Config) { c.MachineConfig.MachineToken = "aaaaaa.bbbbbbbbbbbbbbbb" },
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			test.options.ControlPlanes, test.options.Workers = 1, 1
			cluster := newCluster(t, test.options)
			worker := cluster.Node("worker1")

			applyOwn(t, cluster, "cp1")
			installed(t, cluster.Node("cp1"))
			waitStage(t, worker, "maintenance")

			_, err := apply(t, insecure(t, worker), edited(t, cluster, "worker1", test.config), modeAuto)
			require.NoError(t, err)
			require.NoError(t, worker.WaitFor(deadline(t),
				func(n *emulator.Node) bool { return n.Boots() == 2 && n.Stage() == "running" }))

			_, _, err = handshake(t, worker, 0)
			require.ErrorContains(t, err, "connection refused")

			if test.heal == nil {
				eventually(t, func() error {
					return until(
						strings.Contains(strings.Join(worker.Console(), "\n"), "invalid token"))
				})

				return
			}

			test.heal(cluster)

			if name == "VIP before bootstrap" {
				c := secure(t, cluster.Talosconfig(), cluster.Node("cp1"))
				eventually(t, func() error { return c.Bootstrap(deadline(t), &machineapi.BootstrapRequest{}) })
			}

			eventually(t, func() error { _, err := secure(t, cluster.Talosconfig(), worker).Version(deadline(t)); return err })
		})
	}
}

func TestClaim_3_07_FaultsOfTheNetworkLookLikeThemselves(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	dial := func() error {
		conn, err := net.DialTimeout("tcp", node.Endpoint(), 300*time.Millisecond)
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a look
		}

		return err
	}

	require.NoError(t, dial())

	node.Refuse(true)
	require.ErrorContains(t, dial(), "connection refused")
	node.Refuse(false)
	require.NoError(t, dial())

	node.Silence(true)
	require.ErrorContains(t, dial(), "i/o timeout")
	node.Silence(false)
	require.NoError(t, dial())

	node.PowerOff()
	require.ErrorContains(t, dial(), "i/o timeout")
	require.Equal(t, "off", node.Stage())
	node.PowerOn()
	eventually(t, dial)

	node.Set(func(f *emulator.Faults) { f.Impostor = emulator.HTTPSImpostor })
	eventually(t, func() error {
		state, _, err := handshake(t, node, 0)
		if err != nil {
			return err
		}

		return until(state.PeerCertificates[0].Subject.CommonName == "appliance.example")
	})

	node.Set(func(f *emulator.Faults) { f.Impostor = emulator.SSHImpostor })
	eventually(t, func() error {
		_, _, err := handshake(t, node, 0)

		return until(err != nil && strings.Contains(err.Error(), "first record does not look like a TLS handshake"))
	})
}

func TestClaim_3_08_AHalfOpenConnectionHangs(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})
	c := insecure(t, node)

	_, err := c.Version(deadline(t))
	require.NoError(t, err)

	node.Silence(true)

	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()

	_, err = c.MachineClient.Version(short, &emptypb.Empty{})
	require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err))
}
