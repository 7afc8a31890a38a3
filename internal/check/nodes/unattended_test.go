package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

func TestWhatAnUnattendedInstallWouldDoIsJudgedBefore(t *testing.T) {
	t.Parallel()

	selector := func(expression string) documents.Edit {
		return documents.Edit{`match: disk.dev_path == "/dev/vda"`, "match: " + expression}
	}

	for name, test := range map[string]struct {
		edits     []documents.Edit
		installed bool
		id        diagnosis.ID
		severity  diagnosis.Severity
		says      []string
	}{
		"the disk is there": {id: diagnosis.InstallDiskNoMatch, severity: diagnosis.OK,
			says: []string{"the install disk exists: /dev/vda"}},
		"the disk is not there": {edits: []documents.Edit{documents.NoDisk}, id: diagnosis.InstallDiskAbsent,
			severity: diagnosis.Failure,
			says:     []string{"install disk /dev/nvme7n1 does not exist, and the node would wait for one for ever"}},
		"no disk matches": {edits: []documents.Edit{selector(`disk.transport == "virtio" && disk.size > 1u * TB`)},
			id: diagnosis.InstallDiskNoMatch, severity: diagnosis.Failure,
			says: []string{"and the node would wait for one for ever", "not disk.size > 1u * TB"}},
		"a link is no disk's path": {
			edits: []documents.Edit{selector(`disk.dev_path == "/dev/disk/by-id/virtio-V001"`)},
			id:    diagnosis.InstallDiskNoMatch, severity: diagnosis.Failure,
			says: []string{"and the node would wait for one for ever"}},
		"it would fail unseen": {edits: []documents.Edit{documents.AutoHostname}, id: diagnosis.InstallHidden,
			severity: diagnosis.Warning, says: []string{"nothing but the console tells why"}},
		"Talos is on a disk already": {
			edits: []documents.Edit{documents.AutoHostname, documents.NoDisk}, installed: true,
			id: diagnosis.AlreadyInstalled, severity: diagnosis.Warning,
			says: []string{"Talos is already on a disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f, facts := newFixture(t), goodFacts()
			facts.Version, facts.Installed = documents.Talos, test.installed

			config, err := documents.Config(f.generated.Options, "cp1", test.edits...)
			require.NoError(t, err)
			f.setConfig(t, "cp1", config)

			findings := f.checkNode(t, "cp1", facts)
			finding := the(t, findings, test.id)
			require.Equal(t, test.severity, finding.Severity, finding.Cause)

			for _, words := range test.says {
				require.Contains(t, finding.Cause, words)
			}

			if test.installed {
				require.NotContains(t, idsOf(findings, diagnosis.Warning), diagnosis.InstallHidden)
				require.Empty(t, failures(findings))
			}
		})
	}
}
