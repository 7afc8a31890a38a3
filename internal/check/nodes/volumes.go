package nodes

import (
	"cmp"
	"context"
	"strings"

	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/proto"

	"github.com/talos-mage/talos-mage/internal/check/files/disks"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// checkLiveVolumes evaluates the selectors of volumes on the node's disks.
func checkLiveVolumes(_ context.Context, s subject) {
	for _, volume := range disks.VolumesOf(nil, s.Config) {
		if !volume.Match.IsZero() && len(s.Facts.Disks) > 0 {
			s.judgeVolume(volume)
		}
	}
}

// judgeVolume compares one volume with the node's disks. The disk that will be the system's is known once Talos is on
// it.
func (s subject) judgeVolume(volume disks.Volume) {
	var matching []string

	holding := ""

	for _, disk := range s.Facts.Disks {
		var spec blockpb.DiskSpec
		if err := proto.ResourceSpecToProto(disk, &spec); err != nil {
			return
		}

		path := devPath(disk)
		system := path == cmp.Or(s.Facts.SystemDisk, s.Config.InstallDisk())

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

	switch {
	case len(matching) == 0:
		s.found(diagnosis.VolumeNoDisk, "correct the selector of "+volume.Label(), "no disk matches %s: %s", volume.Label(),
			disks.OneLine(volume.Match))
	case volume.IsSystem():
	case len(matching) > 1:
		s.found(diagnosis.VolumeDiskAmbiguous, "make the selector of "+volume.Label()+" match one disk",
			"%d disks match %s: %s", len(matching), volume.Label(), strings.Join(matching, ", "))
	case holding != "":
		s.found(diagnosis.VolumeDiskHoldsData, "talosctl wipe disk, if nothing on it is needed; or select another disk",
			"%s is the only disk for %s", holding, volume.Label())
	}
}
