// Package recording has tests meet programs of others, such as helmfile, as they really are: what they answered once is
// played back by doubles, call by call. A call that was not recorded fails the test.
//
// Only tests import it. A test that is given -record runs the real programs instead, against a Kubernetes API of its
// own, and writes the recording anew. CONTRIBUTING.md says what that needs.
package recording

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// renew is false unless a test run was given -record.
var renew = flag.Bool("record", false, "run the real programs, and record what they answer")

// Doubles stand in for the programs in one folder.
type Doubles struct {
	folder string
	told   instructions
	// real is the Kubernetes API that is recorded; nil if a recording is played.
	real *Real
}

// Insert puts doubles of Programs into a folder, where they play the recording at the path tape. Texts of it that name
// the folder root do so as ROOT. When the test ends, every call must have been made.
func Insert(t testing.TB, folder, tape, root string) *Doubles {
	t.Helper()

	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(folder, 0o700))

	for _, name := range Programs {
		require.NoError(t, os.Symlink(self, filepath.Join(folder, name)))
	}

	tape, err = filepath.Abs(tape)
	require.NoError(t, err)

	d := &Doubles{folder: folder, told: instructions{Tape: tape, Root: root, Record: *renew}}

	if *renew {
		d.real = startReal(t)
		d.told.Environ = d.real.environ
	}

	d.tell(t)
	t.Cleanup(func() { d.end(t) })

	return d
}

// Prepare changes what is recorded, and does nothing when a recording is played.
func (d *Doubles) Prepare(t testing.TB, change func(*Real)) {
	t.Helper()

	if d.real == nil {
		return
	}

	change(d.real)
	d.told.Environ = d.real.environ
	d.tell(t)
}

// Stop has the call of this number, from 1, not return until somebody stops it; 0 has every call return.
func (d *Doubles) Stop(t testing.TB, number int) {
	t.Helper()

	d.told.Stop = number
	d.tell(t)
}

// AwaitStop waits until a program goes on until somebody stops it.
func (d *Doubles) AwaitStop(t testing.TB) {
	t.Helper()

	path := filepath.Join(d.folder, waiting)
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		if os.Remove(path) == nil {
			return
		}
	}

	t.Error("no program waits to be stopped")
}

// Calls are those that were made so far.
func (d *Doubles) Calls(t testing.TB) int {
	t.Helper()

	number, err := countLines(filepath.Join(d.folder, played))
	require.NoError(t, err)

	return number
}

func (d *Doubles) tell(t testing.TB) {
	t.Helper()

	data, err := json.Marshal(d.told)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.folder, orders), data, 0o600))
}

// end looks for calls that were not recorded or not made; or writes the recording.
func (d *Doubles) end(t testing.TB) {
	t.Helper()

	if d.real != nil {
		d.write(t)
		return
	}

	if text, err := os.ReadFile(filepath.Join(d.folder, unknown)); err == nil {
		t.Error(string(text))
		return
	}

	tape, err := readTape(d.told.Tape)
	require.NoError(t, err)

	if number := d.Calls(t); number < len(tape.Calls) && !t.Failed() {
		t.Errorf("recorded, but not called: %s", tape.Calls[number])
	}
}

func (d *Doubles) write(t testing.TB) {
	t.Helper()

	data, err := os.ReadFile(filepath.Join(d.folder, played))
	require.NoError(t, err)

	tape := Tape{Versions: d.real.versions(t)}

	for line := range strings.Lines(string(data)) {
		var call Call
		require.NoError(t, json.Unmarshal([]byte(line), &call))

		tape.Calls = append(tape.Calls, call)
	}

	text, err := tape.text()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(d.told.Tape), 0o755))
	require.NoError(t, os.WriteFile(d.told.Tape, text, 0o644))
}

// Real has the real programs of the PATH talk to a stand-in of a Kubernetes API.
type Real struct {
	t       testing.TB
	folder  string
	api     string
	environ []string
}

// Run has a real program of the PATH do something as the cluster's administrator.
func (r *Real) Run(input, name string, arguments ...string) string {
	r.t.Helper()

	program := exec.Command(lookup(r.environ, name), arguments...)
	program.Env = append(r.environ[:len(r.environ):len(r.environ)], "KUBECONFIG="+r.kubeconfig(admin))
	program.Stdin = strings.NewReader(input)

	output, err := program.CombinedOutput()
	require.NoError(r.t, err, "%s %v\n%s", name, arguments, output)

	return string(output)
}
