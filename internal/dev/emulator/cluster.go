package emulator

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/trustd"
)

// kubeletRetry is how long a kubelet waits between two attempts to register its node, in node time.
const kubeletRetry = time.Second

// membership is what a node knows of the others of its cluster.
type membership struct{ boot *boot }

// controlPlaneEndpoints are where the node looks for control planes: the host of the cluster endpoint, what discovery
// tells, and, once its kubelet has reached the API, Kubernetes' EndpointSlices.
func (m *membership) controlPlaneEndpoints() []netip.Addr {
	config := m.boot.config.active()
	if config == nil {
		return nil
	}

	var endpoints []netip.Addr

	if address, err := netip.ParseAddr(config.Cluster().Endpoint().Hostname()); err == nil {
		endpoints = append(endpoints, address)
	}

	for _, other := range m.knownNodes() {
		if other != m.boot && other.config.role().IsControlPlane() {
			endpoints = append(endpoints, other.node.Address())
		}
	}

	return endpoints
}

// knownNodes are the nodes that this one has heard of by another way than the cluster endpoint.
func (m *membership) knownNodes() []*boot {
	if m.boot.node.lab.options.Discovery {
		return slices.DeleteFunc(m.boot.node.lab.running(),
			func(other *boot) bool { return other.members.clusterID() != m.clusterID() })
	}

	m.boot.mu.Lock()
	registered := m.boot.kubelet.registered
	m.boot.mu.Unlock()

	if registered == nil {
		return nil
	}

	return m.boot.node.lab.serving(registered)
}

// errNoEndpoints is why nothing can be asked of the cluster's etcd.
var errNoEndpoints = errors.New("no controlplane endpoints discovered yet")

// knowsControlPlanes reports whether the node knows of any place where etcd may be: itself, if it serves Kubernetes, or
// others.
func (m *membership) knowsControlPlanes() bool {
	return m.boot.controlPlane.serves() || len(m.controlPlaneEndpoints()) > 0
}

// running are the boots of all machines that are on.
func (l *Lab) running() []*boot {
	var boots []*boot

	for _, node := range l.Nodes() {
		node.mu.Lock()
		if node.boot != nil {
			boots = append(boots, node.boot)
		}
		node.mu.Unlock()
	}

	return boots
}

func (m *membership) clusterID() string {
	config := m.boot.config.active()
	if config == nil {
		return ""
	}

	return config.Cluster().ID()
}

// controlPlane is what a control plane runs besides etcd: trustd, the static pods of Kubernetes, and virtual addresses.
type controlPlane struct {
	boot *boot

	pods podPhase // guarded by boot.mu
}

// VIPs are the virtual addresses that the node takes part in.
func (c *controlPlane) vips() []netip.Addr {
	config := c.boot.config.active()
	if config == nil {
		return nil
	}

	var vips []netip.Addr

	for _, document := range config.NetworkVirtualIPConfigs() {
		vips = append(vips, document.VIP())
	}

	for _, device := range config.Machine().Network().Devices() {
		if device.VIPConfig() == nil {
			continue
		}

		if address, err := netip.ParseAddr(device.VIPConfig().IP()); err == nil {
			vips = append(vips, address)
		}
	}

	return vips
}

// claimVIPs takes the virtual addresses that nobody holds, as long as this node's etcd works, and gives them up when it
// does not.
func (c *controlPlane) claimVIPs(member *etcdMember) {
	if !c.boot.etcd.healthy(member) {
		c.releaseVIPs()

		return
	}

	lab := c.boot.node.lab

	for _, vip := range c.vips() {
		lab.mu.Lock()
		holder := lab.holders[vip]

		if holder == nil {
			lab.holders[vip] = c.boot
		}
		lab.mu.Unlock()

		if holder == nil {
			c.boot.node.nic.AddAddress(vip)
			lab.changed.Raise()
		}
	}
}

