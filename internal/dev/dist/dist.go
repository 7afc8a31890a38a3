// Package dist makes what is released: the program for each platform, packed, with bills of materials, checksums and an
// image. The same commit and the same Go give the same bytes, wherever and whenever they are made.
package dist

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/talos-mage/talos-mage/internal/base/program"
)

// project is the program's name, and the beginning of each file's.
const project = "talos-mage"

// Options say what is made, and where.
type Options struct {
	// Source is the root of a clone of this repository, Folder what all of it is put into.
	Source, Folder string
	// Platforms are those that programs are made for.
	Platforms []Platform
	// Replace is set when Folder may hold something, which goes.
	Replace bool
	// Environ is the environment of the programs that are run.
	Environ []string
	// Told is given each line that is to be shown.
	Told func(line string)
}

// Platform is an operating system and a processor, as Go names them.
type Platform struct{ OS, Arch string }

// Released are the platforms of a release.
func Released() []Platform {
	var all []Platform

	for _, system := range []string{"linux", "darwin", "windows"} {
		all = append(all, Platform{system, "amd64"}, Platform{system, "arm64"})
	}

	return all
}

// ParsePlatforms reads platforms as in "linux/amd64,darwin/arm64".
func ParsePlatforms(text string) ([]Platform, error) {
	var chosen []Platform

	for word := range strings.SplitSeq(text, ",") {
		index := slices.IndexFunc(Released(), func(one Platform) bool { return one.String() == strings.TrimSpace(word) })
		if index < 0 {
			known := strings.Trim(fmt.Sprint(Released()), "[]")
			return nil, fmt.Errorf("%q is no platform of a release; there are %s", word, known)
		}

		chosen = append(chosen, Released()[index])
	}

	return chosen, nil
}

// String is how Go writes the platform.
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// folder is what the platform's program lies in.
func (p Platform) folder() string { return project + "_" + p.OS + "_" + p.Arch }

// executable is what the program is called there.
func (p Platform) executable() string {
	if p.OS == "windows" {
		return project + ".exe"
	}

	return project
}

// archive is what the program is packed into.
func (p Platform) archive() string {
	if p.OS == "windows" {
		return p.folder() + ".zip"
	}

	return p.folder() + ".tar.gz"
}

// build is a program that was compiled.
type build struct {
	platform Platform
	path     string
	info     *debug.BuildInfo
	// committed is when its commit was made: the only time that is written anywhere.
	committed time.Time
}

// Make fills the folder, and gives the version that Go read from the commit and its tag. All of it is made beside the
// folder and gets its name at the end, whole; after an error, or a Ctrl-C, nothing of it is left.
func (o Options) Make(ctx context.Context) (version string, err error) {
	if err := o.refuseLosses(); err != nil {
		return "", err
	}

	work, err := os.MkdirTemp(filepath.Dir(o.Folder), ".dist-")
	if err != nil {
		return "", fmt.Errorf("make folder to work in: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // it has another name by then, or is of no use

	for _, platform := range o.Platforms {
		if version, err = o.release(ctx, work, platform); err != nil {
			return "", fmt.Errorf("make %s: %w", platform, err)
		}
	}

	if err := writeChecksums(work); err != nil {
		return "", err
	}

	return version, o.place(work)
}

// refuseLosses keeps what an earlier call made.
func (o Options) refuseLosses() error {
	entries, err := os.ReadDir(o.Folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look into the folder: %w", err)
	}

	if len(entries) > 0 && !o.Replace {
		return fmt.Errorf("%s/ is not empty. Next: go tool mage dist -clean replaces it", filepath.Base(o.Folder))
	}

	return nil
}

// place gives the folder its name.
func (o Options) place(work string) error {
	if err := os.Chmod(work, 0o755); err != nil { //nolint:gosec // programs are for everybody
		return fmt.Errorf("open the folder to all: %w", err)
	}

	remove := os.Remove // an empty one only
	if o.Replace {
		remove = os.RemoveAll
	}

	if err := remove(o.Folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace the folder: %w", err)
	}

	if err := os.Rename(work, o.Folder); err != nil {
		return fmt.Errorf("put everything in place: %w", err)
	}

	return nil
}

// release makes all files of a platform.
func (o Options) release(ctx context.Context, work string, platform Platform) (version string, err error) {
	made, err := o.compile(ctx, filepath.Join(work, platform.folder(), platform.executable()), platform)
	if err != nil {
		return "", err
	}

	archive := filepath.Join(work, platform.archive())
	if err := o.pack(archive, made); err != nil {
		return "", err
	}

	if err := writeBill(archive+".sbom.json", made); err != nil {
		return "", err
	}

	o.Told(fmt.Sprintf("%-14s %s, packed %s", platform, sizeOf(made.path), sizeOf(archive)))

	return made.info.Main.Version, nil
}

// sizeOf is a file's size, for people.
func sizeOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "?"
	}

	return humanize.Bytes(uint64(info.Size())) //nolint:gosec // no file is smaller than nothing
}

// settings of the compiler that this computer may have others of. The C library is left out: which one a program
// would be linked with is the computer's matter too, and the image has none.
var settings = []string{
	"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=-trimpath", "GOWORK=off",
}

// compile makes the program of a platform. Version and commit are those that Go itself finds.
func (o Options) compile(ctx context.Context, path string, platform Platform) (build, error) {
	runner := program.Git(slices.Concat(o.Environ, settings), o.Source)
	runner.Environ = append(runner.Environ, "GOOS="+platform.OS, "GOARCH="+platform.Arch)

	err := runner.Follow(ctx, o.Told, "go", "build", "-buildvcs=true", "-ldflags=-s -w", "-o", path, "./cmd/talos-mage")
	if err != nil {
		return build{}, err
	}

	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return build{}, fmt.Errorf("read what Go wrote into the program: %w", err)
	}

	committed, err := time.Parse(time.RFC3339, setting(info, "vcs.time"))
	if err != nil {
		return build{}, errors.New("find the commit: Go knows none. Next: run this in a clone; to Go, a git worktree is none")
	}

	if setting(info, "vcs.modified") == "true" {
		o.Told(info.Main.Version + ": there are changes that are in no commit, so that nobody can make this again")
	}

	return build{platform: platform, path: path, info: info, committed: committed.UTC()}, nil
}

// setting is one of those that Go wrote into a program.
func setting(info *debug.BuildInfo, key string) string {
	for _, one := range info.Settings {
		if one.Key == key {
			return one.Value
		}
	}

	return ""
}
