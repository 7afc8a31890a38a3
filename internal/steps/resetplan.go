package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/fanout"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/wait"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// wiped are the volumes that a reset wipes where they are partitions of their own: all that a config and a life in the
// cluster leave behind. From Talos 1.14 on, what was always in EPHEMERAL may have a partition, which a reset of
// EPHEMERAL would keep.
var wiped = []string{
	constants.StatePartitionLabel, constants.EphemeralPartitionLabel, constants.EtcdDataVolumeID,
	constants.CRIContainerdVolumeID, constants.KubeletDataVolumeID, constants.LogVolumeID,
}

// nodeReset is what becomes of one node.
type nodeReset struct {
	seen observe.Observation
	// idle says why there is nothing to wipe; empty if there is. What was to be wiped and can't be is kept.
	idle, kept string
	// underway is set for a node that an earlier run has asked already.
	underway bool
	// request is what the node is asked for; losses say the same in words.
	request talos.Reset
	losses  string
	// problem keeps the node from being reset; a refusal keeps all of them from it.
	problem, refusal *diagnosis.Problem
}

// pending reports whether the node is to be asked.
func (n nodeReset) pending() bool { return n.idle == "" && n.problem == nil && !n.underway }

// plan looks at all nodes that are to be reset, and changes nothing. Whatever is not ours, or not as it was said to be,
// keeps all of them from being reset.
func (r *resetter) plan(ctx context.Context) ([]nodeReset, error) {
	planned := fanout.Collect(ctx, observe.Limit, r.Nodes(), r.planNode, func(node *inventory.Node, err error) nodeReset {
		return nodeReset{seen: observe.Unobserved(node, err), refusal: r.unexpected(node, err)}
	})

	if ctx.Err() != nil {
		return nil, interrupted(ctx, r.step.Name())
	}

	var refusals []*diagnosis.Problem
	for _, node := range planned {
		if node.refusal != nil {
			refusals = append(refusals, node.refusal)
		}
	}

	return planned, joined(refusals)
}

func (r *resetter) planNode(ctx context.Context, node *inventory.Node) nodeReset {
	seen := r.lookAt(ctx, node)
	planned := nodeReset{seen: seen}

	switch {
	case seen.NotOurs():
		planned.refusal = r.notOurs(seen)
	case seen.FailedForGood():
		planned.refusal = r.readFailure(seen)
	case seen.State == talos.Maintenance:
		planned.idle, planned.kept = "in maintenance already", r.keptInMaintenance(ctx, seen)
	case r.runsAnotherRole(seen):
		planned.refusal = r.swapped(seen)
	case r.inAnotherRole(seen):
		planned.refusal = r.about(seen, diagnosis.NewProblem(diagnosis.ConfigRole,
			fmt.Sprintf("it is declared as %s, and runs as %s: what its reset means for etcd can't be judged",
				seen.Node.Role, seen.Config.Role()),
			"declare it as what it is, or reset all of the cluster with -cluster="+r.Cluster.Name))
	case seen.Silent():
		planned.problem = r.problem(seen, diagnosis.NotReset, "it does not answer, and keeps what it has: "+
			talos.Explain(seen.Err), "switch it on, or "+r.elsewhere(node)+"; then "+r.command(node))
	case leaving(seen):
		planned.underway = true
	default:
		r.planWipe(ctx, &planned)
	}

	return planned
}

// keptInMaintenance names the disks that were to be wiped and are not: no node in maintenance can be reset.
func (r *resetter) keptInMaintenance(ctx context.Context, seen observe.Observation) string {
	if !r.Settings.SystemDisk && len(r.Settings.Disks) == 0 {
		return ""
	}

	disks, err := r.readDisks(ctx, seen)
	if err != nil {
		return "its disks"
	}

	var kept []string
	if r.Settings.SystemDisk && disks.system != "" {
		kept = append(kept, disks.system)
	}

	for _, disk := range r.Settings.Disks {
		if found := disks.content(disk); found != "" {
			kept = append(kept, disk+found)
		}
	}

	return strings.Join(kept, ", ")
}

// runsAnotherRole reports whether a machine is a control plane though it is declared a worker, or the other way round:
// what its reset means for etcd would be judged of the wrong node.
func (r *resetter) runsAnotherRole(seen observe.Observation) bool {
	if seen.Relation != observe.ConfigSwapped || r.Settings.OfCluster != "" {
		return false
	}

	owner := r.Cluster.Node(seen.Owner)

	return owner == nil || owner.Role != seen.Node.Role
}

// inAnotherRole is runsAnotherRole for a machine that runs its own node's config, whose role the files have changed.
func (r *resetter) inAnotherRole(seen observe.Observation) bool {
	return r.Settings.OfCluster == "" && seen.State == talos.Ours && seen.Config != nil &&
		seen.Config.Role().IsControlPlane() != (seen.Node.Role == inventory.ControlPlane)
}