func (c *controlPlane) releaseVIPs() {
	lab := c.boot.node.lab

	var held []netip.Addr

	lab.mu.Lock()
	for vip, holder := range lab.holders {
		if holder == c.boot {
			held = append(held, vip)
		}
	}
	lab.mu.Unlock()

	for _, vip := range held {
		c.boot.node.nic.RemoveAddress(vip)

		lab.mu.Lock()
		delete(lab.holders, vip)
		lab.mu.Unlock()
	}

	if len(held) > 0 {
		lab.changed.Raise()
	}
}

// runTrustd serves trustd as long as the services of the boot run and no fault keeps it down.
func (c *controlPlane) runTrustd(ctx context.Context) {
	c.boot.services.set(serviceTrustd, stateStarting, "Starting service")
	c.boot.services.set(serviceTrustd, stateWaiting, `Waiting for service "containerd" to be "up", time sync, network`)

	if c.boot.changed.Until(ctx, func() bool { return c.boot.synced() && c.boot.config.hostname() != "" }) != nil {
		return
	}

	for ctx.Err() == nil {
		down := func() bool { return c.boot.node.Faults().TrustdDown }

		if c.boot.node.changed.Until(ctx, func() bool { return !down() }) != nil {
			return
		}

		server, err := c.openTrustd()
		if err != nil {
			c.boot.services.set(serviceTrustd, stateFailed, err.Error())

			return
		}

		c.boot.services.set(serviceTrustd, statePreparing, "Running pre state")
		c.boot.services.set(serviceTrustd, statePreparing, "Creating service runner")
		c.boot.services.set(serviceTrustd, stateRunning, c.boot.services.startedMessage(serviceTrustd))
		c.boot.services.setHealth(serviceTrustd, true, "")

		c.boot.node.changed.Until(ctx, down) //nolint:errcheck // either way it closes now
		c.boot.node.nic.Abandon(TrustdPort)
		server.Close()

		if ctx.Err() == nil {
			c.boot.services.set(serviceTrustd, stateFailed, "task \"trustd\" failed: exit code 1")
		}
	}
}

func (c *controlPlane) openTrustd() (*trustd.Server, error) {
	security := c.boot.config.settings().Machine().Security()

	listener, err := c.boot.node.nic.Listen(TrustdPort)
	if err != nil {
		return nil, err
	}

	return trustd.Serve(listener, trustd.ServerOptions{
		IssuingCA: security.IssuingCA(),
		Token:     security.Token(),
		Addresses: append(c.boot.certificates.addresses(), c.endpointAddresses()...),
		Names:     append([]string{c.boot.config.hostname()}, security.CertSANs()...),
		Now:       c.boot.wallNow,
	})
}

// endpointAddresses are the addresses of the cluster endpoint and of the virtual ones, by their declared and their real
// names.
func (c *controlPlane) endpointAddresses() []netip.Addr {
	addresses := c.vips()

	if address, err := netip.ParseAddr(c.boot.config.settings().Cluster().Endpoint().Hostname()); err == nil {
		addresses = append(addresses, address)
	}

	for _, address := range slices.Clone(addresses) {
		if at, known := c.boot.node.lab.network.Socket(netip.AddrPortFrom(address, APIPort)); known && at.Addr() != address {
			addresses = append(addresses, at.Addr())
		}
	}

	return addresses
}

func (c *controlPlane) options() kubernetes.Options {
	config := c.boot.config.settings()
	version := ""

	if image := config.Machine().Kubelet().Image(); strings.Contains(image, ":") {
		version = image[strings.LastIndexByte(image, ':')+1:]
	}

	return kubernetes.Options{Version: version, CNI: config.Cluster().Network().CNI().Name(), Now: c.boot.wallNow,
		NoProxy: !config.Cluster().Proxy().Enabled(), NoDNS: !config.Cluster().CoreDNS().Enabled(),
		Changed: c.boot.node.lab.changed.Raise,
	}
}

