//go:build !race

// The race detector sees nothing of what other programs do.

package dist

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

const commitTime = "2026-01-02T03:04:05Z"

// TestMain leaves cgo as it is for all other tests, so that of the program nothing is compiled for these alone.
func TestMain(m *testing.M) {
	settings = slices.DeleteFunc(settings, func(pair string) bool { return pair == "CGO_ENABLED=0" })

	os.Exit(m.Run()) //nolint:forbidigo // what tests end with
}

// run runs a program in a folder, and gives what it prints.
func run(t *testing.T, folder string, name string, arguments ...string) string {
	t.Helper()

	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Dir = folder
	command.Env = append(program.Git(os.Environ(), folder).Environ, "GIT_AUTHOR_DATE="+commitTime,
		"GIT_COMMITTER_DATE="+commitTime, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)

	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)

	return string(output)
}

// clone is a copy of this repository as it is now, committed as a release.
func clone(t *testing.T) string {
	t.Helper()

	from, to := filepath.Join("..", "..", ".."), t.TempDir()

	listed := run(t, from, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for file := range strings.SplitSeq(strings.TrimRight(listed, "\x00"), "\x00") {
		copyFile(t, filepath.Join(from, file), filepath.Join(to, file))
	}

	run(t, to, "git", "init", "--quiet")
	run(t, to, "git", "add", "--all")
	run(t, to, "git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid", "-c", "commit.gpgsign=false",
		"commit", "--quiet", "--message=Release")
	run(t, to, "git", "tag", "v1.2.3")

	return to
}

// copyFile copies a file, or a symbolic link; nothing if it is deleted, and that not committed yet.
func copyFile(t *testing.T, from, to string) {
	t.Helper()

	info, err := os.Lstat(from)
	if os.IsNotExist(err) {
		return
	}

	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))

	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(target, to))

		return
	}

	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o644))
}

// options make a distribution for this computer alone.
func options(t *testing.T, source string) Options {
	t.Helper()

	return Options{Source: source, Folder: filepath.Join(source, "dist"), Environ: os.Environ(),
		Platforms: []Platform{{runtime.GOOS, runtime.GOARCH}}, Told: func(line string) { t.Log(line) }}
}

func TestTwoFoldersMakeTheSameBytes(t *testing.T) {
	t.Parallel()

	first, second := clone(t), filepath.Join(t.TempDir(), "elsewhere")
	run(t, first, "git", "clone", "--quiet", first, second)

	made := map[string][]byte{}

	for _, source := range []string{first, second} {
		options := options(t, source)

		version, err := options.Make(t.Context())
		require.NoError(t, err)
		require.Equal(t, "v1.2.3", version)

		require.NoError(t, fs.WalkDir(os.DirFS(options.Folder), ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}

			data, err := os.ReadFile(filepath.Join(options.Folder, path))
			if first, known := made[path]; known {
				require.True(t, bytes.Equal(first, data), "%s differs", path)
			}

			made[path] = data

			return err
		}))
	}

	isWhatItSays(t, options(t, second))
	keepsWhatIsThere(t, options(t, second))

	platform := Platform{runtime.GOOS, runtime.GOARCH}
	require.Len(t, made, 4)
	require.Contains(t, made, platform.folder()+"/"+platform.executable())
	require.Contains(t, made, platform.archive())
	require.Contains(t, made, platform.archive()+".sbom.json")
	require.Contains(t, made, "checksums.txt")
}

// isWhatItSays unpacks a distribution, as those do who install it.
func isWhatItSays(t *testing.T, options Options) {
	t.Helper()

	platform := options.Platforms[0]
	require.Contains(t, run(t, options.Folder, "sha256sum", "-c", "checksums.txt"), platform.archive()+": OK")

	unpacked := t.TempDir()
	run(t, unpacked, "tar", "-xzf", filepath.Join(options.Folder, platform.archive()))
	require.FileExists(t, filepath.Join(unpacked, "LICENSE"))

	commit := strings.TrimSpace(run(t, options.Source, "git", "rev-parse", "HEAD"))
	require.Contains(t, run(t, unpacked, "./talos-mage", "-version"), "talos-mage v1.2.3, commit "+commit+", Talos v1.")

	text, err := os.ReadFile(filepath.Join(options.Folder, platform.archive()+".sbom.json"))
	require.NoError(t, err)

	var made bill
	require.NoError(t, json.Unmarshal(text, &made))
	require.Equal(t, commitTime, made.Metadata.Timestamp)
	require.Equal(t, "pkg:golang/github.com/talos-mage/talos-mage@v1.2.3?goarch="+platform.Arch+"&goos="+platform.OS,
		made.Metadata.Component.PURL)

	sum, err := checksum(filepath.Join(unpacked, "talos-mage"))
	require.NoError(t, err)
	require.Equal(t, []hash{{"SHA-256", sum}}, made.Metadata.Component.Hashes)

	var names []string
	for _, component := range made.Components {
		names = append(names, component.Name)
	}

	require.Subset(t, names, []string{"std", "google.golang.org/grpc", "github.com/siderolabs/talos/pkg/machinery"})
}

