package machineconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

const placesText = `version: v1alpha1
machine:
  type: worker
  token: abcdef.0123456789abcdef
  network:
    interfaces:
      - interface: eth0
        addresses:
          - 192.0.2.11/24
  files:
    - content: geheim
      path: /var/x
  previous: kHyhYrvxcl3oGZ42Rxg1l73DqPMgIDwQBqgAAfByWxY=
---
apiVersion: v1alpha1
kind: LinkConfig
name: eth1
mtu: 9000
`

func TestPlaces(t *testing.T) {
	t.Parallel()

	places := machineconfig.NewPlaces([]byte(placesText))

	for name, test := range map[string]struct {
		document, path string
		line, column   int
	}{
		"item":              {"", "machine.network.interfaces[0].addresses[0]", 9, 13},
		"key":               {"", "machine.type", 3, 3},
		"nearest above":     {"", "machine.network.interfaces[0].vip.ip", 7, 9},
		"index out of list": {"", "machine.network.interfaces[4]", 6, 5},
		"document":          {"LinkConfig/eth1", "mtu", 18, 1},
		"no such document":  {"LinkConfig/eth2", "mtu", 0, 0},
	} {
		line, column := places.Find(test.document, test.path)
		require.Equal(t, []int{test.line, test.column}, []int{line, column}, name)
	}
}

func TestShownLinesHoldNoSecret(t *testing.T) {
	t.Parallel()

	places := machineconfig.NewPlaces([]byte(placesText))

	for line, want := range map[int]string{
		0: "", 3: "  type: worker", 4: "  token: (masked)", 9: "          - 192.0.2.11/24", 11: "    - content: (masked)",
		12: "      path: /var/x",
		13: "  previous: (masked)", 99: "",
	} {
		require.Equal(t, want, places.Line(line))
	}

	require.Equal(t, "  type: (masked)", places.Key(3))
	require.Equal(t, "machine:", places.Key(2))
}
