package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Programs are those that are recorded.
var Programs = []string{"kubectl", "helmfile", "helm"}

// Files beside the doubles.
const (
	// orders is what a double is told: an instructions.
	orders = ".orders.json"
	// played has a line for each call that was answered, and in a recording the call itself.
	played = ".played"
	// unknown says which call was not recorded.
	unknown = ".unknown"
	// waiting is there once a program goes on until somebody stops it.
	waiting = ".waiting"
)

// refused is the exit code of a call that was never recorded; no program of these has it.
const refused = 97

// instructions are those of the doubles of one folder.
type instructions struct {
	Tape string
	// Root is the folder that is called ROOT in the recording.
	Root string
	// Record has the real programs answer, in Environ, and what they say be taken down.
	Record  bool
	Environ []string
	// Stop is the number of the call, from 1, that does not return until somebody stops it; 0 for none.
	Stop int
}

// Serve answers and ends the process if it was started as a double of a program. It is the first call of a TestMain.
func Serve() {
	if !slices.Contains(Programs, filepath.Base(os.Args[0])) {
		return
	}

	code, err := serve(filepath.Dir(os.Args[0]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	os.Exit(code)
}

func serve(folder string) (int, error) {
	var told instructions

	data, err := os.ReadFile(filepath.Join(folder, orders))
	if err != nil {
		return refused, fmt.Errorf("read what the double is told: %w", err)
	}

	if err := json.Unmarshal(data, &told); err != nil {
		return refused, fmt.Errorf("read what the double is told: %w", err)
	}

	call := Call{Program: filepath.Base(os.Args[0]), Arguments: os.Args[1:]}

	var input []byte
	if slices.Contains(call.Arguments, "-") {
		if input, err = io.ReadAll(os.Stdin); err != nil {
			return refused, fmt.Errorf("read what the program is given: %w", err)
		}
	}

	call.Input = shapeOf(input)

	if told.Record {
		return told.record(folder, call, input)
	}

	return told.play(folder, call)
}

// play answers as it was recorded.
func (i instructions) play(folder string, call Call) (int, error) {
	tape, err := readTape(i.Tape)
	if err != nil {
		return refused, err
	}

	call.Arguments = i.plain(call.Arguments)

	number, err := countLines(filepath.Join(folder, played))
	if err != nil {
		return refused, err
	}

	if number >= len(tape.Calls) || !call.same(tape.Calls[number]) {
		return refused, i.refuse(folder, tape, number, call)
	}

	if err := appendLine(filepath.Join(folder, played), []byte(call.Program)); err != nil {
		return refused, err
	}

	recorded := tape.Calls[number]
	fmt.Print(i.real(recorded.Output))

	if recorded.Stopped {
		return refused, awaitStop(folder)
	}

	fmt.Fprint(os.Stderr, i.real(recorded.Complaint))

	return recorded.Exit, nil
}

// refuse says which call was not recorded, and keeps it for the test: who called may pass over it.
func (i instructions) refuse(folder string, tape Tape, number int, call Call) error {
	expected := "no further call"
	if number < len(tape.Calls) {
		expected = tape.Calls[number].String()
	}

	err := fmt.Errorf("call %d was never recorded: %s\nrecorded is:  %s\nrenew %s with -record", //nolint:err113 // a test's
		number+1, call, expected, i.Tape)

	return errors.Join(err, os.WriteFile(filepath.Join(folder, unknown), []byte(err.Error()+"\n"), 0o600))
}

// record has the real program answer.
func (i instructions) record(folder string, call Call, input []byte) (int, error) {
	number, err := countLines(filepath.Join(folder, played))
	if err != nil {
		return refused, err
	}

	call.Stopped = i.Stop == number+1

	var output, complaint bytes.Buffer

	// What the call was made with is replaced in place: the program may change it no more.
	program := exec.Command(call.Program, call.Arguments...)
	program.Path = lookup(i.Environ, call.Program)
	program.Err = nil
	program.Env = i.Environ
	program.Stdin = bytes.NewReader(input)
	program.Stdout, program.Stderr = io.MultiWriter(os.Stdout, &output), io.MultiWriter(os.Stderr, &complaint)

	if err := program.Run(); program.ProcessState == nil {
		return refused, fmt.Errorf("record %s: %w", call.Program, err)
	}

	call.Exit = program.ProcessState.ExitCode()
	call.Arguments = i.plain(call.Arguments)
	call.Output, call.Complaint = plain(output.String(), i.Root), plain(complaint.String(), i.Root)

	line, err := json.Marshal(call)
	if err != nil {
		return refused, fmt.Errorf("record %s: %w", call.Program, err)
	}

	if err := appendLine(filepath.Join(folder, played), line); err != nil {
		return refused, err
	}

	if call.Stopped {
		return refused, awaitStop(folder)
	}

	return call.Exit, nil
}

// awaitStop says that the program does not return, and waits until somebody stops it.
func awaitStop(folder string) error {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt, syscall.SIGTERM)

	if err := os.WriteFile(filepath.Join(folder, waiting), nil, 0o600); err != nil {
		return fmt.Errorf("say that the program waits: %w", err)
	}

	<-stopped

	return nil
}

func (i instructions) plain(arguments []string) []string {
	var made []string
	for _, argument := range arguments {
		made = append(made, plain(argument, i.Root))
	}

	return made
}

// real is a recorded text with the folder of this run.
func (i instructions) real(text string) string { return strings.ReplaceAll(text, "ROOT", i.Root) }

// lookup finds a program on the PATH of an environment.
func lookup(environ []string, name string) string {
	for _, pair := range environ {
		list, ok := strings.CutPrefix(pair, "PATH=")
		if !ok {
			continue
		}

		for _, folder := range filepath.SplitList(list) {
			if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				return path
			}
		}
	}

	return name
}

func countLines(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("count the calls: %w", err)
	}

	return bytes.Count(data, []byte("\n")), nil
}

func appendLine(path string, line []byte) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep the call: %w", err)
	}

	_, err = file.Write(append(line, '\n'))

	return errors.Join(err, file.Close())
}
