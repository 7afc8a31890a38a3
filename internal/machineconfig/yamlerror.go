package machineconfig

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

var (
	yamlPlace   = pattern.New(`(?: at)? line (\d+)(?:, column (\d+))?:`)
	yamlOffset  = pattern.New(`^offset (\d+): `)
	yamlContext = pattern.New(`^while parsing [a-z ]+ at line (\d+)(?:, column \d+)?:`)
)

// YAMLError takes apart the decoder's message about text that is no YAML: where it stopped, 0 for unknown, and why.
//
// The decoder counts lines from 0 in its parser's messages, and from 1 in its scanner's.
func YAMLError(err error) (line, column int, message string) {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "decode error: "), "yaml: ")
	text = strings.ReplaceAll(text, " at <unknown position>:", ":")

	offset := 0
	if strings.HasPrefix(text, "while parsing") {
		offset = 1
	}

	context := ""

	if match := yamlContext.FindStringSubmatch(text); match != nil {
		context = fmt.Sprintf(" begun in line %d", number(match[1])+offset)
	}

	// The last place that is named is where the decoder stopped.
	if places := yamlPlace.FindAllStringSubmatch(" "+text, -1); len(places) > 0 {
		last := places[len(places)-1]
		line, column = number(last[1])+offset, number(last[2])
	}

	first, rest, _ := strings.Cut(yamlPlace.ReplaceAllString(" "+text, ":"), ":")
	message = strings.TrimSpace(first) + context + ": " + strings.Trim(rest, " :")

	return line, column, strings.Trim(message, " :")
}

// YAMLErrorIn is YAMLError for a text that is there: where the decoder counts bytes only, the place is looked up.
func YAMLErrorIn(data []byte, err error) (line, column int, message string) {
	line, column, message = YAMLError(err)

	match := yamlOffset.FindStringSubmatch(message)
	if line > 0 || match == nil {
		return line, column, message
	}

	before := data[:min(number(match[1]), len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1

	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1, strings.TrimPrefix(message, match[0])
}

func number(digits string) int {
	value, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}

	return value
}
