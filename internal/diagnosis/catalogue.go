package diagnosis

import (
	"cmp"
	"slices"
)

// Catalogue lists every entry, in the order of the ids. Each area keeps its entries in a file of its own: TM001 to TM039 files and settings,
// TM040 to TM079 preflight, TM080 to TM119 nodes and the bring-up, TM120 to TM139 Kubernetes, TM140 to TM159 changes of a running cluster.
func Catalogue() []Entry {
	entries := slices.Concat(fileEntries, makingEntries, settingEntries, preflightEntries, nodeEntries, bringUpEntries, kubernetesEntries, apiEntries, updatingEntries)
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })

	return entries
}

// Lookup finds an entry by its id.
func Lookup(id ID) (Entry, bool) {
	for _, entry := range Catalogue() {
		if entry.ID == id {
			return entry, true
		}
	}

	return Entry{}, false
}
