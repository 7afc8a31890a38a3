package files_test

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

type sarifPlace struct {
	PhysicalLocation struct {
		ArtifactLocation struct{ URI string }
		Region           *struct{ StartLine, StartColumn int }
	}
}

type sarifResult struct {
	RuleID                      string
	Locations, RelatedLocations []sarifPlace
}

func sarifResults(t *testing.T, result check.Result) []sarifResult {
	t.Helper()

	var log struct {
		Runs []struct{ Results []sarifResult }
	}

	require.NoError(t, json.Unmarshal([]byte(write(t, result, "sarif")), &log))
	require.Len(t, log.Runs, 1)

	return log.Runs[0].Results
}

// A code-scanning tool marks the file that git has: the one that generated text comes from.
func TestSARIFNamesTheSourceOfGeneratedText(t *testing.T) {
	t.Parallel()

	const source = "    networkInterfaces:\n      - interface: eth0\n        routes:\n          - gateway: 198.51.100.1\n"

	made := lab(routed("192.0.2.11/24", "198.51.100.1"), routed("192.0.2.12/24", "198.51.100.1"))
	unwritten := made["clusterconfig/lab-n2.yaml"]
	delete(made, "clusterconfig/lab-n2.yaml")
	made["talconfig.yaml"] += source

	folder := made.write(t)
	results := sarifResults(t, table.Run(context.Background(), check.Read(check.Options{
		TalosDir: folder, Root: folder,
		Generate: func() (map[string][]byte, error) { return map[string][]byte{"lab-n2.yaml": []byte(unwritten)}, nil },
	})))

	gateways := map[string]sarifResult{}

	for _, result := range results {
		for _, place := range result.Locations {
			parsed, err := url.Parse(place.PhysicalLocation.ArtifactLocation.URI)
			require.NoError(t, err)
			require.False(t, parsed.IsAbs())
			require.NotContains(t, parsed.Path, "not written")
		}

		if result.RuleID == string(diagnosis.GatewayOutside) {
			require.Len(t, result.Locations, 1)
			gateways[result.Locations[0].PhysicalLocation.ArtifactLocation.URI] = result
		}
	}

	require.Len(t, gateways, 2)

	written := gateways["clusterconfig/lab-n1.yaml"]
	require.Empty(t, written.RelatedLocations, "nobody knows where it comes from")

	generated := gateways["talconfig.yaml"]
	require.Equal(t, 17, generated.Locations[0].PhysicalLocation.Region.StartLine)
	require.Equal(t, 22, generated.Locations[0].PhysicalLocation.Region.StartColumn)
	require.Empty(t, generated.RelatedLocations, "the file that it is generated into is not there")
}

func TestSARIFRelatesSourceAndGeneratedText(t *testing.T) {
	t.Parallel()

	made := lab(routed("192.0.2.11/24", "198.51.100.1"))
	made["talconfig.yaml"] += "    networkInterfaces:\n      - interface: eth0\n        routes:\n          - gateway: " +
		"198.51.100.1\n"

	for _, result := range sarifResults(t, table.Run(context.Background(), made.read(t))) {
		if result.RuleID == string(diagnosis.GatewayOutside) {
			require.Equal(t, "talconfig.yaml", result.Locations[0].PhysicalLocation.ArtifactLocation.URI)
			require.Equal(t, "clusterconfig/lab-n1.yaml", result.RelatedLocations[0].PhysicalLocation.ArtifactLocation.URI)

			return
		}
	}

	t.Fatal("no finding about the gateway")
}

// A file outside of the repository is named by a whole URI.
func TestSARIFOfFilesElsewhere(t *testing.T) {
	t.Parallel()

	folder := lab(config{}, config{}).write(t)

	for _, result := range sarifResults(t,
		table.Run(context.Background(), check.Read(check.Options{TalosDir: folder, Root: t.TempDir()}))) {
		for _, place := range result.Locations {
			require.Regexp(t, "^file:///", place.PhysicalLocation.ArtifactLocation.URI)
		}
	}
}
