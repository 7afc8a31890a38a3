package release_test

import (
	"fmt"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
)

func TestWholeVersionsHaveThreeNumbers(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]struct {
		whole, tag bool
		numbers    [3]int
	}{
		"v1.13.9":        {true, true, [3]int{1, 13, 9}},
		"1.13.9":         {true, false, [3]int{1, 13, 9}},
		"v1.14.0-beta.1": {true, true, [3]int{1, 14, 0}},
		"v1.13":          {},
		"latest":         {},
		"":               {},
	} {
		numbers, whole := release.Numbers(text)
		require.Equal(t, want.whole, whole, text)
		require.Equal(t, want.whole, release.IsWhole(text), text)
		require.Equal(t, want.tag, release.IsTag(text), text)
		require.Equal(t, want.numbers, numbers, text)
	}

	require.Equal(t, []string{"v1.2.3", "v1.2.3", ""},
		[]string{release.WithV("1.2.3"), release.WithV("v1.2.3"), release.WithV("")})
}

func TestBuildsOfAVersion(t *testing.T) {
	t.Parallel()

	for _, build := range []string{"v1.13.9", "v1.13.9-rk3588", "v1.13.9-12-gabc1234"} {
		require.True(t, release.IsBuildOf(build, "v1.13.9"), build)
	}

	for _, other := range []string{"v1.13.8", "v1.13.90", "v1.13.9-alpha.1", "v1.13.9-beta.0", "v1.13.9-rc.1", ""} {
		require.False(t, release.IsBuildOf(other, "v1.13.9"), other)
	}
}

func TestConfigsAreMadeInTheFormOf113WhereNothingNamesAnother(t *testing.T) {
	t.Parallel()

	for talos, form := range map[string]string{
		"1.2.0": "v1.2", "v1.12.1": "v1.12", "v1.13.9": "v1.13", "v1.13": "v1.13", "v1.14.1": "v1.13", "v1.99.0": "v1.13",
	} {
		contract, err := release.Contract(talos, "")
		require.NoError(t, err, talos)
		require.Equal(t, form, contract.String(), talos)
	}

	for _, unknown := range []string{"v1.1.0", "latest", "vv1.2.0"} {
		_, err := release.Contract(unknown, "")
		require.Error(t, err, unknown)
		require.NotErrorAs(t, err, new(*release.ContractError), unknown)
	}
}

func TestAContractCanBeNamed(t *testing.T) {
	t.Parallel()

	for _, usable := range [][3]string{{"v1.14.1", "v1.14", "v1.14"}, {"v1.14.1", "1.12", "v1.12"},
		{"v1.15.0", "v1.14", "v1.14"}} {
		contract, err := release.Contract(usable[0], usable[1])
		require.NoError(t, err)
		require.Equal(t, usable[2], contract.String())
	}

	for named, unusable := range map[string][3]string{
		"newest":  {"v1.14.1", `"newest" is no contract, as v1.14`, "v1.14"},
		"v1.14.1": {"v1.13.9", `"v1.14.1" is no contract, as v1.14`, "v1.13"},
		"v1.14":   {"v1.13.9", "Talos v1.13 does not know the contract v1.14", "v1.13"},
		"v1.15":   {"v1.15.0", "contract v1.15 is not known here: v1.2 to v1.14 are", "v1.14"},
		"v1.1":    {"v1.13.9", "contract v1.1 is older than what configs can be made by: v1.2 to v1.14", "v1.2"},
	} {
		_, err := release.Contract(unusable[0], named)

		var reason *release.ContractError

		require.ErrorAs(t, err, &reason, named)
		require.Equal(t, &release.ContractError{Reason: unusable[1], Nearest: unusable[2]}, reason)
	}
}

func TestLaterReleasesAreNotKnown(t *testing.T) {
	t.Parallel()

	require.True(t, release.IsNewer("v1.15.0"))
	require.False(t, release.IsNewer("v1.14.1"))
	require.False(t, release.IsNewer("none"))
}

