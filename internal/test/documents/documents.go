// Package documents makes the machine configs of a lab's cluster as Talos 1.14 generates them: in documents.
package documents

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
)

const (
	// Talos is the release that the configs are for.
	Talos = "v1.14.1"
	// Installer is the image that they name.
	Installer = clusterfiles.DefaultImage + ":" + Talos
)

// Edit replaces a text of a config by another.
type Edit [2]string

// Edits that several tests make.
var (
	AutoHostname = Edit{"hostname: ", "auto: stable # "}
	// NoDisk names a disk that no machine of a lab has, NoImage an installer image that nobody has.
	NoDisk  = Edit{"/dev/vda", "/dev/nvme7n1"}
	NoImage = Edit{Installer, "registry.example.org/installer:" + Talos}
	// NoIsolation changes what takes effect at a reboot only.
	NoIsolation = Edit{"workloadIsolation: true", "workloadIsolation: false"}
	// Tuned changes what takes effect at once.
	Tuned = Edit{"apiVersion: v1alpha1\nkind: HostnameConfig", "apiVersion: v1alpha1\nkind: SysctlConfig\n" +
		"params:\n    net.core.somaxconn: \"65535\"\n---\napiVersion: v1alpha1\nkind: HostnameConfig"}
)

// Config is a machine's config in a cluster that was made like this, with a static host name.
func Config(made clusterfiles.Options, name string, edits ...Edit) ([]byte, error) {
	kind := machine.TypeControlPlane
	if strings.HasPrefix(name, "worker") {
		kind = machine.TypeWorker
	}

	input, err := generate.NewInput(made.ClusterName, made.Endpoint, strings.TrimPrefix(made.KubernetesVersion, "v"),
		generate.WithVersionContract(config.TalosVersion1_14), generate.WithSecretsBundle(made.Secrets),
		generate.WithInstallDisk("/dev/vda"), generate.WithInstallImage(Installer),
		generate.WithAllowSchedulingOnControlPlanes(true))
	if err != nil {
		return nil, fmt.Errorf("generate the config of %s: %w", name, err)
	}

	generated, err := input.Config(kind)
	if err != nil {
		return nil, fmt.Errorf("generate the config of %s: %w", name, err)
	}

	data, err := generated.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("write the config of %s: %w", name, err)
	}

	text := string(data)

	for _, edit := range append([]Edit{{"auto: stable", "hostname: " + name}}, edits...) {
		if !strings.Contains(text, edit[0]) {
			return nil, fmt.Errorf("the config of %s has no %q", name, edit[0])
		}

		text = strings.Replace(text, edit[0], edit[1], 1)
	}

	return []byte(text), nil
}
