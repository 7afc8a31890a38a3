package diagnosis

import (
	"cmp"
	"slices"
	"sync"
)

// Catalogue lists every entry, in the order of the ids. Each area keeps its entries in a file of its own: TM001 to
// TM039 files and settings, TM040 to TM079 preflight, TM080 to TM119 nodes and the bring-up, TM120 to TM139 Kubernetes
// and, from TM128 to TM133, etcd's members, TM140 and TM141 changes of a running cluster, TM142 to TM149
// and TM157 replacing machines and restoring etcd, TM150 to TM154 rewriting its files, TM160 to TM162 finding machines,
// TM163 to TM169 upgrading Kubernetes, TM170 to TM179 looking after etcd, TM180 to TM183 draining nodes,
// TM190 to TM199 resets, TM200 to TM399 what the audit of the files adds, TM400 to TM409 the health of a cluster that
// is up.
//
// TM415 to TM424 are of nodes that are stuck, TM430 and TM431 of programs that embed it.
func Catalogue() []Entry {
	entries := slices.Concat(fileEntries, makingEntries, settingEntries, preflightEntries, nodeEntries, bringUpEntries,
		kubernetesEntries, apiEntries, updatingEntries, migratingEntries, discoverEntries, etcdCareEntries,
		upgradeK8sEntries, drainEntries, upgradeEntries, resetEntries, etcdMemberEntries, etcdRecoverEntries,
		addressEntries, endpointEntries, networkEntries, nameEntries, interfaceEntries, diskEntries, secretEntries,
		credentialEntries, firewallEntries, roleEntries, documentEntries, imageEntries, versionEntries, interopEntries,
		linkNameEntries, startupEntries, releaseEntries, upgradePlanEntries, appsEntries, diagnosingEntries,
		healthEntries, embeddingEntries)
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })

	return entries
}

// byID is made once: findings look their entries up one by one.
var byID = sync.OnceValue(func() map[ID]Entry {
	entries := make(map[ID]Entry)
	for _, entry := range Catalogue() {
		entries[entry.ID] = entry
	}

	return entries
})

// Lookup finds an entry by its id.
func Lookup(id ID) (Entry, bool) {
	entry, found := byID()[id]

	return entry, found
}
