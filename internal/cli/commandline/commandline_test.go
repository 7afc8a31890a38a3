package commandline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/commandline"
	"github.com/talos-mage/talos-mage/internal/test/golden"
)

// coded is an error that carries a code as Mage's do.
type coded int

func (coded) Error() string     { return "it failed" }
func (c coded) ExitStatus() int { return int(c) }

// program has a target of each shape; they write down how they were called.
func program(ran *[]string) commandline.Program {
	told := func(name string, err error, values func(commandline.Values) []any) commandline.Target {
		return commandline.Target{Name: name, Summary: "is a target.",
			Run: func(_ context.Context, given commandline.Values) error {
				*ran = append(*ran, strings.TrimSpace(name+" "+fmt.Sprintln(values(given)...)))

				return err
			}}
	}
	nothing := func(commandline.Values) []any { return nil }

	status := told("status", nil, func(given commandline.Values) []any { return []any{text(given.Text("node"))} })
	status.Flags = []commandline.Flag{{Name: "node", Kind: commandline.Text}}

	apply := told("applyNode", nil, func(given commandline.Values) []any {
		return []any{given.Argument("address"), text(given.Text("mode")), text(given.Switch("dryRun"))}
	})
	apply.Arguments = []string{"address"}
	apply.Flags = []commandline.Flag{{Name: "mode", Kind: commandline.Text}, {Name: "dryRun", Kind: commandline.Switch}}
	apply.Summary = "sends one node its machine config."
	apply.More = "Naming a node is asking for it." + strings.Repeat(" This is a long text about it.", 5) +
		"\n\nA second paragraph."

	demo := told("demo", nil, func(given commandline.Values) []any { return []any{text(given.Text("talosVersion"))} })
	demo.Flags = []commandline.Flag{{Name: "talosVersion", Kind: commandline.Text, Meaning: "Release that the nodes run."}}

	return commandline.Program{Name: "talos-mage", Targets: []commandline.Target{
		apply, told("broken", errors.New("it broke"), nothing), told("config:secrets", nil, nothing), demo, status,
		told("stuck", coded(5), nothing),
		{Name: "explodes", Run: func(context.Context, commandline.Values) error { panic("at once") }},
	}}
}

// text is an optional value, "-" if it is missing.
func text[T any](value *T) string {
	if value == nil {
		return "-"
	}

	return fmt.Sprint(*value)
}

func call(words ...string) (ran []string, code int, out, errs string) {
	var stdout, stderr bytes.Buffer

	code = program(&ran).Main(context.Background(), words, &stdout, &stderr)

	return ran, code, stdout.String(), stderr.String()
}

func TestWhatIsUnderstoodIsRun(t *testing.T) {
	t.Parallel()

	for line, want := range map[string][]string{
		"status":                              {"status -"},
		"STATUS -node=cp1":                    {"status cp1"},
		"status --node=cp1,cp2":               {"status cp1,cp2"},
		"status -NODE=cp1":                    {"status cp1"},
		"status -node=a -node=b":              {"status b"},
		"status -node=":                       {"status"},
		"Config:Secrets":                      {"config:secrets"},
		"applynode 192.0.2.11":                {"applyNode 192.0.2.11 - -"},
		"applyNode 192.0.2.11 -mode=try":      {"applyNode 192.0.2.11 try -"},
		"applyNode -mode=try status":          {"applyNode status try -"},
		"applyNode cp1 -dryRun":               {"applyNode cp1 - true"},
		"applyNode cp1 --dryrun=false":        {"applyNode cp1 - false"},
		"demo -talosVersion=v1.13.9":          {"demo v1.13.9"},
		"applyNode cp1 -mode=try status":      {"applyNode cp1 try -", "status -"},
		"status -node=a config:secrets":       {"status a", "config:secrets"},
		"status applyNode cp1 status -node=b": {"status -", "applyNode cp1 - -", "status b"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()

			ran, code, out, errs := call(strings.Fields(line)...)
			require.Equal(t, want, ran)
			require.Zero(t, code)
			require.Empty(t, out+errs)
		})
	}
}

