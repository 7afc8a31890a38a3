package talhelper_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is one talconfig of the corpus, with the files that it names.
type example struct {
	name string
	// files are by their path from the talconfig's folder.
	files map[string]string
	// newest says that talhelper makes a draft of a newer form, see generation.
	newest bool
}

// corpus is all that both programs are given: talhelper's documentation said again, the clusters of this repository,
// and what chance made.
func corpus(tb testing.TB) []example {
	tb.Helper()

	examples := append(folders(tb, filepath.Join("testdata", "examples")),
		folders(tb, filepath.Join(repository, "testdata", "clusters"))...)

	for _, drawn := range drawTalconfigs(drawnSeed, drawnCount) {
		files, err := drawn.folder()
		require.NoError(tb, err)

		examples = append(examples, example{name: drawn.name(), files: files, newest: drawn.generation.newest})
	}

	return examples
}

// folders are the examples in the folders below root.
func folders(tb testing.TB, root string) []example {
	tb.Helper()

	entries, err := os.ReadDir(root)
	require.NoError(tb, err)
	require.NotEmpty(tb, entries)

	examples := make([]example, 0, len(entries))

	for _, entry := range entries {
		examples = append(examples,
			example{name: filepath.Base(root) + "/" + entry.Name(), files: folder(tb, filepath.Join(root, entry.Name()))})
	}

	return examples
}

// folder is all files below a path, by their path from there.
func folder(tb testing.TB, root string) map[string]string {
	tb.Helper()

	files := map[string]string{}

	require.NoError(tb, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read file of an example: %w", err)
		}

		name, err := filepath.Rel(root, path)
		files[name] = string(text)

		return err //nolint:wrapcheck // it ends the test
	}))

	return files
}

func decode(text string) ([]byte, error) {
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("decode certificate: %w", err)
	}

	return decoded, nil
}
