package nodes

import (
	"context"
	"slices"
	"strings"

	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/proto"

	"github.com/talos-mage/talos-mage/internal/check/files/disks"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// checkLiveVolumes evaluates the selectors of volumes on the node's disks.
func checkLiveVolumes(ctx context.Context, s subject) {
	system := s.systemDisk(ctx)

	for _, volume := range disks.VolumesOf(nil, s.Config) {
		// Which disk will be the system's is another finding where it can't be told.
		unknown := system == "" && strings.Contains(disks.OneLine(volume.Match), "system_disk")

		if !volume.Match.IsZero() && len(s.Facts.Disks) > 0 && !unknown {
			s.judgeVolume(volume, system)
		}
	}
}

// systemDisk is the disk that Talos is on, or that the install will take; empty if there is none.
func (s subject) systemDisk(ctx context.Context) string {
	if s.Facts.SystemDisk != "" {
		return s.Facts.SystemDisk
	}

	if s.Config.DiskSelector() == "" {
		if disk := findDisk(s.Facts.Disks, s.Config.InstallDisk()); disk != nil {
			return devPath(disk)
		}

		return ""
	}

	if matching, err := s.matchingDisks(ctx); err == nil && len(matching) > 0 {
		return devPath(matching[0].Disk)
	}

	return ""
}

// matchingDisks are those that the install's selector matches, in the order in which Talos takes them.
func (s subject) matchingDisks(ctx context.Context) ([]machineconfig.DiskMatch, error) {
	known, err := talos.StateOf(ctx, s.Facts.Disks)
	if err != nil {
		return nil, err
	}

	judged, err := s.Config.MatchDisks(ctx, known)

	return slices.DeleteFunc(judged, func(match machineconfig.DiskMatch) bool { return !match.Matches() }), err
}

// judgeVolume compares one volume with the node's disks.
func (s subject) judgeVolume(volume disks.Volume, systemDisk string) {
	var matching []string

	holding := ""

	for _, disk := range s.Facts.Disks {
		var spec blockpb.DiskSpec
		if err := proto.ResourceSpecToProto(disk, &spec); err != nil {
			return
		}

		path := devPath(disk)
		system := path == systemDisk

		matched, err := volume.Match.EvalBool(celenv.DiskLocator(), map[string]any{"disk": &spec, "system_disk": system})
		if err != nil {
			s.found(diagnosis.VolumeNoDisk, "correct the selector", "the selector of %s can't be evaluated on %s",
				volume.Label(), path)

			return
		}

		if matched {
			matching = append(matching, path)
			if held := s.holds(disk); held != "" && !system {
				holding = path + " holds " + held
			}
		}
	}

	onSystem := len(matching) == 1 && matching[0] == systemDisk

	switch {
	case len(matching) == 0:
		s.found(diagnosis.VolumeNoDisk, "correct the selector of "+volume.Label(), "no disk matches %s: %s", volume.Label(),
			disks.OneLine(volume.Match))
	case volume.IsSystem():
	case volume.IsWhole() && onSystem:
		s.found(diagnosis.VolumeNoDisk, "select another disk for "+volume.Label()+": !system_disk",
			"%s takes a disk as a whole, and matches %s alone, which Talos is on", volume.Label(), systemDisk)
	case volume.IsWhole() && len(matching) > 1:
		s.fail(diagnosis.VolumeDiskAmbiguous, "make the selector of "+volume.Label()+" match one disk",
			"%d disks match %s, which takes one as a whole: %s", len(matching), volume.Label(), strings.Join(matching, ", "))
		s.report.Last().Exit = diagnosis.ExitPreflight
	case onSystem && !s.installed() && !disks.LeavesRoom(disks.VolumesOf(nil, s.Config)):
		s.found(diagnosis.VolumeOnSystemDisk, "limit EPHEMERAL with a VolumeConfig (maxSize), or select another disk",
			"%s can only be on %s, which Talos is installed on and EPHEMERAL fills", volume.Label(), systemDisk)
	case len(matching) > 1:
		s.found(diagnosis.VolumeDiskAmbiguous, "make the selector of "+volume.Label()+" match one disk",
			"%d disks match %s: %s", len(matching), volume.Label(), strings.Join(matching, ", "))
	case holding != "":
		s.found(diagnosis.VolumeDiskHoldsData, "talosctl wipe disk, if nothing on it is needed; or select another disk",
			"%s is the only disk for %s", holding, volume.Label())
	}
}