// run serves the Kubernetes API while the node's etcd runs.
func (c *controlPlane) run(ctx context.Context, cluster *etcdCluster) {
	if c.boot.changed.Until(ctx, c.boot.etcd.passedCheck) != nil || c.startStaticPods(ctx) != nil {
		return
	}

	for ctx.Err() == nil {
		down := func() bool { return c.boot.node.Faults().KubernetesDown }

		if c.boot.node.changed.Until(ctx, func() bool { return !down() }) != nil {
			return
		}

		server, err := c.open(cluster)
		if err != nil {
			c.boot.log("kube-apiserver failed: %s", err)

			return
		}

		c.setServing(cluster)
		c.boot.node.changed.Until(ctx, down) //nolint:errcheck // either way it closes now
		c.setServing(nil)
		c.boot.node.nic.Abandon(KubernetesPort)
		server.Close()
	}
}

func (c *controlPlane) open(cluster *etcdCluster) (*kubernetes.Server, error) {
	config := c.boot.config.settings().Cluster()

	listener, err := c.boot.node.nic.Listen(KubernetesPort)
	if err != nil {
		return nil, err
	}

	pems := [][]byte{config.IssuingCA().Crt}
	for _, ca := range config.AcceptedCAs() {
		pems = append(pems, ca.Crt)
	}

	return cluster.kube.Serve(listener, kubernetes.ServerOptions{
		IssuingCA:   config.IssuingCA(),
		AcceptedCAs: bytes.Join(pems, []byte("\n")),
		Addresses:   append(c.boot.certificates.addresses(), c.endpointAddresses()...),
		Names:       append([]string{c.boot.config.hostname(), config.Endpoint().Hostname()}, config.CertSANs()...),
		Advertise:   c.boot.node.Address(),
	})
}

// setServing notes whose API the node serves; nil for none.
func (c *controlPlane) setServing(cluster *etcdCluster) {
	lab := c.boot.node.lab

	lab.mu.Lock()
	if cluster == nil {
		delete(lab.kubernetes, c.boot)
	} else {
		lab.kubernetes[c.boot] = cluster
	}
	lab.mu.Unlock()

	c.showStaticPods()
	lab.changed.Raise()
	c.boot.status.refresh()
}

// serves reports whether the node's kube-apiserver answers.
func (c *controlPlane) serves() bool {
	c.boot.node.lab.mu.Lock()
	defer c.boot.node.lab.mu.Unlock()

	return c.boot.node.lab.kubernetes[c.boot] != nil
}

// serving are the nodes that serve a cluster's Kubernetes API; nil stands for any cluster.
func (l *Lab) serving(cluster *etcdCluster) []*boot {
	l.mu.Lock()
	defer l.mu.Unlock()

	var serving []*boot

	for b, served := range l.kubernetes {
		if cluster == nil || served == cluster {
			serving = append(serving, b)
		}
	}

	slices.SortFunc(serving, func(a, b *boot) int { return a.node.options.Address.Compare(b.node.options.Address) })

	return serving
}

// kubernetesAt is the cluster whose API answers at an address; nil if none does.
func (l *Lab) kubernetesAt(address netip.Addr) *etcdCluster {
	for _, b := range l.serving(nil) {
		if b.node.Faults().Silence || !l.leads(address, KubernetesPort, b) {
			continue
		}

		l.mu.Lock()
		cluster := l.kubernetes[b]
		l.mu.Unlock()

		if cluster != nil {
			return cluster
		}
	}

	return nil
}

