package machine

import (
	"context"
	"slices"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
)

// Arrive notes a call that has just arrived, from a caller with these roles.
func (n *Node) Arrive(ctx context.Context, method string, request any, roles string) *faults.Call {
	call := faults.NewCall(ctx, method, request, roles)
	call.HadEtcd = n.ReadDrive().Etcd != nil

	arrived := n.Recorder.Add(call)

	if watch := n.Lab.options.Watch; watch != nil {
		watch(n, arrived)
	}

	return call
}

// TakeFault finds the fault for a call and counts it down.
func (n *Node) TakeFault(call *faults.Call, when faults.When) (faults.CallFault, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.faults.Take(call, when)
}

// Calls are all calls that the machine received since it was started, over all its boots, in order of arrival.
func (n *Node) Calls() []faults.Call { return n.Recorder.All() }

// MutatingCalls are those calls that change the machine when they succeed.
func (n *Node) MutatingCalls() []faults.Call {
	return slices.DeleteFunc(n.Calls(), func(call faults.Call) bool { return !call.Mutating })
}
