// Package release judges versions: which are whole, which machine configs can be made for, and which Kubernetes runs on
// which Talos.
package release

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Oldest and newest Talos that machine configs can be made for: talhelper's own limit, and what machinery knows. The
// table of what goes together begins later.
var (
	oldest       = config.TalosVersion1_2
	oldestTabled = config.TalosVersion1_5
	newestTabled = config.TalosVersion1_14
	newest       = config.TalosVersion1_13
)

var (
	whole   = pattern.New(`^v?(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?$`)
	earlier = pattern.New(`^(alpha|beta|rc)\b`)
	version = pattern.New(`^v?\d+\.\d+(\.\d+)?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

	twoNumbers = pattern.New(`^v?(\d+)\.(\d+)(?:\.\d+)?(?:[-+].*)?$`)
)

// IsWhole reports whether a version has all three numbers, as the tags of images have.
func IsWhole(text string) bool { return whole.MatchString(text) }

// IsTag reports whether a text is a whole version with its v, as the tags of installers are.
func IsTag(text string) bool { return IsWhole(text) && strings.HasPrefix(text, "v") }

// Numbers are those of a version; false if it has not all three.
func Numbers(text string) ([3]int, bool) {
	var numbers [3]int

	match := whole.FindStringSubmatch(text)
	for i := range min(len(match), len(numbers)) {
		numbers[i], _ = strconv.Atoi(match[i+1]) // more digits than fit are no version of anything
	}

	return numbers, match != nil
}

// IsBuildOf reports whether a version is another, or one that somebody built of it for a kind of machine, as
// v1.13.9-rk3588. Alphas, betas and release candidates come before it.
func IsBuildOf(text, version string) bool {
	if text == version {
		return true
	}

	suffix, hasSuffix := strings.CutPrefix(text, version+"-")

	return hasSuffix && !earlier.MatchString(suffix)
}

// WithV is a version with its v; empty for none.
func WithV(text string) string {
	if text == "" || strings.HasPrefix(text, "v") {
		return text
	}

	return "v" + text
}

// Kinds of reasons.
var (
	// ErrTooNew is of a Talos that is newer than this program.
	ErrTooNew = errors.New("a newer Talos")
	// ErrNotTabled is of a Talos that the table says nothing about.
	ErrNotTabled = errors.New("a Talos that no table has")
	// ErrNoVersion is of a text that is no version.
	ErrNoVersion = errors.New("no version")
)

// reason is an error of a kind, with a text of its own.
type reason struct {
	kind error
	text string
}

func (r reason) Error() string { return r.text }
func (r reason) Unwrap() error { return r.kind }

// Contract is what machine configs of a Talos version may hold. An error is the reason that none can be made here;
// ErrTooNew is one of them.
func Contract(talos string) (*config.VersionContract, error) {
	contract, err := config.ParseContractFromVersion(WithV(talos))

	switch {
	case !version.MatchString(talos), err != nil:
		return nil, fmt.Errorf("%q is no version of Talos, as v1.13.9", talos)
	case contract.Greater(newest):
		return nil, reason{ErrTooNew, fmt.Sprintf("Talos %s is newer than what configs can be made for here: up to %s",
			contract, newest)}
	case oldest.Greater(contract):
		return nil, fmt.Errorf("Talos %s is older than what configs can be made for: %s to %s", contract, oldest, newest) //nolint:staticcheck // a name
	default:
		return contract, nil
	}
}

// Newest is the newest Talos that machine configs can be made for.
func Newest() *config.VersionContract { return newest }

// Tabled names the Talos releases that the table has.
func Tabled() string { return oldestTabled.String() + " to " + newestTabled.String() }

// IsTabled reports whether the table has a Talos version, or it is none.
func IsTabled(talos string) bool {
	contract, err := config.ParseContractFromVersion(talos)

	return err != nil || !contract.Greater(newestTabled) && !oldestTabled.Greater(contract)
}
