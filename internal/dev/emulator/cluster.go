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

// controlPlaneEndpoints are where the node looks for control planes: the host of the cluster endpoint, what discovery
// tells, and, once its kubelet has reached the API, Kubernetes' EndpointSlices.
func (b *boot) controlPlaneEndpoints() []netip.Addr {
	config := b.activeConfig()
	if config == nil {
		return nil
	}

	var endpoints []netip.Addr

	if address, err := netip.ParseAddr(config.Cluster().Endpoint().Hostname()); err == nil {
		endpoints = append(endpoints, address)
	}

	for _, other := range b.knownNodes() {
		if other != b && other.role().IsControlPlane() {
			endpoints = append(endpoints, other.node.Address())
		}
	}

	return endpoints
}

// knownNodes are the nodes that this one has heard of by another way than the cluster endpoint.
func (b *boot) knownNodes() []*boot {
	if b.node.lab.options.Discovery {
		return slices.DeleteFunc(b.node.lab.running(), func(other *boot) bool { return other.clusterID() != b.clusterID() })
	}

	b.mu.Lock()
	registered := b.registered
	b.mu.Unlock()

	if registered == nil {
		return nil
	}

	return b.node.lab.serving(registered)
}

// errNoEndpoints is why nothing can be asked of the cluster's etcd.
var errNoEndpoints = errors.New("no controlplane endpoints discovered yet")

