package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// New makes the bundle of a cluster that is born with a Talos release, valid from now on.
func New(talosVersion string) (*secrets.Bundle, error) {
	contract, err := config.ParseContractFromVersion(talosVersion)
	if err != nil {
		return nil, fmt.Errorf("read Talos version: %w", err)
	}

	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), contract)
	if err != nil {
		return nil, fmt.Errorf("make secrets: %w", err)
	}

	return bundle, nil
}

// Encode is the text of a bundle as talhelper writes it, unencrypted. A dollar sign in a secret is doubled, since
// whoever reads the file replaces variables.
func Encode(bundle *secrets.Bundle) ([]byte, error) {
	var text bytes.Buffer

	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)

	if err := errors.Join(encoder.Encode(bundle), encoder.Close()); err != nil {
		return nil, fmt.Errorf("encode secrets: %w", err)
	}

	return bytes.ReplaceAll(text.Bytes(), []byte("$"), []byte("$$")), nil
}

// Recover takes the bundle of a cluster out of the machine config of one of its control planes, which holds all of it.
// Errors name what is missing, as in a worker's config or one that was blacked out.
func Recover(config *machineconfig.Config, now time.Time) (*secrets.Bundle, error) {
	if role := config.Role(); role != machine.TypeControlPlane && role != machine.TypeInit {
		return nil, fmt.Errorf("it is the config of a %s, which holds only a part of the secrets", role)
	}

	if !whole(config) {
		return nil, errors.New("it holds only a part of the secrets")
	}

	bundle, err := secrets.NewBundleFromConfig(secrets.NewFixedClock(now), config.Provider)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}

	text, err := Encode(bundle)
	if err != nil {
		return nil, err
	}

	// What is written now has to be readable later.
	if _, err := Decode("what it holds", text, noVariables, now); err != nil {
		return nil, err
	}

	return bundle, nil
}

// noVariables are those of a text that may use none.
var noVariables = talconfig.Variables{Lookup: func(string) (string, bool) { return "", false }}

// whole reports whether a config has each of the keys; a missing one would be taken for an empty one.
func whole(config *machineconfig.Config) bool {
	const signing = 4 // of Talos, of Kubernetes, of its aggregator and of etcd

	authorities := config.Authorities()

	for _, authority := range authorities {
		if len(authority.Crt) == 0 || len(authority.Key) == 0 {
			return false
		}
	}

	return len(authorities) == signing && config.Provider.K8sServiceAccountConfig() != nil &&
		config.BootstrapToken() != "" && config.ClusterID() != ""
}
