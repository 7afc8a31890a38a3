package machine

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/etcd"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/service"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/trustd"
)

// kubeletRetry is how long a kubelet waits between two attempts to register its node, in node time.
const kubeletRetry = time.Second

// membership is what a node knows of the others of its cluster.
type membership struct{ boot *Boot }

// controlPlaneEndpoints are where the node looks for control planes: the host of the cluster endpoint, what discovery
// tells, and, once its kubelet has reached the API, Kubernetes' EndpointSlices.
func (m *membership) controlPlaneEndpoints() []netip.Addr {
	config := m.boot.Config.Active()
	if config == nil {
		return nil
	}

	var endpoints []netip.Addr

	if address, err := netip.ParseAddr(endpoint(config).Hostname()); err == nil {
		endpoints = append(endpoints, address)
	}

	for _, other := range m.knownNodes() {
		if other != m.boot && other.Config.Role().IsControlPlane() {
			endpoints = append(endpoints, other.Node.Address())
		}
	}

	return endpoints
}

// knownNodes are the nodes that this one has heard of by another way than the cluster endpoint.
func (m *membership) knownNodes() []*Boot {
	if m.boot.Node.Lab.options.Discovery {
		return slices.DeleteFunc(m.boot.Node.Lab.running(),
			func(other *Boot) bool { return other.Members.clusterID() != m.clusterID() })
	}

	m.boot.mu.Lock()
	registered := m.boot.Kubelet.registered
	m.boot.mu.Unlock()

	if registered == nil {
		return nil
	}

	return m.boot.Node.Lab.serving(registered)
}

// ErrNoEndpoints is why nothing can be asked of the cluster's etcd.
var ErrNoEndpoints = errors.New("no controlplane endpoints discovered yet")

// KnowsControlPlanes reports whether the node knows of any place where etcd may be: itself, if it serves Kubernetes, or
// others.
func (m *membership) KnowsControlPlanes() bool {
	return m.boot.controlPlane.serves() || len(m.controlPlaneEndpoints()) > 0
}

// running are the boots of all machines that are on.
func (l *Lab) running() []*Boot {
	var boots []*Boot

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
	config := m.boot.Config.Active()
	if config == nil {
		return ""
	}

	return clusterID(config)
}

// controlPlane is what a control plane runs besides etcd: trustd, the static pods of Kubernetes, and virtual addresses.
type controlPlane struct {
	boot *Boot

	// What follows is guarded by boot.mu.
	pods    podPhase
	running []kubernetes.StaticPod // as kubelet runs them
}

