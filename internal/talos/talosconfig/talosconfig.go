// Package talosconfig reads the client configuration of the Talos API.
package talosconfig

import (
	"errors"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
)

// Parse reads the text of a talosconfig. Errors never quote it, since it holds a private key. Contexts may be nil.
func Parse(data []byte) (config *clientconfig.Config, err error) {
	unreadable := errors.New("it is not a talosconfig: the YAML could not be read")

	// Machinery's reader panics at an empty context.
	defer func() {
		if recovered := recover(); recovered != nil {
			config, err = nil, unreadable
		}
	}()

	if config, err = clientconfig.FromBytes(data); err != nil {
		return nil, unreadable
	}

	return config, nil
}
