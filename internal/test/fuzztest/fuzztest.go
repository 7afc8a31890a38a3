// Package fuzztest is what fuzz targets share: seeds from all test data of the repository, and limits for what is done
// with an input.
package fuzztest

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mostSeed is the size of the largest file that is a seed, in bytes: mutations of larger ones find nothing in a minute.
const mostSeed = 64 << 10

// Seeds gives the content of every file with one of these extensions (".yaml") in the folders testdata and examples of
// the repository.
func Seeds(f *testing.F, extensions ...string) [][]byte {
	f.Helper()

	var seeds [][]byte

	root := repository(f)

	require.NoError(f, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() {
			// Programs, and what git keeps.
			if path != root && (entry.Name() == "bin" || entry.Name() == ".git") {
				return filepath.SkipDir
			}

			return nil
		}

		if !slices.Contains(extensions, filepath.Ext(path)) || !isTestData(root, path) {
			return nil
		}

		data, err := os.ReadFile(path) //nolint:gosec // test data
		if err == nil && len(data) <= mostSeed {
			seeds = append(seeds, data)
		}

		return err
	}))
	require.NotEmpty(f, seeds)

	return seeds
}

// repository is the folder with go.mod above the test's own.
func repository(f *testing.F) string {
	f.Helper()

	folder, err := os.Getwd()
	require.NoError(f, err)

	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}

		above := filepath.Dir(folder)
		require.NotEqual(f, folder, above, "no go.mod above the test")

		folder = above
	}
}

func isTestData(root, path string) bool {
	for ; path != root; path = filepath.Dir(path) {
		if name := filepath.Base(path); name == "testdata" || name == "examples" {
			return true
		}
	}

	return false
}

const (
	// patience is what even a busy machine never needs for an input that ends.
	patience = 20 * time.Second
	// mostMemory is what no input may make the program hold, in bytes.
	mostMemory = 1 << 30
	// often is how often the memory is looked at.
	often = 50 * time.Millisecond
)

// Bounded does something with an input, and fails the test if that takes for ever or takes ever more memory.
func Bounded(t *testing.T, do func()) {
	t.Helper()

	done := make(chan struct{})

	go func() {
		defer close(done) // also when do ends the test

		do()
	}()

	looking := time.NewTicker(often)
	defer looking.Stop()

	for started := time.Now(); ; {
		select {
		case <-done:
			return
		case <-looking.C:
		}

		if time.Since(started) > patience || memory() > mostMemory {
			stacks := make([]byte, 64<<10)
			require.Fail(t, "the input takes too long, or too much memory", "%s, %d MB\n%s",
				time.Since(started), memory()>>20, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// memory is what objects take on the heap, in bytes.
func memory() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)

	return sample[0].Value.Uint64()
}
