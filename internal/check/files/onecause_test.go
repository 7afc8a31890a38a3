package files_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// One cause is told once, not again by each check that comes upon it.
func TestOneCauseIsToldOnce(t *testing.T) {
	t.Parallel()

	inHostname := func(text string) files {
		return lab(config{}).replaced("talconfig.yaml", "hostname: n1", "hostname: "+text)
	}

	for name, test := range map[string]struct {
		files files
		id    diagnosis.ID
		count int
		not   []diagnosis.ID
	}{
		"a hostname with a variable that is not set": {files: inHostname("n1.${DOMAIN}"), id: diagnosis.FileVariable,
			count: 1, not: []diagnosis.ID{diagnosis.HostnameInvalid, diagnosis.FileValue}},
		"an endpoint with one": {files: lab(config{}).replaced("talconfig.yaml", "https://192.0.2.10", "https://${VIP}"),
			id: diagnosis.FileVariable, count: 1, not: []diagnosis.ID{diagnosis.EndpointUnusable, diagnosis.FileValue}},
		"an address for a resolver of the node itself": {files: lab(config{documents: []string{
			"kind: LinkConfig\nname: lo\naddresses:\n\t- address: 169.254.116.108/32"}}),
			id: diagnosis.ConfigAddress, count: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			result := table.Run(context.Background(), test.files.read(t))
			require.Len(t, findingsOf(result, test.id), test.count)

			for _, id := range test.not {
				require.Empty(t, findingsOf(result, id))
			}
		})
	}
}

func TestExtensionsByTheInstallerAreToldOnce(t *testing.T) {
	t.Parallel()

	dir := writeDemo(t, demoOptions(t))
	edit(t, dir, "clusterconfig/demo-cp1.yaml", "  install:\n",
		"  install:\n    extensions: [{image: ghcr.io/siderolabs/gvisor:v1}]\n")

	result := table.Run(context.Background(), check.Read(check.Options{TalosDir: dir, Root: dir}))
	require.Len(t, findingsOf(result, diagnosis.InstallExtensions), 1)

	for _, finding := range findingsOf(result, diagnosis.ConfigInvalid) {
		require.Equal(t, diagnosis.OK, finding.Severity, finding.Cause)
	}
}
