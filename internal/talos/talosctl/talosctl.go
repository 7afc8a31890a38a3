// Package talosctl runs the user's own talosctl, for what Talos' code does at the client and is too large to have here.
package talosctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/program"
)

const name = "talosctl"

// Talosctl is the user's program.
type Talosctl struct {
	// Programs is where it is found, and how it is run.
	Programs program.Runner
	// Talosconfig is the path of the client configuration that it is to use.
	Talosconfig string
}

var tagLine = pattern.New(`^(?:Talos|Tag:) *(v\d+\.\d+\.\d+\S*)$`)

// Version is the program's own, as "v1.14.1". Without the program the error is program.ErrMissing, wrapped.
func (t Talosctl) Version(ctx context.Context) (string, error) {
	output, err := t.Programs.Run(ctx, nil, name, "version", "--client", "--short")
	if err != nil {
		return "", fmt.Errorf("ask talosctl for its version: %w", err)
	}

	for line := range strings.Lines(string(output)) {
		if found := tagLine.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			return found[1], nil
		}
	}

	return "", errors.New("ask talosctl for its version: it prints none")
}
