package inventory

import (
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// variables are the values for ${NAME} in talconfig.yaml.
type variables struct {
	values map[string]string
	// unread are encrypted files that may hold more, as they are shown.
	unread []string
}

// lookupFailure says why a variable has no value.
type lookupFailure struct{ name, reason string }

// expand replaces the variables in a text, in the dialect of talhelper's library: $NAME, ${NAME}, ${NAME-x} and ${NAME:-x} (and the
// same with = for -), ${NAME+x}; $$ is a dollar sign, and any other $ stands for itself. Source: github.com/a8m/envsubst,
// which talhelper calls so that variables which are unset or empty are errors.
func (v variables) expand(text string) (string, []lookupFailure) {
	var (
		out      strings.Builder
		failures []lookupFailure
	)

	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)

		if !found {
			return out.String(), failures
		}

		switch name := leadingName(rest); {
		case strings.HasPrefix(rest, "$"):
			out.WriteString("$")

			text = rest[1:]
		case name != "" && name != "_":
			value, failed := v.value(name)
			out.WriteString(value)

			failures, text = append(failures, failed...), rest[len(name):]
		case strings.HasPrefix(rest, "{") && leadingName(rest[1:]) != "":
			value, failed, remaining := v.braces(rest[1:])
			out.WriteString(value)

			failures, text = append(failures, failed...), remaining
		default:
			out.WriteString("$")

			text = rest
		}
	}
}

func leadingName(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if end < 0 {
		return text
	}

	return text[:end]
}

func (v variables) value(name string) (string, []lookupFailure) {
	value, set := v.values[name]

	switch {
	case !set:
		return "", []lookupFailure{{name, "is not set"}}
	case value == "":
		return "", []lookupFailure{{name, "is set but empty"}}
	default:
		return value, nil
	}
}

// braces expands what follows "${": a name, an operator and its word up to the closing brace.
func (v variables) braces(text string) (string, []lookupFailure, string) {
	name := leadingName(text)

	end := closingBrace(text)
	if end < 0 {
		return "", []lookupFailure{{name, "has no closing brace"}}, ""
	}

	operator, remaining := text[len(name):end], text[end+1:]
	current, set := v.values[name]

	var (
		value    string
		failures []lookupFailure
	)

	switch {
	case operator == "":
		value, failures = v.value(name)
	case strings.HasPrefix(operator, ":-"), strings.HasPrefix(operator, ":="):
		value = current

		if current == "" {
			value, failures = v.expand(operator[2:])
		}
	case strings.HasPrefix(operator, "-"), strings.HasPrefix(operator, "="):
		value = current

		if !set {
			value, failures = v.expand(operator[1:])
		}
	case strings.HasPrefix(operator, ":+"), strings.HasPrefix(operator, "+"):
		if set {
			value, failures = v.expand(strings.TrimPrefix(operator, ":")[1:])
		}
	default:
		failures = []lookupFailure{{name, "is followed by an unknown operator"}}
	}

	return value, failures, remaining
}

// closingBrace is the index of the brace that closes an already opened one; -1 if there is none.
func closingBrace(text string) int {
	depth := 0

	for i, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}

			depth--
		}
	}

	return -1
}

// untouched are the keys whose texts belong to others: patches, manifests and files, in which $host is no variable of ours.
var untouched = []string{"patches", "inlineManifests", "machineFiles", "extraManifests", "extensionServices"}

// substitute replaces variables in the values of a tree, each scalar by itself so that places stay true.
func (v variables) substitute(source source, node *yaml.Node) {
	if node.Kind == yaml.ScalarNode {
		v.substituteScalar(source, node)

		return
	}

	for i, child := range node.Content {
		isKey := node.Kind == yaml.MappingNode && i%2 == 0
		isForeign := node.Kind == yaml.MappingNode && i%2 == 1 && isUntouched(node.Content[i-1].Value)

		if !isKey && !isForeign {
			v.substitute(source, child)
		}
	}
}

func isUntouched(key string) bool {
	for _, name := range untouched {
		if key == name {
			return true
		}
	}

	return false
}

func (v variables) substituteScalar(source source, node *yaml.Node) {
	if !strings.Contains(node.Value, "$") {
		return
	}

	value, failures := v.expand(node.Value)

	for _, failure := range failures {
		mistake := source.mistake(node, diagnosis.FileVariable, "variable %s %s", failure.name, failure.reason)
		mistake.Next = "set it in talenv.yaml or in the environment"

		if len(v.unread) > 0 {
			mistake.Message += " (" + strings.Join(v.unread, ", ") + " is encrypted and was not read)"
			mistake.Next = "set it in the environment, or in a talenv.yaml that is not encrypted"
		}

		source.add(mistake)
	}

	node.Value = value

	// Unquoted text means what it looks like after the replacement: ${COUNT} can be a number.
	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		node.Tag = plainTag(value)
	}
}

// plainTag is the type that unquoted text has by its looks.
func plainTag(text string) string {
	var document yaml.Node

	if err := decode([]byte(text), &document); err == nil && len(document.Content) == 1 && document.Content[0].Kind == yaml.ScalarNode {
		return document.Content[0].Tag
	}

	return "!!str"
}
