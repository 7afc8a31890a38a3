package machine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	runtimecfg "github.com/siderolabs/talos/pkg/machinery/config/types/runtime"
	"github.com/siderolabs/talos/pkg/machinery/config/types/security"
	"go.yaml.in/yaml/v4"
)

// kindsSince112 are the documents that Talos 1.12 does not know.
var kindsSince112 = []string{
	block.ExternalVolumeConfigKind, network.BlackholeRouteKind, network.KubeSpanKind, network.RoutingRuleKind,
	network.TCPProbeKind, network.VRFKind,
	runtimecfg.EnvironmentConfigKind, security.ImageVerificationConfigKind,
}

// load112 reads a machine config, and refuses what Talos 1.12 does.
func load112(data []byte) (talosconfig.Provider, error) {
	provider, err := configloader.NewFromBytes(data)

	switch {
	case hasEmptyDocument(data):
		return nil, errors.New("recovered: expected a mapping node")
	case err != nil:
		return nil, err
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
