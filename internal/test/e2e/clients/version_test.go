package clients_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// server is the part of a version's output that is about the nodes.
func server(r result) string {
	_, about, _ := strings.Cut(r.stdout, "Server:")

	return about
}

func TestVersion(t *testing.T) {
	t.Parallel()

	maintenance := newCluster(t, 1, 0, nil)

	withEach(t, func(t *testing.T, ctl talosctl) {
		c := sharedCluster(t)

		blank := server(works(t, ctl, maintenance.insecurely("cp1", "version")))
		require.Contains(t, blank, "v1.13.9")
		require.Contains(t, blank, address(maintenance.Node("cp1")))
		require.NotContains(t, blank, "RBAC", "a node in maintenance mode has no config that enables it")

		both := server(works(t, ctl, c.at([]string{"cp1", "worker1"}, "version")))
		require.Equal(t, 2, strings.Count(both, "v1.13.9"))
		require.Equal(t, 2, strings.Count(both, "RBAC"))
		require.Contains(t, both, address(c.Node("cp1")))
		require.Contains(t, both, address(c.Node("worker1")))

		fails(t, ctl, maintenance.on("cp1", "version"), "certificate signed by unknown authority")
		fails(t, ctl, c.insecurely("cp1", "version"), "Unavailable")
	})
}
