package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// NewLogger writes log lines of at least the given level (debug, info, warn, error; info when it is none of these) to
// w. In the format "json" a line is a JSON object, else it has the look of the scripts' lines, with UTC times:
//
//	2026-01-04T17:40:35Z INFO message key="value"
//
// Secrets are masked. Lines of several goroutines don't mix if w is safe for concurrent use.
func NewLogger(w io.Writer, format, level string, color bool) zerolog.Logger {
	return newLogger(w, format, level, color, time.Now)
}

func newLogger(w io.Writer, format, level string, color bool, now func() time.Time) zerolog.Logger {
	write := jsonLine
	if format != "json" {
		write = func(fields []field) []byte { return textLine(fields, color) }
	}

	return lineLogger(w, write, level, now)
}

// lineLogger is a logger whose lines are written in a form of their own.
func lineLogger(w io.Writer, write func([]field) []byte, level string, now func() time.Time) zerolog.Logger {
	least, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		least = zerolog.InfoLevel
	}

	// A hook, as zerolog's own timestamps follow package variables and the local zone.
	stamp := zerolog.HookFunc(func(event *zerolog.Event, _ zerolog.Level, _ string) {
		event.Str(zerolog.TimestampFieldName, now().UTC().Format(time.RFC3339))
	})

	return zerolog.New(lineWriter{out: w, format: write}).Level(least).Hook(stamp)
}

// field is one member of a log line's object, in its place.
type field struct {
	name  string
	value any
}

// lineWriter turns zerolog's JSON into lines of another form, with secrets masked.
type lineWriter struct {
	out    io.Writer
	format func([]field) []byte
}

// Write takes one line as zerolog makes it.
func (w lineWriter) Write(line []byte) (int, error) {
	fields, err := parseLine(line)
	if err != nil {
		return 0, fmt.Errorf("format log line: %w", err)
	}

	if _, err := w.out.Write(w.format(fields)); err != nil {
		return 0, fmt.Errorf("write log line: %w", err)
	}

	return len(line), nil
}

// parseLine reads a JSON object without losing the order of its members.
func parseLine(line []byte) ([]field, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()

	if _, err := decoder.Token(); err != nil {
		return nil, err
	}

	var fields []field
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}

		var value any
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}

		fields = append(fields, field{name: fmt.Sprint(name), value: scrubbed(value)})
	}

	return fields, nil
}

// scrubbed masks secrets in every text within a decoded JSON value.
func scrubbed(value any) any {
	switch value := value.(type) {
	case string:
		return Scrub(value)
	case []any:
		for i := range value {
			value[i] = scrubbed(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = scrubbed(value[name])
		}
	}

	return value
}

// textLine is the scripts' form of a line.
func textLine(fields []field, color bool) []byte {
	var stamp, level, message, rest string
	for _, field := range fields {
		switch field.name {
		case zerolog.TimestampFieldName:
			stamp = plain(field.value)
		case zerolog.LevelFieldName:
			level = strings.ToUpper(plain(field.value))
		case zerolog.MessageFieldName:
			message = strings.ReplaceAll(plain(field.value), "\n", " ")
		default:
			rest += " " + field.name + "=" + strconv.Quote(plain(field.value))
		}
	}

	if message != "" {
		message = " " + message
	}

	return []byte(stamp + " " + paint(color, levelColors[level], level) + message + rest + "\n")
}

// jsonLine is a line as one JSON object.
func jsonLine(fields []field) []byte {
	var line bytes.Buffer

	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)

	for i, field := range fields {
		line.WriteByte("{,"[min(i, 1)])
		line.WriteString(strconv.Quote(field.name) + ":")

		if err := encoder.Encode(field.value); err != nil { // what was decoded from JSON encodes again
			line.WriteString("null\n")
		}

		line.Truncate(line.Len() - 1) // the encoder's line break
	}

	line.WriteString("}\n")

	return line.Bytes()
}

// plain is a JSON value as people write it.
func plain(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case json.Number, bool:
		return fmt.Sprint(value)
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Sprint(value)
		}

		return string(text)
	}
}

// storyLine is a line as one who watches the run reads it: a mark for its level, the node, the message, the rest.
func (c *Console) storyLine(fields []field) []byte {
	look := c.options.look()

	var mark, node, message, rest string
	for _, field := range fields {
		text := plain(field.value)
		switch field.name {
		case zerolog.TimestampFieldName, "step":
		case zerolog.LevelFieldName:
			mark = levelMark(look, text)
		case "node":
			node = text + ": "
		case zerolog.MessageFieldName:
			message = strings.ReplaceAll(text, "\n", " ")
		default:
			rest += ", " + field.name + " " + text
		}
	}

	line := visible("  " + mark + " " + node + strings.TrimPrefix(message+rest, ", "))

	return []byte(Wrap(look.paintedMark(line), c.options.width()) + "\n")
}

func levelMark(look look, level string) string {
	switch level {
	case zerolog.LevelWarnValue:
		return look.mark(Warned)
	case zerolog.LevelErrorValue:
		return look.mark(Failed)
	default:
		return look.mark(Skipped)
	}
}
