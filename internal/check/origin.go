package check

import (
	"slices"
	"strconv"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// origins are where the values of generated configs may come from: the talconfig's own values and those of its patches.
type origins struct {
	bySetting map[setting][]origin
	// settings are the values on each line of a machine config.
	lines map[*File]map[int][]scalar
}

// setting is a key with its value: machine configs and what they are made from call most things alike.
type setting struct{ key, value string }

type origin struct {
	file         *File
	line, column int
	// node is the index of the entry whose node alone gets it, or -1; role is "controlPlane", "worker" or empty.
	node int
	role string
}

func findOrigins(in *Input) *origins {
	found := &origins{bySetting: map[setting][]origin{}, lines: map[*File]map[int][]scalar{}}

	add := func(value scalar, from origin) {
		from.line, from.column = value.line, value.column
		key := setting{value.key, value.value}
		found.bySetting[key] = append(found.bySetting[key], from)
	}

	if in.Talconfig != nil {
		for _, root := range in.Talconfig.Places.Roots() {
			scalars(root, "", nil, func(value scalar) {
				if value.key != "patches" {
					add(value, talconfigOrigin(in.Talconfig, value))
				}
			})
		}
	}

	for _, patch := range in.Patches {
		from := origin{file: patch.File, node: -1, role: patch.Group}
		if patch.Group == "nodes" {
			from.node, from.role = patch.Node, ""
		}

		for _, root := range patch.File.Places.Roots() {
			scalars(root, "", nil, func(value scalar) { add(value, from) })
		}
	}

	return found
}

func talconfigOrigin(file *File, value scalar) origin {
	from := origin{file: file, node: -1}

	switch {
	case len(value.within) > 1 && value.within[0] == "nodes":
		if index, err := strconv.Atoi(value.within[1]); err == nil {
			from.node = index
		}
	case len(value.within) > 0 && slices.Contains(patchLists[1:], value.within[0]):
		from.role = value.within[0]
	}

	return from
}

// originOf is where the value on a line of a machine config comes from; nil if that is not known for certain enough:
// the same key has the same value there, and no other node's entry is nearer.
func (in *Input) originOf(config *Rendered, line int) *diagnosis.Location {
	all := Once(in, findOrigins)
	entry := in.entryOf(config)
	role := "worker"

	if IsControlPlane(config) {
		role = "controlPlane"
	}

	if all.lines[config.File] == nil {
		lines := map[int][]scalar{}

		for _, root := range config.File.Places.Roots() {
			scalars(root, "", nil, func(value scalar) { lines[value.line] = append(lines[value.line], value) })
		}

		all.lines[config.File] = lines
	}

	best, rank := origin{}, 0

	for _, value := range all.lines[config.File][line] {
		for _, from := range all.bySetting[setting{value.key, value.value}] {
			if r := from.rank(entry, role); r > rank {
				best, rank = from, r
			}
		}
	}

	if rank == 0 {
		return nil
	}

	found := best.file.Location(best.line, best.column)
	found.Text = "" // what the line of the config shows may be masked

	return &found
}

// rank tells how well an origin fits a node: its own entry before its role's, before everybody's; 0 for what is not for
// it.
func (o origin) rank(entry int, role string) int {
	switch {
	case o.node >= 0 && o.node == entry:
		return 3
	case o.node >= 0, o.role != "" && o.role != role:
		return 0
	case o.role == role:
		return 2
	default:
		return 1
	}
}

// entryOf is the index of the config's node in the talconfig; -1 if it is not known.
func (in *Input) entryOf(config *Rendered) int {
	if len(config.Nodes) == 0 || in.Talconfig == nil {
		return -1
	}

	return in.entryIndex(config.Nodes[0])
}
