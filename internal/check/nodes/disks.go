package nodes

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// checkInstallDisk finds the disk that Talos would wipe, the way Talos does: a selector wins over a named disk, and the
// first match over the others. On a node with Talos on a disk nothing is wiped.
func checkInstallDisk(ctx context.Context, s subject) {
	switch {
	case s.installed(), s.Facts.Lacks(check.FactDisks): // other findings tell
	case s.Config.DiskSelector() != "":
		s.selectedDisk(ctx)
	case s.Config.InstallDisk() != "": // validation asks for one of the two
		s.namedDisk(s.Config.InstallDisk())
	}
}

// checkInstalled tells that Talos is on a disk already.
func checkInstalled(_ context.Context, s subject) {
	if !s.installed() {
		return
	}

	disk := cmp.Or(s.Facts.SystemDisk, "a disk")

	if s.Facts.State == talos.Ours {
		s.ok(diagnosis.AlreadyInstalled, "Talos runs from %s", disk)

		return
	}

	ignored := ""

	if s.Config != nil && s.Config.InstallDisk() != "" && s.Config.InstallDisk() != s.Facts.SystemDisk {
		ignored = " (its disk is " + s.Config.InstallDisk() + ")"
	}

	s.warn(diagnosis.AlreadyInstalled,
		"nothing, if that is the right disk; else boot the machine once with the kernel argument "+constants.KernelParamWipe+
			"=system",
		"Talos is already on %s: install section ignored%s, no reinstall", disk, ignored)
}

// checkHiddenInstall warns of an install whose failure nobody would see.
func checkHiddenInstall(_ context.Context, s subject) {
	if !s.installed() && s.Config.HidesInstall() {
		s.warn(diagnosis.InstallHidden, s.regenerate("give "+s.Name+" a host name for its install"),
			"its host name is `auto: stable`, so its API stays closed until Talos is on its disk: if the install fails, it "+
				"is tried for ever, and nothing but the console tells why")
	}
}

// selectedDisk judges a disk selector by the disks that it matches.
func (s subject) selectedDisk(ctx context.Context) {
	next := s.regenerate("correct the disk selector of " + s.Name)

	disks, err := talos.StateOf(ctx, s.Facts.Disks)
	if err != nil {
		s.fail(diagnosis.InstallDiskNoMatch, s.rerun(), "the node's disks can't be judged: %s", err)

		return
	}

	judged, err := s.Config.MatchDisks(ctx, disks)
	if err != nil {
		s.fail(diagnosis.InstallDiskNoMatch, next, "the disk selector can't be evaluated: %s", err)

		return
	}

	var matching []machineconfig.DiskMatch

	for _, match := range judged {
		if match.Matches() {
			matching = append(matching, match)
		}
	}

	selector := strings.Join(strings.Fields(s.Config.DiskSelector()), " ") // CEL breaks long ones into lines

	switch len(matching) {
	case 0:
		s.fail(diagnosis.InstallDiskNoMatch, next, "no disk matches %s%s\n%s", selector, s.waitsForDisk(),
			s.diskTable(rowsOf(judged)))
	case 1:
		s.chosenDisk(matching[0].Disk, "the selector matches")
	default:
		s.ambiguousDisk(selector, judged, matching)
	}
}

func (s subject) ambiguousDisk(selector string, judged, matching []machineconfig.DiskMatch) {
	next := s.regenerate("make the disk selector of " + s.Name + " match one disk")
	cause := fmt.Sprintf("%d disks match %s, and Talos would wipe the first: %s\n%s", len(matching), selector,
		devPath(matching[0].Disk), s.diskTable(rowsOf(judged)))

	if s.Settings.AllowAmbiguousDisk {
		s.warn(diagnosis.InstallDiskAmbiguous, next, "%s", cause)

		return
	}

	s.fail(diagnosis.InstallDiskAmbiguous, next+"; to accept the marked disk, pass -allowAmbiguousDisk", "%s",
		cause)
}

