package emulator_test

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// leafOf is the certificate that a machine shows.
func leafOf(t *testing.T, node *emulator.Node) *stdx509.Certificate {
	t.Helper()

	state, _, err := handshake(t, node, tls.VersionTLS13)
	require.NoError(t, err)

	return state.PeerCertificates[0]
}

func fingerprintOf(t *testing.T, node *emulator.Node) string {
	t.Helper()

	return x509.SPKIFingerprint(leafOf(t, node)).String()
}

func console(node *emulator.Node) string { return strings.Join(node.Console(), "\n") }

func TestClaim_1_14_TheMaintenanceCertificateIsNobodysAndLastsADay(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	leaf := leafOf(t, node)

	require.Empty(t, leaf.Issuer.String())
	require.False(t, leaf.IsCA)
	require.Equal(t, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}, leaf.ExtKeyUsage)
	require.Equal(t, 24*time.Hour, leaf.NotAfter.Sub(leaf.NotBefore))
	require.Empty(t, leaf.DNSNames, "a machine without a config has no name")

	for _, address := range []string{node.Address().String(), "127.0.0.1", "::1"} {
		require.NoError(t, leaf.VerifyHostname(address))
	}

	require.Len(t, leaf.IPAddresses, 3)
}

func TestClaim_1_15_CertificatesAreRenewedAtHalfOfTheirLife(t *testing.T) {
	t.Parallel()

	const scale = 50_000 // twelve hours are a second

	quick := labcluster.Options{LabOptions: emulator.LabOptions{TimeScale: scale}}

	renewed := func(node *emulator.Node) {
		before := fingerprintOf(t, node)
		eventually(t, func() error { return until(fingerprintOf(t, node) != before) })
	}

	_, node := alone(t, quick)
	renewed(node)

	_, node, c := ready(t, quick)
	renewed(node)

	_, err := c.Version(deadline(t))
	require.NoError(t, err, "the connection is as good as before")
}

func TestClaim_1_16_PartialSettingsTakeEffectInMaintenance(t *testing.T) {
	t.Parallel()

	cluster, node := alone(t, labcluster.Options{})
	eventually(t, func() error { return timeSynced(t, node) })

	first, elsewhere := fingerprintOf(t, node), cluster.Lab.Address(120)

	_, err := apply(t, insecure(t, node), []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: early\n"),
		modeAuto)
	require.NoError(t, err)

	second := leafOf(t, node)
	require.NotEqual(t, first, x509.SPKIFingerprint(second).String())
	require.Equal(t, []string{"early"}, second.DNSNames)

	name, err := safe.StateGetByID[*network.HostnameStatus](deadline(t), insecure(t, node).COSI, network.HostnameID)
	require.NoError(t, err)
	require.Equal(t, "early", name.TypedSpec().Hostname)

	_, err = apply(t, insecure(t, node),
		[]byte("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses:\n  - address: "+elsewhere.String()+"/24\n"),
		modeAuto)
	require.NoError(t, err)
	require.Equal(t, elsewhere, node.Address())
	require.NoError(t, leafOf(t, node).VerifyHostname(elsewhere.String()))
	require.Equal(t, "maintenance", node.Stage())
}

func TestClaim_1_17_TheConsoleTellsHowToSendAConfig(t *testing.T) {
	t.Parallel()

	_, node := idle(t)
	address := node.Address().String()

	for _, line := range []string{
		"this machine is reachable at:", "\t" + address, "upload configuration using talosctl:",
		"\ttalosctl apply-config --insecure --nodes " + address + " --file <config.yaml>",
		"optionally with node fingerprint check:", `"fingerprint": "` + fingerprintOf(t, node) + `"`,
	} {
		require.Contains(t, console(node), line)
	}

	require.Regexp(t, "talosctl apply-config --insecure --nodes "+address+
		" --cert-fingerprint '[A-Za-z0-9+/]{43}=' --file <config.yaml>", console(node))
}

