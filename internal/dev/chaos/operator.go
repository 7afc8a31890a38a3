package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// operator is a person at a computer.
type operator struct {
	name string
	// root is the repository; machine is the computer, where the lock and the kubeconfig are.
	root, machine string
	scale         float64
}

// Run is one call of the program, and everything that a person sees of it.
type Run struct {
	Target string
	// Operator is who made it, and Healed tells that it came after the healing.
	Operator string
	Healed   bool
	// Interrupted reports whether the operator pressed Ctrl-C before it was over.
	Interrupted bool
	// Began and Ended are the wall clock's.
	Began, Ended time.Time
	Code         diagnosis.ExitCode
	// Message is what is shown last of a failure.
	Message string
	// Output is the console's, Report the events' file.
	Output, Report string
	// Secrets are those that the operator's files hold.
	Secrets []string
}

// limits of the waits and calls. A wait is in the machines' time; a call's limit is the wall's, and bounds what a
// frozen connection costs.
var limits = []string{
	"DIAL_TIMEOUT=1500ms",
	"APPLY_TIMEOUT=3s",
	"NODE_REACHABILITY_RETRIES=2",
	"VERIFICATION_TIMEOUT=3m",
	"INSTALL_TIMEOUT=8m",
	"NODE_WAIT=5m",
	"STAGE_TIMEOUT=5m",
	"ETCD_TIMEOUT=5m",
	"ETCD_JOIN_TIMEOUT=6m",
	"TIME_SYNC_TIMEOUT=2m",
	"API_TIMEOUT=6m",
}

func (o operator) environ(settings ...string) []string {
	return append(append([]string{
		"ROOT_DIR=" + o.root,
		"TALOS_DIR=" + filepath.Join(o.root, "talos"),
		"KUBECONFIG=" + o.kubeconfig(),
		"TMPDIR=" + o.machine,
		"PATH=" + filepath.Join(o.machine, "bin"),
		"CLOCK_SCALE=" + strconv.FormatFloat(o.scale, 'f', -1, 64),
		"LOG_LEVEL=debug",
		"REPORT_FILE=" + o.report(),
	}, limits...), settings...)
}

func (o operator) kubeconfig() string { return filepath.Join(o.machine, "kubeconfig") }

func (o operator) report() string { return filepath.Join(o.machine, o.name+".jsonl") }

// runRecipe calls the recipe as the program does.
func (o operator) runRecipe(ctx context.Context, settings ...string) (*Run, error) {
	return o.run(ctx, "talos", nil, steps.Talos, settings...)
}

// run calls a target as the program does.
func (o operator) run(ctx context.Context, target string, flags settings.Overrides,
	list func(*settings.Settings) []steps.Step, environ ...string) (*Run, error) {
	return o.call(ctx, target, func(call invocation.Invocation) *invocation.Failure {
		return call.Execute(ctx, target, flags, list)
	}, environ...)
}

// parting is how long the program may take for its last words.
const parting = 100 * time.Millisecond

// pressedAt tells once when a context ended.
func pressedAt(ctx context.Context) <-chan time.Time {
	pressed := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { pressed <- time.Now() })

	return pressed
}

// call calls the program in whichever way.
func (o operator) call(ctx context.Context, target string, how func(invocation.Invocation) *invocation.Failure,
	environ ...string) (*Run, error) {
	if err := makeFolders(o.machine); err != nil {
		return nil, err
	}

	if err := os.RemoveAll(o.report()); err != nil {
		return nil, fmt.Errorf("remove the report: %w", err)
	}

	output := &syncbuffer.Buffer{}
	call := invocation.Invocation{Environ: o.environ(environ...), Workdir: o.root, Out: output, Err: output}
	run := &Run{Target: target, Operator: o.name, Began: time.Now()}

	pressed := pressedAt(ctx)

	if failure := how(call); failure != nil {
		run.Code, run.Message = failure.Code, failure.Message
	}

	run.Ended, run.Output = time.Now(), output.String()
	// At its very end the program does not look for Ctrl-C any more.
	run.Interrupted = ctx.Err() != nil &&
		(run.Code == diagnosis.ExitInterrupt || run.Ended.Sub(<-pressed) > parting)

	report, err := os.ReadFile(o.report())
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read the report: %w", err)
	}

	run.Report = string(report)
	run.Secrets, err = secretsBelow(filepath.Join(o.root, "talos"), o.kubeconfig())

	return run, err
}
