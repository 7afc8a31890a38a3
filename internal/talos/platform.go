package talos

import (
	"context"
	"errors"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Platform reads the platform that the node runs on, as "metal" or "nocloud"; empty where the node does not say it.
func (c *Conn) Platform(ctx context.Context) (string, error) {
	platform, err := get[*runtime.PlatformMetadata](ctx, c,
		runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID).Metadata())
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNotAllowed):
		return "", nil
	case err != nil:
		return "", err
	default:
		return platform.TypedSpec().Platform, nil
	}
}
