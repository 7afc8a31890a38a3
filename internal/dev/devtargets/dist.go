package devtargets

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/dev/dist"
)

// Dist makes what is released, in dist/: archives with the program for each platform, and an image.
//
// The same commit gives the same bytes. Checksums, and a bill of materials of each program, lie beside the archives.
// -platforms names some, as in linux/amd64,darwin/arm64; all six by default. -clean replaces a dist/ that is there. The
// image is built if docker, podman or buildah is here and works.
func Dist(ctx context.Context, platforms *string, clean *bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	source, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}

	options := dist.Options{Source: source, Folder: filepath.Join(source, "dist"), Platforms: dist.Released(),
		Replace: clean != nil && *clean, Environ: os.Environ(), Told: func(line string) { fmt.Println(line) }}

	if platforms != nil {
		if options.Platforms, err = dist.ParsePlatforms(*platforms); err != nil {
			return mg.Fatal(2, err.Error())
		}
	}

	version, err := options.Make(ctx)
	if err != nil {
		return mg.Fatal(1, err.Error())
	}

	fmt.Printf("\ndist/ holds talos-mage %s; to verify it: (cd dist && sha256sum -c checksums.txt)\n", version)

	images, why, err := options.Image(ctx, version)

	switch {
	case err != nil:
		return mg.Fatalf(1, "%v; dist/ is whole without it", err)
	case why != "":
		fmt.Printf("NOT BUILT: the image; %s. Where one works: docker build --file Dockerfile dist\n", why)
	default:
		fmt.Printf("images: %s\n", strings.Join(images, ", "))
	}

	return nil
}
