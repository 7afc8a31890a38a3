package release

import (
	"fmt"
	"strconv"
)

// support is what a minor release of Talos 1 goes with: minor versions of Kubernetes 1 and of Talos 1.
type support struct {
	// oldestKubernetes and newestKubernetes are those that it runs.
	oldestKubernetes, newestKubernetes int
	// upgradesFrom is the oldest Talos that its installer takes over, downgradesBelow the first that is too new for it.
	upgradesFrom, downgradesBelow int
	// etcd is the minor version of the etcd 3 that it brings.
	etcd int
}

// supports has a row for each minor release that this program knows. A node judges by its own release, so these are
// not asked of machinery, which is of one release itself. Source: machinery compatibility/talos1*/, and
// constants.DefaultEtcdVersion of each release.
var supports = map[int]support{
	5:  {26, 28, 2, 7, 5},
	6:  {24, 29, 3, 8, 5},
	7:  {25, 30, 4, 9, 5},
	8:  {26, 31, 5, 10, 5},
	9:  {27, 32, 8, 11, 5},
	10: {28, 33, 8, 12, 5},
	11: {29, 34, 9, 13, 6},
	12: {30, 35, 10, 14, 6},
	13: {31, 36, 11, 15, 6},
	14: {32, 37, 12, 16, 7},
}

// supportOf is the row of a version of Talos; an error if there is none.
func supportOf(talos string) (support, error) {
	numbers, known := lenient(talos)
	if row, tabled := supports[numbers[1]]; known && tabled && numbers[0] == 1 {
		return row, nil
	}

	return support{}, reason{ErrNotTabled, fmt.Sprintf("what goes with Talos %q is not known here", talos)}
}

// lenient are the numbers of a version that may have two of them.
func lenient(text string) ([2]int, bool) {
	match := twoNumbers.FindStringSubmatch(text)
	if match == nil {
		return [2]int{}, false
	}

	major, majorErr := strconv.Atoi(match[1])
	minor, minorErr := strconv.Atoi(match[2])

	return [2]int{major, minor}, majorErr == nil && minorErr == nil
}

// Fit says why a Kubernetes version does not run on a Talos version, by the latter's support matrix; nil if it does.
// ErrNoVersion and ErrNotTabled are among the reasons.
func Fit(kubernetes, talos string) error {
	numbers, known := lenient(kubernetes)
	if !known {
		return reason{ErrNoVersion, fmt.Sprintf("%q is no version of Kubernetes, as v1.36.3", kubernetes)}
	}

	row, err := supportOf(talos)
	if err != nil {
		return err
	}

	var word string

	switch {
	case numbers[0] == 1 && numbers[1] < row.oldestKubernetes:
		word = "too old"
	case numbers[0] != 1 || numbers[1] > row.newestKubernetes:
		word = "too new"
	default:
		return nil
	}

	return fmt.Errorf("Kubernetes %s is %s for Talos %s, which runs 1.%d to 1.%d", kubernetes, word, WithV(talos), //nolint:staticcheck // a name
		row.oldestKubernetes, row.newestKubernetes)
}

// Upgrade says why the installer of one Talos refuses to take over another; nil if it does not. ErrNotTabled is among
// the reasons.
func Upgrade(from, to string) error {
	row, err := supportOf(to)
	if err != nil {
		return err
	}

	host, known := lenient(from)

	switch {
	case !known:
		return reason{ErrNotTabled, fmt.Sprintf("%q is no version of Talos", from)}
	case host[0] == 1 && host[1] < row.upgradesFrom:
		return fmt.Errorf("Talos %s is too old for it: it upgrades from 1.%d on", WithV(from), row.upgradesFrom) //nolint:staticcheck // a name
	case host[0] != 1 || host[1] >= row.downgradesBelow:
		return fmt.Errorf("Talos %s is too new for it: it downgrades from below 1.%d", WithV(from), row.downgradesBelow) //nolint:staticcheck // a name
	default:
		return nil
	}
}

// SameEtcd reports whether two versions of Talos bring the same minor version of etcd. Of one that is not known here it
// is not certain, and so false.
func SameEtcd(talos, other string) bool {
	row, err := supportOf(talos)
	otherRow, otherErr := supportOf(other)

	return err == nil && otherErr == nil && row.etcd == otherRow.etcd
}

// HasLifecycle reports whether a version of Talos has the LifecycleService, which came with 1.13.
func HasLifecycle(talos string) bool {
	numbers, known := lenient(talos)

	return known && (numbers[0] > 1 || numbers[1] >= 13)
}