func TestClaim_1_18_OnlyACompleteConfigEndsMaintenance(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) {
		o.Config = []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: kept\n")
	}})

	name, err := insecure(t, node).MachineClient.Hostname(deadline(t), nil)
	require.NoError(t, err)
	require.Equal(t, "kept", name.GetMessages()[0].GetHostname())
	require.True(t, node.Installed())
}

func TestClaim_1_19_AMachineWithAConfigThatItCantUseHasNoAPI(t *testing.T) {
	t.Parallel()

	cluster := newCluster(t, labcluster.Options{ControlPlanes: 1, Workers: -1, Off: true})
	broken := edited(t, cluster, "cp1", func(c *v1alpha1.Config) { c.MachineConfig.MachineType = "master" })

	node, err := cluster.Lab.Start(emulator.NodeOptions{Name: "cp1", Address: cluster.Lab.Address(11), Config: broken})
	require.NoError(t, err)

	// It tries again and again.
	eventually(t, func() error { return until(strings.Count(console(node), "failed to validate on-disk config") >= 3) })
	require.Equal(t, "booting", node.Stage())
	require.Equal(t, 1, node.Boots())

	_, err = net.DialTimeout("tcp", node.Endpoint(), labcluster.Deadline)
	require.ErrorContains(t, err, "connection refused")
}

func TestClaim_1_20_AnAgentTakesNoConfig(t *testing.T) {
	t.Parallel()

	cluster, agent := alone(t, labcluster.Options{Edit: func(o *emulator.NodeOptions) { o.Agent = true }})

	reply, err := insecure(t, agent).Version(deadline(t))
	require.NoError(t, err)
	require.Equal(t, "metal-agent", reply.GetMessages()[0].GetPlatform().GetMode())
	require.NotContains(t, console(agent), "upload configuration")

	_, err = apply(t, insecure(t, agent), []byte("no config at all"), modeAuto)
	require.Equal(t, codes.Unimplemented, client.StatusCode(err))
	require.ErrorContains(t, err, "API is not implemented in agent mode")

	data, err := cluster.Config("cp1")
	require.NoError(t, err)

	cluster.Lab.Remove(agent)

	configured, err := cluster.Lab.Start(emulator.NodeOptions{Name: "configured", Address: agent.Address(), Agent: true,
		Config: data})
	require.NoError(t, err)

	c := secure(t, cluster.Talosconfig(), configured)
	eventually(t, func() error { _, err := c.Version(deadline(t)); return err })

	for _, method := range []string{
		"/machine.MachineService/ApplyConfiguration", "/machine.MachineService/Upgrade", "/machine.MachineService/Reset",
		"/machine.LifecycleService/Install", "/machine.LifecycleService/Upgrade",
	} {
		err := knock(t, c, deadline(t), method)
		require.Equal(t, codes.Unimplemented, client.StatusCode(err), method)
		require.ErrorContains(t, err, "API is not implemented in agent mode", method)
	}
}

func TestClaim_2_19_ATriedPartialConfigIsTakenBackInMaintenance(t *testing.T) {
	t.Parallel()

	_, node := alone(t, labcluster.Options{})

	reply, err := insecure(t, node).ApplyConfiguration(deadline(t), &machineapi.ApplyConfigurationRequest{
		Data: []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: tried\n"), Mode: modeTry,
		TryModeTimeout: durationpb.New(10 * time.Second),
	})
	require.NoError(t, err)
	require.Equal(t, modeTry, reply.GetMessages()[0].GetMode())

	eventually(t, func() error { return until(strings.Contains(console(node), "rolling back the configuration")) })
	eventually(t, func() error {
		name, err := insecure(t, node).MachineClient.Hostname(deadline(t), nil)
		if err != nil {
			return err
		}

		return until(name.GetMessages()[0].GetHostname() == "localhost")
	})
	require.Equal(t, "maintenance", node.Stage())
}