// lookAt observes a node. One that is silent may be on its way back, as from a reset that an interrupted run asked for:
// that is waited for as long as a closed port shows that something is there.
func (r *resetter) lookAt(ctx context.Context, node *inventory.Node) (seen observe.Observation) {
	since := r.Clock.Now()

	_ = r.waiter().Until(ctx, func(ctx context.Context) wait.State {
		seen = r.observer.Observe(ctx, node)
		if (seen.Silent() || seen.Wrong != nil) && r.follow(ctx, seen) {
			seen = r.observer.Observe(ctx, node)
		}

		limit := reachable(r.Settings)
		if seen.Silence == talos.Refused {
			limit = r.Settings.VerificationTimeout
		}

		return wait.State{
			Done: !seen.Silent() || r.Settings.DryRun, Asked: seen.Asked, Node: node.Name, Silent: true, Pause: redialLast,
			Limit:  wait.Limit{For: "until it answers", Since: since, Limit: limit},
			TimeUp: func(time.Duration) *diagnosis.Problem { return nil }, // its silence is reported
		}
	})

	return seen
}

// leaving reports whether a node is on its way into a reboot.
func leaving(seen observe.Observation) bool {
	return slices.Contains([]string{talos.StageResetting, talos.StageRebooting, talos.StageShutdown}, seen.Stage())
}

// planWipe reads what is on the node's disks.
func (r *resetter) planWipe(ctx context.Context, planned *nodeReset) {
	disks, err := r.readDisks(ctx, planned.seen)
	if err != nil {
		planned.refusal = r.problem(planned.seen, diagnosis.ResetFailed,
			"what is on its disks can't be read: "+talos.Explain(err), r.command(planned.seen.Node)).From(err)

		return
	}

	planned.request.Disks = r.Settings.Disks
	for _, device := range r.Settings.Disks {
		if fault := disks.fault(device); fault != "" {
			planned.refusal = r.about(planned.seen, diagnosis.NewProblem(diagnosis.DiskNotWipeable,
				fmt.Sprintf("-disk names %s, which %s", device, fault), "correct -disk"))

			return
		}
	}

	if !r.Settings.SystemDisk {
		planned.request.Partitions = disks.ownLabels()
	}

	if len(planned.request.Partitions) == 0 && !r.Settings.SystemDisk || disks.system == "" {
		planned.refusal = r.problem(planned.seen, diagnosis.ResetFailed,
			"Talos is not on any of its disks yet: there is nothing to wipe",
			"wait until it is installed (mage status), or turn it off and on, and it is in maintenance again")

		return
	}

	planned.losses = disks.losses(planned.request)
}

// nodeDisks are a node's disks, and what is on them.
type nodeDisks struct {
	// system is the one that Talos is on; empty before an install.
	system     string
	all        []*block.Disk
	partitions []talos.Partition
	volumes    []talos.Volume
}

func (r *resetter) readDisks(ctx context.Context, seen observe.Observation) (nodeDisks, error) {
	var disks nodeDisks

	conn, err := r.observer.Dialer().Open(ctx, seen.Probed)
	if err != nil {
		return disks, err //nolint:wrapcheck // its class is the caller's to judge
	}
	defer conn.Close()

	if disks.system, _, err = conn.SystemDisk(ctx); err != nil {
		return disks, err //nolint:wrapcheck // as above
	}

	if disks.partitions, err = conn.Partitions(ctx); err != nil {
		return disks, err //nolint:wrapcheck // as above
	}

	if disks.all, err = conn.Disks(ctx); err != nil {
		return disks, err //nolint:wrapcheck // as above
	}

	disks.volumes, err = conn.DiscoveredVolumes(ctx)

	return disks, err //nolint:wrapcheck // as above
}

// ownLabels are the partitions that are wiped, by label.
func (d nodeDisks) ownLabels() []string {
	var labels []string
	for _, label := range wiped {
		if slices.ContainsFunc(d.partitions, func(found talos.Partition) bool { return found.Label == label }) {
			labels = append(labels, label)
		}
	}

	return labels
}

// fault says why a disk can't be wiped besides; empty if it can.
func (d nodeDisks) fault(device string) string {
	if device == d.system {
		return "Talos is on: -systemDisk wipes that"
	}

	var others []string
	for _, disk := range d.all {
		spec := disk.TypedSpec()
		switch {
		case spec.DevPath == device && spec.Readonly:
			return "can't be written to"
		case spec.DevPath == device:
			return ""
		case spec.DevPath != d.system && !spec.Readonly:
			others = append(others, spec.DevPath)
		}
	}

	return "it does not have; its other disks are " + text.List(others)
}

// losses say what is wiped.
func (d nodeDisks) losses(request talos.Reset) string {
	var parts []string
	if len(request.Partitions) == 0 {
		parts = append(parts, fmt.Sprintf("all of %s, with Talos and its boot loader%s", d.system, d.content(d.system)))
	} else {
		parts = append(parts, text.List(d.described(request.Partitions)))
	}

	for _, disk := range request.Disks {
		parts = append(parts, "all of "+disk+d.content(disk))
	}

	return strings.Join(parts, "; ")
}

// described are partitions with their sizes, and their disk where it is not Talos' own.
func (d nodeDisks) described(labels []string) []string {
	var words []string
	for _, partition := range d.partitions {
		if !slices.Contains(labels, partition.Label) {
			continue
		}

		words = append(words, fmt.Sprintf("%s (%s on %s)", partition.Label, sizeText(partition.Size), partition.Disk))
	}

	return words
}

// content names what was found on a disk.
func (d nodeDisks) content(disk string) string {
	var found []string
	for _, volume := range d.volumes {
		if volume.Disk == disk && !volume.Whole && volume.Label != "" {
			found = text.AppendNew(found, volume.Label)
		}
	}

	if len(found) == 0 {
		return ""
	}

	return " (" + strings.Join(found, ", ") + ")"
}
