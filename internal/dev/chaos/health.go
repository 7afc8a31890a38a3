package chaos

import (
	"bytes"
	"fmt"
)

// unregistered is a healthy machine's reason for being no member of its cluster: only Kubernetes could tell of it.
const unregistered = "Kubernetes does not know it"

// unhealthy says by the machines' own records what a node lacks for being a healthy member of its cluster; empty for a
// node that lacks nothing.
func (w *world) unhealthy(name string) string {
	node := w.node(name)

	switch {
	case node.Stage() != "running":
		return "it is " + node.Stage()
	case !bytes.Equal(w.versionless(node.Config()), w.versionless(w.config(name))):
		return "it runs another config"
	case node.Address() != w.address(name):
		return fmt.Sprintf("it is at %s", node.Address())
	case w.plan.machine(name).ControlPlane && !node.EtcdVoter():
		return "it is no voter of an etcd with quorum"
	case !node.Registered():
		return unregistered
	case w.plan.OwnCNI && !node.Ready():
		return "it is not ready"
	default:
		return ""
	}
}

// unhealthyNodes are the reasons of all nodes, by name.
func (w *world) unhealthyNodes() map[string]string {
	found := map[string]string{}
	clusters := map[uint64]bool{}

	for _, planned := range w.plan.Machines {
		if w.isGone(planned.Name) {
			continue
		}

		if reason := w.unhealthy(planned.Name); reason != "" {
			found[planned.Name] = reason
		}

		if id := w.node(planned.Name).EtcdClusterID(); id != 0 {
			clusters[id] = true
		}
	}

	if len(clusters) > 1 {
		for _, name := range w.plan.ControlPlanes() {
			if found[name] == "" && !w.isGone(name) {
				found[name] = "its etcd is not that of all control planes"
			}
		}
	}

	return found
}
