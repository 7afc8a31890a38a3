// Package kubernetes is the emulated lab's Kubernetes: the state of one cluster, and API servers that show it over real
// TLS.
//
// It knows what a bring-up looks at: versions, health checks, nodes with their conditions, the cluster's own pods and
// what owns them, the endpoints of the API itself. All of it comes from what the emulated nodes report, and can only be
// read; but nodes can be cordoned and drained, as before a reboot, workloads with disruption budgets run on them, and
// what Talos applies at an upgrade of Kubernetes can be written.
package kubernetes

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Options describe a cluster.
type Options struct {
	// Version is the Kubernetes version of the API servers and kubelets, "v1.36.3"; by default the one that machinery
	// generates configs for.
	Version string
	// CNI is the machine configs' cluster.network.cni.name. With "none" nodes stay NotReady until InstallCNI.
	CNI string
	// NoProxy and NoDNS leave kube-proxy and CoreDNS out, as machine configs can.
	NoProxy, NoDNS bool
	// ProxyImage and DNSImage are what these two run; by default what Talos takes for them.
	ProxyImage, DNSImage string
	// Server is the API server's address for pods.
	Server string
	// Inventory has Talos keep a list of the objects that it made.
	Inventory bool
	// Now is the control planes' clock; nil for the real one.
	Now func() time.Time
	// Passed is the time by which pods start and end, which may pass faster than that of the clock; nil for the same.
	Passed func() time.Time
	// Workloads are what runs beside the cluster's own pods.
	Workloads []Workload
	// ConfigMaps are what somebody has put there.
	ConfigMaps []ConfigMap
	// Changed is called when somebody has cordoned a node, or taken that back; nil for nobody to tell.
	Changed func()
}

// Cluster is what etcd holds: one for each etcd cluster, shown by the API servers of all its control planes.
// Safe for concurrent use.
type Cluster struct {
	version string
	now     func() time.Time
	passed  func() time.Time
	told    func()
	created time.Time

	mu           sync.Mutex
	revision     uint64
	changed      chan struct{} // closed and replaced at each revision
	quorum       bool
	networkReady bool
	nodes        map[string]nodeState
	endpoints    map[*Server]netip.AddrPort
	endpointsRev uint64
	work         []*Workload
	pods         []podState // those that the scheduler places
	objects      map[objectKey]storedObject
	deprecated   []DeprecatedAPI
}

// StaticPod is one of a control plane's own pods.
type StaticPod struct {
	// Name is the component's, as in "kube-apiserver".
	Name, Image string
	// ConfigVersion is that of the resource which Talos made the pod from.
	ConfigVersion string
}

// components are what runs in static pods.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Node is a kubelet as it registers itself.
type Node struct {
	// Name is the node's host name.
	Name string
	// Address is its InternalIP.
	Address netip.Addr
	// ControlPlane nodes are labelled and tainted so, and run the control plane's static pods.
	ControlPlane bool
	// TalosVersion is shown as the operating system: "v1.13.9".
	TalosVersion string
	// KubeletVersion is by default the cluster's first version.
	KubeletVersion string
	// Declared is what its Talos keeps on its object.
	Declared Declared
	// RegistersTaints has kubelet bring the declared taints along when it makes the node, as since Talos 1.14.
	RegistersTaints bool
	// CloudProvider leaves the node to a cloud controller manager.
	CloudProvider bool
	// StaticPods are those that run on a control plane: by default all, in the cluster's first version. None of them means
	// that kubelet has not looked at them yet.
	StaticPods []StaticPod
}

// nodeState is what the cluster keeps of a registered node.
type nodeState struct {
	Node

	uid     types.UID
	index   int // in order of registration; makes the pod network
	created time.Time
	alive   bool
	since   time.Time // of the last change of the Ready condition
	// cordoned nodes get no new pods; annotations tell whose doing that was.
	cordoned            bool
	labels, annotations map[string]string
	taints              []corev1.Taint
	// ownedLabels and ownedAnnotations are those that its Talos has set.
	ownedLabels, ownedAnnotations []string
	// uninitialized nodes wait for a cloud controller manager, which gives them their providerID.
	uninitialized bool
	providerID    string
	// held nodes have pods that their budgets let nobody evict.
	held     bool
	revision uint64
}

