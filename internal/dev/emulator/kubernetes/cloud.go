package kubernetes

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// proxmoxCCM is the workload that stands for Proxmox' cloud controller manager: a lab that runs one has it played.
// Source: github.com/sergelogvinov/proxmox-cloud-controller-manager, and kubernetes
// staging/src/k8s.io/cloud-provider/controllers/node.
const proxmoxCCM = "proxmox-cloud-controller-manager"

// taintUninitialized is on a node from its kubelet's start until a cloud controller manager knows it.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// initializeNodes is what a cloud controller manager does, once it is ready: it tells nodes what they are, and lets
// pods on them. It reports whether it did anything. Needs c.mu.
func (c *Cluster) initializeNodes(now time.Time) bool {
	if !c.runsCloudController(now) {
		return false
	}

	changed := false

	for name, node := range c.nodes {
		if !node.uninitialized || !node.alive {
			continue
		}

		node.uninitialized, node.providerID = false, fmt.Sprintf("proxmox://lab/%d", 100+node.index) //nolint:mnd // Proxmox counts from there
		node.labels = maps.Clone(node.labels)

		for label, value := range map[string]string{
			corev1.LabelTopologyRegion: "lab", corev1.LabelTopologyZone: "pve", corev1.LabelInstanceTypeStable: "4VCPU-8GB",
		} {
			if _, set := node.labels[label]; !set {
				node.labels[label] = value
			}
		}

		node.revision = c.revision
		c.nodes[name] = node
		changed = true
	}

	return changed
}

func (c *Cluster) runsCloudController(now time.Time) bool {
	for _, pod := range c.pods {
		if pod.work.Name == proxmoxCCM && c.works(pod.node) && !now.Before(pod.placed.Add(pod.work.Starting)) {
			return true
		}
	}

	return false
}