// VIPs are the virtual addresses that the node takes part in.
func (c *controlPlane) vips() []netip.Addr {
	config := c.boot.Config.Active()
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
func (c *controlPlane) claimVIPs(member *etcd.Member) {
	if !c.boot.Etcd.healthy(member) {
		c.releaseVIPs()

		return
	}

	lab := c.boot.Node.Lab

	for _, vip := range c.vips() {
		lab.mu.Lock()
		holder := lab.holders[vip]

		if holder == nil {
			lab.holders[vip] = c.boot
		}
		lab.mu.Unlock()

		if holder == nil {
			c.boot.Node.NIC.AddAddress(vip)
			lab.changed.Raise()
		}
	}
}

func (c *controlPlane) releaseVIPs() {
	lab := c.boot.Node.Lab

	var held []netip.Addr

	lab.mu.Lock()
	for vip, holder := range lab.holders {
		if holder == c.boot {
			held = append(held, vip)
		}
	}
	lab.mu.Unlock()

	for _, vip := range held {
		c.boot.Node.NIC.RemoveAddress(vip)

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
	c.boot.Services.Set(service.Trustd, service.Starting, "Starting service")

	waiting := `Waiting for service "containerd" to be "up", time sync, network`
	if c.boot.Unattended.document() != nil {
		waiting += ", unattended install"
	}

	c.boot.Services.Set(service.Trustd, service.Waiting, waiting)

	if c.boot.changed.Until(ctx, func() bool { return c.boot.Synced() && c.boot.Config.Hostname() != "" }) != nil {
		return
	}

	for ctx.Err() == nil {
		down := func() bool { return c.boot.Node.Faults().TrustdDown }

		if c.boot.Node.changed.Until(ctx, func() bool { return !down() }) != nil {
			return
		}

		server, err := c.openTrustd()
		if err != nil {
			c.boot.Services.Set(service.Trustd, service.Failed, err.Error())

			return
		}

		c.boot.Services.Set(service.Trustd, service.Preparing, "Running pre state")
		c.boot.Services.Set(service.Trustd, service.Preparing, "Creating service runner")
		c.boot.Services.Set(service.Trustd, service.Running, c.boot.Services.StartedMessage(service.Trustd))
		c.boot.Services.SetHealth(service.Trustd, true, "")

		c.boot.Node.changed.Until(ctx, down) //nolint:errcheck // either way it closes now
		c.boot.Node.NIC.Abandon(TrustdPort)
		server.Close()

		if ctx.Err() == nil {
			c.boot.Services.Set(service.Trustd, service.Failed, "task \"trustd\" failed: exit code 1")
		}
	}
}

func (c *controlPlane) openTrustd() (*trustd.Server, error) {
	security := c.boot.Config.Settings().Machine().Security()

	listener, err := c.boot.Node.NIC.Listen(TrustdPort)
	if err != nil {
		return nil, err
	}

	return trustd.Serve(listener, trustd.ServerOptions{
		IssuingCA: security.IssuingCA(),
		Token:     security.Token(),
		Addresses: append(c.boot.Certificates.addresses(), c.endpointAddresses()...),
		Names:     append([]string{c.boot.Config.Hostname()}, security.CertSANs()...),
		Now:       c.boot.WallNow,
	})
}

// endpointAddresses are the addresses of the cluster endpoint and of the virtual ones, by their declared and their real
// names.
func (c *controlPlane) endpointAddresses() []netip.Addr {
	addresses := c.vips()

	if address, err := netip.ParseAddr(endpoint(c.boot.Config.Settings()).Hostname()); err == nil {
		addresses = append(addresses, address)
	}

	for _, address := range slices.Clone(addresses) {
		if at, known := c.boot.Node.Lab.network.Socket(netip.AddrPortFrom(address, APIPort)); known && at.Addr() != address {
			addresses = append(addresses, at.Addr())
		}
	}

	return addresses
}

func (c *controlPlane) options() kubernetes.Options {
	config := c.boot.Config.Settings()

	return kubernetes.Options{Version: imageTag(kubeletImage(config)), CNI: cni(config), Now: c.boot.WallNow,
		NoProxy: !proxy(config), NoDNS: !coreDNS(config), ProxyImage: proxyImage(config), DNSImage: coreDNSImage(config),
		Server: apiForPods(config), Inventory: c.boot.Release.inventory,
		Workloads: c.boot.Node.Lab.options.Workloads, ConfigMaps: c.boot.Node.Lab.options.ConfigMaps,
		Passed:  c.boot.Node.Lab.clock.Now,
		Changed: c.boot.Node.Lab.changed.Raise,
	}
}

// run serves the Kubernetes API while the node's etcd runs.
func (c *controlPlane) run(ctx context.Context, cluster *etcd.Cluster) {
	if c.boot.Release.OptionalParts && c.boot.Config.Settings().K8sNetworkConfig() == nil {
		return // and so there are no static pods
	}

	healthy := func() bool { return c.boot.Services.Passes(service.Etcd) }
	if c.boot.changed.Until(ctx, healthy) != nil || c.startStaticPods(ctx) != nil {
		return
	}

	c.boot.Tasks.Go(func() { c.followStaticPods(ctx) })

	kept := func() bool { return c.boot.Node.Faults().KubernetesDown }

	for ctx.Err() == nil {
		if c.boot.Node.changed.Until(ctx, func() bool { return !kept() }) != nil {
			return
		}

		image := c.apiServerImage()
		down := func() bool { return kept() || c.apiServerImage() != image }

		server, err := c.open(cluster, imageTag(image))
		if err != nil {
			c.boot.Log("kube-apiserver failed: %s", err)

			return
		}

		c.setServing(cluster)
		c.boot.Node.changed.Until(ctx, down) //nolint:errcheck // either way it closes now
		c.setServing(nil)
		c.boot.Node.NIC.Abandon(KubernetesPort)
		server.Close()
	}
}

func (c *controlPlane) open(cluster *etcd.Cluster, version string) (*kubernetes.Server, error) {
	config := c.boot.Config.Settings()

	listener, err := c.boot.Node.NIC.Listen(KubernetesPort)
	if err != nil {
		return nil, err
	}

	var pems [][]byte

	for _, ca := range config.K8sAPIServerCAConfig().AcceptedCAs() {
		pems = append(pems, ca.Crt)
	}

	return cluster.Kubernetes.Serve(listener, kubernetes.ServerOptions{
		IssuingCA:   issuingCA(config),
		AcceptedCAs: bytes.Join(pems, []byte("\n")),
		Addresses:   append(c.boot.Certificates.addresses(), c.endpointAddresses()...),
		Names:       append([]string{c.boot.Config.Hostname(), endpoint(config).Hostname()}, apiServerNames(config)...),
		Now:         c.boot.WallNow,
		Advertise:   c.boot.Node.Address(),
		Version:     version,
	})
}

// setServing notes whose API the node serves; nil for none.
func (c *controlPlane) setServing(cluster *etcd.Cluster) {
	lab := c.boot.Node.Lab

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
	c.boot.Node.Lab.mu.Lock()
	defer c.boot.Node.Lab.mu.Unlock()

	return c.boot.Node.Lab.kubernetes[c.boot] != nil
}

// serving are the nodes that serve a cluster's Kubernetes API; nil stands for any cluster.
func (l *Lab) serving(cluster *etcd.Cluster) []*Boot {
	l.mu.Lock()
	defer l.mu.Unlock()

	var serving []*Boot

	for b, served := range l.kubernetes {
		if cluster == nil || served == cluster {
			serving = append(serving, b)
		}
	}

	slices.SortFunc(serving, func(a, b *Boot) int { return a.Node.options.Address.Compare(b.Node.options.Address) })

	return serving
}

// kubernetesAt is the cluster whose API answers at an address; nil if none does.
func (l *Lab) kubernetesAt(address netip.Addr) *etcd.Cluster {
	for _, b := range l.serving(nil) {
		if b.Node.Faults().Silence || !l.leads(address, KubernetesPort, b) {
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
	cluster := k.found()
	for cluster == nil {
		if k.boot.Sleep(ctx, kubeletRetry) != nil {
			return
		}

		cluster = k.found()
	}

	k.register(cluster)

	for {
		changed := k.boot.Node.Lab.changed.Wait()

		if restored := k.successor(cluster); restored != nil {
			cluster = restored
			k.register(cluster)
		}

		cluster.Kubernetes.Hold(k.boot.Config.Hostname(), k.boot.Node.Faults().BudgetBlocks)
		k.boot.Resources.showNodeStatus()
		k.boot.status.refresh()

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// found is the cluster whose API answers where the kubelet looks; nil if none does.
func (k *kubelet) found() *etcd.Cluster {
	for _, endpoint := range k.endpoints() {
		if cluster := k.boot.Node.Lab.kubernetesAt(endpoint); cluster != nil {
			return cluster
		}
	}

	return nil
}

// successor is the cluster that answers in the place of one that has lost its quorum, as after its etcd was restored;
// nil if there is none.
func (k *kubelet) successor(cluster *etcd.Cluster) *etcd.Cluster {
	if cluster.Works() {
		return nil
	}

	if other := k.found(); other != nil && other != cluster && other.Works() {
		return other
	}

	return nil
}

func (k *kubelet) register(cluster *etcd.Cluster) {
	k.boot.mu.Lock()
	k.registered = cluster
	k.boot.mu.Unlock()

	k.postStatus(cluster)
	k.boot.Node.EditDrive(func(d *Drive) { d.registered = true })
	cluster.Kubernetes.Restore(k.boot.Config.Hostname())
	k.boot.Node.Lab.changed.Raise()
}

// postStatus is a kubelet that makes its node, or tells that it lives.
func (k *kubelet) postStatus(cluster *etcd.Cluster) {
	k.posting.Lock()
	defer k.posting.Unlock()

	k.boot.mu.Lock()
	image, pods := k.image, append([]kubernetes.StaticPod{}, k.boot.controlPlane.running...)
	k.boot.mu.Unlock()

	cluster.Kubernetes.Register(kubernetes.Node{
		Name:         k.boot.Config.Hostname(),
		Address:      k.boot.Node.Address(),
		ControlPlane: k.boot.Config.Role() != machine.TypeWorker,
		TalosVersion: k.boot.Version,

		KubeletVersion: imageTag(image),
		StaticPods:     pods,

		Declared:        k.boot.declaredNode(),
		RegistersTaints: k.boot.Release.registersTaints,
		CloudProvider:   leavesNodesToCloud(k.boot.Config.Settings()),
	})
}

// report is a kubelet that tells what has changed, if its node is registered.
func (k *kubelet) report() {
	k.boot.mu.Lock()
	cluster := k.registered
	k.boot.mu.Unlock()

	if cluster != nil {
		k.postStatus(cluster)
	}
}

// endpoints are where the node's kubelet looks for the API: the endpoint, and on a control plane its own.
func (k *kubelet) endpoints() []netip.Addr {
	var endpoints []netip.Addr

	if k.boot.Config.Role().IsControlPlane() {
		endpoints = append(endpoints, k.boot.Node.Address())
	}

	if address, err := netip.ParseAddr(endpoint(k.boot.Config.Settings()).Hostname()); err == nil {
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

	name := k.boot.Config.Hostname()
	cluster.Kubernetes.Silence(name)

	// A kubelet posts its status every few seconds, also one whose node another machine of the same name had taken.
	for _, other := range k.boot.Node.Lab.running() {
		if other != k.boot && other.Config.Hostname() == name && other.Kubelet.registeredWith(cluster) {
			other.Kubelet.postStatus(cluster)
		}
	}
}

func (k *kubelet) registeredWith(cluster *etcd.Cluster) bool {
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

	return true, cluster.HasCNI()
}

// cordon is an administrator's; there is nothing to cordon before the node is registered.
func (k *kubelet) cordon(cordoned bool) {
	if cluster := k.cluster(); cluster != nil {
		cluster.Kubernetes.Cordon(k.boot.Config.Hostname(), cordoned)
	}
}

// cluster is the one that the kubelet has registered with; nil before.
func (k *kubelet) cluster() *etcd.Cluster {
	k.boot.mu.Lock()
	defer k.boot.mu.Unlock()

	return k.registered
}

// cordoned reports whether the node's Kubernetes object takes no new pods.
func (k *kubelet) cordoned() bool {
	cluster := k.cluster()

	return cluster != nil && cluster.Kubernetes.Cordoned(k.boot.Config.Hostname())
}

// nodeProblem is the reason of the unmet condition "nodeReady"; empty when there is none.
func (k *kubelet) nodeProblem() string {
	name := k.boot.Config.Hostname()
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

// InstallCNI gives every Kubernetes cluster of the lab a CNI, as a user does after a bring-up with CNI "none".
func (l *Lab) InstallCNI() {
	l.etcd.InstallCNI()
	l.changed.Raise()
}

// RequestDeprecated has somebody use a deprecated API of every Kubernetes cluster of the lab.
func (l *Lab) RequestDeprecated(api kubernetes.DeprecatedAPI) { l.etcd.RequestDeprecated(api) }

// ClusterNodes are the running machines of the node's cluster.
func (m *membership) ClusterNodes() []*Boot {
	var nodes []*Boot

	for _, other := range m.boot.Node.Lab.running() {
		if other == m.boot || (other.Members.clusterID() != "" && other.Members.clusterID() == m.clusterID()) {
			nodes = append(nodes, other)
		}
	}

	return nodes
}
