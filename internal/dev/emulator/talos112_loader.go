package emulator

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	runtimecfg "github.com/siderolabs/talos/pkg/machinery/config/types/runtime"
	"github.com/siderolabs/talos/pkg/machinery/config/types/security"
	yaml "go.yaml.in/yaml/v4"
)

// kindsSince112 are the documents that Talos 1.12 does not know.
var kindsSince112 = []string{
	block.ExternalVolumeConfigKind, network.BlackholeRouteKind, network.KubeSpanKind, network.RoutingRuleKind,
	network.TCPProbeKind, network.VRFKind,
	runtimecfg.EnvironmentConfigKind, security.ImageVerificationConfigKind,
}

// noMapping112 is what Talos 1.12 says of a document that is no mapping, or empty.
const noMapping112 = "recovered: expected a mapping node"

// load112 reads a machine config as Talos 1.12 does.
func load112(data []byte) (talosconfig.Provider, error) {
	provider, err := configloader.NewFromBytes(data)

	switch {
	case hasEmptyDocument(data):
		return nil, errors.New(noMapping112)
	case err != nil:
		return nil, errors.New(loaderText112(err.Error()))
	}

	for _, document := range provider.Documents() {
		if slices.Contains(kindsSince112, document.Kind()) {
			return nil, fmt.Errorf("%q %q: not registered", document.Kind(), document.APIVersion())
		}
	}

	return provider, nil
}

// hasEmptyDocument tells of a document that holds nothing, as after a separator too many; machinery skips those.
func hasEmptyDocument(data []byte) bool {
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node

		if decoder.Decode(&document) != nil {
			return false // the end, or what the loader complains about
		}

		for _, content := range document.Content {
			if content.Tag == "!!null" {
				return true
			}
		}
	}
}

// loaderTexts112 are machinery's complaints, and how those of Talos 1.12 differ; they are tried in order.
var loaderTexts112 = []struct {
	now  *regexp.Regexp
	then string
}{
	{regexp.MustCompile(`^expected a YAML document at line \d+$`), noMapping112},
	{regexp.MustCompile(`^(duplicate document .* is not allowed) \(line \d+\)$`), "$1"},
	{regexp.MustCompile(`^error decoding document /([^/]*)/.* \(line \d+\): missing apiVersion$`),
		`"$1" "": not registered`},
	{regexp.MustCompile(`(?s)^error decoding document .*? \(line \d+\): (.*)$`), "$1"},
	{regexp.MustCompile(`yaml: construct errors:\n`), "yaml: unmarshal errors:\n"},
	{regexp.MustCompile(`(\n  line \d+: )cannot construct `), "${1}cannot unmarshal "},
	// The position of a mistake is told otherwise: that of what was being read, if there was any, or none at all.
	{regexp.MustCompile(`^decode error: yaml: while [^:]* at (line \d+)(?:, column \d+)?: (?:line \d+(?:, column \d+)?: )?`), "decode error: yaml: $1: "},
	{regexp.MustCompile(`^decode error: yaml: while [^:]* at <unknown position>: (line \d+)(?:, column \d+)?: `),
		"decode error: yaml: $1: "},
	{regexp.MustCompile(`^decode error: yaml: (?:line \d+, column \d+|offset \d+|<unknown position>): `),
		"decode error: yaml: "},
}

// loaderText112 is a complaint of machinery's loader in the words of Talos 1.12.
func loaderText112(text string) string {
	for _, change := range loaderTexts112 {
		text = change.now.ReplaceAllString(text, change.then)
	}

	return text
}
