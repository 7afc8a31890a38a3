package schematic_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
)

// The factory hashes its own text, so that each quote counts.
func TestTextsAreQuotedAsTheFactoryDoes(t *testing.T) {
	t.Parallel()

	declared := &schematic.Schematic{}
	declared.Customization.SecureBoot.EnrollKeys = "off"
	declared.Customization.ExtraKernelArgs = []string{"yes", "1:20", "a: b", "net.ifnames=0", "12", ""}

	text, err := declared.Canonical()
	require.NoError(t, err)
	require.Equal(t, `customization:
    extraKernelArgs:
        - "yes"
        - "1:20"
        - 'a: b'
        - net.ifnames=0
        - "12"
        - ""
    secureboot:
        enrollKeys: "off"
`, string(text))
}
