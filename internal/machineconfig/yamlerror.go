package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

var yamlPlace = pattern.New(`(?: at)? line (\d+)(?:, column (\d+))?:`)

// YAMLError takes apart the decoder's message about text that is no YAML: where it stopped, 0 for unknown, and why.
func YAMLError(err error) (line, column int, message string) {
	if stopped := stoppedAt(err); stopped != nil {
		message = stopped.Message

		switch context := stopped.ContextMsg; {
		case context == "":
		case strings.HasPrefix(context, "while parsing"): // it can have begun long before
			message = fmt.Sprintf("%s begun in line %d: %s", context, stopped.ContextMark.Line, message)
		default:
			message = context + ": " + message
		}

		return stopped.Mark.Line, stopped.Mark.Column, oneSpace(message)
	}

	text := strings.TrimPrefix(oneSpace(err.Error()), "yaml: ")

	// The last place that is named is where the decoder stopped.
	if places := yamlPlace.FindAllStringSubmatch(" "+text, -1); len(places) > 0 {
		last := places[len(places)-1]
		line, column = number(last[1]), number(last[2])
	}

	first, rest, _ := strings.Cut(yamlPlace.ReplaceAllString(" "+text, ":"), ":")

	return line, column, strings.Trim(strings.TrimSpace(first)+": "+strings.Trim(rest, " :"), " :")
}

// stoppedAt is what the decoder says where it could not go on; nil for values that it could not use.
func stoppedAt(err error) *yaml.LoadError {
	var (
		values  *yaml.LoadErrors
		stopped *yaml.LoadError
	)

	if errors.As(err, &values) || !errors.As(err, &stopped) {
		return nil
	}

	return stopped
}

func oneSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

// YAMLErrorIn is YAMLError for a text that is there: where the decoder counts bytes only, the place is looked up.
func YAMLErrorIn(data []byte, err error) (line, column int, message string) {
	line, column, message = YAMLError(err)

	stopped := stoppedAt(err)
	if line > 0 || stopped == nil {
		return line, column, message
	}

	before := data[:min(stopped.Mark.Index, len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1

	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1, message
}

func number(digits string) int {
	value, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}

	return value
}
