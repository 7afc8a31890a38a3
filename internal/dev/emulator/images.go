package emulator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// imageService manages the images in a node's containerd instances.
type imageService struct {
	machineapi.UnimplementedImageServiceServer

	boot *boot
}

// imageStore is one of the places where a node keeps images.
type imageStore int

const (
	// systemImages are in memory: lost at reboot, there without a disk.
	systemImages imageStore = iota
	// criImages are those of Talos' own containers on the disk.
	criImages
	// podImages are those of Kubernetes' containers on the disk.
	podImages
)

// storedImage is what a name in a store stands for.
type storedImage struct {
	digest  string
	created time.Time
}

// imageSize is that of every image, in bytes.
const imageSize = 100_000_000

// images are those that were pulled.
type images struct {
	boot *boot

	pulled map[string]storedImage // into memory, while there is no disk; guarded by boot.mu
}

// store finds the store that a request names.
func (i *images) store(instance *common.ContainerdInstance) (imageStore, error) {
	driver, namespace := instance.GetDriver(), instance.GetNamespace()

	switch {
	case driver != common.ContainerDriver_CONTAINERD && driver != common.ContainerDriver_CRI:
		return 0, status.Errorf(codes.InvalidArgument, "invalid containerd driver %s", driver)
	case namespace != common.ContainerdNamespace_NS_CRI && namespace != common.ContainerdNamespace_NS_SYSTEM:
		return 0, status.Errorf(codes.InvalidArgument, "invalid containerd namespace %s", namespace)
	case driver == common.ContainerDriver_CONTAINERD && namespace == common.ContainerdNamespace_NS_CRI:
		return 0, status.Error(codes.InvalidArgument, "cannot use CRI namespace with containerd driver")
	case driver == common.ContainerDriver_CONTAINERD:
		return systemImages, nil
	case !i.boot.services.up(serviceCRI):
		return 0, status.Error(codes.Unavailable,
			`error connecting to containerd: failed to dial "/run/containerd/containerd.sock": context deadline exceeded`)
	case namespace == common.ContainerdNamespace_NS_CRI:
		return podImages, nil
	default:
		return criImages, nil
	}
}

// of is what a store holds, by name.
func (i *images) of(store imageStore) map[string]storedImage {
	if store != systemImages {
		return i.boot.node.readDrive().images[store]
	}

	i.boot.mu.Lock()
	defer i.boot.mu.Unlock()

	return i.pulled
}

// change replaces what a store holds by a changed copy.
func (i *images) change(store imageStore, change func(map[string]storedImage)) {
	changed := func(held map[string]storedImage) map[string]storedImage {
		copied := maps.Clone(held)
		if copied == nil {
			copied = map[string]storedImage{}
		}

		change(copied)

		return copied
	}

	if store == systemImages {
		i.boot.mu.Lock()
		i.pulled = changed(i.pulled)
		i.boot.mu.Unlock()

		return
	}

	i.boot.node.editDrive(func(d *drive) {
		stores := maps.Clone(d.images)
		if stores == nil {
			stores = map[imageStore]map[string]storedImage{}
		}

		stores[store] = changed(stores[store])
		d.images = stores
	})
}

// imageName is a parsed image reference.
type imageName struct {
	name   string // "ghcr.io/siderolabs/installer"
	tag    string // "v1.13.9"
	digest string // "sha256:…"
}

var imageReference = regexp.MustCompile(
	`^((?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)` +
		`(?::([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$`)

// parseImage reads an image reference as Docker does: what names no registry is at Docker's, what names nothing more is
// the latest.
func parseImage(reference string) (imageName, error) {
	found := imageReference.FindStringSubmatch(reference)
	if shouted := shoutedName(reference); found == nil && shouted != "" {
		return imageName{}, fmt.Errorf("failed to parse image reference %q: invalid reference format: repository name "+
			"(%s) must be lowercase", reference, shouted)
	} else if found == nil {
		return imageName{}, fmt.Errorf("failed to parse image reference %q: invalid reference format", reference)
	}

	parsed := imageName{found[1], found[2], found[3]}

	first, _, nested := strings.Cut(parsed.name, "/")

	switch {
	case !nested:
		parsed.name = "docker.io/library/" + parsed.name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		parsed.name = "docker.io/" + parsed.name
	}

	if parsed.digest != "" {
		parsed.tag = ""
	} else if parsed.tag == "" {
		parsed.tag = "latest"
	}

	return parsed, nil
}

// shoutedName is the part of a reference that may have no capitals and has some; empty if there is none.
func shoutedName(reference string) string {
	first, rest, nested := strings.Cut(reference, "/")
	if !nested {
		rest = "library/" + reference
	} else if !strings.ContainsAny(first, ".:") && first != "localhost" {
		rest = reference
	}

	if name, _, _ := strings.Cut(rest, ":"); strings.ToLower(name) != name {
		return name
	}

	return ""
}

// String is the reference in full.
func (n imageName) String() string {
	if n.digest != "" {
		return n.name + "@" + n.digest
	}

	return n.name + ":" + n.tag
}

// pinned is the reference by digest.
func (n imageName) pinned(digest string) string { return n.name + "@" + digest }

