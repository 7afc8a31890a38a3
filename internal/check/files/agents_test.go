package files_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

func TestGuestAgentsOfOtherHypervisors(t *testing.T) {
	t.Parallel()

	on := func(manufacturer, id string) []diagnosis.Finding {
		return lived(t, imaged(factory("metal-installer", id)),
			check.Facts{System: talos.SystemInfo{Manufacturer: manufacturer}}, diagnosis.AgentElsewhere)
	}

	found := on("VMware, Inc.", guestAgentID)
	require.Len(t, found, 1)
	require.Equal(t, "the installer image has siderolabs/qemu-guest-agent, and by its firmware the machine is none "+
		"of QEMU's", found[0].Cause)

	require.Empty(t, on("QEMU", guestAgentID))
	require.Empty(t, on("", guestAgentID), "it was not read")
	require.Empty(t, on("VMware, Inc.", guestAgentLoggingID), "what the image holds is not known")
	require.Empty(t, on("Dell Inc.", plainID))
}