// A word that is wrong comes last here, behind targets that are right: none of them may have run.
func TestNothingRunsIfAnyWordIsWrong(t *testing.T) {
	t.Parallel()

	for line, want := range map[string]string{
		"nosuch":                  `there is no target "nosuch". Next: talos-mage -l lists them`,
		"tatus:statsu":            `there is no target "tatus:statsu"; did you mean status? Next: talos-mage status`,
		"apply":                   `there is no target "apply"; did you mean applyNode? Next: talos-mage applyNode`,
		"s":                       `there is no target "s". Next: talos-mage -l lists them`,
		"ST":                      `there is no target "ST"; did you mean status or stuck? Next: talos-mage -l lists them`,
		"stat\x1b[2Js":            "there is no target \"stat\\x1b[2Js\"",
		"status -no\x1b[2J":       `status takes no flag -no\x1b[2J`,
		"statsu":                  `there is no target "statsu"; did you mean status? Next: talos-mage status`,
		"config:secrtes":          `there is no target "config:secrtes"; did you mean config:secrets? Next: talos-mage config:secrets`,
		"applyNode":               `applyNode lacks its <address>. Next: talos-mage applyNode <address> [-flag=value]...`,
		"applyNode -mode=try":     `applyNode lacks its <address>. Next: `,
		"applyNode cp1 cp2":       `there is no target "cp2". Next: `,
		"applyNode cp1 -mdoe=try": `applyNode takes no flag -mdoe; did you mean -mode? Next: correct it`,
		"status -dryRun":          `status takes no flag -dryRun. Next: talos-mage status -h lists its flags`,
		"status -":                `status takes no flag -. Next: `,
		"status --":               `status takes no flag -. Next: `,
		"config:secrets -x":       `config:secrets takes no flag -x. Next: `,
		"status -node":            `-node lacks its value. Next: -node=VALUE`,
		"status -node cp1":        `-node lacks its value. Next: -node=VALUE`,
		"status -list":            `status takes no flag -list. Next: `,
		"applyNode cp1 -dryRun=x": `-dryRun="x": -dryRun takes true or false. Next: correct it`,
		"applyNode cp1 -mode=tyr": `-mode="tyr": -mode takes auto, no-reboot, reboot, staged or try; did you mean "try"? [TM036]. Next: -mode=try`,
		"status -h=x":             `status takes no flag -h. Next: `,
		"status version":          `there is no target "version". Next: `,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()

			for _, before := range [][]string{nil, {"status"}, {"applyNode", "cp1", "-dryRun", "status"}} {
				ran, code, out, errs := call(append(before, strings.Fields(line)...)...)
				require.Empty(t, ran)
				require.Equal(t, 2, code)
				require.Empty(t, out)
				require.Contains(t, errs, want)
				require.True(t, strings.HasPrefix(errs, "Error: ") && strings.HasSuffix(errs, "\nNothing was run.\n"), errs)
			}
		})
	}

	_, code, _, errs := call("-node=cp1", "status")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "-node=cp1 stands before every target. Next: put it behind the target that it is for")
}

func TestATargetsFailureEndsTheProgramWithItsCode(t *testing.T) {
	t.Parallel()

	for target, want := range map[string]struct {
		code int
		says string
	}{
		"broken":   {1, "Error: it broke\n"},
		"stuck":    {5, "Error: it failed\n"},
		"explodes": {1, "Error: unexpected: at once\n"},
	} {
		ran, code, _, errs := call("status", target, "status")
		require.Equal(t, want.code, code, target)
		require.Equal(t, want.says, errs)
		require.NotContains(t, ran[1:], "status -")
	}
}

func TestHelpIsGivenAndNothingRun(t *testing.T) {
	t.Parallel()

	for line, file := range map[string]string{
		"-h": "program", "--help": "program", "-help": "program",
		"-h applyNode": "applyNode", "applyNode -h": "applyNode", "applyNode --help": "applyNode",
		"applyNode cp1 -mode=try -h": "applyNode", "-h APPLYNODE": "applyNode",
		"demo -h": "demo", "status -h config:secrets": "two",
		"": "list", "-l": "list", "-list": "list", "-v": "list", "list": "list",
		"help": "program", "help applyNode": "applyNode", "-v help": "program",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()

			ran, code, out, errs := call(strings.Fields(line)...)
			require.Empty(t, ran)
			require.Zero(t, code)
			require.Empty(t, errs)
			golden.Assert(t, filepath.Join("testdata", file+".txt"), out)
		})
	}

	ran, code, _, _ := call("-h", "nosuch")
	require.Empty(t, ran)
	require.Equal(t, 2, code)
}

func TestTheVersionIsOneLine(t *testing.T) {
	t.Parallel()

	for _, words := range [][]string{{"-version"}, {"--version"}, {"--version", "status"}, {"version"}} {
		ran, code, out, errs := call(words...)
		require.Empty(t, ran)
		require.Zero(t, code)
		require.Empty(t, errs)
		require.Regexp(t, `^talos-mage \S+(, commit [0-9a-f]+( with changes)?)?, Talos v1\.\d+ to v1\.\d+\n$`, out)
	}
}

// What mage -v says to targets, the program says too.
func TestVerboseNamesTheTargets(t *testing.T) { //nolint:paralleltest // it sets a variable
	for _, line := range []string{"-v status config:secrets", "status -v config:secrets"} {
		t.Setenv("MAGEFILE_VERBOSE", "")

		_, code, out, errs := call(strings.Fields(line)...)
		require.Zero(t, code)
		require.Empty(t, out)
		require.Equal(t, "Running target: status\nRunning target: config:secrets\n", errs)
		require.Equal(t, "1", os.Getenv("MAGEFILE_VERBOSE"))
	}
}