// NewCluster makes an empty cluster that has quorum: nothing is registered and no API server runs.
func NewCluster(options Options) *Cluster {
	if options.Version == "" {
		options.Version = "v" + constants.DefaultKubernetesVersion
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	if options.Passed == nil {
		options.Passed = options.Now
	}

	if options.Changed == nil {
		options.Changed = func() {}
	}

	cluster := &Cluster{
		version:      options.Version,
		now:          options.Now,
		passed:       options.Passed,
		told:         options.Changed,
		created:      options.Now(),
		revision:     1,
		changed:      make(chan struct{}),
		quorum:       true,
		networkReady: options.CNI != constants.NoneCNI,
		nodes:        map[string]nodeState{},
		endpoints:    map[*Server]netip.AddrPort{},
		endpointsRev: 1,
		objects:      map[objectKey]storedObject{},
	}

	cluster.bootstrapObjects(Manifests(options.manifestOptions()), options.Inventory)

	if !options.NoDNS {
		cluster.Run(coreDNS)
	}

	for _, work := range options.Workloads {
		cluster.Run(work)
	}

	for _, held := range options.ConfigMaps {
		cluster.store(held.object(), 1)
	}

	return cluster
}

// Register makes the node appear, or brings it up to date after a reboot: its kubelet runs and posts status.
func (c *Cluster) Register(node Node) {
	c.change(func(revision uint64) {
		state, known := c.nodes[node.Name]
		if !known {
			state.uid = uuid.NewUUID()
			state.index = len(c.nodes)
			state.created = c.now()
			state.begin(node)
		}

		if !known || !state.alive {
			state.since = c.now()
		}

		node.KubeletVersion = cmp.Or(node.KubeletVersion, c.version)

		switch {
		case node.ControlPlane && node.StaticPods == nil:
			node.StaticPods = defaultPods(c.version)
		case len(node.StaticPods) == 0:
			node.StaticPods = state.StaticPods
		}

		state.Node, state.alive, state.revision = node, true, revision
		state.keepDeclared()
		c.nodes[node.Name] = state
	})
}

// begin makes the node as its kubelet does when it is not there yet.
func (n *nodeState) begin(node Node) {
	n.labels = map[string]string{corev1.LabelHostname: node.Name, corev1.LabelOSStable: "linux",
		corev1.LabelArchStable: "amd64"}
	n.uninitialized = node.CloudProvider

	if node.RegistersTaints {
		n.taints = node.Declared.taints()
	}
}

// repels reports whether the node takes only pods that say that they bear it.
func (n *nodeState) repels() bool {
	return n.uninitialized || slices.ContainsFunc(n.taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule
	})
}

func defaultPods(version string) []StaticPod {
	var pods []StaticPod
	for _, component := range components {
		pods = append(pods, StaticPod{component, "registry.k8s.io/" + component + ":" + version, "1"})
	}

	return pods
}

// Silence is a kubelet that stopped posting status: its node becomes NotReady with status Unknown until it registers
// again.
func (c *Cluster) Silence(name string) {
	c.change(func(revision uint64) {
		if state, ok := c.nodes[name]; ok && state.alive {
			state.alive, state.since, state.revision = false, c.now(), revision
			c.nodes[name] = state
		}
	})
}

// Drain is a node that leaves service for a while: its Talos cordons it, marks that as its own, and evicts the pods
// that something would replace, within their budgets. It reports whether they are gone.
func (c *Cluster) Drain(name string) bool {
	c.changeNode(name, func(node *nodeState) bool {
		if node.cordoned {
			return false
		}

		node.cordoned = true
		node.annotate(constants.AnnotationCordonedKey, constants.AnnotationCordonedValue)

		return true
	})

	for _, pod := range c.ownedOn(name) {
		if c.snapshot().refuses(pod) == nil {
			c.evict(pod.same)
		}
	}

	return len(c.ownedOn(name)) == 0
}

// ownedOn are the pods of a node that something would replace.
func (c *Cluster) ownedOn(node string) []podState {
	return slices.DeleteFunc(c.snapshot().pods, func(pod podState) bool {
		owner, _ := pod.work.controller()

		return pod.node != node || owner == ""
	})
}

// Restore is a node whose Talos is back: it takes back its own cordon, and nobody else's.
func (c *Cluster) Restore(name string) {
	c.changeNode(name, func(node *nodeState) bool {
		if _, own := node.annotations[constants.AnnotationCordonedKey]; !own {
			return false
		}

		node.cordoned = false
		node.annotate(constants.AnnotationCordonedKey, "")

		return true
	})
}

// Cordon is an administrator who keeps new pods off a node, or lets them on it again.
func (c *Cluster) Cordon(name string, cordoned bool) {
	c.changeNode(name, func(node *nodeState) bool {
		changes := node.cordoned != cordoned
		node.cordoned = cordoned

		return changes
	})
}

// Hold has the budgets of what runs on a node let nobody evict its pods, or takes that back.
func (c *Cluster) Hold(name string, held bool) {
	c.mu.Lock()
	same := c.nodes[name].held == held
	c.mu.Unlock()

	if same {
		return // whoever is told of a change looks again
	}

	c.changeNode(name, func(node *nodeState) bool {
		node.held = held

		return true
	})
}

