package machineconfig

import (
	"cmp"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/base/yamltree"
)

// Places finds where the fields of a YAML text stand, and shows its lines without secrets. The text is parsed when it
// is first asked for.
type Places struct {
	lines []string
	parse func() ([]*yaml.Node, error)
	// guarded are the lines on which a value begins that is secret, or may be.
	guarded func() map[int]bool
	// known are the lines on which nothing begins but what Talos has fields for.
	known func() map[int]bool
}

// NewPlaces is for a machine config, a talconfig or a patch.
func NewPlaces(data []byte) *Places {
	places := &Places{
		lines: strings.Split(string(data), "\n"),
		parse: sync.OnceValues(func() ([]*yaml.Node, error) { return parseNodes(data) }),
	}

	places.guarded = sync.OnceValue(func() map[int]bool {
		lines := make(map[int]bool)

		for _, root := range places.Roots() {
			visitScalars(root, func(path string, node *yaml.Node, class class) {
				if class == secret || class == hidden || isPatch(path, node) {
					lines[node.Line] = true
				}
			})
		}

		return lines
	})

	places.known = sync.OnceValue(func() map[int]bool {
		lines := make(map[int]bool)

		for _, root := range places.Roots() {
			// Of a kind that is not known the kind is.
			of := cmp.Or(documentType(root), reflect.TypeFor[meta.Meta]())

			visitTyped(root, of, func(node *yaml.Node, known bool) {
				before, others := lines[node.Line]
				lines[node.Line] = known && (before || !others)
			})
		}

		return lines
	})

	return places
}

// patchItem is the path of a talconfig's patch.
var patchItem = pattern.New(`(?:^|\.)patches\[\d+\]$`)

// isPatch reports whether a value has a patch on the line where it begins, and not the name of its file.
func isPatch(path string, node *yaml.Node) bool {
	return patchItem.MatchString(path) && node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 &&
		node.Value != "" && !yamlFile.MatchString(node.Value)
}

// visitTyped visits the nodes of a tree that begin something, and tells of each whether a type has it.
func visitTyped(node *yaml.Node, in reflect.Type, visit func(node *yaml.Node, known bool)) {
	if node.Kind == yaml.ScalarNode {
		visit(node, in != nil)
	}

	for i, child := range node.Content {
		below := typeBelow(in, "[]")

		if node.Kind == yaml.MappingNode {
			key := node.Content[i-i%2]
			below = typeBelow(in, key.Value)
		}

		visitTyped(child, below, visit)
	}
}

// PlacesOf is for a text of which what was read is known, as with the values of its variables.
func PlacesOf(data []byte, roots ...*yaml.Node) *Places {
	places := NewPlaces(data)
	places.parse = func() ([]*yaml.Node, error) { return roots, nil }

	return places
}

// Roots are the documents of the text, with aliases replaced by what they stand for; none if it is not YAML.
func (p *Places) Roots() []*yaml.Node {
	roots, err := p.parse()
	if err != nil {
		return nil
	}

	return roots
}

// SyntaxError is where the text stops to be YAML, and why, without a value of it; the message is empty if it is YAML.
func (p *Places) SyntaxError() (line, column int, message string) {
	if _, err := p.parse(); err != nil {
		line, column, message = YAMLErrorIn([]byte(strings.Join(p.lines, "\n")), err)

		return line, column, newScrubber([]byte(strings.Join(p.lines, "\n"))).scrub(message)
	}

	return 0, 0, ""
}

// Find gives the position of a field, or of the nearest one above it that is there. document is "Kind/name", "Kind", or
// empty for the document without a kind; path is dotted with indices, as in "machine.network.interfaces[0].mtu". Zeros
// mean that there is no such document.
func (p *Places) Find(document, path string) (line, column int) {
	root := p.document(document)
	if root == nil {
		return 0, 0
	}

	line, column = root.Line, root.Column
	node := root

	for _, step := range pathSteps(path) {
		key, value := child(node, step)
		if value == nil {
			return line, column
		}

		line, column, node = key.Line, key.Column, value
	}

	return line, column
}

// Has reports whether a field is there, as Find names it.
func (p *Places) Has(document, path string) bool {
	node := p.document(document)

	for _, step := range pathSteps(path) {
		if node == nil {
			return false
		}

		_, node = child(node, step)
	}

	return node != nil
}

// document finds a document by kind and name; of several the first.
func (p *Places) document(document string) *yaml.Node {
	kind, name, named := strings.Cut(document, "/")

	for _, root := range p.Roots() {
		if root.Kind == yaml.MappingNode && yamltree.FieldText(root, "kind") == kind &&
			(!named || yamltree.FieldText(root, "name") == name) {
			return root
		}
	}

	return nil
}

