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

func TestConfigsAreMadeForKnownVersions(t *testing.T) {
	t.Parallel()

	for _, known := range []string{"1.2.0", "v1.13.9", "v1.13"} {
		contract, err := release.Contract(known)
		require.NoError(t, err, known)
		require.NotNil(t, contract)
	}

	_, err := release.Contract("v1.99.0")
	require.ErrorIs(t, err, release.ErrTooNew)

	for _, unknown := range []string{"v1.1.0", "latest", "vv1.2.0"} {
		_, err := release.Contract(unknown)
		require.Error(t, err, unknown)
		require.NotErrorIs(t, err, release.ErrTooNew)
	}
}

func TestKubernetesFitsTalosByItsMatrix(t *testing.T) {
	t.Parallel()

	require.NoError(t, release.Fit("v1.36.3", "1.13.9"))
	require.ErrorContains(t, release.Fit("1.36.3", "v1.8.0"), "too new")
	require.ErrorContains(t, release.Fit("newest", "v1.8.0"), `"newest" is no version of Kubernetes`)
}
