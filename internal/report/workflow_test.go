package report_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// In a job of GitHub Actions a step's lines are a group; what it came to, and what is wrong, stands outside of it.
func TestStepsAreGroupsInAWorkflow(t *testing.T) {
	t.Parallel()

	var out, errs bytes.Buffer

	recorder := report.NewRecorder(time.Now, report.NewConsole(report.ConsoleOptions{Out: &out, Err: &errs,
		Workflow: &report.Workflow{Root: "/checkout/clusters/lab", Checkout: "/checkout"}}))
	recorder.Start("preflight", "cp1")
	recorder.Finding("preflight", diagnosis.Finding{ID: "TM044", Node: "cp1", Cause: "runs Talos v1.13.9"})

	disk := diagnosis.Finding{ID: "TM048", Severity: diagnosis.Failure, Node: "cp1", Address: "192.0.2.11",
		Cause: "install disk /dev/sda does not exist: 100% sure\nDISK  SIZE", Next: "correct the install disk",
		At: diagnosis.Location{Path: "talos/talconfig.yaml", Line: 12, Column: 5}}
	recorder.Finding("preflight", disk)
	recorder.Result(report.Result{Node: "cp1", Step: "preflight", Status: report.Failed,
		Err: disk.Problem("preflight", nil)})
	recorder.Finish("preflight", time.Second, errors.New("failed"))
	require.NoError(t, recorder.Close())

	require.Equal(t, `::group::preflight
ok       TM044  cp1  runs Talos v1.13.9
failure  TM048  cp1 (192.0.2.11)  install disk /dev/sda does not exist: 100% sure
    DISK  SIZE
    at talos/talconfig.yaml:12:5
    next: correct the install disk
failed   preflight  cp1  told above [TM048]  (0.0s)
::endgroup::
::error file=clusters/lab/talos/talconfig.yaml,line=12,col=5,title=TM048::cp1 (192.0.2.11): `+
		`install disk /dev/sda does not exist: 100%25 sure. Next: correct the install disk
preflight: 1 of 1 node failed; 1 check ok, 1 failure (1.0s)
`, out.String())
}

// What is to be corrected is what a file was made from; a file that nobody has is not named.
func TestAnnotationsNameTheFileThatPeopleHave(t *testing.T) {
	t.Parallel()

	at := report.Workflow{Root: "/checkout", Checkout: "/checkout"}
	finding := diagnosis.Finding{ID: "TM010", Severity: diagnosis.Warning, Cause: "a, b: c",
		At: diagnosis.Location{Path: "talos/clusterconfig/lab-cp1.yaml", Line: 7, Unwritten: true}}
	require.Equal(t, "::warning title=TM010::a, b: c", at.Annotation(finding))

	finding.At.From = &diagnosis.Location{Path: "/checkout/talos/patches/a,b.yaml", Line: 3}
	require.Equal(t, "::warning file=talos/patches/a%2Cb.yaml,line=3,title=TM010::a, b: c", at.Annotation(finding))

	finding.Severity = diagnosis.OK
	require.Empty(t, at.Annotation(finding))
}
