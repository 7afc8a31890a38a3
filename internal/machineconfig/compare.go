package machineconfig

import (
	"bytes"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/textdiff"
)

// Same reports whether two configs mean the same: what their documents say once decoded, whatever the order of the
// documents, the comments and the layout of the text.
func Same(a, b *Config) bool {
	first, firstErr := a.canonical()
	second, secondErr := b.canonical()

	return firstErr == nil && secondErr == nil && bytes.Equal(first, second)
}

// canonical is the one text of a meaning: every document encoded afresh without comments, in the order of kinds and
// names.
func (c *Config) canonical() ([]byte, error) {
	documents := slices.Clone(c.Provider.Documents())

	slices.SortStableFunc(documents, func(a, b config.Document) int {
		return strings.Compare(documentOrder(a), documentOrder(b))
	})

	var text bytes.Buffer

	for _, document := range documents {
		data, err := encoder.NewEncoder(document, encoder.WithComments(encoder.CommentsDisabled)).Encode()
		if err != nil {
			return nil, err
		}

		text.WriteString("---\n")
		text.Write(data)
	}

	return text.Bytes(), nil
}

// documentOrder sorts the main document, which has no kind, first.
func documentOrder(document config.Document) string {
	name := ""

	if named, ok := document.(config.NamedDocument); ok {
		name = named.Name()
	}

	if document.Kind() == "v1alpha1" {
		return ""
	}

	return document.Kind() + "/" + name
}

// Diff is the unified diff from the config that is in effect, or in a file, now to the wanted one, with every secret
// masked; empty when they mean the same.
func Diff(running, wanted *Config) string {
	if Same(running, wanted) {
		return ""
	}

	tag := newTagger()

	before, beforeErr := running.maskedCanonical(tag)
	after, afterErr := wanted.maskedCanonical(tag)

	if beforeErr != nil || afterErr != nil {
		return unreadable
	}

	diff, err := textdiff.DiffWithCustomPaths(before, after, "now", "wanted")
	if err != nil {
		return unreadable
	}

	return untag(diff, before, after)
}

func (c *Config) maskedCanonical(replace func(string) string) (string, error) {
	text, err := c.canonical()
	if err != nil {
		return "", err
	}

	masked, err := maskWith(text, replace)

	return string(masked), err
}

// untag turns the tags of secrets into words: a secret that the other config has nowhere was changed.
func untag(diff, before, after string) string {
	var out strings.Builder

	for line := range strings.Lines(diff) {
		other := ""

		switch {
		case strings.HasPrefix(line, "-"):
			other = after
		case strings.HasPrefix(line, "+"):
			other = before
		}

		out.WriteString(tagged.ReplaceAllStringFunc(line, func(tag string) string {
			if other != "" && !strings.Contains(other, tag) {
				return MaskedChanged
			}

			return Masked
		}))
	}

	return out.String()
}
