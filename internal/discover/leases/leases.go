// Package leases keeps what a search for machines found: which machine is which node's, and where it answered, as with
// an address of a DHCP server. Such an address is a hint: whoever uses it looks at the machine that answers there.
package leases

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Entry is one node's machine, where it answered and when.
type Entry struct {
	Node    string `yaml:"node"`
	Address string `yaml:"address"`
	// MAC is one of its physical links', lower case with colons; UUID its firmware's. Both are empty if it told neither.
	MAC  string `yaml:"mac,omitempty"`
	UUID string `yaml:"uuid,omitempty"`
	// Fingerprint is its certificate's: of maintenance mode it is another one after each boot.
	Fingerprint string    `yaml:"fingerprint,omitempty"`
	At          time.Time `yaml:"at"`
}

// Is reports whether a machine is the entry's, as far as the entry tells machines apart.
func (e Entry) Is(macs []string, uuid string) bool {
	return (e.MAC == "" || slices.Contains(macs, e.MAC)) && (e.UUID == "" || strings.EqualFold(e.UUID, uuid))
}

// Leases are the entries of a cluster's nodes, no two of one node.
type Leases []Entry

// Of is a node's entry.
func (l Leases) Of(node string) (Entry, bool) {
	index := slices.IndexFunc(l, func(entry Entry) bool { return entry.Node == node })
	if index < 0 {
		return Entry{}, false
	}

	return l[index], true
}

// With are the entries with newer ones of some nodes in place of theirs. Those of all others stay, unless a newer one
// says that another node's machine is there.
func (l Leases) With(newer ...Entry) Leases {
	replaced := func(entry Entry) bool {
		return slices.ContainsFunc(newer, func(one Entry) bool {
			return one.Node == entry.Node || one.Address == entry.Address
		})
	}

	return append(slices.DeleteFunc(slices.Clone(l), replaced), newer...)
}

// folder holds what is kept of a cluster on this machine alone. It is kept out of git.
const folder = ".talos-mage"

// Folder is where that is, of a cluster whose files are in another folder.
func Folder(talosDir string) string { return filepath.Join(talosDir, folder) }

// Path is where the leases of a cluster are kept, whose files are in a folder.
func Path(talosDir string) string { return filepath.Join(Folder(talosDir), "leases.yaml") }

// file is how leases are written.
type file struct {
	Nodes Leases `yaml:"nodes"`
}

// Encode is the leases as Read takes them.
func (l Leases) Encode() ([]byte, error) {
	text, err := yaml.Marshal(file{l})
	if err != nil {
		return nil, fmt.Errorf("encode leases: %w", err)
	}

	return append([]byte("# Where machines answered when mage discover -save found them. Delete what is no longer so.\n"),
		text...), nil
}

// Read gives the leases that are kept in a file; none if there is no such file.
func Read(files *reading.Files, path string) (Leases, error) {
	opened := files.Open(path)
	if opened.Missing() {
		return nil, nil
	}

	from := source{yamlfile.Source{Shown: opened.Shown, Mistakes: &yamlfile.Mistakes{}}}

	data, err := from.Read(opened)
	if err != nil {
		return nil, from.Err()
	}

	var read file

	if root := from.Parse(data); root != nil {
		from.Check("the file", root, reflect.TypeFor[file]())

		if len(from.List) == 0 && from.Decode(root, &read) {
			from.checkEntries(root, read.Nodes)
		}
	}

	if err := from.Err(); err != nil {
		return nil, err
	}

	return read.Nodes, nil
}

// source is the file that is being read.
type source struct{ yamlfile.Source }

// checkEntries judges what the types do not: each entry is of a node and an address of its own. It writes hardware
// addresses in one way.
func (s source) checkEntries(root *yaml.Node, entries Leases) {
	for i, entry := range entries {
		place := yamlfile.Item(yamlfile.Field(root, "nodes"), i)
		refuse := func(key, format string, args ...any) {
			s.At(yamlfile.PlaceOf(place, key), diagnosis.FileValue, strconv.Quote(key)+format, args...)
		}

		if entry.Node == "" {
			refuse("node", " is needed")
		}

		if _, err := netip.ParseAddr(entry.Address); err != nil {
			refuse("address", ": %q is no IP address", entry.Address)
		}

		if entries[i].MAC = host.MAC(entry.MAC); entry.MAC != "" && entries[i].MAC == "" {
			refuse("mac", ": %q is no hardware address, as 52:54:00:12:34:56", entry.MAC)
		}

		if entry.At.IsZero() {
			refuse("at", " is needed: when the machine was found")
		}

		for _, before := range entries[:i] {
			if before.Node == entry.Node {
				refuse("node", ": %s has an entry already", entry.Node)
			}

			if before.Address == entry.Address {
				refuse("address", ": %s is %s's already", entry.Address, before.Node)
			}
		}
	}
}
