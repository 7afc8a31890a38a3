// What importers of github.com/talos-mage/talos-mage/recipe rely on.
// Made by apicheck -update; comments and bodies are in the package.

package recipe

import "context"
import "io"
import "time"

func Apply() Step

func Bootstrap() Step

type Cluster struct {
	Name        string
	Endpoint    string
	Nodes       []Node
	Talosconfig string
	Kubeconfig  string
}

func DefragEtcd() Step

const ExitApply ExitCode = 4

const ExitBadInput ExitCode = 2

const ExitBootstrap ExitCode = 6

type ExitCode int

const ExitDryRun ExitCode = 8

const ExitInterrupt ExitCode = 130

const ExitKubernetes ExitCode = 7

const ExitOK ExitCode = 0

const ExitPreflight ExitCode = 3

const ExitUnexpected ExitCode = 1

const ExitVerify ExitCode = 5

func Func(name string, do func(ctx context.Context, cluster Cluster) error) Step

func GenerateConfigs() Step

func GenerateSecrets() Step

func Health() Step

type Hook struct {
	Step   string
	Before func(ctx context.Context, at Point) error
	After  func(ctx context.Context, at Point) error
}

func InstallApps() Step

func Kubeconfig() Step

type Node struct {
	Name         string
	Address      string
	ControlPlane bool
}

type Options struct {
	Dir        string
	Settings   map[string]string
	Environ    []string
	Nodes      []string
	Cluster    string
	DryRun     bool
	Update     bool
	Reboot     bool
	LoseDataOf []string
	Stdout     io.Writer
	Stderr     io.Writer
}

type Outcome struct {
	Step     string
	Node     string
	Address  string
	Status   Status
	Detail   string
	Attempts int
	Duration time.Duration
	Problem  *Problem
}

type Point struct {
	Cluster  Cluster
	Step     string
	Outcomes []Outcome
	Err      error
}

func Preflight() Step

type Problem struct {
	ID    string
	Cause string
	Next  string
}

type Recipe struct {
	Name  string
	Steps []Step
	Hooks []Hook
}

func (Recipe) Run(ctx context.Context, options Options) (Result, error)

type Result struct {
	ExitCode ExitCode
	Outcomes []Outcome
}

func RotateTalosconfig() Step

func SnapshotEtcd() Step

type Status string

const StatusApplied Status = "applied"

const StatusDrifted Status = "drifted"

const StatusFailed Status = "failed"

const StatusJoining Status = "joining"

const StatusOK Status = "ok"

const StatusPlanned Status = "would change"

const StatusRefused Status = "refused"

const StatusSkipped Status = "skipped"

const StatusWarned Status = "warning"

type Step struct {
	_ [0]func() // unexported
}

func (Step) Name() string
func (Step) Run(ctx context.Context, options Options) (Result, error)

func Talos() Recipe

func Upgrade() Step

func UpgradeKubernetes() Step

func Verify() Step

func WipeNodes() Step