func TestKubernetesFitsTalosByItsMatrix(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ kubernetes, talos, refusal string }{
		{"v1.36.3", "1.13.9", ""},
		{"1.36.3", "v1.8.0", "Kubernetes 1.36.3 is too new for Talos v1.8.0, which runs 1.26 to 1.31"},
		{"newest", "v1.8.0", `"newest" is no version of Kubernetes, as v1.36.3`},
		{"v1.30.0", "v1.12.1", ""},
		{"v1.35.9", "v1.12.1", ""},
		{"v1.36.0", "v1.12.1", "Kubernetes v1.36.0 is too new for Talos v1.12.1, which runs 1.30 to 1.35"},
		{"v1.30.9", "v1.13.9", "Kubernetes v1.30.9 is too old for Talos v1.13.9, which runs 1.31 to 1.36"},
		{"v1.31.0", "v1.14.1", "Kubernetes v1.31.0 is too old for Talos v1.14.1, which runs 1.32 to 1.37"},
		{"v1.32.0", "v1.14.1", ""},
		{"v1.37.0", "v1.14.1", ""},
		{"v1.38.0-rc.1", "v1.14.1", "Kubernetes v1.38.0-rc.1 is too new for Talos v1.14.1, which runs 1.32 to 1.37"},
		{"v1.36.3", "v1.99.0", `what goes with Talos "v1.99.0" is not known here`},
	} {
		err := release.Fit(tt.kubernetes, tt.talos)
		if tt.refusal == "" {
			require.NoError(t, err, tt)
		} else {
			require.EqualError(t, err, tt.refusal)
		}
	}

	require.ErrorIs(t, release.Fit("v1.36.3", "v1.99.0"), release.ErrNotTabled)
	require.ErrorIs(t, release.Fit("newest", "v1.14.1"), release.ErrNoVersion)
}

func TestUpgradesGoByTheInstallersOwnRange(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ from, to, refusal string }{
		{"v1.12.1", "v1.14.1", ""},
		{"v1.11.6", "v1.14.1", "Talos v1.11.6 is too old for it: it upgrades from 1.12 on"},
		{"v1.14.1", "v1.13.9", ""},
		{"v1.14.1", "v1.12.1", "Talos v1.14.1 is too new for it: it downgrades from below 1.14"},
	} {
		err := release.Upgrade(tt.from, tt.to)
		if tt.refusal == "" {
			require.NoError(t, err, tt)
		} else {
			require.EqualError(t, err, tt.refusal)
		}
	}

	require.ErrorIs(t, release.Upgrade("v1.13.9", "v1.99.0"), release.ErrNotTabled)
}

// What is written here of each release is what machinery has of it.
func TestTheTableIsMachinerys(t *testing.T) {
	t.Parallel()

	talosOf := func(version string) *compatibility.TalosVersion {
		parsed, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: version})
		require.NoError(t, err)

		return parsed
	}

	for minor := 5; minor <= 14; minor++ {
		talos := fmt.Sprintf("v1.%d.3", minor)

		for kubernetes := 20; kubernetes < 45; kubernetes++ {
			version := fmt.Sprintf("1.%d.2", kubernetes)
			parsed, err := compatibility.ParseKubernetesVersion(version)
			require.NoError(t, err)
			require.Equal(t, parsed.SupportedWith(talosOf(talos)) == nil, release.Fit(version, talos) == nil, "%s on %s",
				version, talos)
		}

		for other := range 20 {
			from := fmt.Sprintf("v1.%d.1", other)
			require.Equal(t, talosOf(talos).UpgradeableFrom(talosOf(from)) == nil, release.Upgrade(from, talos) == nil,
				"from %s to %s", from, talos)
		}
	}
}

// The setting TALOS_CONTRACT takes the contracts that configs can be made by.
func TestTheSettingTakesEveryContract(t *testing.T) {
	t.Parallel()

	knob, found := settings.Lookup("TALOS_CONTRACT")
	require.True(t, found)

	newest, err := config.ParseContractFromVersion(strings.TrimSpace(gendata.VersionTag))
	require.NoError(t, err)

	for minor := 2; minor <= newest.Minor; minor++ {
		require.Contains(t, strings.FieldsFunc(knob.Takes(), func(r rune) bool { return r == ',' || r == ' ' }),
			fmt.Sprintf("v1.%d", minor))
	}

	require.True(t, strings.HasSuffix(knob.Takes(), "or "+newest.String()))
}
