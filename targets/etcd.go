package targets

import (
	"context"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// Etcd are the targets that look after the cluster's etcd.
type Etcd mg.Namespace

// Status shows how etcd is on every control plane: its member, its role, the size of its database. It changes nothing.
func (Etcd) Status(ctx context.Context) error {
	return exit(invocation.FromProcess("etcd:status").EtcdStatus(ctx, overrides{}.set()))
}

// Members shows the members that etcd itself lists, and which nodes they are. It changes nothing.
func (Etcd) Members(ctx context.Context) error {
	return exit(invocation.FromProcess("etcd:members").EtcdMembers(ctx, overrides{}.set()))
}

// Snapshot copies etcd's data to a file, verifies it by its hash, and leaves nothing that is not whole.
//
// It is copied from a control plane that has a leader, or from the one that -node names, whatever state that is in.
// The file, for you alone, holds all Secrets: by default it is a new one in the folder snapshots, which git ignores.
func (Etcd) Snapshot(ctx context.Context, file, node *string, dryRun *bool) error {
	return execute(ctx, "etcd:snapshot", overrides{"file": file, "node": node, "dryRun": dryRun},
		only(steps.EtcdSnapshot{}))
}

// Defrag has every member give back the space that it no longer needs, one at a time, the leader last.
//
// All members have to be healthy, before and after each.
func (Etcd) Defrag(ctx context.Context, node *string, dryRun *bool) error {
	return execute(ctx, "etcd:defrag", overrides{"node": node, "dryRun": dryRun}, only(steps.EtcdDefrag{}))
}

// RemoveMember takes a member out of etcd whose node is gone for good, by its id in hex, and that node out of
// Kubernetes.
//
// It is refused while that node answers at any known address, or if etcd would lose its quorum without it.
// mage etcd:members shows the ids.
func (Etcd) RemoveMember(ctx context.Context, id string, dryRun *bool) error {
	return execute(ctx, "etcd:removeMember", overrides{"<id>": &id, "dryRun": dryRun}, only(steps.EtcdRemoveMember{}))
}

// Recover restores an etcd that has lost its quorum for good, from a snapshot or a copied database.
//
// It proves first that no quorum can be had: every control plane is asked, and those that do not answer have to be
// named with -destroyed. What the others hold is saved beside the cluster's files. Once the cluster's name was typed,
// or with -yes, their etcd is wiped, and restored on one; the others join it. Interrupted, run it again.
func (Etcd) Recover(ctx context.Context, file string, destroyed, bootstrapNode *string, yes, noWait,
	dryRun *bool) error {
	return execute(ctx, "etcd:recover", overrides{"<file>": &file, "destroyed": destroyed,
		"bootstrapNode": bootstrapNode, "yes": yes, "noWait": noWait, "dryRun": dryRun}, only(steps.EtcdRecover{}))
}