// Cordoned reports whether a node takes no new pods.
func (c *Cluster) Cordoned(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.nodes[name].cordoned
}

// Cordons are the nodes that take no new pods, each with its annotations.
func (c *Cluster) Cordons() map[string]map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()

	cordons := map[string]map[string]string{}

	for name, node := range c.nodes {
		if node.cordoned {
			cordons[name] = maps.Clone(node.annotations)
		}
	}

	return cordons
}

// annotate sets an annotation; an empty value takes it away.
func (n *nodeState) annotate(key, value string) {
	changed := maps.Clone(n.annotations)
	if changed == nil {
		changed = map[string]string{}
	}

	if changed[key] = value; value == "" {
		delete(changed, key)
	}

	n.annotations = changed
}

// changeNode changes a node that is registered; update reports whether it did.
func (c *Cluster) changeNode(name string, update func(*nodeState) bool) {
	c.change(func(revision uint64) {
		if state, ok := c.nodes[name]; ok && update(&state) {
			state.revision = revision
			c.nodes[name] = state
		}
	})
	c.told()
}

// Remove deletes the node, as an administrator does after a reset.
func (c *Cluster) Remove(name string) {
	c.change(func(uint64) { delete(c.nodes, name) })
}

// InstallCNI gives the nodes their network: what the user does after a bring-up with CNI "none".
func (c *Cluster) InstallCNI() {
	c.change(func(revision uint64) {
		if c.networkReady {
			return
		}

		c.networkReady = true

		for name, state := range c.nodes {
			state.since, state.revision = c.now(), revision
			c.nodes[name] = state
		}
	})
}

// Available says whether etcd has quorum. Without it the API servers answer that they are not ready, and give no
// objects.
func (c *Cluster) Available(quorum bool) {
	c.change(func(uint64) { c.quorum = quorum })
}

// Nodes are the names of the registered nodes, sorted.
func (c *Cluster) Nodes() []string {
	return names(c.snapshot().nodes)
}

// change applies one update as one revision and wakes the watches.
func (c *Cluster) change(update func(revision uint64)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.revision++
	update(c.revision)
	c.settle()
	c.wake()
}

// wake tells the watches that something changed. Needs c.mu.
func (c *Cluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// imagine is change for what nobody is to see.
func (c *Cluster) imagine(update func(revision uint64)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	update(c.revision)
}

// advertise adds an API server's address to the endpoints of the service "kubernetes"; the zero address takes it out.
func (c *Cluster) advertise(server *Server, address netip.AddrPort) {
	c.change(func(revision uint64) {
		if address.IsValid() {
			c.endpoints[server] = address
		} else {
			delete(c.endpoints, server)
		}

		c.endpointsRev = revision
	})
}

// snapshot is the cluster's state at one revision.
type snapshot struct {
	version      string
	now, created time.Time
	passed       time.Time
	revision     uint64
	quorum       bool
	networkReady bool
	nodes        []nodeState
	endpoints    []netip.AddrPort
	endpointsRev uint64
	work         []*Workload
	pods         []podState
	objects      map[objectKey]storedObject
	deprecated   []DeprecatedAPI
	// changed is closed when the snapshot is out of date.
	changed <-chan struct{}
}

func (c *Cluster) snapshot() snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Pods end as time passes. A watch learns of it when somebody looks, or something else changes.
	c.revision++
	if c.settle() {
		c.wake()
	} else {
		c.revision--
	}

	return c.look()
}

// look is the snapshot of now. Needs c.mu.
func (c *Cluster) look() snapshot {
	state := snapshot{
		version: c.version, now: c.now(), passed: c.passed(), created: c.created,
		revision: c.revision, quorum: c.quorum, networkReady: c.networkReady, endpointsRev: c.endpointsRev,
		changed: c.changed,
		work:    slices.Clone(c.work), pods: slices.Clone(c.pods),
		objects: maps.Clone(c.objects), deprecated: c.deprecated,
	}

	for _, node := range c.nodes {
		state.nodes = append(state.nodes, node)
	}

	slices.SortFunc(state.nodes, func(a, b nodeState) int { return strings.Compare(a.Name, b.Name) })

	for _, endpoint := range c.endpoints {
		state.endpoints = append(state.endpoints, endpoint)
	}

	slices.SortFunc(state.endpoints, netip.AddrPort.Compare)

	return state
}

func names(nodes []nodeState) []string {
	list := make([]string, 0, len(nodes))
	for _, node := range nodes {
		list = append(list, node.Name)
	}

	return list
}