// namedDisk judges a disk that the machine config names by its path.
func (s subject) namedDisk(named string) {
	next := s.regenerate("correct the install disk of " + s.Name)

	if disk := findDisk(s.Facts.Disks, named); disk != nil {
		if fault := unusable(disk); fault != "" {
			s.fail(diagnosis.InstallDiskAbsent, next, "install disk %s is %s\n%s", named, fault,
				s.diskTable(usability(s.Facts.Disks)))

			return
		}

		s.chosenDisk(disk, "the install disk exists")

		return
	}

	if strings.HasPrefix(named, "/dev/disk/") && !slices.ContainsFunc(s.Facts.Disks, knowsSymlinks) {
		s.warn(diagnosis.InstallDiskAbsent, s.regenerate("give "+s.Name+" a disk selector instead"),
			"install disk %s is a link, and this node does not tell where such links lead\n%s", named,
			s.diskTable(usability(s.Facts.Disks)))

		return
	}

	hint := ""

	if likely := likelyDisk(s.Facts.Disks, named); likely != nil {
		hint = fmt.Sprintf("; %s exists, %s", devPath(likely), humanize.Bytes(likely.TypedSpec().Size))
	}

	s.fail(diagnosis.InstallDiskAbsent, next, "install disk %s does not exist%s%s\n%s", named, s.waitsForDisk(), hint,
		s.diskTable(usability(s.Facts.Disks)))
}

// waitsForDisk says what a node does whose UnattendedInstallConfig finds no disk: it takes the config.
func (s subject) waitsForDisk() string {
	if s.Config.IsUnattended() {
		return ", and the node would wait for one for ever"
	}

	return ""
}

// chosenDisk passes the one disk that Talos would take, with a warning when it is not empty.
func (s subject) chosenDisk(disk *block.Disk, why string) {
	if held := s.holds(disk); held != "" {
		s.warn(diagnosis.InstallDiskHoldsData, "make sure that this is the right disk",
			"%s: %s, %s; it would be wiped, and holds %s", why, devPath(disk), describe(disk), held)

		return
	}

	s.ok(diagnosis.InstallDiskNoMatch, "%s: %s, %s", why, devPath(disk), describe(disk))
}

// findDisk finds a disk by its path or by one of the links that lead to it.
func findDisk(disks []*block.Disk, named string) *block.Disk {
	for _, disk := range disks {
		if devPath(disk) == named || slices.Contains(disk.TypedSpec().Symlinks, named) {
			return disk
		}
	}

	return nil
}

func knowsSymlinks(disk *block.Disk) bool { return len(disk.TypedSpec().Symlinks) > 0 }

// unusable says why Talos can't install to a disk; empty when it can.
func unusable(disk *block.Disk) string {
	switch spec := disk.TypedSpec(); {
	case spec.CDROM:
		return "a CD-ROM drive"
	case spec.Readonly:
		return "read-only"
	default:
		return ""
	}
}

// likelyDisk guesses the disk that was meant: the one in the same place on another kind of controller (sda, vda), or
// the only usable one.
func likelyDisk(disks []*block.Disk, named string) *block.Disk {
	usable := slices.DeleteFunc(slices.Clone(disks), func(disk *block.Disk) bool {
		return unusable(disk) != "" || disk.TypedSpec().Transport == "" || disk.TypedSpec().Transport == "usb"
	})

	for _, disk := range usable {
		if at := place(devPath(disk)); at >= 0 && at == place(named) {
			return disk
		}
	}

	if len(usable) == 1 {
		return usable[0]
	}

	return nil
}

var (
	letteredDisk = pattern.New(`^(?:sd|vd|xvd|hd)([a-z])\d*$`)
	nvmeDisk     = pattern.New(`^nvme(\d)n1(?:p\d+)?$`)
)

// place counts disks of a kind: 0 for /dev/sda, /dev/vda and /dev/nvme0n1, 1 for the next ones, -1 for other names.
// A partition has the place of its disk.
func place(device string) int {
	name := path.Base(device)

	if match := letteredDisk.FindStringSubmatch(name); match != nil {
		return int(match[1][0] - 'a')
	}

	if match := nvmeDisk.FindStringSubmatch(name); match != nil {
		return int(match[1][0] - '0')
	}

	return -1
}
