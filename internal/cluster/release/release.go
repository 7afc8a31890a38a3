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
// table of what goes together begins later. The usual contract is what configs are made by where nothing names another:
// every later release takes that form too.
var (
	oldest        = config.TalosVersion1_2
	oldestTabled  = config.TalosVersion1_5
	newest        = config.TalosVersion1_14
	usualContract = config.TalosVersion1_13
)

var (
	whole   = pattern.New(`^v?(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?$`)
	earlier = pattern.New(`^(alpha|beta|rc)\b`)
	// contractName is a minor version, of which all patches have one form.
	contractName = pattern.New(`^v?\d+\.\d+$`)
	version      = pattern.New(`^v?\d+\.\d+(\.\d+)?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

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

// Minor is the release that a Talos version belongs to, which may be newer than what is known here. An error is the
// reason that no machine config can be made for it.
func Minor(talos string) (*config.VersionContract, error) {
	minor, err := config.ParseContractFromVersion(WithV(talos))

	switch {
	case !version.MatchString(talos), err != nil:
		return nil, fmt.Errorf("%q is no version of Talos, as v1.14.1", talos)
	case oldest.Greater(minor):
		return nil, fmt.Errorf("Talos %s is older than what configs can be made for: %s to %s", minor, oldest, newest) //nolint:staticcheck // a name
	default:
		return minor, nil
	}
}

// Contract is the form that machine configs for a Talos version are made in: the named one or, if that is empty, the
// lower of the version's own and 1.13. A *ContractError is about the name.
func Contract(talos, named string) (*config.VersionContract, error) {
	minor, err := Minor(talos)

	switch {
	case err != nil:
		return nil, err
	case named != "":
		return namedContract(minor, named)
	case minor.Greater(usualContract):
		return usualContract, nil
	default:
		return minor, nil
	}
}

// ContractError says why machine configs can't be made in a form.
type ContractError struct {
	Reason string
	// Nearest is the contract that can be used in its place.
	Nearest string
}

func (e *ContractError) Error() string { return e.Reason }

func namedContract(minor *config.VersionContract, named string) (*config.VersionContract, error) {
	contract, err := config.ParseContractFromVersion(WithV(named))

	switch {
	case err != nil || !contractName.MatchString(named):
		return nil, &ContractError{fmt.Sprintf("%q is no contract, as %s", named, newest), lower(minor, newest).String()}
	case oldest.Greater(contract):
		return nil, &ContractError{fmt.Sprintf("contract %s is older than what configs can be made by: %s to %s", contract,
			oldest, newest), oldest.String()}
	case contract.Greater(newest):
		return nil, &ContractError{fmt.Sprintf("contract %s is not known here: %s to %s are", contract, oldest, newest),
			lower(minor, newest).String()}
	case contract.Greater(minor):
		return nil, &ContractError{fmt.Sprintf("Talos %s does not know the contract %s", minor, contract), minor.String()}
	default:
		return contract, nil
	}
}

func lower(a, b *config.VersionContract) *config.VersionContract {
	if a.Greater(b) {
		return b
	}

	return a
}

// IsNewer reports whether a Talos version is of a later release than this program knows.
func IsNewer(talos string) bool {
	minor, err := Minor(talos)

	return err == nil && minor.Greater(newest)
}

// Tabled names the Talos releases that the table has.
func Tabled() string { return oldestTabled.String() + " to " + newest.String() }

// IsTabled reports whether the table has a Talos version, or it is none.
func IsTabled(talos string) bool {
	contract, err := config.ParseContractFromVersion(talos)

	return err != nil || !contract.Greater(newest) && !oldestTabled.Greater(contract)
}
