package talconfig

import (
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Variables are the values for ${NAME} in texts.
type Variables struct {
	// Lookup finds a variable's value.
	Lookup func(name string) (string, bool)
	// Unread are encrypted files that may hold more, as they are shown.
	Unread []string
	// Failed is why files could not be decrypted; nil if none was tried in vain.
	Failed error

	// declared are where files of variables have them.
	declared map[string]Declaration
	// locked are where files that could not be decrypted have them.
	locked map[string]Declaration
	// sealed are those reasons as mistakes, for whom a variable is missing.
	sealed []*yamlfile.Error
	// foreign is set for texts that belong to others.
	foreign bool
}

// Declaration is a variable of a file.
type Declaration struct {
	yamlfile.Source
	// Value is its node there.
	Value *yaml.Node
}

// ContractVariable is the variable of a file that names the contract of machine configs.
const ContractVariable = "talosContract"

// Declared is where a file of variables has one; false if none has.
func (v Variables) Declared(name string) (Declaration, bool) {
	declared, known := v.declared[name]

	return declared, known
}

// Locked is a variable of a file that could not be decrypted; false if none of those has it, or a later file tells it.
func (v Variables) Locked(name string) (Declaration, bool) {
	locked, known := v.locked[name]

	return locked, known
}

// LookupFailure says why a variable has no value.
type LookupFailure struct{ Name, Reason string }

// Expand replaces the variables in a text, in the dialect of talhelper's library: $NAME, ${NAME}, ${NAME-x} and
// ${NAME:-x} (and the same with = for -), ${NAME+x}; $$ is a dollar sign, and any other $ stands for itself. Source:
// github.com/a8m/envsubst, which talhelper calls so that variables which are unset or empty are errors.
func (v Variables) Expand(text string) (string, []LookupFailure) {
	var (
		out      strings.Builder
		failures []LookupFailure
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
		case v.isTheirs(name):
			out.WriteString("$" + name)

			text = rest[len(name):]
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

// isTheirs reports whether a name without braces in a text that belongs to others is one of theirs.
func (v Variables) isTheirs(name string) bool {
	if !v.foreign || strings.ToUpper(name) == name {
		return false
	}

	_, set := v.Lookup(name)

	return !set
}

func leadingName(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if end < 0 {
		return text
	}

	return text[:end]
}

func (v Variables) value(name string) (string, []LookupFailure) {
	value, set := v.Lookup(name)

	switch {
	case !set:
		return "", []LookupFailure{{name, "is not set"}}
	case value == "":
		return "", []LookupFailure{{name, "is set but empty"}}
	default:
		return value, nil
	}
}

// braces expands what follows "${": a name, an operator and its word up to the closing brace.
func (v Variables) braces(text string) (string, []LookupFailure, string) {
	name := leadingName(text)

	end := closingBrace(text)
	if end < 0 {
		return "", []LookupFailure{{name, "has no closing brace"}}, ""
	}

	operator, remaining := text[len(name):end], text[end+1:]
	current, set := v.Lookup(name)

	var (
		value    string
		failures []LookupFailure
	)

	switch {
	case operator == "":
		value, failures = v.value(name)
	case strings.HasPrefix(operator, ":-"), strings.HasPrefix(operator, ":="):
		value = current

		if current == "" {
			value, failures = v.Expand(operator[2:])
		}
	case strings.HasPrefix(operator, "-"), strings.HasPrefix(operator, "="):
		value = current

		if !set {
			value, failures = v.Expand(operator[1:])
		}
	case strings.HasPrefix(operator, ":+"), strings.HasPrefix(operator, "+"):
		if set {
			value, failures = v.Expand(strings.TrimPrefix(operator, ":")[1:])
		}
	default:
		failures = []LookupFailure{{name, "is followed by an unknown operator"}}
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

// foreign are the keys whose texts belong to others: patches, manifests and files, in which $host need be no variable
// of ours.
var foreign = []string{"patches", "inlineManifests", "machineFiles", "extraManifests", "extensionServices"}

// Substitute replaces variables in a tree, each scalar by itself so that places stay true. The mistakes in texts that
// belong to others are among the source's refused ones.
func (v Variables) Substitute(source yamlfile.Source, node *yaml.Node) {
	if node.Kind == yaml.ScalarNode {
		v.substituteScalar(source, node)

		return
	}

	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 && slices.Contains(foreign, node.Content[i-1].Value) {
			v.SubstituteForeign(source.Refusal(), child)
		} else {
			v.Substitute(source, child)
		}
	}
}

// SubstituteForeign is Substitute for a text that belongs to others: a $name of small letters without braces that is
// not set stays as it is, for it is theirs.
func (v Variables) SubstituteForeign(source yamlfile.Source, node *yaml.Node) {
	v.foreign = true
	v.Substitute(source, node)
}

func (v Variables) substituteScalar(source yamlfile.Source, node *yaml.Node) {
	if !strings.Contains(node.Value, "$") {
		return
	}

	value, failures := v.Expand(node.Value)

	for _, failure := range failures {
		mistake := source.Mistake(node, diagnosis.FileVariable, "variable %s %s", failure.Name, failure.Reason)
		mistake.Next = "set it in talenv.yaml or in the environment"

		if len(v.Unread) > 0 {
			mistake.Message += " (" + strings.Join(v.Unread, ", ") + " is encrypted and was not read)"
			mistake.Next = "set it in the environment, or in a talenv.yaml that is not encrypted"
		}

		source.Add(mistake)
	}

	node.Value = value

	// Unquoted text means what it looks like after the replacement: ${COUNT} can be a number, ${SANS} a list like [a, b].
	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return
	}

	node.Tag = "!!str"

	plain := yamlfile.Plain(value)

	switch {
	case plain == nil:
	case plain.Kind == yaml.ScalarNode:
		node.Tag = plain.Tag
	case strings.HasPrefix(value, "[") || strings.HasPrefix(value, "{"):
		node.Kind, node.Tag, node.Value, node.Content = plain.Kind, plain.Tag, "", plain.Content
		moveTo(node, node.Line, node.Column)
	}
}

// moveTo gives a tree and all in it one place.
func moveTo(node *yaml.Node, line, column int) {
	node.Line, node.Column = line, column

	for _, child := range node.Content {
		moveTo(child, line, column)
	}
}
