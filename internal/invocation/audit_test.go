package invocation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/invocation"
)

// audited runs an audit over a repository with this talconfig.
func audited(t *testing.T, talconfig string, flags map[string]string) (string, *invocation.Failure) {
	t.Helper()

	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "talos"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "talos", "talconfig.yaml"), []byte(talconfig), 0o600))

	var out, errs bytes.Buffer

	failure := invocation.Invocation{Environ: []string{"ROOT_DIR=" + root}, Workdir: root, Out: &out, Err: &errs}.Audit(context.Background(), flags)

	return out.String(), failure
}

func TestAuditEndsWithBadInputForBadFiles(t *testing.T) {
	t.Parallel()

	out, failure := audited(t, "clusterName: lab\nnodes: [\n", nil)
	require.NotNil(t, failure)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, out, "talos/talconfig.yaml:")
	require.Contains(t, out, "not run")

	out, failure = audited(t, "clusterName: lab\nnodes: [\n", map[string]string{"AUDIT_FORMAT": "json"})
	require.NotNil(t, failure)

	var document struct{ ExitCode int }
	require.NoError(t, json.Unmarshal([]byte(out), &document))
	require.Equal(t, 2, document.ExitCode)

	_, failure = audited(t, "", map[string]string{"AUDIT_FORMAT": "xml"})
	require.NotNil(t, failure)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
}

func TestExplain(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	call := invocation.Invocation{Out: &out}
	require.Nil(t, call.Explain("tm200"))
	require.Contains(t, out.String(), "TM200")

	failure := call.Explain("TM20O")
	require.NotNil(t, failure)
	require.Equal(t, diagnosis.ExitBadInput, failure.Code)
	require.Contains(t, failure.Message, "did you mean TM20")
}
