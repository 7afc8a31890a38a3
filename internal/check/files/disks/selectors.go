package disks

import (
	"slices"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"

	blockpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
)

// reach is what an expression over disks can match, found by trying it on disks that are made from the expression's own
// values.
type reach struct {
	// never is set when no disk can match; anyDisk when every disk does that Talos would use.
	never, anyDisk bool
	// systemOnly is set when only the disk that Talos is on can match.
	systemOnly bool
}

// maxTrials bounds on how many made-up disks an expression is tried; one that needs more is not judged.
const maxTrials = 2000

// judgeSelector tries an expression.
func judgeSelector(expression cel.Expression) reach {
	text := strings.Join(strings.Fields(expression.String()), " ")

	disks, enough := madeUpDisks(text)
	if !enough {
		return reach{}
	}

	matches := func(disk *blockpb.DiskSpec, system bool) bool {
		matched, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{"disk": disk, "system_disk": system})

		return err == nil && matched
	}

	onSystem := slices.ContainsFunc(disks, func(disk *blockpb.DiskSpec) bool { return matches(disk, true) })
	onOther := slices.ContainsFunc(disks, func(disk *blockpb.DiskSpec) bool { return matches(disk, false) })

	return reach{
		never:      !onSystem && !onOther,
		systemOnly: onSystem && !onOther,
		anyDisk: onOther && !slices.ContainsFunc(usualDisks(),
			func(disk *blockpb.DiskSpec) bool { return !matches(disk, false) }),
	}
}

// usualDisks are some of every kind that machines have.
func usualDisks() []*blockpb.DiskSpec {
	var disks []*blockpb.DiskSpec

	for _, transport := range []string{"nvme", "sata", "usb", "virtio", "mmc"} {
		for _, size := range []uint64{16e9, 500e9, 4e12} {
			disks = append(disks, &blockpb.DiskSpec{
				Size: size, Transport: transport, Rotational: transport == "sata", Model: "MODEL", Serial: "SERIAL",
				DevPath: "/dev/disk",
			})
		}
	}

	return disks
}

var (
	equalText = pattern.New(`disk\.(\w+) ?== ?(?:"([^"]*)"|'([^']*)')`)
	globText  = pattern.New(`glob\((?:"([^"]*)"|'([^']*)'), ?disk\.(\w+)\)`)
	unequal   = pattern.New(`disk\.(\w+) ?!= ?(?:"([^"]*)"|'([^']*)')`)
	listText  = pattern.New(`disk\.(\w+) in \[([^\]]*)\]`)
	numbers   = pattern.New(`(\d+)u?(?: ?\* ?([KMGTP]i?B))?`)
	// comparedSize is the comparison of a disk's size with one number and, at most, its unit.
	comparedSize = pattern.New(`disk\.size ?(?:[<>]=?|[=!]=) ?\d+u?(?: ?\* ?[KMGTP]i?B)? ?(?:&&|\|\||\)|$)`)
	textField    = pattern.New(`disk\.(model|serial|modalias|wwid|bus_path|sub_system|transport|dev_path|uuid|symlinks|secondary_disks|pretty_size|io_size|sector_size)\b`)
)

var units = map[string]uint64{
	"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	"TiB": 1 << 40, "PiB": 1 << 50,
}

