package machineconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
)

// class says how a scalar of a machine config is treated by its place alone.
type class int

const (
	// open values are shown, unless they look like a secret themselves.
	open class = iota
	// certificate values are base64 of public PEM certificates.
	certificate
	// secret values are keys, tokens and passwords.
	secret
	// hidden values are files, manifests and variables: a secret may be anywhere in them.
	hidden
)

// secretNames are the last words of keys whose values are secret wherever they stand, in lower case without hyphens:
// "bootstrapToken" and "oidc-client-secret" are found by theirs.
var secretNames = []string{
	"token", "secret", "password", "passphrase", "passwd", "key", "auth", "credentials", "authorization", "cookie",
	"keydata",
}

// publicNames end like a secret and are none.
var publicNames = []string{"publickey", "aduserportkey"}

// freeText are the keys whose values can hold anything.
var freeText = []string{
	"content", "contents", "env", "environment", "variables", "extramanifestheaders", "configfiles", "pods",
	"inlinemanifests", "files", "credentialproviderconfig", "value", "data", "stringdata",
}

// labels are the keys inside free text that say what it is about.
var labels = []string{"name", "path", "permissions", "op", "mountpath"}

// visitor is called for every scalar, mapping keys included; path is dotted, as in "machine.files[0].content".
type visitor func(path string, node *yaml.Node, class class)

// visitScalars walks one document. A document of a kind that this version of machinery does not know is hidden but for
// its name: what its fields mean can't be told.
func visitScalars(root *yaml.Node, visit visitor) {
	switch {
	case root.Kind != yaml.MappingNode:
		visitHidden("", root, nil, visit)
	case isKnownKind(root):
		visitMapping("", root, visit)
	default:
		visitHidden("", root, append([]string{"apiversion", "kind", "version"}, labels...), visit)
	}
}

func visitMapping(prefix string, mapping *yaml.Node, visit visitor) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := strings.TrimPrefix(prefix+"."+key.Value, ".")
		name := plainWord(key.Value)

		switch {
		case key.Kind != yaml.ScalarNode:
			visitHidden(path, key, nil, visit)
			visitHidden(path, value, nil, visit)

			continue
		case slices.Contains(freeText, name):
			visitHidden(path, value, labels, visit)
		case isSecretName(name) && isScalarOrList(value):
			visitAll(path, value, secret, visit)
		case name == "crt" && value.Kind == yaml.ScalarNode:
			visit(path, value, certificate)
		default:
			visitOpen(path, value, visit)
		}

		visit(path, key, open)
	}
}

func visitOpen(path string, node *yaml.Node, visit visitor) {
	switch node.Kind {
	case yaml.MappingNode:
		visitMapping(path, node, visit)
	case yaml.SequenceNode:
		for i, item := range node.Content {
			visitOpen(fmt.Sprintf("%s[%d]", path, i), item, visit)
		}
	case yaml.ScalarNode:
		visit(path, node, open)
	default:
		visitHidden(path, node, nil, visit)
	}
}

// visitHidden calls everything below a node hidden, but for the values of the shown keys; what has the name of a secret
// is one.
func visitHidden(path string, node *yaml.Node, shown []string, visit visitor) {
	switch node.Kind {
	case yaml.ScalarNode:
		visit(path, node, hidden)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			path := strings.TrimPrefix(path+"."+key.Value, ".")
			name := plainWord(key.Value)

			switch {
			case key.Kind != yaml.ScalarNode:
				visitHidden(path, key, shown, visit)
				visitHidden(path, value, shown, visit)

				continue
			case value.Kind == yaml.ScalarNode && slices.Contains(shown, name):
				visit(path, value, open)
			case isSecretName(name) && isScalarOrList(value):
				visitAll(path, value, secret, visit)
			default:
				visitHidden(path, value, shown, visit)
			}

			visit(path, key, open)
		}
	default:
		for i, child := range node.Content {
			visitHidden(fmt.Sprintf("%s[%d]", path, i), child, shown, visit)
		}
	}
}

func visitAll(path string, node *yaml.Node, class class, visit visitor) {
	if node.Kind == yaml.ScalarNode {
		visit(path, node, class)

		return
	}

	for i, item := range node.Content {
		visitAll(fmt.Sprintf("%s[%d]", path, i), item, class, visit)
	}
}

// isScalarOrList is false for mappings and lists of them: their fields have names of their own.
func isScalarOrList(node *yaml.Node) bool {
	switch node.Kind {
	case yaml.ScalarNode:
		return true
	case yaml.SequenceNode:
		return !slices.ContainsFunc(node.Content, func(item *yaml.Node) bool { return !isScalarOrList(item) })
	default:
		return false
	}
}

func plainWord(key string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(key))
}

func isSecretName(word string) bool {
	return !slices.Contains(publicNames, word) &&
		slices.ContainsFunc(secretNames, func(secret string) bool { return strings.HasSuffix(word, secret) })
}

// isKnownKind reports whether machinery can decode the document's kind; the document without a kind is the v1alpha1
// config.
func isKnownKind(root *yaml.Node) bool {
	kind, version := yamltree.FieldText(root, "kind"), yamltree.FieldText(root, "apiVersion")
	if kind == "" {
		return true
	}

	_, err := configloader.NewFromBytes(fmt.Appendf(nil, "apiVersion: %q\nkind: %q\n", version, kind))

	return err == nil || !strings.Contains(err.Error(), "not registered")
}

// minSecretLength is the shortest value that is looked for in other places: shorter ones meet by chance.
const minSecretLength = 8

// secretValues are the secrets of the documents, the longest first, for finding copies of them elsewhere. With hidden
// values too if asked.
func secretValues(roots []*yaml.Node, withHidden bool) []string {
	var values []string

	for _, root := range roots {
		visitScalars(root, func(_ string, node *yaml.Node, class class) {
			if (class == secret || class == hidden && withHidden) && len(node.Value) >= minSecretLength {
				values = append(values, node.Value)
			}
		})
	}

	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })

	return slices.Compact(values)
}
