package diagnosis

import "slices"

// Catalogue lists every entry, in the order of the ids. Each area keeps its entries in a file of its own:
// TM001 to TM039 files, TM040 to TM079 preflight, TM080 to TM119 apply, verify and bootstrap, TM120 to TM139 Kubernetes.
func Catalogue() []Entry {
	return slices.Concat(fileEntries, preflightEntries, nodeEntries, kubernetesEntries)
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