// keepsWhatIsThere holds that what was made goes only if somebody says so, and for something whole.
func keepsWhatIsThere(t *testing.T, options Options) {
	t.Helper()

	_, err := options.Make(t.Context())
	require.EqualError(t, err, "dist/ is not empty. Next: go tool mage dist -clean replaces it")

	options.Replace = true
	broken := filepath.Join(options.Source, "cmd", "talos-mage", "broken.go")
	require.NoError(t, os.WriteFile(broken, []byte("no Go"), 0o600))

	_, err = options.Make(t.Context())
	require.ErrorContains(t, err, "make "+options.Platforms[0].String()+": go build")
	require.FileExists(t, filepath.Join(options.Folder, "checksums.txt"))

	left, err := filepath.Glob(filepath.Join(options.Source, ".dist-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// halfway is a Go that has written half of a program, and then takes for ever.
const halfway = `#!/bin/sh
while [ "$1" != -o ]; do shift; done
mkdir -p "${2%/*}"
echo half >"$2"
echo half
exec sleep 600
`

func TestCtrlCLeavesNothingHalf(t *testing.T) {
	t.Parallel()

	source, programs := t.TempDir(), t.TempDir()
	require.NoError(t, tool.WriteProgram(filepath.Join(programs, "go"), []byte(halfway)))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	options := options(t, source)
	options.Environ = []string{"PATH=" + programs + ":" + os.Getenv("PATH")}
	options.Told = func(string) { cancel() }

	_, err := options.Make(ctx)
	require.ErrorContains(t, err, "make "+options.Platforms[0].String())

	left, err := os.ReadDir(source)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOnlyPlatformsOfAReleaseAreMade(t *testing.T) {
	t.Parallel()

	chosen, err := ParsePlatforms("linux/arm64, windows/amd64")
	require.NoError(t, err)
	require.Equal(t, []Platform{{"linux", "arm64"}, {"windows", "amd64"}}, chosen)

	_, err = ParsePlatforms("linux/amd64,plan9/386")
	require.EqualError(t, err, `"plan9/386" is no platform of a release; there are `+
		"linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64")
}

// builder is a program that makes images, and writes down what it was called with.
const builder = `#!/bin/sh
case $1 in
info) exit "${INFO:-0}" ;;
build) echo "$@" >>"$CALLS"; exit "${BUILD:-0}" ;;
esac
`

func TestTheImageIsBuiltWhereSomethingCan(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		programs    []string
		info, build string
		images      []string
		why, fails  string
	}{
		"nothing is here": {why: "there is no docker, no podman, no buildah"},
		"a client alone":  {programs: []string{"docker"}, info: "1", why: "`docker info` fails"},
		"podman": {
			programs: []string{"podman"},
			images:   []string{"talos-mage:1.2.3-dirty-amd64", "talos-mage:1.2.3-dirty-arm64"},
		},
		"one that can't pull": {
			programs: []string{"docker"}, build: "1",
			fails: "build image talos-mage:1.2.3-dirty-amd64: docker build: exit status 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			for _, name := range test.programs {
				require.NoError(t, tool.WriteProgram(filepath.Join(folder, name), []byte(builder)))
			}

			calls := filepath.Join(folder, "calls")
			options := options(t, folder)
			options.Platforms = Released()
			options.Environ = []string{"PATH=" + folder, "INFO=" + test.info, "BUILD=" + test.build, "CALLS=" + calls}

			images, why, err := options.Image(t.Context(), "v1.2.3+dirty")
			require.Equal(t, test.images, images)
			require.Equal(t, test.why, why)

			if test.fails != "" {
				require.EqualError(t, err, test.fails)
				return
			}

			require.NoError(t, err)

			for i, image := range images {
				called, err := os.ReadFile(calls)
				require.NoError(t, err)
				require.Contains(t, strings.Split(string(called), "\n")[i], "--tag="+image+" --file="+
					filepath.Join(folder, "Dockerfile")+" "+options.Folder)
			}
		})
	}
}

// The image is small and harmless by what its definition says. Where hadolint is, .ci/run has it look too.
func TestTheImageHasNoRootAndNoShell(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("..", "..", "..", "Dockerfile"))
	require.NoError(t, err)

	var instructions []string

	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			instructions = append(instructions, line)
		}
	}

	require.Equal(t, []string{
		"FROM gcr.io/distroless/static-debian12:nonroot",
		"ARG TARGETARCH",
		"COPY " + strings.ReplaceAll(Platform{"linux", "amd64"}.folder(), "amd64", "${TARGETARCH}") + "/" + project +
			" /usr/local/bin/talos-mage",
		"USER 65532:65532",
		"WORKDIR /cluster",
		`ENTRYPOINT ["/usr/local/bin/talos-mage"]`,
	}, instructions)
}