// pathSteps takes "a.b[0].c" apart into a, b, [0] and c.
func pathSteps(path string) []string {
	return strings.FieldsFunc(strings.ReplaceAll(path, "[", ".["), func(r rune) bool { return r == '.' })
}

// child is a mapping's value with its key, or a list's item, which is its own key; nil if there is none.
func child(node *yaml.Node, step string) (key, value *yaml.Node) {
	if index, isIndex := strings.CutPrefix(step, "["); isIndex {
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil || node.Kind != yaml.SequenceNode || i < 0 || i >= len(node.Content) {
			return nil, nil
		}

		return node.Content[i], node.Content[i]
	}

	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		if node.Content[i].Value == step {
			return node.Content[i], node.Content[i+1]
		}
	}

	return nil, nil
}

// keyValue is a line that sets a key to a value on the same line.
var keyValue = pattern.New(`^(\s*(?:- +)*"?([\w.-]+)"?\s*:\s+)(\S.*)$`)

// likeKey is a run of characters that a base64 key may be; a schematic's id and other hexadecimal numbers have no
// capitals.
var likeKey = pattern.New(`[A-Za-z0-9+/]{32,}={0,2}`)

// Line is a line of the text for people to see: a value that is secret, or may be, is masked. Lines count from 1.
func (p *Places) Line(number int) string {
	if number < 1 || number > len(p.lines) {
		return ""
	}

	line := strings.TrimRight(p.lines[number-1], " \t\r")
	match := keyValue.FindStringSubmatch(line)

	switch {
	case match != nil && (p.guarded()[number] || isSecretName(plainWord(match[2])) || plainWord(match[2]) == "crt"):
		return match[1] + Masked
	case p.guarded()[number], holdsPrivateKey(line):
		return Masked
	}

	key, value := "", line
	if match != nil {
		key, value = match[1], match[3]
	}

	for _, run := range likeKey.FindAllString(value, -1) {
		if strings.ToLower(run) != run {
			value = strings.ReplaceAll(value, run, Masked)
		}
	}

	return key + masker{replace: func(string) string { return Masked }}.text(value)
}

// Harmless is Line for what Talos has fields for, and Key for all else, but for a value that is no secret whatever its
// key means: an address, a URL without a user or parameters, a switch, a version, the name of a YAML file.
func (p *Places) Harmless(number int) string {
	line := p.Line(number)

	value := listItem.FindStringSubmatch(line)
	if match := keyValue.FindStringSubmatch(line); match != nil {
		value = match
	}

	if p.known()[number] || value != nil && areHarmless(value[len(value)-1]) {
		return line
	}

	return p.Key(number)
}

// listItem is a line with an item of a list.
var listItem = pattern.New(`^\s*(?:- +)+(\S.*)$`)

// areHarmless takes a value, or a list of some in one line.
func areHarmless(value string) bool {
	value, _, _ = strings.Cut(value, " #")
	value = strings.TrimSpace(value)

	if list, isList := strings.CutPrefix(value, "["); isList {
		value = strings.TrimSuffix(list, "]")
	}

	return !slices.ContainsFunc(strings.Split(value, ","), func(item string) bool { return !isHarmless(item) })
}

var (
	// version is one of Talos or Kubernetes.
	version = pattern.New(`^v?1\.\d{1,2}(?:\.\d{1,2})?$`)
	// yamlFile is how a talconfig names a file.
	yamlFile = pattern.New(`^@?[\w./-]+\.ya?ml$`)
)

func isHarmless(value string) bool {
	value = strings.Trim(strings.TrimSpace(value), `"'`)

	_, notAddress := netip.ParseAddr(value)
	_, notPrefix := netip.ParsePrefix(value)

	return notAddress == nil || notPrefix == nil || value == "true" || value == "false" ||
		version.MatchString(value) || yamlFile.MatchString(value) || isPlainURL(value)
}

// isPlainURL reports whether a text is the URL of a server, with a path in which no token can be.
func isPlainURL(text string) bool {
	const longestPath = 16

	parsed, err := url.Parse(text)

	return err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Host != "" &&
		parsed.User == nil && parsed.RawQuery == "" && parsed.Fragment == "" && len(parsed.Path) <= longestPath &&
		!secrettext.LooksLikeKey(parsed.Host)
}

// Key is Line with any value masked, for texts in which what a key means is not known.
func (p *Places) Key(number int) string {
	line := p.Line(number)

	if match := keyValue.FindStringSubmatch(line); match != nil {
		return match[1] + Masked
	}

	if keyAlone.MatchString(line) {
		return line
	}

	return ""
}

// keyAlone is a line with a key whose value begins on another.
var keyAlone = pattern.New(`^\s*(?:- +)*["']?[^\s"'{\[,]+["']?\s*:$`)