// join registers the node once the cluster's API answers at the endpoint, and follows what becomes of it.
func (k *kubelet) join(ctx context.Context) {
	var cluster *etcdCluster

	for cluster == nil {
		for _, endpoint := range k.endpoints() {
			if cluster = k.boot.node.lab.kubernetesAt(endpoint); cluster != nil {
				break
			}
		}

		if cluster == nil && k.boot.sleep(ctx, kubeletRetry) != nil {
			return
		}
	}

	k.boot.mu.Lock()
	k.registered = cluster
	k.boot.mu.Unlock()

	k.postStatus(cluster)
	k.boot.node.editDrive(func(d *drive) { d.registered = true })
	cluster.kube.Restore(k.boot.config.hostname())
	k.boot.node.lab.changed.Raise()

	for {
		changed := k.boot.node.lab.changed.Wait()

		k.boot.resources.showNodeStatus()
		k.boot.status.refresh()

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// postStatus is a kubelet that makes its node, or tells that it lives.
func (k *kubelet) postStatus(cluster *etcdCluster) {
	cluster.kube.Register(kubernetes.Node{
		Name:         k.boot.config.hostname(),
		Address:      k.boot.node.Address(),
		ControlPlane: k.boot.config.role() != machine.TypeWorker,
		TalosVersion: k.boot.version,
	})
}

// endpoints are where the node's kubelet looks for the API: the endpoint, and on a control plane its own.
func (k *kubelet) endpoints() []netip.Addr {
	var endpoints []netip.Addr

	if k.boot.config.role().IsControlPlane() {
		endpoints = append(endpoints, k.boot.node.Address())
	}

	if address, err := netip.ParseAddr(k.boot.config.settings().Cluster().Endpoint().Hostname()); err == nil {
		endpoints = append(endpoints, address)
	}

	return endpoints
}

func (k *kubelet) leave() {
	k.boot.mu.Lock()
	cluster := k.registered
	k.registered = nil
	k.boot.mu.Unlock()

	if cluster == nil {
		return
	}

	name := k.boot.config.hostname()
	cluster.kube.Silence(name)

	// A kubelet posts its status every few seconds, also one whose node another machine of the same name had taken.
	for _, other := range k.boot.node.lab.running() {
		if other != k.boot && other.config.hostname() == name && other.kubelet.registeredWith(cluster) {
			other.kubelet.postStatus(cluster)
		}
	}
}

func (k *kubelet) registeredWith(cluster *etcdCluster) bool {
	k.boot.mu.Lock()
	defer k.boot.mu.Unlock()

	return k.registered == cluster
}

// nodeReady reports whether the node's Kubernetes object exists, and is Ready.
func (k *kubelet) nodeReady() (known, ready bool) {
	k.boot.mu.Lock()
	cluster := k.registered
	k.boot.mu.Unlock()

	if cluster == nil {
		return false, false
	}

	k.boot.node.lab.mu.Lock()
	defer k.boot.node.lab.mu.Unlock()

	return true, cluster.network
}

// cordoned reports whether the node's Kubernetes object takes no new pods.
func (k *kubelet) cordoned() bool {
	k.boot.mu.Lock()
	cluster := k.registered
	k.boot.mu.Unlock()

	return cluster != nil && cluster.kube.Cordoned(k.boot.config.hostname())
}

// nodeProblem is the reason of the unmet condition "nodeReady"; empty when there is none.
func (k *kubelet) nodeProblem() string {
	name := k.boot.config.hostname()
	if name == "" || !k.registers() {
		return "" // without a node name nothing is asked for
	}

	known, ready := k.nodeReady()

	switch {
	case !known:
		return `node "` + name + `" status is not available yet`
	case !ready:
		return `node "` + name + `" is not ready`
	default:
		return ""
	}
}

func (e *etcdService) passedCheck() bool {
	e.boot.mu.Lock()
	defer e.boot.mu.Unlock()

	svc := e.boot.services.byID[serviceEtcd]

	return svc != nil && svc.state == stateRunning && svc.checked && svc.healthy
}

// InstallCNI gives every Kubernetes cluster of the lab a CNI, as a user does after a bring-up with CNI "none".
func (l *Lab) InstallCNI() {
	l.mu.Lock()
	for _, cluster := range l.clusters {
		cluster.network = true
		cluster.kube.InstallCNI()
	}
	l.mu.Unlock()

	l.changed.Raise()
}

// clusterNodes are the running machines of the node's cluster.
func (m *membership) clusterNodes() []*boot {
	var nodes []*boot

	for _, other := range m.boot.node.lab.running() {
		if other == m.boot || (other.members.clusterID() != "" && other.members.clusterID() == m.clusterID()) {
			nodes = append(nodes, other)
		}
	}

	return nodes
}
