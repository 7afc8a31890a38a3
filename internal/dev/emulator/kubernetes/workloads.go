package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is what a workload is.
type Kind int

// Kinds of workloads.
const (
	// Deployment has its pods replaced at once, on other nodes.
	Deployment Kind = iota
	// StatefulSet has a pod replaced, under the same name, once it has ended.
	StatefulSet
	// DaemonSet has a pod on every node.
	DaemonSet
	// Job is a pod that has done its work.
	Job
	// Bare pods have no owner: one that is evicted is gone.
	Bare
)

var kindNames = []string{"Deployment", "StatefulSet", "DaemonSet", "Job", "Pod"}

func (k Kind) String() string { return kindNames[k] }

// controllerGroups are the API groups of what controls pods.
var controllerGroups = map[string]string{"ReplicaSet": appsGroup, "StatefulSet": appsGroup, "Job": "batch/v1"}

// nameLabel is what Helm charts label their pods with.
const nameLabel = "app.kubernetes.io/name"

// appLabel is the label by which the pods of a workload, and its budget, are selected.
const appLabel = "k8s-app"

// Workload is what somebody runs on the cluster.
type Workload struct {
	// Namespace is where it is. Default "default".
	Namespace string
	// Name is the workload's. One called proxmox-cloud-controller-manager does what that does with nodes.
	Name string
	// Kind is what it is. Default deployment.
	Kind Kind
	// App is the label k8s-app of its pods, which budgets select. Default the name.
	App string
	// Replicas is how many pods there are. Default 1.
	Replicas int
	// Node is where its pods have to run, also if it is a control plane. Default any worker.
	Node string
	// EmptyDir gives its pods a volume that is lost with them.
	EmptyDir bool
	// Starting is how long a new pod takes until it is ready.
	Starting time.Duration
	// Ending is how long an evicted pod takes to end.
	Ending time.Duration
	// Budget is how many pods its PodDisruptionBudget wants to be left (minAvailable): with as many as there are no pod
	// can be evicted. Default 0: it has none.
	Budget int

	// Orphaned makes the pods of a daemonSet outlive it: nothing puts them back.
	Orphaned bool
}

func (w *Workload) app() string { return cmp.Or(w.App, w.Name) }

// image is what its pods run until somebody writes another one.
func (w *Workload) image(version string) string { return "registry.example/" + w.app() + ":" + version }

// key is the object's that it is written as.
func (w *Workload) key() objectKey { return objectKey{appsGroup, w.Kind.String(), w.Namespace, w.Name} }

// tolerates reports whether its pods run on control planes too, as the cluster's own do.
func (w *Workload) tolerates() bool { return w.Namespace == kubeSystem }

// controller is what its pods name as their owner; nothing for bare pods.
func (w *Workload) controller() (kind, name string) {
	switch w.Kind {
	case Deployment:
		return "ReplicaSet", w.Name
	case StatefulSet, Job:
		return w.Kind.String(), w.Name
	default:
		return "", ""
	}
}

// coreDNS is the one workload of a fresh cluster that can run anywhere.
var coreDNS = Workload{Namespace: kubeSystem, Name: "coredns", App: "kube-dns", Replicas: 2}

// podState is a pod that the scheduler places.
type podState struct {
	work       *Workload
	n          int // of the replicas
	generation int // counts the replacements
	node       string
	created    time.Time
	placed     time.Time // when it came to its node
	ends       time.Time // zero unless it was evicted
	revision   uint64
}

// name is the pod's name: a StatefulSet keeps it, a Deployment has another one for each pod.
func (p podState) name() string {
	random := suffix(fmt.Sprintf("%d/%d", p.n, p.generation))

	switch p.work.Kind {
	case StatefulSet:
		return fmt.Sprintf("%s-%d", p.work.Name, p.n)
	case Bare:
		if p.n == 0 {
			return p.work.Name
		}

		return fmt.Sprintf("%s-%d", p.work.Name, p.n)
	default:
		return p.work.Name + "-" + random
	}
}

// same reports whether another state is of the same pod.
func (p podState) same(other podState) bool {
	return p.work == other.work && p.n == other.n && p.generation == other.generation
}

func (p podState) phase() corev1.PodPhase {
	switch {
	case p.node == "":
		return corev1.PodPending
	case p.work.Kind == Job:
		return corev1.PodSucceeded
	default:
		return corev1.PodRunning
	}
}

