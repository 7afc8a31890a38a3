package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/machine"
)

// imageService manages the images in a node's containerd instances.
type imageService struct {
	machineapi.UnimplementedImageServiceServer

	boot *machine.Boot
}

// imageSize is that of every image, in bytes.
const imageSize = 100_000_000

// List tells the images of a store, each under all its names.
func (s *imageService) List(request *machineapi.ImageServiceListRequest,
	stream machineapi.ImageService_ListServer) error {
	store, err := s.boot.Images.Store(request.GetContainerd())
	if err != nil {
		return err
	}

	images := s.boot.Images.Of(store)

	for _, name := range slices.Sorted(maps.Keys(images)) {
		if err := stream.Send(&machineapi.ImageServiceListResponse{
			Name: name, Digest: images[name].Digest, Size: imageSize, CreatedAt: timestamppb.New(images[name].Created),
		}); err != nil {
			return err
		}
	}

	return nil
}

// Pull fetches an image into a store. It tells its progress and at the end the image's name by digest.
func (s *imageService) Pull(request *machineapi.ImageServicePullRequest,
	stream machineapi.ImageService_PullServer) error {
	store, err := s.boot.Images.Store(request.GetContainerd())
	if err != nil {
		return err
	}

	start := s.boot.Now()

	name, digest, err := s.boot.Images.Pull(stream.Context(), store, request.GetImageRef(),
		func(now machineapi.ImageServicePullLayerProgress_Status, part float64) {
			progress := &machineapi.ImageServicePullLayerProgress{Status: now, Offset: int64(part * imageSize), Total: imageSize}
			if now == machineapi.ImageServicePullLayerProgress_EXTRACTING {
				progress.Elapsed = durationpb.New(s.boot.Now().Sub(start))
			}

			// A caller that has gone is told so by what comes next.
			_ = stream.Send(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{
				PullProgress: &machineapi.ImageServicePullProgress{LayerId: "layer-0", Progress: progress},
			}})
		})
	if errors.As(err, &machine.NotFoundError{}) {
		return status.Errorf(codes.NotFound, "error pulling image: %s", err)
	} else if err != nil {
		return err
	}

	return stream.Send(&machineapi.ImageServicePullResponse{
		Response: &machineapi.ImageServicePullResponse_Name{Name: name.Pinned(digest)}})
}

// Import takes an image as a stream of chunks and keeps it under a name made from what it holds.
func (s *imageService) Import(stream machineapi.ImageService_ImportServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}

	if first.GetContainerd() == nil {
		return status.Error(codes.InvalidArgument, "containerd instance is required")
	}

	store, err := s.boot.Images.Store(first.GetContainerd())
	if err != nil {
		return err
	}

	content, size := sha256.New(), 0

	for {
		next, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return status.Errorf(codes.Internal, "failed to import image: %s", err)
		}

		if next.GetImageChunk() == nil {
			return status.Error(codes.Internal, "failed to import image: no image chunk")
		}

		size += len(next.GetImageChunk().GetBytes())
		content.Write(next.GetImageChunk().GetBytes())
	}

	if size == 0 {
		return status.Error(codes.Internal, "failed to import image: unrecognized image format") //nolint:misspell // containerd's own text
	}

	digest := "sha256:" + hex.EncodeToString(content.Sum(nil))

	s.boot.Images.Change(store, func(images map[string]machine.StoredImage) {
		images[digest] = machine.StoredImage{Digest: digest, Created: s.boot.Now()}
	})

	return stream.SendAndClose(&machineapi.ImageServiceImportResponse{Name: digest})
}

// Remove forgets one name of an image.
func (s *imageService) Remove(_ context.Context, request *machineapi.ImageServiceRemoveRequest) (*emptypb.Empty,
	error) {
	store, err := s.boot.Images.Store(request.GetContainerd())
	if err != nil {
		return nil, err
	}

	if _, known := s.boot.Images.Of(store)[request.GetImageRef()]; !known {
		return nil, status.Errorf(codes.NotFound, "image %s not found", request.GetImageRef())
	}

	s.boot.Images.Change(store, func(images map[string]machine.StoredImage) { delete(images, request.GetImageRef()) })

	return &emptypb.Empty{}, nil
}

// Verify allows every image: there are no rules for any.
func (s *imageService) Verify(_ context.Context,
	request *machineapi.ImageServiceVerifyRequest) (*machineapi.ImageServiceVerifyResponse, error) {
	if _, err := machine.ParseImage(request.GetImageRef()); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "image reference is invalid: could not parse reference: %s",
			request.GetImageRef())
	}

	return &machineapi.ImageServiceVerifyResponse{Message: "no matched rule"}, nil
}

// ImagePull is Pull by its older name, from the registry straight into one of the stores on the disk.
func (s *machineService) ImagePull(ctx context.Context,
	request *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	store, err := s.boot.Images.Store(&common.ContainerdInstance{Driver: common.ContainerDriver_CRI,
		Namespace: request.GetNamespace()})
	if err != nil {
		return nil, err
	}

	_, _, err = s.boot.Images.Pull(ctx, store, request.GetReference(),
		func(machineapi.ImageServicePullLayerProgress_Status, float64) {})
	if errors.As(err, &machine.NotFoundError{}) {
		return nil, status.Errorf(codes.NotFound, "error pulling image: %s", err)
	} else if err != nil {
		return nil, err
	}

	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}
