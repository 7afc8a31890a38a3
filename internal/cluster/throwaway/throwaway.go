// Package throwaway makes secrets up where the cluster's own are not here and its machine configs are only to be
// judged. They carry a mark that every machine config made from them has in it, and whatever has the mark is neither
// written nor sent: that does not depend on anybody remembering where a text came from.
package throwaway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
)

// The marks have the form of what they stand for: a join token, and a cluster's id, which is 32 bytes. All nodes have
// both.
const (
	token = "madeup.forrehearsalonly"
	id    = "made up to be judged, never used"
)

var marks = [][]byte{[]byte(token), []byte(encodedID())}

func encodedID() string { return base64.StdEncoding.EncodeToString([]byte(id)) }

// ErrMarked is of an attempt to write or send what was made with throwaway secrets.
var ErrMarked = errors.New("it was made with throwaway secrets, which are only for judging files")

// Secrets makes a bundle. The contract is one whose service account key is no RSA key: that takes a processor seconds
// to find, and the others a millisecond (siderolabs/talos, pkg/machinery/config/contract.go).
func Secrets() (*secrets.Bundle, error) {
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), talosconfig.TalosVersion1_6)
	if err != nil {
		return nil, fmt.Errorf("make throwaway secrets: %w", err)
	}

	bundle.TrustdInfo.Token, bundle.Secrets.BootstrapToken, bundle.Cluster.ID = token, token, encodedID()

	return bundle, nil
}

// Made reports whether a text has the mark: a machine config, or a bundle.
func Made(text []byte) bool {
	for _, mark := range marks {
		if bytes.Contains(text, mark) {
			return true
		}
	}

	return false
}