// knowsControlPlanes reports whether the node knows of any place where etcd may be: itself, if it serves Kubernetes, or
// others.
func (b *boot) knowsControlPlanes() bool {
	return b.servesKubernetes() || len(b.controlPlaneEndpoints()) > 0
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

func (b *boot) clusterID() string {
	config := b.activeConfig()
	if config == nil {
		return ""
	}

	return config.Cluster().ID()
}

// VIPs are the virtual addresses that the node takes part in.
func (b *boot) vips() []netip.Addr {
	config := b.activeConfig()
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
func (b *boot) claimVIPs(member *etcdMember) {
	if !b.etcdHealthy(member) {
		b.releaseVIPs()

		return
	}

	lab := b.node.lab

	for _, vip := range b.vips() {
		lab.mu.Lock()
		holder := lab.holders[vip]

		if holder == nil {
			lab.holders[vip] = b
		}
		lab.mu.Unlock()

		if holder == nil {
			b.node.nic.addAddress(vip)
			lab.changed.raise()
		}
	}
}

func (b *boot) releaseVIPs() {
	lab := b.node.lab

	var held []netip.Addr

	lab.mu.Lock()
	for vip, holder := range lab.holders {
		if holder == b {
			held = append(held, vip)
		}
	}
	lab.mu.Unlock()

	for _, vip := range held {
		b.node.nic.removeAddress(vip)

		lab.mu.Lock()
		delete(lab.holders, vip)
		lab.mu.Unlock()
	}

	if len(held) > 0 {
		lab.changed.raise()
	}
}

// runTrustd serves trustd as long as the services of the boot run and no fault keeps it down.
func (b *boot) runTrustd(ctx context.Context) {
	b.setService(serviceTrustd, stateStarting, "Starting service")
	b.setService(serviceTrustd, stateWaiting, `Waiting for service "containerd" to be "up", time sync, network`)

	if b.changed.until(ctx, func() bool { return b.synced() && b.hostname() != "" }) != nil {
		return
	}

	for ctx.Err() == nil {
		down := func() bool { return b.node.Faults().TrustdDown }

		if b.node.changed.until(ctx, func() bool { return !down() }) != nil {
			return
		}

		server, err := b.openTrustd()
		if err != nil {
			b.setService(serviceTrustd, stateFailed, err.Error())

			return
		}

		b.setService(serviceTrustd, statePreparing, "Running pre state")
		b.setService(serviceTrustd, statePreparing, "Creating service runner")
		b.setService(serviceTrustd, stateRunning, b.startedMessage(serviceTrustd))
		b.setHealth(serviceTrustd, true, "")

		b.node.changed.until(ctx, down) //nolint:errcheck // either way it closes now
		b.node.nic.abandon(TrustdPort)
		server.Close()

		if ctx.Err() == nil {
			b.setService(serviceTrustd, stateFailed, "task \"trustd\" failed: exit code 1")
		}
	}
}

func (b *boot) openTrustd() (*trustd.Server, error) {
	security := b.settings().Machine().Security()

	listener, err := b.node.nic.listen(TrustdPort)
	if err != nil {
		return nil, err
	}

	return trustd.Serve(listener, trustd.ServerOptions{
		IssuingCA: security.IssuingCA(),
		Token:     security.Token(),
		Addresses: append(b.certificateAddresses(), b.endpointAddresses()...),
		Names:     append([]string{b.hostname()}, security.CertSANs()...),
		Now:       b.wallNow,
	})
}

// endpointAddresses are the addresses of the cluster endpoint and of the virtual ones, by their declared and their real
// names.
func (b *boot) endpointAddresses() []netip.Addr {
	addresses := b.vips()

	if address, err := netip.ParseAddr(b.settings().Cluster().Endpoint().Hostname()); err == nil {
		addresses = append(addresses, address)
	}

	for _, address := range slices.Clone(addresses) {
		if at, known := b.node.lab.network.socket(netip.AddrPortFrom(address, APIPort)); known && at.Addr() != address {
			addresses = append(addresses, at.Addr())
		}
	}

	return addresses
}

func (b *boot) kubernetesOptions() kubernetes.Options {
	config := b.settings()
	version := ""

	if image := config.Machine().Kubelet().Image(); strings.Contains(image, ":") {
		version = image[strings.LastIndexByte(image, ':')+1:]
	}

	return kubernetes.Options{Version: version, CNI: config.Cluster().Network().CNI().Name(), Now: b.wallNow,
		NoProxy: !config.Cluster().Proxy().Enabled(), NoDNS: !config.Cluster().CoreDNS().Enabled(),
		Changed: b.node.lab.changed.raise,
	}
}

// runControlPlane serves the Kubernetes API while the node's etcd runs.
func (b *boot) runControlPlane(ctx context.Context, cluster *etcdCluster) {
	if b.changed.until(ctx, b.etcdPassedCheck) != nil || b.startStaticPods(ctx) != nil {
		return
	}

	for ctx.Err() == nil {
		down := func() bool { return b.node.Faults().KubernetesDown }

		if b.node.changed.until(ctx, func() bool { return !down() }) != nil {
			return
		}

		server, err := b.openKubernetes(cluster)
		if err != nil {
			b.print("kube-apiserver failed: %s", err)

			return
		}

		b.setKubernetes(cluster)
		b.node.changed.until(ctx, down) //nolint:errcheck // either way it closes now
		b.setKubernetes(nil)
		b.node.nic.abandon(KubernetesPort)
		server.Close()
	}
}

func (b *boot) openKubernetes(cluster *etcdCluster) (*kubernetes.Server, error) {
	config := b.settings().Cluster()

	listener, err := b.node.nic.listen(KubernetesPort)
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
		Addresses:   append(b.certificateAddresses(), b.endpointAddresses()...),
		Names:       append([]string{b.hostname(), config.Endpoint().Hostname()}, config.CertSANs()...),
		Advertise:   b.node.Address(),
	})
}

// setKubernetes notes whose API the node serves; nil for none.
func (b *boot) setKubernetes(cluster *etcdCluster) {
	lab := b.node.lab

	lab.mu.Lock()
	if cluster == nil {
		delete(lab.kubernetes, b)
	} else {
		lab.kubernetes[b] = cluster
	}
	lab.mu.Unlock()

	b.showStaticPods()
	lab.changed.raise()
	b.refresh()
}

