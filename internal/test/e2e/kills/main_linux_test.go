package kills_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
	"github.com/talos-mage/talos-mage/internal/test/emulatortest"
)

// atOnce is how many bring-ups run at the same time: most of the time they wait.
const atOnce = 6

var (
	wanted = flag.Int("kills", 12, "how many times the program is killed")
	seed   = flag.Uint64("seed", 0, "what the kills are drawn from; 0 is another one each time")
)

var (
	// launcher is mage, which starts the targets behind its own front end; talosMage is the program.
	launcher  program.Launcher
	talosMage string
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if launcher, err = program.CompileLauncher(filepath.Join("..", "..", "..", "..")); err != nil {
		return 1, err
	}
	defer os.RemoveAll(launcher.Folder)

	if talosMage, err = program.Compile(filepath.Join("..", "..", "..", "..")); err != nil {
		return 1, err
	}
	defer os.RemoveAll(filepath.Dir(talosMage))

	return emulatortest.Run(m, atOnce), nil
}
