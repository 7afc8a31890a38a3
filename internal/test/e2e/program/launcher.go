package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Launcher is the mage program with what it makes of the repository's magefile, compiled already, in its cache: it
// looks there and starts what it finds.
type Launcher struct {
	// Folder holds all of it; the caller removes it.
	Folder string
	// Mage is the launcher, Program what it starts: the same targets as talos-mage has, behind Mage's own front end.
	Mage, Program string
}

// cachedName is how Mage tells, when it explains itself, what it will start.
var cachedName = regexp.MustCompile(`output exe is +(\S+)`)

// CompileLauncher makes the launcher of the version that the repository at root uses, and fills its cache.
func CompileLauncher(root string) (Launcher, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Launcher{}, fmt.Errorf("find the repository: %w", err)
	}

	magefile := filepath.Join(root, "magefiles", "magefile.go")
	sources := filepath.Join(root, compiled, "_magefiles")

	if err := os.MkdirAll(sources, 0o755); err != nil { //nolint:gosec // programs are for everybody
		return Launcher{}, fmt.Errorf("make folder for the magefile: %w", err)
	}

	if err := copyFile(magefile, filepath.Join(sources, "magefile.go")); err != nil {
		return Launcher{}, err
	}

	made, err := compile(root, "launched", func(target string) []string {
		return []string{"go", "tool", "mage", "-d", sources, "-compile", target}
	})
	if err != nil {
		return Launcher{}, err
	}

	folder := filepath.Dir(made)
	launcher := Launcher{Folder: folder, Mage: filepath.Join(folder, "mage")}

	for _, folder := range []string{launcher.magefiles(), launcher.cache()} {
		if err := os.Mkdir(folder, 0o755); err != nil { //nolint:gosec // programs are for everybody
			return launcher, fmt.Errorf("make folder for the launcher: %w", err)
		}
	}

	if err := copyFile(magefile, filepath.Join(launcher.magefiles(), "magefile.go")); err != nil {
		return launcher, err
	}

	building := exec.Command("go", "build", "-o", launcher.Mage, "github.com/magefile/mage") //nolint:gosec // its arguments are made above
	building.Dir, building.Env = root, Environment()

	if output, err := building.CombinedOutput(); err != nil {
		return launcher, fmt.Errorf("compile mage: %w\n%s", err, output)
	}

	if launcher.Program, err = launcher.cached(); err != nil {
		return launcher, err
	}

	if err := os.Rename(made, launcher.Program); err != nil {
		return launcher, fmt.Errorf("put the program into mage's cache: %w", err)
	}

	return launcher, nil
}

// cached asks the launcher where in its cache it will look.
func (l Launcher) cached() (string, error) {
	asking := exec.Command(l.Mage, "-debug", "-d", l.magefiles(), "-l") //nolint:gosec // its arguments are made above
	asking.Env = Environment(l.Environ()...)

	// There are no sources to list targets from, so the command fails once it has told.
	output, _ := asking.CombinedOutput() //nolint:errcheck // as above

	found := cachedName.FindSubmatch(output)
	if found == nil {
		return "", fmt.Errorf("mage does not tell where it looks for its program:\n%s", output)
	}

	return string(found[1]), nil
}

func (l Launcher) magefiles() string { return filepath.Join(l.Folder, "magefiles") }

func (l Launcher) cache() string { return filepath.Join(l.Folder, "cache") }

// Environ is what the launcher needs in its environment to find what was compiled, and to take it as it is.
func (l Launcher) Environ() []string {
	return []string{"MAGEFILE_CACHE=" + l.cache(), "MAGEFILE_HASHFAST=1"}
}

// Command is the command line for a target that runs in a folder.
func (l Launcher) Command(folder string, target ...string) []string {
	return append([]string{l.Mage, "-d", l.magefiles(), "-w", folder}, target...)
}