// servesKubernetes reports whether the node's kube-apiserver answers.
func (b *boot) servesKubernetes() bool {
	b.node.lab.mu.Lock()
	defer b.node.lab.mu.Unlock()

	return b.node.lab.kubernetes[b] != nil
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

// joinKubernetes registers the node once the cluster's API answers at the endpoint, and follows what becomes of it.
func (b *boot) joinKubernetes(ctx context.Context) {
	var cluster *etcdCluster

	for cluster == nil {
		for _, endpoint := range b.kubernetesEndpoints() {
			if cluster = b.node.lab.kubernetesAt(endpoint); cluster != nil {
				break
			}
		}

		if cluster == nil && b.sleep(ctx, kubeletRetry) != nil {
			return
		}
	}

	b.mu.Lock()
	b.registered = cluster
	b.mu.Unlock()

	b.postStatus(cluster)
	b.node.editDrive(func(d *drive) { d.registered = true })
	cluster.kube.Restore(b.hostname())
	b.node.lab.changed.raise()

	for {
		changed := b.node.lab.changed.wait()

		b.showNodeStatus()
		b.refresh()

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// postStatus is a kubelet that makes its node, or tells that it lives.
func (b *boot) postStatus(cluster *etcdCluster) {
	cluster.kube.Register(kubernetes.Node{
		Name:         b.hostname(),
		Address:      b.node.Address(),
		ControlPlane: b.role() != machine.TypeWorker,
		TalosVersion: b.version,
	})
}

// kubernetesEndpoints are where the node's kubelet looks for the API: the endpoint, and on a control plane its own.
func (b *boot) kubernetesEndpoints() []netip.Addr {
	var endpoints []netip.Addr

	if b.role().IsControlPlane() {
		endpoints = append(endpoints, b.node.Address())
	}

	if address, err := netip.ParseAddr(b.settings().Cluster().Endpoint().Hostname()); err == nil {
		endpoints = append(endpoints, address)
	}

	return endpoints
}

func (b *boot) leaveKubernetes() {
	b.mu.Lock()
	cluster := b.registered
	b.registered = nil
	b.mu.Unlock()

	if cluster == nil {
		return
	}

	name := b.hostname()
	cluster.kube.Silence(name)

	// A kubelet posts its status every few seconds, also one whose node another machine of the same name had taken.
	for _, other := range b.node.lab.running() {
		if other != b && other.hostname() == name && other.registeredWith(cluster) {
			other.postStatus(cluster)
		}
	}
}

func (b *boot) registeredWith(cluster *etcdCluster) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.registered == cluster
}

// nodeReady reports whether the node's Kubernetes object exists, and is Ready.
func (b *boot) nodeReady() (known, ready bool) {
	b.mu.Lock()
	cluster := b.registered
	b.mu.Unlock()

	if cluster == nil {
		return false, false
	}

	b.node.lab.mu.Lock()
	defer b.node.lab.mu.Unlock()

	return true, cluster.network
}

// cordoned reports whether the node's Kubernetes object takes no new pods.
func (b *boot) cordoned() bool {
	b.mu.Lock()
	cluster := b.registered
	b.mu.Unlock()

	return cluster != nil && cluster.kube.Cordoned(b.hostname())
}

// nodeProblem is the reason of the unmet condition "nodeReady"; empty when there is none.
func (b *boot) nodeProblem() string {
	name := b.hostname()
	if name == "" || !b.registers() {
		return "" // without a node name nothing is asked for
	}

	known, ready := b.nodeReady()

	switch {
	case !known:
		return `node "` + name + `" status is not available yet`
	case !ready:
		return `node "` + name + `" is not ready`
	default:
		return ""
	}
}

func (b *boot) etcdPassedCheck() bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	svc := b.services[serviceEtcd]

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

	l.changed.raise()
}

// clusterNodes are the running machines of the node's cluster.
func (b *boot) clusterNodes() []*boot {
	var nodes []*boot

	for _, other := range b.node.lab.running() {
		if other == b || (other.clusterID() != "" && other.clusterID() == b.clusterID()) {
			nodes = append(nodes, other)
		}
	}

	return nodes
}
