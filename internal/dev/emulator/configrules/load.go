package configrules

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"go.yaml.in/yaml/v4"
)

// Load reads a machine config, or says why it can't in the words of these releases.
func (r *Rules) Load(data []byte) (talosconfig.Provider, error) {
	if r.emptyDocumentsFail && hasEmptyDocument(data) {
		return nil, errors.New("recovered: expected a mapping node")
	}

	if err := r.refuseLater(data); err != nil {
		return nil, err
	}

	provider, err := configloader.NewFromBytes(data)
	if err != nil && r.older {
		return nil, olderWords(err)
	}

	return provider, err
}

// hasEmptyDocument tells of a document that holds nothing, as after a separator too many; machinery skips those.
func hasEmptyDocument(data []byte) bool {
	return slices.ContainsFunc(documentsOf(data), func(document *yaml.Node) bool { return document.Tag == "!!null" })
}

// documentsOf are the documents of a file, up to where it is no YAML.
func documentsOf(data []byte) []*yaml.Node {
	var documents []*yaml.Node

	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node

		if decoder.Decode(&document) != nil {
			return documents // the end, or what the loader complains about
		}

		documents = append(documents, document.Content...)
	}
}

// olderTypes names types of fields as they were called before Talos 1.14.
var olderTypes = strings.NewReplacer("meta.Addr", "network.Addr", "meta.Args", "v1alpha1.Args", "meta.Prefix",
	"network.Prefix", "meta.Unstructured", "v1alpha1.Unstructured", "network.SearchDomainList", "[]string")

// olderWords puts what the YAML library has against a config as it did before Talos 1.14.
func olderWords(err error) error {
	if wrong, ok := errors.AsType[*yaml.LoadErrors](err); ok {
		lines := []string{"yaml: construct errors:"}
		for _, one := range wrong.Errors {
			lines = append(lines, fmt.Sprintf("  line %d: %s", one.Mark.Line, olderTypes.Replace(one.Message)))
		}

		return errors.New(strings.Replace(err.Error(), wrong.Error(), strings.Join(lines, "\n"), 1))
	}

	if broken, ok := errors.AsType[*yaml.LoadError](err); ok {
		words := "yaml: "
		if broken.ContextMsg != "" {
			words += broken.ContextMsg + " at " + place(broken.ContextMark) + ": "
		}

		if broken.ContextMsg == "" || broken.ContextMark != broken.Mark {
			words += place(broken.Mark) + ": "
		}

		return errors.New(strings.Replace(err.Error(), broken.Error(), words+broken.Message, 1))
	}

	return err
}

// place names a position; the first column goes without saying.
func place(mark yaml.Mark) string {
	switch {
	case mark.Line == 0:
		return "<unknown position>"
	case mark.Column <= 1:
		return fmt.Sprintf("line %d", mark.Line)
	default:
		return fmt.Sprintf("line %d, column %d", mark.Line, mark.Column)
	}
}
