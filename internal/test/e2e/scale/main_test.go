//go:build linux

package scale_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"testing"
)

const (
	// role is the variable that makes this program be one of the other processes.
	role = "TALOS_MAGE_SCALE_ROLE"
	// profiles names a folder that each of them writes a processor profile to; none by default.
	profiles = "TALOS_MAGE_SCALE_PROFILES"
)

// roles are the processes that a benchmark starts.
var roles = map[string]func() error{"nodes": serveNodes, "tool": runTool}

func TestMain(m *testing.M) {
	name := os.Getenv(role)

	play, ok := roles[name]
	if !ok {
		os.Exit(m.Run())
	}

	if folder := os.Getenv(profiles); folder != "" {
		play = profiled(filepath.Join(folder, name+".profile"), play)
	}

	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// profiled writes a processor profile of a process.
func profiled(path string, play func() error) func() error {
	return func() error {
		file, err := os.Create(path) //nolint:gosec // whoever measures names it
		if err != nil {
			return err
		}

		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}

		err = play()

		pprof.StopCPUProfile()

		return errors.Join(err, file.Close())
	}
}
