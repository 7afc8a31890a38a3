package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// doubles play programs of the operator's computer within this process, where the machines and their clock are. A
// script of a few lines stands in each one's place: it hands over how it was called, and tells what it is told. When it
// is stopped, so is what it asked for.
type doubles struct {
	listener net.Listener
	play     func(ctx context.Context, call *programCall) (exit int)
	playing  sync.WaitGroup
}

// programCall is one call of a program.
type programCall struct {
	name      string
	arguments []string
	input     string
	out       *bufio.Writer
}

// has reports whether a word is among its arguments.
func (c *programCall) has(word string) bool { return slices.Contains(c.arguments, word) }

// flag is the value of a flag that is given as two words.
func (c *programCall) flag(name string) string {
	for i, argument := range c.arguments[:max(0, len(c.arguments)-1)] {
		if argument == name {
			return c.arguments[i+1]
		}
	}

	return ""
}

// say prints lines, complain tells why it fails. Who has gone by then hears neither.
func (c *programCall) say(format string, values ...any) { c.write("o", fmt.Sprintf(format, values...)) }

func (c *programCall) complain(format string, values ...any) int {
	c.write("e", fmt.Sprintf(format, values...))

	return 1
}

func (c *programCall) write(stream, text string) {
	for line := range strings.Lines(text) {
		c.out.WriteString(stream + strings.TrimSuffix(line, "\n") + "\n") //nolint:errcheck // as above
	}

	c.out.Flush() //nolint:errcheck // as above
}

// ProgramFault is a program of the operator's computer that fails once.
type ProgramFault struct {
	// Change is the number of the call that changes something, from 1. Done is set if it has its effect all the same.
	Change int
	Done   bool
}

// String is the fault in plain words.
func (f *ProgramFault) String() string {
	when := "before it took effect"
	if f.Done {
		when = "after it took effect"
	}

	return fmt.Sprintf("change %d that a program makes fails %s", f.Change, when)
}

func drawProgramFault(random *rand.Rand, plan *Plan) {
	if random.IntN(3) > 0 {
		plan.Operation.Program = &ProgramFault{Change: 1 + random.IntN(6), Done: random.IntN(2) == 0}
	}
}

// programFails counts a change that a program makes, and reports whether it is the one to fail.
func (w *world) programFails() (fails bool) {
	w.note(func() {
		w.changes++

		if fault := w.plan.Operation.Program; fault != nil && !w.sound && fault.Change == w.changes {
			fails, w.care.ProgramFailed = true, true
		}
	})

	return fails
}

// programExplains reports whether a program that failed makes a problem right.
func (c *Care) programExplains(problem Problem) bool {
	return c.ProgramFailed && slices.Contains([]diagnosis.ID{diagnosis.AppsApplyRefused, diagnosis.AppsReleaseFailed,
		diagnosis.K8sUpgradeFailed}, problem.ID)
}

// handOver is the script: the name, how many arguments, these, and the input go out, each ended by a NUL; lines come
// back, each with a letter for where it belongs.
const handOver = `#!%s
exec 3<>/dev/tcp/127.0.0.1/%d || exit 1
IFS= read -r -d '' input
printf '%%s\0' "${0##*/}" "$#" "$@" "$input" >&3
while IFS= read -r line <&3; do
	case $line in
	o*) printf '%%s\n' "${line#o}" ;;
	e*) printf '%%s\n' "${line#e}" >&2 ;;
	x*) exit "${line#x}" ;;
	esac
done
exit 1
`

// newDoubles puts programs of these names into a folder.
func newDoubles(folder string, play func(context.Context, *programCall) int, names ...string) (*doubles, error) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		return nil, fmt.Errorf("find a shell for the doubles: %w", err)
	}

	if err := makeFolders(folder); err != nil {
		return nil, err
	}

	d := &doubles{play: play}

	if d.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil { //nolint:noctx // closed with the world
		return nil, fmt.Errorf("listen for the doubles: %w", err)
	}

	port := d.listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // that of a TCP listener

	for _, name := range names {
		//nolint:gosec // it is to be run
		if err := os.WriteFile(filepath.Join(folder, name), fmt.Appendf(nil, handOver, shell, port), 0o700); err != nil {
			return nil, fmt.Errorf("write a double: %w", err)
		}
	}

	d.playing.Go(d.serve)

	return d, nil
}

func (d *doubles) close() {
	d.listener.Close() //nolint:errcheck // a listener always closes
	d.playing.Wait()
}

func (d *doubles) serve() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return // it is closed
		}

		d.playing.Go(func() { d.answer(conn) })
	}
}

// answer plays one call, up to the moment at which its script is no more.
func (d *doubles) answer(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // the script has what it needs

	in := bufio.NewReader(conn)

	call, err := readCall(in)
	if err != nil {
		return // it was stopped before it could say what it wants
	}

	call.out = bufio.NewWriter(conn)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	go func() {
		in.ReadByte() //nolint:errcheck // nothing comes but its end
		stop()
	}()

	exit := d.play(ctx, call)
	if ctx.Err() == nil {
		call.write("x", strconv.Itoa(exit))
	}
}

func readCall(in *bufio.Reader) (*programCall, error) {
	next := func() (string, error) {
		word, err := in.ReadString(0)

		return strings.TrimSuffix(word, "\x00"), err //nolint:wrapcheck // nobody is told
	}

	name, err := next()
	if err != nil {
		return nil, err
	}

	counted, err := next()
	if err != nil {
		return nil, err
	}

	arguments, err := strconv.Atoi(counted)
	if err != nil {
		return nil, fmt.Errorf("count arguments: %w", err)
	}

	call := &programCall{name: name}

	for range arguments {
		argument, err := next()
		if err != nil {
			return nil, err
		}

		call.arguments = append(call.arguments, argument)
	}

	if call.input, err = next(); err != nil && err != io.EOF { //nolint:errorlint // a reader's own
		return nil, err
	}

	return call, nil
}
