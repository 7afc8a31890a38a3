package evidence_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps/evidence"
)

var node = evidence.Subject{Name: "cp1", Address: "192.0.2.11"}

// The texts are those of Talos, of the kernel and of Kubernetes.
func TestALinePointsToItsCause(t *testing.T) {
	t.Parallel()

	for text, want := range map[evidence.Line]diagnosis.ID{
		{evidence.Kernel, `kern: err: [2026-01-01T00:00:00Z]: I/O error, dev sda, sector 2048 op 0x0:(READ)`}:               diagnosis.StorageFails,
		{evidence.Kernel, `kern: err: [2026-01-01T00:00:00Z]: nvme nvme0: controller is down; will reset: CSTS=0xffffffff`}: diagnosis.StorageFails,
		{evidence.Kernel, `kern: alert: [2026-01-01T00:00:00Z]: XFS (sda6): metadata I/O error in "xfs_buf_ioend+0x1"`}:     diagnosis.StorageFails,
		{evidence.Volume, `u-data failed: no disks matched selector for volume`}:                                            diagnosis.StorageFails,
		{evidence.Volume, `STATE failed: sealing policy digest does not match, expected 00, got 01`}:                        diagnosis.StorageFails,
		{evidence.Log, `etcd: write /var/lib/etcd/member/wal: no space left on device`}:                                     diagnosis.StorageFails,
		{evidence.Kernel, `kern: err: [2026-01-01T00:00:00Z]: Out of memory: Killed process 2301 (kube-apiserver)`}:         diagnosis.OutOfMemory,
		{evidence.Diagnostic, `address-overlap: host and Kubernetes pod/service CIDR addresses overlap`}:                    diagnosis.AddressInClusterSubnet,
		{evidence.Diagnostic, `kubelet-csr: kubelet server certificate rotation is enabled, but CSR is not approved`}:       diagnosis.ServingCertificate,
		{evidence.Diagnostic, `another: something new`}:                                                                     diagnosis.NodeDiagnostic,
		{evidence.Kernel, `[talos] no suitable node IP found, please make sure .machine.kubelet.nodeIP filters are right`}:  diagnosis.NodeIPExcluded,
		{evidence.Service, `etcd Failed: Failed to run pre stage: failed to pull image "registry.k8s.io/etcd:v3.6.5": x`}:   diagnosis.ImagePullFails,
		{evidence.Log, `kubelet: Node "CP_1" is invalid: a lowercase RFC 1123 subdomain must consist of lower case`}:        diagnosis.HostnameInvalid,
		{evidence.Kernel, `[talos] task install (1/1): failed: no disks matched the expression: disk.size > 1u`}:            diagnosis.InstallDiskNoMatch,
		{evidence.Event, `SequenceEvent install: specified install disk does not exist: "/dev/sdz"`}:                        diagnosis.InstallDiskAbsent,
		{evidence.Log, `apid: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: now`}:   diagnosis.NodeClock,
		{evidence.Event, `ConfigLoadErrorEvent: unknown keys found during decoding: machine.new`}:                           diagnosis.ConfigRefusedHere,
		{evidence.Log, `etcd: rejected connection on peer endpoint: remote error: tls: bad certificate`}:                    diagnosis.ConfigSecrets,
	} {
		causes := evidence.Explain(node, nil, []evidence.Line{{evidence.Kernel, "[talos] nothing to see"}, text})
		require.Len(t, causes, 1, text)
		require.Equal(t, want, causes[0].ID, text)
		require.Equal(t, []evidence.Line{text}, causes[0].Lines)
		require.NotEmpty(t, causes[0].Next, text)
		require.NotContains(t, causes[0].Next, "{")
	}
}

func TestWhatIsOverIsNoCauseOfANodeThatLacksNothing(t *testing.T) {
	t.Parallel()

	well := node
	well.Well = true

	require.Empty(t, evidence.Explain(well, nil, []evidence.Line{
		{evidence.Kernel, `[talos] retrying error: failed to pull image "registry.k8s.io/etcd:v3.6.5": not found`},
		{evidence.Kernel, `[talos] time query error {"server": "time.example"}`},
	}))

	causes := evidence.Explain(well, nil, []evidence.Line{{evidence.Kernel, `I/O error, dev sda, sector 2048`}})
	require.Len(t, causes, 1)
	require.Equal(t, diagnosis.StorageFails, causes[0].ID)
}

func TestCausesStandBeforeWhatFollowsFromThem(t *testing.T) {
	t.Parallel()

	judged := []diagnosis.Finding{
		{ID: diagnosis.ConfigDrifted, Severity: diagnosis.Warning},
		{ID: diagnosis.EtcdNotHealthy, Severity: diagnosis.Failure},
		{ID: diagnosis.TimeNotSynced, Severity: diagnosis.Failure},
		{ID: diagnosis.NodeState, Severity: diagnosis.OK},
	}

	lines := []evidence.Line{
		{evidence.Service, "etcd Waiting: Waiting for time sync"},
		{evidence.Clock, `error querying NTP server "time.example": i/o timeout`},
	}

	var ids []diagnosis.ID
	for _, cause := range evidence.Explain(node, judged, lines) {
		ids = append(ids, cause.ID)
	}

	require.Equal(t, []diagnosis.ID{diagnosis.TimeNotSynced, diagnosis.EtcdNotHealthy, diagnosis.ConfigDrifted}, ids)
	require.Equal(t, lines[1:], evidence.Explain(node, judged, lines)[0].Lines)
}

func TestALineThatRepeatsIsShownOnce(t *testing.T) {
	t.Parallel()

	causes := evidence.Explain(node, nil, []evidence.Line{
		{evidence.Kernel, "kern: err: [2026-01-01T00:00:00Z]: I/O error, dev sda, sector 1"},
		{evidence.Kernel, "kern: err: [2026-01-01T00:00:01Z]: I/O error, dev sda, sector 1"},
	})
	require.Len(t, causes, 1)
	require.Equal(t, "kern: err: [2026-01-01T00:00:01Z]: I/O error, dev sda, sector 1", causes[0].Lines[0].Text)
	require.Len(t, causes[0].Lines, 1)
}
