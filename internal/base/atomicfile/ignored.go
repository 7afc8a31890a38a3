package atomicfile

import (
	"os"
	"path/filepath"
)

// KeepOutOfGit makes a folder, unless there is one, and has git ignore all that is in it, unless its .gitignore says
// something already. One without a word is what a process left that was killed here.
//
// The file is written in place: processes that hold no lock do so at the same time, and write the same.
func KeepOutOfGit(folder string) error {
	path := filepath.Join(folder, ".gitignore")
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return nil
	}

	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err //nolint:wrapcheck // it names the folder
	}

	return os.WriteFile(path, []byte("*\n"), 0o600) //nolint:wrapcheck // it names the file
}
