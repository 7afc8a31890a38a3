package dist

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/program"
)

// builders are the programs that make images, as they are looked for.
var builders = []string{"docker", "podman", "buildah"}

// Image builds the image of each processor that there is a program for Linux of, and gives their names. Where nothing
// can build one, why says so.
func (o Options) Image(ctx context.Context, version string) (names []string, why string, err error) {
	runner := program.Runner{Environ: o.Environ, Dir: o.Source}

	builder, why := findBuilder(ctx, runner)
	if builder == "" {
		return nil, why, nil
	}

	for _, platform := range o.Platforms {
		if platform.OS != "linux" {
			continue
		}

		name := fmt.Sprintf("%s:%s-%s", project, imageTag(version), platform.Arch)

		err := runner.Follow(ctx, o.Told, builder, "build", "--platform="+platform.String(), "--tag="+name,
			"--file="+filepath.Join(o.Source, "Dockerfile"), o.Folder)
		if err != nil {
			return names, "", fmt.Errorf("build image %s: %w", name, err)
		}

		names = append(names, name)
	}

	return names, "", nil
}

// findBuilder is the first builder that is of use: a client alone builds nothing.
func findBuilder(ctx context.Context, runner program.Runner) (name, why string) {
	var silent []string

	for _, name := range builders {
		if _, found := runner.Find(name); !found {
			continue
		}

		if _, err := runner.Run(ctx, nil, name, "info"); err == nil {
			return name, ""
		}

		silent = append(silent, "`"+name+" info` fails")
	}

	if len(silent) > 0 {
		return "", strings.Join(silent, ", ")
	}

	return "", "there is no " + strings.Join(builders, ", no ")
}

// imageTag is a version as the tags of images may be written.
func imageTag(version string) string {
	return strings.ReplaceAll(strings.TrimPrefix(version, "v"), "+", "-")
}