// pull fetches an image into a store, under all its names. Every image exists, but while a fault says that installers
// do not.
func (i *images) pull(ctx context.Context, store imageStore, reference string,
	progress func(machineapi.ImageServicePullLayerProgress_Status)) (imageName, string, error) {
	parsed, err := parseImage(reference)
	if err != nil {
		return parsed, "", err
	}

	if held, known := i.of(store)[parsed.String()]; known {
		return parsed, held.digest, nil
	}

	if i.boot.node.takeInstallFault(InstallImagePull) == InstallImagePull {
		return parsed, "", notFoundError{fmt.Sprintf(
			"1 error(s) occurred:\n\tfailed to pull image %q: failed to resolve reference %q: %s: not found",
			parsed, parsed, parsed)}
	}

	progress(machineapi.ImageServicePullLayerProgress_DOWNLOADING)

	if err := i.boot.sleep(ctx, i.boot.node.options.Timing.Pull); err != nil {
		return parsed, "", err
	}

	progress(machineapi.ImageServicePullLayerProgress_DOWNLOAD_COMPLETE)
	progress(machineapi.ImageServicePullLayerProgress_EXTRACTING)
	progress(machineapi.ImageServicePullLayerProgress_EXTRACT_COMPLETE)

	held := storedImage{parsed.digest, i.boot.now()}

	if held.digest == "" {
		sum := sha256.Sum256([]byte(parsed.String()))
		held.digest = "sha256:" + hex.EncodeToString(sum[:])
	}

	i.change(store, func(images map[string]storedImage) {
		for _, name := range []string{held.digest, parsed.String(), parsed.pinned(held.digest)} {
			images[name] = held
		}
	})

	return parsed, held.digest, nil
}

// notFoundError tells of an image that no registry has.
type notFoundError struct{ text string }

// Error implements error.
func (e notFoundError) Error() string { return e.text }

// pull fetches an installer into memory for an upgrade.
func (i *installer) pull(ctx context.Context, reference string) error {
	_, _, err := i.boot.images.pull(ctx, systemImages, reference, func(machineapi.ImageServicePullLayerProgress_Status) {})

	return err
}

// List tells the images of a store, each under all its names.
func (s *imageService) List(request *machineapi.ImageServiceListRequest,
	stream machineapi.ImageService_ListServer) error {
	store, err := s.boot.images.store(request.GetContainerd())
	if err != nil {
		return err
	}

	images := s.boot.images.of(store)

	for _, name := range slices.Sorted(maps.Keys(images)) {
		if err := stream.Send(&machineapi.ImageServiceListResponse{
			Name: name, Digest: images[name].digest, Size: imageSize, CreatedAt: timestamppb.New(images[name].created),
		}); err != nil {
			return err
		}
	}

	return nil
}

// Pull fetches an image into a store. It tells its progress and at the end the image's name by digest.
func (s *imageService) Pull(request *machineapi.ImageServicePullRequest,
	stream machineapi.ImageService_PullServer) error {
	store, err := s.boot.images.store(request.GetContainerd())
	if err != nil {
		return err
	}

	start := s.boot.now()

	name, digest, err := s.boot.images.pull(stream.Context(), store, request.GetImageRef(),
		func(now machineapi.ImageServicePullLayerProgress_Status) {
			progress := &machineapi.ImageServicePullLayerProgress{Status: now, Elapsed: durationpb.New(s.boot.now().Sub(start)),
				Total: imageSize}
			if now != machineapi.ImageServicePullLayerProgress_DOWNLOADING {
				progress.Offset = imageSize
			}

			// A caller that has gone is told so by what comes next.
			_ = stream.Send(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{
				PullProgress: &machineapi.ImageServicePullProgress{LayerId: "layer-0", Progress: progress},
			}})
		})
	if errors.As(err, &notFoundError{}) {
		return status.Errorf(codes.NotFound, "error pulling image: %s", err)
	} else if err != nil {
		return err
	}

	return stream.Send(&machineapi.ImageServicePullResponse{
		Response: &machineapi.ImageServicePullResponse_Name{Name: name.pinned(digest)}})
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

	store, err := s.boot.images.store(first.GetContainerd())
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

	s.boot.images.change(store, func(images map[string]storedImage) { images[digest] = storedImage{digest, s.boot.now()} })

	return stream.SendAndClose(&machineapi.ImageServiceImportResponse{Name: digest})
}

// Remove forgets one name of an image.
func (s *imageService) Remove(_ context.Context, request *machineapi.ImageServiceRemoveRequest) (*emptypb.Empty,
	error) {
	store, err := s.boot.images.store(request.GetContainerd())
	if err != nil {
		return nil, err
	}

	if _, known := s.boot.images.of(store)[request.GetImageRef()]; !known {
		return nil, status.Errorf(codes.NotFound, "image %s not found", request.GetImageRef())
	}

	s.boot.images.change(store, func(images map[string]storedImage) { delete(images, request.GetImageRef()) })

	return &emptypb.Empty{}, nil
}

// Verify allows every image: there are no rules for any.
func (s *imageService) Verify(_ context.Context,
	request *machineapi.ImageServiceVerifyRequest) (*machineapi.ImageServiceVerifyResponse, error) {
	if _, err := parseImage(request.GetImageRef()); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "image reference is invalid: could not parse reference: %s",
			request.GetImageRef())
	}

	return &machineapi.ImageServiceVerifyResponse{Message: "no matched rule"}, nil
}
