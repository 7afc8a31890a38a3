package talos

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// schematicExtension is the name of the extension by which the image factory tells an image's schematic; its version is
// the id.
const schematicExtension = "schematic"

// modulesExtension is what an imager makes of the kernel modules of all extensions.
const modulesExtension = "modules.dep"

// Extensions reads the names of the system extensions that the node booted with.
func (c *Conn) Extensions(ctx context.Context) ([]string, error) {
	extensions, err := list[*runtime.ExtensionStatus](ctx, c,
		runtime.NewExtensionStatus(runtime.NamespaceName, "").Metadata())
	if err != nil {
		return nil, err
	}

	var names []string
	for _, extension := range extensions {
		if name := extension.TypedSpec().Metadata.Name; name != schematicExtension && name != modulesExtension {
			names = append(names, name)
		}
	}

	return names, nil
}

// Schematic reads the id of the image factory schematic that the node booted from; empty when its image came from
// elsewhere.
func (c *Conn) Schematic(ctx context.Context) (string, error) {
	extensions, err := list[*runtime.ExtensionStatus](ctx, c,
		runtime.NewExtensionStatus(runtime.NamespaceName, "").Metadata())
	if err != nil {
		return "", err
	}

	for _, extension := range extensions {
		if extension.TypedSpec().Metadata.Name == schematicExtension {
			return extension.TypedSpec().Metadata.Version, nil
		}
	}

	return "", nil
}
