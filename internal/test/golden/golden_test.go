package golden_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/golden"
)

func TestAssertAcceptsTheTextOfTheFile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "text.golden")
	require.NoError(t, os.WriteFile(path, []byte("one\n"), 0o600))

	require.False(t, failed(t, func(tb testing.TB) { golden.Assert(tb, path, "one\n") }))
}

func TestAssertRefusesAnotherTextAndAMissingFile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "text.golden")
	require.NoError(t, os.WriteFile(path, []byte("one\n"), 0o600))

	for _, other := range []string{"two\n", "one", "one\ntwo\n", ""} {
		require.True(t, failed(t, func(tb testing.TB) { golden.Assert(tb, path, other) }), "%q", other)
	}

	require.True(t, failed(t, func(tb testing.TB) { golden.Assert(tb, path+".missing", "one\n") }))
}

// watcher is a testing.TB that notes a failure instead of failing the test that uses it.
type watcher struct {
	testing.TB
	failed bool
}

func (w *watcher) Helper()               {}
func (w *watcher) Errorf(string, ...any) { w.failed = true }

// FailNow ends the goroutine like the real one does, so that nothing after the failure runs.
func (w *watcher) FailNow() {
	w.failed = true
	panic(w)
}

// failed says whether check failed its test.
func failed(t *testing.T, check func(testing.TB)) bool {
	t.Helper()

	w := &watcher{TB: t}

	func() {
		defer func() { _ = recover() }()
		check(w)
	}()

	return w.failed
}