// madeUpDisks are disks of all combinations of the values that an expression names; false if there are too many, or it
// compares in ways that are not understood here.
func madeUpDisks(text string) ([]*blockpb.DiskSpec, bool) {
	values := map[string][]string{"transport": {"sata"}}
	add := func(field, value string) { values[field] = append(values[field], value) }

	for _, match := range equalText.FindAllStringSubmatch(text, -1) {
		add(match[1], match[2]+match[3])
	}

	for _, match := range globText.FindAllStringSubmatch(text, -1) {
		pattern := match[1] + match[2]

		// What fits a pattern and a second condition of the same field can't be made up.
		if strings.ContainsAny(pattern, `?[]{}\`) || strings.Count(text, "disk."+match[3]) > 1 {
			return nil, false
		}

		add(match[3], strings.ReplaceAll(pattern, "*", "0"))
	}

	for _, match := range unequal.FindAllStringSubmatch(text, -1) {
		add(match[1], match[2]+match[3])
	}

	for _, match := range listText.FindAllStringSubmatch(text, -1) {
		for value := range strings.SplitSeq(match[2], ",") {
			add(match[1], strings.Trim(strings.TrimSpace(value), `"'`))
		}
	}

	for field := range values {
		// A field that disks don't have matches none.
		if textSetters[field] == nil && textField.MatchString("disk."+field) {
			return nil, false
		}
	}

	rest := text
	for _, understood := range []pattern.Pattern{equalText, globText, unequal, listText} {
		rest = understood.ReplaceAllString(rest, "")
	}

	if textField.MatchString(rest) || strings.Contains(comparedSize.ReplaceAllString(rest, ""), "disk.size") {
		return nil, false
	}

	disks := []*blockpb.DiskSpec{{Size: 500e9}}
	disks = vary(disks, sizesIn(text), func(disk *blockpb.DiskSpec, size uint64) { disk.Size = size })

	for _, flag := range []struct {
		name string
		set  func(*blockpb.DiskSpec, bool)
	}{
		{"rotational", func(disk *blockpb.DiskSpec, on bool) { disk.Rotational = on }},
		{"readonly", func(disk *blockpb.DiskSpec, on bool) { disk.Readonly = on }},
		{"cdrom", func(disk *blockpb.DiskSpec, on bool) { disk.Cdrom = on }},
	} {
		if strings.Contains(text, "disk."+flag.name) {
			disks = vary(disks, []bool{false, true}, flag.set)
		}
	}

	for field, set := range textSetters {
		if options := append([]string{"other"}, values[field]...); len(values[field]) > 0 {
			disks = vary(disks, options, set)
		}

		if len(disks) > maxTrials {
			return nil, false
		}
	}

	return disks, true
}

var textSetters = map[string]func(*blockpb.DiskSpec, string){
	"transport":  func(disk *blockpb.DiskSpec, text string) { disk.Transport = text },
	"model":      func(disk *blockpb.DiskSpec, text string) { disk.Model = text },
	"serial":     func(disk *blockpb.DiskSpec, text string) { disk.Serial = text },
	"modalias":   func(disk *blockpb.DiskSpec, text string) { disk.Modalias = text },
	"wwid":       func(disk *blockpb.DiskSpec, text string) { disk.Wwid = text },
	"uuid":       func(disk *blockpb.DiskSpec, text string) { disk.Uuid = text },
	"bus_path":   func(disk *blockpb.DiskSpec, text string) { disk.BusPath = text },
	"sub_system": func(disk *blockpb.DiskSpec, text string) { disk.SubSystem = text },
	"dev_path":   func(disk *blockpb.DiskSpec, text string) { disk.DevPath = text },
}

// sizesIn are the sizes around each number of an expression.
func sizesIn(text string) []uint64 {
	sizes := []uint64{500e9}

	for _, match := range numbers.FindAllStringSubmatch(text, -1) {
		number, err := strconv.ParseUint(match[1], 10, 64)
		if err != nil || number > 1<<63/max(1, units[match[2]]) {
			continue
		}

		size := number * units[match[2]]
		sizes = append(sizes, size, size+1)

		if size > 0 {
			sizes = append(sizes, size-1)
		}
	}

	slices.Sort(sizes)

	return slices.Compact(sizes)
}

// vary makes of each disk one with each of the values.
func vary[T any](disks []*blockpb.DiskSpec, values []T, set func(*blockpb.DiskSpec, T)) []*blockpb.DiskSpec {
	var varied []*blockpb.DiskSpec

	for _, disk := range disks {
		if len(varied) > maxTrials {
			break
		}

		for _, value := range values {
			copied := &blockpb.DiskSpec{
				Size: disk.GetSize(), Readonly: disk.GetReadonly(), Model: disk.GetModel(), Serial: disk.GetSerial(),
				Modalias: disk.GetModalias(),
				Wwid:     disk.GetWwid(), BusPath: disk.GetBusPath(), SubSystem: disk.GetSubSystem(),
				Transport:  disk.GetTransport(),
				Rotational: disk.GetRotational(), Cdrom: disk.GetCdrom(), DevPath: disk.GetDevPath(), Uuid: disk.GetUuid(),
			}
			set(copied, value)
			varied = append(varied, copied)
		}
	}

	return varied
}

// reaches are the selectors that were judged, by their text.
type reaches map[string]reach

// reachOf judges an expression once, however many nodes have it.
func reachOf(in *check.Input, expression cel.Expression) reach {
	judged := check.Once(in, func(*check.Input) reaches { return reaches{} })
	text := expression.String()

	found, known := judged[text]
	if !known {
		found = judgeSelector(expression)
		judged[text] = found
	}

	return found
}
