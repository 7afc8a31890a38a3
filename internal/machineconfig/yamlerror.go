package machineconfig

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	yamlPlace   = regexp.MustCompile(`(?: at)? line (\d+)(?:, column (\d+))?:`)
	yamlContext = regexp.MustCompile(`^while parsing [a-z ]+ at line (\d+)(?:, column \d+)?:`)
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

func number(digits string) int {
	value, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}

	return value
}
