package recording

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Tape is what programs were called with, in this order, and what each call came to.
type Tape struct {
	// Versions are those of the programs, by name.
	Versions map[string]string `yaml:"versions"`
	Calls    []Call            `yaml:"calls"`
}

// Call is one call of a program.
type Call struct {
	Program   string   `yaml:"program"`
	Arguments []string `yaml:"arguments,flow"`
	// Input has a line for each object that the program was given. Values, which may be secrets, are left out.
	Input string `yaml:"input,omitempty"`
	// Output and Complaint are what it wrote to its two streams.
	Output    string `yaml:"output,omitempty"`
	Complaint string `yaml:"complaint,omitempty"`
	Exit      int    `yaml:"exit"`
	// Stopped is of a program that did all this, and was stopped before it returned.
	Stopped bool `yaml:"stopped,omitempty"`
}

// same reports whether one call is made like another.
func (c Call) same(other Call) bool {
	return c.Program == other.Program && slices.Equal(c.Arguments, other.Arguments) && c.Input == other.Input
}

func (c Call) String() string {
	text := c.Program + " " + strings.Join(c.Arguments, " ")
	if c.Input != "" {
		text += "\n    given " + strings.ReplaceAll(strings.TrimSpace(c.Input), "\n", ", ")
	}

	return text
}

// readTape reads a recording.
func readTape(path string) (Tape, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Tape{}, fmt.Errorf("read recording: %w", err)
	}

	var tape Tape
	if err := yaml.Unmarshal(data, &tape); err != nil {
		return Tape{}, fmt.Errorf("read recording %s: %w", path, err)
	}

	return tape, nil
}

// text is the recording's file.
func (t Tape) text() ([]byte, error) {
	var text bytes.Buffer

	text.WriteString("# Recorded from the real programs. CONTRIBUTING.md says how to renew it.\n")

	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)

	if err := encoder.Encode(t); err != nil {
		return nil, fmt.Errorf("write recording: %w", err)
	}

	return text.Bytes(), nil
}

// shapeOf has a line for each object of a manifest: its version, kind, namespace and name.
func shapeOf(manifest []byte) string {
	var shape strings.Builder

	for decoder := yaml.NewDecoder(bytes.NewReader(manifest)); ; {
		var object struct {
			Version  string `yaml:"apiVersion"`
			Kind     string `yaml:"kind"`
			Metadata struct {
				Namespace string `yaml:"namespace"`
				Name      string `yaml:"name"`
			} `yaml:"metadata"`
		}

		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return shape.String()
		}

		if err != nil {
			return shape.String() + "what is no object\n"
		}

		name := object.Metadata.Name
		if object.Metadata.Namespace != "" {
			name = object.Metadata.Namespace + "/" + name
		}

		if object.Kind != "" {
			fmt.Fprintf(&shape, "%s %s %s\n", object.Version, object.Kind, name)
		}
	}
}

// unsteady is what differs from one recording to the next, and from computer to computer.
var unsteady = []struct {
	pattern *regexp.Regexp
	instead string
}{
	// The lines of a Kubernetes client's log begin with the time and the process.
	{regexp.MustCompile(`\b([EWI])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ `), "${1}0101 00:00:00.000000       1 "},
	{regexp.MustCompile(`\b20\d\d-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?`), "2026-01-01${1}00:00:00"},
	{regexp.MustCompile(`\b(20\d\d/\d\d/\d\d) \d\d:\d\d:\d\d\b`), "2026/01/01 00:00:00"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`),
		"00000000-0000-4000-8000-000000000000"},
	{regexp.MustCompile(`\b(LIVE-|MERGED-|helmfile|exec|chartify)\d{3,}\b`), "${1}0"},
	{regexp.MustCompile(`/tmp/Test[^/\s"]+/\d+`), "TMP"},
	{regexp.MustCompile(`([\s"])(/[\w.-]+)+/(kubectl|helmfile|helm)([\s"])`), "${1}/usr/local/bin/$3$4"},
	{regexp.MustCompile(`(  )\d+s\b`), "${1}1s"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), address},
	{regexp.MustCompile(`lookup (\S+) on [0-9a-f.:\[\]]+:53:`), "lookup $1 on 192.0.2.53:53:"},
}

// address stands for that of the Kubernetes API.
const address = "192.0.2.10:6443"

// plain is a text without what differs between two recordings.
func plain(text, root string) string {
	text = strings.ReplaceAll(text, root, "ROOT")

	for _, what := range unsteady {
		text = what.pattern.ReplaceAllString(text, what.instead)
	}

	return text
}