// Run starts a workload.
func (c *Cluster) Run(work Workload) {
	c.change(func(revision uint64) {
		work.Namespace = cmp.Or(work.Namespace, metav1.NamespaceDefault)
		work.Replicas = max(1, work.Replicas)
		c.work = append(c.work, &work)

		shown := !work.Orphaned && (work.Kind == Deployment || work.Kind == DaemonSet)
		if _, stored := c.objects[work.key()]; shown && !stored {
			c.store(workloadObject(work.Kind.String(), work.Namespace, work.Name, work.app(), work.image(c.version)), revision)
		}

		if work.Kind == DaemonSet {
			return // its pods follow from the nodes
		}

		for n := range work.Replicas {
			c.pods = append(c.pods, podState{work: &work, n: n, created: c.now(), revision: revision})
		}
	})
}

// works reports whether a node runs pods. Needs c.mu.
func (c *Cluster) works(name string) bool {
	node, known := c.nodes[name]

	return known && node.alive && c.networkReady
}

// settle ends the pods whose time has come, and places those that have no node that works. It reports whether anything
// changed. Needs c.mu.
func (c *Cluster) settle() bool {
	now, changed := c.passed(), false

	var replacements []podState

	c.pods = slices.DeleteFunc(c.pods, func(pod podState) bool {
		if !c.ended(pod, now) {
			return false
		}

		if pod.work.Kind == StatefulSet {
			replacements = append(replacements, pod.successor(c.now(), c.revision))
		}

		changed = true

		return true
	})

	c.pods = append(c.pods, replacements...)

	for i := range c.pods {
		pod := &c.pods[i]
		if pod.ends.IsZero() && c.moves(*pod) && c.place(pod, now) {
			changed = true
		}
	}

	return c.initializeNodes(now) || changed
}

// ended reports whether an evicted pod is gone: only a kubelet that lives can say so, but nobody waits for a node that
// was deleted.
func (c *Cluster) ended(pod podState, now time.Time) bool {
	node, known := c.nodes[pod.node]

	return !pod.ends.IsZero() && !now.Before(pod.ends) && (!known || node.alive)
}

// moves reports whether a pod looks for a node: one that has none, or whose owner replaces pods of nodes that are gone.
func (c *Cluster) moves(pod podState) bool {
	return pod.node == "" || pod.work.Kind == Deployment && !c.works(pod.node)
}

// place finds a node for a pod. Control planes are for those that tolerate them, or that have to run there.
func (c *Cluster) place(pod *podState, now time.Time) bool {
	var free []string

	for name, node := range c.nodes {
		fits := pod.work.Node == name || pod.work.Node == "" && (pod.work.tolerates() || !node.ControlPlane)

		if fits && c.works(name) && !node.cordoned && (pod.work.tolerates() || !node.repels()) {
			free = append(free, name)
		}
	}

	slices.Sort(free)

	node := ""
	if len(free) > 0 {
		node = free[pod.n%len(free)]
	}

	if node == pod.node {
		return false
	}

	pod.node, pod.placed, pod.revision = node, now, c.revision

	return true
}

func (p podState) successor(now time.Time, revision uint64) podState {
	return podState{work: p.work, n: p.n, generation: p.generation + 1, created: now, revision: revision}
}

// evict ends pods, and has what owns them make others.
func (c *Cluster) evict(which func(podState) bool) {
	c.change(func(revision uint64) {
		now := c.passed()

		for i := range c.pods {
			pod := &c.pods[i]
			if !pod.ends.IsZero() || !which(*pod) {
				continue
			}

			pod.ends, pod.revision = now.Add(pod.work.Ending), revision

			if pod.node == "" || pod.work.Kind == Job {
				pod.ends = now // nothing runs
			}

			if pod.work.Kind == Deployment {
				c.pods = append(c.pods, pod.successor(c.now(), revision))
			}
		}
	})
}

// isReady reports whether a pod answers.
func (s snapshot) isReady(pod podState) bool {
	i := slices.IndexFunc(s.nodes, func(node nodeState) bool { return node.Name == pod.node })

	return i >= 0 && s.nodes[i].alive && pod.phase() == corev1.PodRunning &&
		!s.passed.Before(pod.placed.Add(pod.work.Starting))
}
