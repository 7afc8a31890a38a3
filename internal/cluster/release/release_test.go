package release_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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

	require.NoError(t, release.Fit("v1.36.3", "1.13.9"))
	require.ErrorContains(t, release.Fit("1.36.3", "v1.8.0"), "too new")
	require.ErrorContains(t, release.Fit("newest", "v1.8.0"), `"newest" is no version of Kubernetes`)
}
