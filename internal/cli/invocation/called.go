package invocation

import (
	"os"
	"os/exec"
	"path/filepath"
)

// CalledAs is the variable in which the Taskfiles say that people typed task.
const CalledAs = "TALOS_MAGE_CALLED_AS"

// Called is what people type in front of a target to call this program again: its name where the PATH leads to it, else
// its path. What mage started is called through mage, or through Go where there is no mage.
func Called() string {
	typed := os.Args[0]
	name := filepath.Base(typed)

	switch {
	case cached.MatchString(name):
		return throughMage()
	case typed == name, leadsTo(name, typed):
		return name
	case filepath.IsAbs(typed):
		return filepath.Clean(typed)
	default:
		return typed
	}
}

func throughMage() string {
	if _, err := exec.LookPath("mage"); err != nil {
		return "go tool mage"
	}

	return "mage"
}

// leadsTo reports whether a name alone calls the program at a path.
func leadsTo(name, path string) bool {
	found, err := exec.LookPath(name)
	if err != nil {
		return false
	}

	byName, err := os.Stat(found)
	if err != nil {
		return false
	}

	byPath, err := os.Stat(path)

	return err == nil && os.SameFile(byName, byPath)
}

// mageWords are what mage was called with; none if this program was called by itself.
func mageWords() []string {
	if !cached.MatchString(filepath.Base(os.Args[0])) {
		return nil
	}

	return os.Args[1:]
}

// Terminal reports whether a person can be asked: what is asked is read on a terminal, and answered on one.
func Terminal() bool { return isTerminal(os.Stdin) && isTerminal(os.Stderr) }
