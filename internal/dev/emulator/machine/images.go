package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
)

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

// StoredImage is what a name in a store stands for.
type StoredImage struct {
	Digest  string
	Created time.Time
}

// images are those that were pulled.
type images struct {
	boot *Boot

	pulled map[string]StoredImage // into memory, while there is no disk; guarded by boot.mu
}

// Store finds the store that a request names.
func (i *images) Store(instance *common.ContainerdInstance) (imageStore, error) {
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
	case !i.boot.Services.Up(service.CRI):
		return 0, status.Error(codes.Unavailable,
			`error connecting to containerd: failed to dial "/run/containerd/containerd.sock": context deadline exceeded`)
	case namespace == common.ContainerdNamespace_NS_CRI:
		return podImages, nil
	default:
		return criImages, nil
	}
}

// Of is what a store holds, by name.
func (i *images) Of(store imageStore) map[string]StoredImage {
	if store != systemImages {
		return i.boot.Node.ReadDrive().images[store]
	}

	i.boot.mu.Lock()
	defer i.boot.mu.Unlock()

	return i.pulled
}

// Change replaces what a store holds by a changed copy.
func (i *images) Change(store imageStore, change func(map[string]StoredImage)) {
	changed := func(held map[string]StoredImage) map[string]StoredImage {
		copied := maps.Clone(held)
		if copied == nil {
			copied = map[string]StoredImage{}
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

	i.boot.Node.EditDrive(func(d *Drive) {
		stores := maps.Clone(d.images)
		if stores == nil {
			stores = map[imageStore]map[string]StoredImage{}
		}

		stores[store] = changed(stores[store])
		d.images = stores
	})
}

// ImageName is a parsed image reference.
type ImageName struct {
	name   string // "ghcr.io/siderolabs/installer"
	tag    string // "v1.13.9"
	digest string // "sha256:…"
}

var imageReference = regexp.MustCompile(
	`^((?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)` +
		`(?::([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$`)

// ParseImage reads an image reference as Docker does: what names no registry is at Docker's, what names nothing more is
// the latest.
func ParseImage(reference string) (ImageName, error) {
	found := imageReference.FindStringSubmatch(reference)
	if shouted := shoutedName(reference); found == nil && shouted != "" {
		return ImageName{}, fmt.Errorf("failed to parse image reference %q: invalid reference format: repository name "+
			"(%s) must be lowercase", reference, shouted)
	} else if found == nil {
		return ImageName{}, fmt.Errorf("failed to parse image reference %q: invalid reference format", reference)
	}

	parsed := ImageName{found[1], found[2], found[3]}

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
func (n ImageName) String() string {
	if n.digest != "" {
		return n.name + "@" + n.digest
	}

	return n.name + ":" + n.tag
}

// Pinned is the reference by digest.
func (n ImageName) Pinned(digest string) string { return n.name + "@" + digest }

// pullParts is how often a pull tells how far it is.
const pullParts = 4

// pullTells is after how long a pull tells again how far it is. Source: internal/pkg/containers/image/progress.
const pullTells = 100 * time.Millisecond

// Pull fetches an image into a store, under all its names. Every image exists, but while a fault says that installers
// do not, or come too slowly.
func (i *images) Pull(ctx context.Context, store imageStore, reference string,
	progress func(now machineapi.ImageServicePullLayerProgress_Status, part float64)) (ImageName, string, error) {
	parsed, err := ParseImage(reference)
	if err != nil {
		return parsed, "", err
	}

	if held, known := i.Of(store)[parsed.String()]; known {
		return parsed, held.Digest, nil
	}

	fault := i.boot.Node.takeInstallFault(faults.InstallImagePull, faults.InstallImageSlow, faults.InstallImageStalls)
	if fault == faults.InstallImagePull {
		return parsed, "", NotFoundError{fmt.Sprintf(
			"1 error(s) occurred:\n\tfailed to pull image %q: failed to resolve reference %q: %s: not found",
			parsed, parsed, parsed)}
	}

	for part := range pullParts {
		progress(machineapi.ImageServicePullLayerProgress_DOWNLOADING, float64(part)/pullParts)

		for fault == faults.InstallImageStalls && part > 0 && i.boot.Sleep(ctx, pullTells) == nil {
			progress(machineapi.ImageServicePullLayerProgress_DOWNLOADING, float64(part)/pullParts)
		}

		if err := i.boot.Sleep(ctx, i.boot.Node.options.Timing.Pull/pullParts); err != nil {
			return parsed, "", err
		}

		if fault == faults.InstallImageSlow && part > 0 {
			return parsed, "", fmt.Errorf("1 error(s) occurred:\n\tfailed to pull image %q: %w", parsed,
				context.DeadlineExceeded)
		}
	}

	progress(machineapi.ImageServicePullLayerProgress_DOWNLOAD_COMPLETE, 1)
	progress(machineapi.ImageServicePullLayerProgress_EXTRACTING, 1)
	progress(machineapi.ImageServicePullLayerProgress_EXTRACT_COMPLETE, 1)

	held := StoredImage{parsed.digest, i.boot.Now()}

	if held.Digest == "" {
		sum := sha256.Sum256([]byte(parsed.String()))
		held.Digest = "sha256:" + hex.EncodeToString(sum[:])
	}

	i.Change(store, func(images map[string]StoredImage) {
		for _, name := range []string{held.Digest, parsed.String(), parsed.Pinned(held.Digest)} {
			images[name] = held
		}
	})

	return parsed, held.Digest, nil
}

// NotFoundError tells of an image that no registry has.
type NotFoundError struct{ text string }

// Error implements error.
func (e NotFoundError) Error() string { return e.text }
