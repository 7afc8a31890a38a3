package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// diskRow is a disk with what is to be said about it.
type diskRow struct {
	disk    *block.Disk
	verdict string
	// wiped marks the disk that Talos would take.
	wiped bool
}

// rowsOf says of each disk whether a selector matches it, and what ruled it out.
func rowsOf(judged []machineconfig.DiskMatch) []diskRow {
	rows := make([]diskRow, 0, len(judged))

	for _, match := range judged {
		row := diskRow{disk: match.Disk, wiped: match.Chosen}

		switch {
		case match.Chosen:
			row.verdict = "WOULD BE WIPED"
		case match.Matches():
			row.verdict = "matches too"
		default:
			row.verdict = strings.Join(match.RuledOut, "; ")
		}

		rows = append(rows, row)
	}

	return rows
}

// usability says of each disk whether Talos could install to it.
func usability(disks []*block.Disk) []diskRow {
	rows := make([]diskRow, 0, len(disks))

	for _, disk := range disks {
		rows = append(rows, diskRow{disk: disk, verdict: cmp.Or(unusable(disk), "usable")})
	}

	return rows
}

// diskTable shows disks, one a line, with what is on each.
func (s subject) diskTable(rows []diskRow) string {
	if len(rows) == 0 {
		return "  the node has no disks"
	}

	var text strings.Builder

	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)

	fmt.Fprintln(writer, "  DISK\tSIZE\tTRANSPORT\tMODEL\tSERIAL\tHOLDS\t")

	for _, row := range rows {
		spec := row.disk.TypedSpec()

		mark := "  "
		if row.wiped {
			mark = "* "
		}

		fmt.Fprintf(writer, "%s%s\t%s\t%s\t%s\t%s\t%s\t%s\n", mark, devPath(row.disk), humanize.Bytes(spec.Size),
			dash(spec.Transport), dash(spec.Model), dash(spec.Serial), dash(s.holds(row.disk)), row.verdict)
	}

	// Writing to a strings.Builder never fails.
	_ = writer.Flush()

	return trimLines(text.String())
}

// trimLines takes the padding off the ends of lines, and the last line break.
func trimLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}

	return strings.Join(lines, "\n")
}

// holds lists what was recognised on a disk: partitions and file systems with their labels. An empty partition table is
// nothing.
func (s subject) holds(disk *block.Disk) string {
	var found []string

	for _, volume := range s.Facts.Volumes {
		if volume.Disk != devPath(disk) || (volume.Whole && volume.Name == "gpt") {
			continue
		}

		if text := describeVolume(volume); text != "" && !slices.Contains(found, text) {
			found = append(found, text)
		}
	}

	return strings.Join(found, ", ")
}

func describeVolume(volume talos.Volume) string {
	switch {
	case volume.Name != "" && volume.Label != "":
		return fmt.Sprintf("%s %q", volume.Name, volume.Label)
	case volume.Label != "":
		return fmt.Sprintf("%q", volume.Label)
	case volume.Name == "" && !volume.Whole:
		return "a partition"
	default:
		return volume.Name
	}
}

func describe(disk *block.Disk) string {
	spec := disk.TypedSpec()
	parts := []string{humanize.Bytes(spec.Size)}

	for _, part := range []string{spec.Transport, spec.Model, spec.Serial} {
		if part != "" {
			parts = append(parts, part)
		}
	}

	return strings.Join(parts, " ")
}

// devPath is a disk's device path; a node that does not tell it names the disk after it.
func devPath(disk *block.Disk) string {
	return cmp.Or(disk.TypedSpec().DevPath, "/dev/"+disk.Metadata().ID())
}

func dash(text string) string { return cmp.Or(text, "-") }
