package fuzztest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTestDataIsFoundInAllPackages(t *testing.T) {
	t.Parallel()

	for path, want := range map[string]bool{
		"/r/internal/cluster/inventory/testdata/mistakes/a.yaml": true,
		"/r/examples/a/talconfig.yaml":                           true,
		"/r/Taskfile.yaml":                                       false,
	} {
		require.Equal(t, want, isTestData("/r", path), path)
	}
}

func TestWhatEndsIsWaitedFor(t *testing.T) {
	t.Parallel()

	ended := false

	Bounded(t, func() { ended = true })
	require.True(t, ended)
}
