package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Files of a run's folder.
const (
	eventsFile  = "events.jsonl"
	PageFile    = "report.html"
	junitFile   = "junit.xml"
	summaryFile = "summary.json"
)

// stamp is a run's name: when it began, in UTC. Names sort as the runs began.
const stamp = "2006-01-02T15-04-05Z"

var name = pattern.New(`^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(-\d+)?$`)

// List gives the names of the runs that are kept in a folder, the oldest first; none if there is no such folder.
func List(runs string) ([]string, error) {
	entries, err := os.ReadDir(runs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err //nolint:wrapcheck // it names the folder
	}

	var names []string
	for _, entry := range entries {
		if entry.IsDir() && name.MatchString(entry.Name()) {
			names = append(names, entry.Name())
		}
	}

	return names, nil
}

// create makes the folder of a run that begins now. Of those that begin in the same second the later ones are numbered.
func create(runs string, now time.Time) (string, error) {
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return "", err //nolint:wrapcheck // it names the folder
	}

	names, err := List(runs)
	if err != nil {
		return "", err
	}

	first := now.UTC().Format(stamp)

	for number := 1; ; number++ {
		called := first
		if number > 1 {
			called = fmt.Sprintf("%s-%02d", first, number)
		}

		// A name that went with its run would be out of order.
		if len(names) > 0 && strings.HasPrefix(names[len(names)-1], first) && called <= names[len(names)-1] {
			continue
		}

		folder := filepath.Join(runs, called)
		if err := os.Mkdir(folder, 0o700); !errors.Is(err, fs.ErrExist) {
			return folder, err //nolint:wrapcheck // it names the folder
		}
	}
}

// prune removes the oldest runs, and leaves as many as are to be kept.
func prune(runs string, keep int) error {
	names, err := List(runs)
	if err != nil {
		return err
	}

	for _, old := range names[:max(0, len(names)-keep)] {
		err = errors.Join(err, os.RemoveAll(filepath.Join(runs, old)))
	}

	if err != nil {
		return fmt.Errorf("remove old runs: %w", err)
	}

	return nil
}

// Find is the name of a run that is called by it, or by its beginning; without any, the last run's. Its error says
// which there are.
func Find(runs, called string) (string, error) {
	names, err := List(runs)
	if err != nil {
		return "", err
	}

	if called != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, called) })
	}

	switch {
	case len(names) == 0 && called == "":
		return "", errors.New("no run is recorded in " + runs)
	case len(names) == 0:
		return "", fmt.Errorf("no run in %s begins with %q", runs, called)
	case called != "" && names[0] != called && len(names) > 1:
		return "", fmt.Errorf("%d runs begin with %q, from %s to %s", len(names), called, names[0], names[len(names)-1])
	case called != "":
		return names[0], nil
	default:
		return names[len(names)-1], nil
	}
}
