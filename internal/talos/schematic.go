package talos

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// schematicExtension is the name of the extension by which the image factory tells an image's schematic; its version is
// the id.
const schematicExtension = "schematic"

// ImageContent is what the image holds that the node booted from, beyond Talos itself.
type ImageContent struct {
	// Schematic is the image factory's id of it; empty when the image came from elsewhere.
	Schematic string
	// Extensions are the names of its system extensions.
	Extensions []string
}

// ImageContent reads what the node's image holds.
func (c *Conn) ImageContent(ctx context.Context) (ImageContent, error) {
	extensions, err := list[*runtime.ExtensionStatus](ctx, c,
		runtime.NewExtensionStatus(runtime.NamespaceName, "").Metadata())
	if err != nil {
		return ImageContent{}, err
	}

	var content ImageContent

	for _, extension := range extensions {
		metadata := extension.TypedSpec().Metadata
		if metadata.Name == schematicExtension {
			content.Schematic = metadata.Version
		} else {
			content.Extensions = append(content.Extensions, metadata.Name)
		}
	}

	return content, nil
}

// Schematic reads the id of the image factory schematic that the node booted from; empty when its image came from
// elsewhere.
func (c *Conn) Schematic(ctx context.Context) (string, error) {
	content, err := c.ImageContent(ctx)
	return content.Schematic, err
}
