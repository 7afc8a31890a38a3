package emulator_test

import (
	"context"
	"errors"
	"io"

	"github.com/cosi-project/runtime/pkg/safe"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/client"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"google.golang.org/grpc"
)

var errNotYet = errors.New("not yet")

// until is an error while a condition does not hold.
func until(holds bool) error {
	if holds {
		return nil
	}

	return errNotYet
}

// firstFrame is the error with which a stream starts; none if it gives a frame or ends.
func firstFrame[T any](stream grpc.ServerStreamingClient[T], err error) error {
	if err != nil {
		return err
	}

	if _, err = stream.Recv(); errors.Is(err, io.EOF) {
		return nil
	}

	return err
}

func synced(ctx context.Context, c *client.Client) error {
	status, err := safe.StateGetByID[*timeres.Status](ctx, c.COSI, timeres.StatusID)
	if err != nil {
		return err
	}

	return until(status.TypedSpec().Synced)
}

func wipe(device string) *storageapi.BlockDeviceWipeRequest {
	return &storageapi.BlockDeviceWipeRequest{Devices: []*storageapi.BlockDeviceWipeDescriptor{{Device: device}}}
}
