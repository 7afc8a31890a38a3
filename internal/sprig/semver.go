package sprig

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"
)

// versionFunctions compare versions as sprig's do. Source: github.com/Masterminds/semver, its README.
var versionFunctions = template.FuncMap{
	"semver":        parseSemver,
	"semverCompare": semverMatches,
}

// semver is a semantic version; its fields and methods are those that templates use.
type semver struct {
	Major, Minor, Patch int64
	Prerelease          string
	Original            string

	// parts is how many of the numbers were given.
	parts int
}

// String is the version without a v.
func (v semver) String() string {
	text := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Prerelease != "" {
		text += "-" + v.Prerelease
	}

	return text
}

var (
	semverText      = regexp.MustCompile(`^v?(\d+)(?:\.(\d+|[xX*]))?(?:\.(\d+|[xX*]))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)
	semverCondition = regexp.MustCompile(`(=|!=|>=|=>|<=|=<|>|<|~>|~|\^)?\s*(v?\d[^\s,|]*|\*)`)
)

func parseSemver(text string) (semver, error) {
	match := semverText.FindStringSubmatch(text)
	if match == nil {
		return semver{}, errors.New("no semantic version")
	}

	version := semver{Original: text, Prerelease: match[4]}

	for i, into := range []*int64{&version.Major, &version.Minor, &version.Patch} {
		digits := match[i+1]
		if digits == "" || strings.Trim(digits, "xX*") == "" {
			break // any
		}

		number, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return semver{}, errors.New("no semantic version")
		}

		*into = number
		version.parts++
	}

	return version, nil
}

func (v semver) compare(other semver) int {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor), cmp.Compare(v.Patch, other.Patch),
		comparePrereleases(v.Prerelease, other.Prerelease))
}

// comparePrereleases puts a release after its prereleases, and numbers before words.
func comparePrereleases(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(len(b), len(a))
	}

	parts, others := strings.Split(a, "."), strings.Split(b, ".")

	for i := range min(len(parts), len(others)) {
		number, err := strconv.Atoi(parts[i])
		other, otherErr := strconv.Atoi(others[i])

		order := strings.Compare(parts[i], others[i])

		switch {
		case err == nil && otherErr == nil:
			order = cmp.Compare(number, other)
		case err == nil:
			order = -1
		case otherErr == nil:
			order = 1
		}

		if order != 0 {
			return order
		}
	}

	return cmp.Compare(len(parts), len(others))
}

// semverMatches tells whether a version meets conditions, as ">= 1.12, < 2 || ~1.10": a comma or a space means "and".
func semverMatches(conditions, text string) (bool, error) {
	version, err := parseSemver(text)
	if err != nil {
		return false, err
	}

	for alternative := range strings.SplitSeq(conditions, "||") {
		found := semverCondition.FindAllStringSubmatch(alternative, -1)
		if len(found) == 0 {
			return false, errors.New("no condition for a semantic version")
		}

		all := true

		for _, condition := range found {
			if condition[2] == "*" {
				continue
			}

			limit, err := parseSemver(condition[2])
			if err != nil {
				return false, err
			}

			all = all && version.meets(condition[1], limit)
		}

		if all {
			return true, nil
		}
	}

	return false, nil
}

// meets tells whether a version meets one condition. Prereleases meet only conditions that name one.
func (v semver) meets(operator string, limit semver) bool {
	if v.Prerelease != "" && limit.Prerelease == "" {
		return false
	}

	order := v.compare(limit)
	same := func(parts int) bool {
		return (parts < 1 || v.Major == limit.Major) && (parts < 2 || v.Minor == limit.Minor) && (parts < 3 || v.Patch == limit.Patch)
	}

	switch operator {
	case "!=":
		return !same(limit.parts) || limit.parts == 3 && order != 0
	case ">":
		return order > 0 && (limit.parts == 3 || !same(limit.parts))
	case "<":
		return order < 0
	case ">=", "=>":
		return order >= 0
	case "<=", "=<":
		return order <= 0 || limit.parts < 3 && same(limit.parts)
	case "~", "~>":
		return order >= 0 && same(min(limit.parts, 2))
	case "^":
		first := 1
		for i, number := range []int64{limit.Major, limit.Minor, limit.Patch} {
			if first = i + 1; number != 0 || first >= limit.parts {
				break
			}
		}

		return order >= 0 && same(first)
	default:
		return same(limit.parts) && (limit.parts < 3 || order == 0)
	}
}
