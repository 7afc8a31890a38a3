package invocation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Files are enough: nobody has to answer, and nothing has to be rendered.
func TestADiagnosisNeedsNothingButTheFiles(t *testing.T) {
	t.Parallel()

	repositories, err := repositories()
	require.NoError(t, err)

	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "talos"), 0o700))

	for _, name := range []string{"talos/talconfig.yaml", "talos/talenv.yaml", "talos/patch.yaml", "talos/manifest.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(repositories[ofTalconfig][name]), 0o600))
	}

	diagnose := func(flags settings.Overrides) (*invocation.Failure, string, string) {
		var out, errs bytes.Buffer

		call := invocation.Invocation{Workdir: root, Out: &out, Err: &errs, Environ: []string{"ROOT_DIR=" + root,
			"TMPDIR=" + root, "DIAL_TIMEOUT=100ms", "NODE_REACHABILITY_RETRIES=1"}}

		return call.Diagnose(t.Context(), flags), out.String(), errs.String()
	}

	bundle := filepath.Join(root, "out", "bundle.tar.gz")

	failure, out, errs := diagnose(settings.Overrides{"bundle": "true", "file": bundle})
	require.NotNil(t, failure, errs)
	require.Equal(t, diagnosis.ExitVerify, failure.Code, failure.Message)
	require.Contains(t, out, "1. failure TM09")
	require.Contains(t, out, "way: this computer asks ")
	require.Contains(t, out, "\nbundle: "+bundle+"; look through it before you pass it on\n")
	require.Contains(t, failure.Message, "something is wrong with cp1 and worker1, as listed")
	require.Contains(t, unpacked(t, bundle), "1. failure TM09")

	failure, out, _ = diagnose(settings.Overrides{"node": "cp1", "format": "json"})
	require.Equal(t, diagnosis.ExitVerify, failure.Code, failure.Message)

	var document struct{ Nodes []struct{ Node string } }

	require.NoError(t, json.Unmarshal([]byte(out), &document), out)
	require.Len(t, document.Nodes, 1)

	for _, test := range []struct {
		flags settings.Overrides
		want  string
	}{
		{settings.Overrides{"format": "sarif"}, "-format=json"},
		{settings.Overrides{"node": "cp2"}, "cp1"},
		{settings.Overrides{"bundle": "true", "file": bundle}, "file already exists"},
	} {
		failure, _, _ := diagnose(test.flags)
		require.NotNil(t, failure)
		require.Equal(t, diagnosis.ExitBadInput, failure.Code, failure.Message)
		require.Contains(t, failure.Message, test.want)
	}
}
