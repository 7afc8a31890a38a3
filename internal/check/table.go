package check

import (
	"cmp"
	"slices"
	"sync"
)

// Table lists every check, by kind and then by id. A check of another package stands in it as well.
func Table() []Check { return slices.Clone(table()) }

var table = sync.OnceValue(func() []Check {
	kinds := map[Kind]int{}
	for i, kind := range Kinds() {
		kinds[kind] = i
	}

	rows := slices.Concat(belongingChecks(), addressChecks(), endpointChecks(), networkChecks(), nameChecks(),
		interfaceChecks(), diskChecks(), secretChecks(), firewallChecks(), roleChecks(), documentChecks(), imageChecks(),
		versionChecks(), interopChecks())

	slices.SortStableFunc(rows, func(a, b Check) int {
		return cmp.Or(cmp.Compare(kinds[a.Kind], kinds[b.Kind]), cmp.Compare(a.ID, b.ID))
	})

	return rows
})
