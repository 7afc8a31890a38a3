package startup

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/files/versions"
)

// component is a program of Kubernetes, or etcd, with the arguments that a machine config adds.
type component struct {
	name  string
	added map[string][]string
	at    check.Place
	// own are the arguments that Talos sets and lets nobody change.
	own []string
	// gone are arguments that it no longer has, with the minor version of Kubernetes that took them out.
	gone map[string]int
	// known are those that it has.
	known []string
}

func (c component) value(argument string) (string, bool) {
	values, set := c.added[argument]

	return strings.Join(values, ","), set
}

// Names of the components for people.
const (
	kubelet           = "the kubelet"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	proxy             = "kube-proxy"
	etcd              = "etcd"
)

// components are those that a node runs.
func components(in *check.Input, config *check.Rendered) []component {
	list := []component{{kubelet, config.Kubelet().ExtraArgs(),
		config.At("machine.kubelet.extraArgs"), kubeletOwn, kubeletGone, kubeletKnown}}

	if check.IsWorker(config) {
		return list
	}

	place := func(section string) check.Place { return config.At("cluster." + section + ".extraArgs") }

	list = append(list,
		component{apiServer, config.APIServer().ExtraArgs(), place("apiServer"), apiServerOwn, apiServerGone,
			apiServerKnown},
		component{controllerManager, config.ControllerManager().ExtraArgs(), place("controllerManager"),
			controllerManagerOwn, controllerManagerGone, controllerManagerKnown},
		component{scheduler, config.Scheduler().ExtraArgs(), place("scheduler"), schedulerOwn, schedulerGone,
			schedulerKnown},
		component{etcd, config.Etcd().ExtraArgs(), place("etcd"), ownOfEtcd(in, config), nil, etcdKnown})

	if config.Proxy().Enabled() {
		list = append(list, component{proxy, config.Proxy().ExtraArgs(), place("proxy"), []string{"kubeconfig"}, proxyGone,
			proxyKnown})
	}

	return list
}

// The arguments that Talos refuses to have changed: the component is then never started.
var (
	kubeletOwn   = []string{"bootstrap-kubeconfig", "kubeconfig", "config", "cert-dir"}
	apiServerOwn = []string{"etcd-servers", "client-ca-file", "requestheader-client-ca-file", "proxy-client-cert-file",
		"proxy-client-key-file", "encryption-provider-config", "etcd-cafile", "etcd-certfile", "etcd-keyfile",
		"kubelet-client-certificate", "kubelet-client-key", "service-account-key-file", "service-account-signing-key-file",
		"tls-cert-file", "tls-private-key-file"}
	controllerManagerOwn = []string{"cluster-signing-cert-file", "cluster-signing-key-file", "authentication-kubeconfig",
		"authorization-kubeconfig", "root-ca-file", "service-account-private-key-file"}
	schedulerOwn = []string{"authentication-kubeconfig", "authorization-kubeconfig", "config"}
	etcdOwn      = []string{"name", "auto-tls", "peer-auto-tls", "data-dir", "listen-peer-urls", "listen-client-urls",
		"client-cert-auth", "cert-file", "key-file", "trusted-ca-file", "peer-client-cert-auth", "peer-cert-file",
		"peer-key-file", "peer-trusted-ca-file"}
	// etcdOwnSince114 are those that Talos sets since 1.14.
	etcdOwnSince114 = []string{"listen-client-http-urls", "tls-min-version", "watch-progress-notify-interval"}
)

// ownOfEtcd are the arguments of etcd that the Talos of a node sets itself.
func ownOfEtcd(in *check.Input, config *check.Rendered) []string {
	if versions.WillRunFrom(in, config, talosconfig.TalosVersion1_14) {
		return slices.Concat(etcdOwn, etcdOwnSince114)
	}

	return etcdOwn
}

// argumentName is what the arguments of all these programs look like.
var argumentName = pattern.New(`^[a-z0-9][a-z0-9._-]*$`)

// featureGates is the argument's name.
const featureGates = "feature-gates"

// checkArguments looks for arguments with which a component does not start.
func checkArguments(r *check.Report, config *check.Rendered) {
	checkKubeletFields(r, config)

	minor, minorKnown := config.KubernetesMinor()

	for _, component := range components(r.In, config) {
		for _, name := range slices.Sorted(maps.Keys(component.added)) {
			place := component.at.Field(name)
			value, _ := component.value(name)
			gone, listed := component.lost(name)
			meant := component.meant(name)

			switch {
			case !argumentName.MatchString(name):
				r.Found(place, howToWrite(config, component, name), "%s has no argument --%s", component.name, name)
			case slices.Contains(component.own, name):
				r.Found(place, "take it out", "Talos sets --%s of %s itself, and starts it with no other", name, component.name)
			case listed && minorKnown && minor >= gone:
				r.Found(place, "take it out", "%s has no --%s since Kubernetes 1.%d", component.name, name, gone)
			case name == featureGates && component.name != etcd && wrongGate(value) != "":
				r.Found(place, "write each as <name>=true or <name>=false, with commas between them",
					"%s refuses --feature-gates: %s is neither on nor off", component.name, wrongGate(value))
			case meant != "" && minorKnown && oldestKnown <= minor && minor <= newestKnown:
				r.Found(place.Masked(), "write "+meant, "%s has no argument --%s", component.name, name)
			}
		}
	}
}

// fieldName is what the fields of the kubelet's configuration look like.
var fieldName = pattern.New(`^[a-z][A-Za-z0-9]*$`)

// checkKubeletFields looks for arguments among the fields of the kubelet's configuration.
func checkKubeletFields(r *check.Report, config *check.Rendered) {
	for _, name := range slices.Sorted(maps.Keys(config.Kubelet().ExtraConfig())) {
		if !fieldName.MatchString(name) {
			r.Found(config.At("machine.kubelet.extraConfig").Field(name), "write "+camelCase(strings.TrimLeft(name, "-"))+
				", or move it to "+config.Called("machine.kubelet.extraArgs"), "the kubelet's configuration has no field %s", name)
		}
	}
}

// howToWrite is what to do about a name that no argument has.
func howToWrite(config *check.Rendered, component component, name string) string {
	plain := strings.TrimLeft(name, "-")

	switch {
	case argumentName.MatchString(plain):
		return "write " + plain + ": Talos adds the dashes"
	case component.name == kubelet:
		return "write the argument as `kubelet --help` does; fields of its configuration belong into " +
			config.Called("machine.kubelet.extraConfig")
	default:
		return "write the argument as `" + component.name + " --help` does: in lower case, with dashes"
	}
}

// wrongGate is a feature gate that is not set to true or false; empty if all are.
func wrongGate(list string) string {
	for pair := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if _, err := strconv.ParseBool(strings.TrimSpace(value)); err != nil && name != "" {
			return name
		}
	}

	return ""
}

// undone is a setting that an argument takes the place of.
type undone struct {
	component, argument string
	// setting is where it stands, and value is what is set there.
	setting, value string
}

// settingsWithArguments are the settings of a machine config that arguments take the place of; those that are not set
// have no value.
func settingsWithArguments(config *check.Rendered) []undone {
	settings := []undone{
		{kubelet, "cluster-domain", "cluster.network.dnsDomain", config.Network().DNSDomain()},
		{kubelet, "cluster-dns", "machine.kubelet.clusterDNS",
			strings.Join(config.Kubelet().ClusterDNS(), ",")},
		{kubelet, "node-ip", "machine.kubelet.nodeIP.validSubnets",
			strings.Join(config.Node().NodeIP().ValidSubnets(), ",")},
		{kubelet, "hostname-override", "the hostname", config.Hostname()},
		{apiServer, "service-cluster-ip-range", "cluster.network.serviceSubnets",
			joined(config.ServiceSubnets())},
		{controllerManager, "cluster-cidr", "cluster.network.podSubnets", joined(config.PodSubnets())},
		{proxy, "cluster-cidr", "cluster.network.podSubnets", joined(config.PodSubnets())},
	}

	if config.HasExternalCloudProvider() {
		settings = append(settings, undone{kubelet, "cloud-provider", "cluster.externalCloudProvider", "external"})
	}

	if check.IsControlPlane(config) {
		settings = append(settings, undone{apiServer, "secure-port", "cluster.controlPlane.localAPIServerPort",
			strconv.Itoa(config.APIServer().APIPort())})

		if mode := "cluster.proxy.mode"; config.At(mode).Exists() {
			settings = append(settings, undone{proxy, "proxy-mode", mode, config.Proxy().Mode()})
		}

		if config.CNI() == constants.FlannelCNI {
			settings = append(settings, undone{controllerManager, "allocate-node-cidrs",
				"cluster.network.cni (flannel needs the subnets that it hands out)", "true"})
		}
	}

	return settings
}

// joined are subnets as an argument lists them.
func joined(subnets []netip.Prefix) string {
	texts := make([]string, 0, len(subnets))
	for _, subnet := range subnets {
		texts = append(texts, subnet.String())
	}

	return strings.Join(texts, ",")
}

// checkUndoneSettings looks for arguments with another value than the setting that they take the place of.
func checkUndoneSettings(r *check.Report, config *check.Rendered) {
	running := components(r.In, config)

	for _, setting := range settingsWithArguments(config) {
		for _, component := range running {
			value, set := component.value(setting.argument)
			if component.name == setting.component && set && setting.value != "" && !agrees(value, setting.value) {
				r.Found(component.at.Field(setting.argument), "keep one of the two",
					"--%s=%s of %s undoes %s, which is %s", setting.argument, value, component.name,
					config.Called(setting.setting), setting.value)
			}
		}
	}

	checkExtraConfig(r, config, running[0])
}

// agrees reports whether an argument says what a setting says: the same, or addresses of its subnets.
func agrees(value, setting string) bool {
	if value == setting {
		return true
	}

	for item := range strings.SplitSeq(value, ",") {
		address, err := netip.ParseAddr(strings.TrimSpace(item))
		if err != nil || !slices.ContainsFunc(strings.Split(setting, ","), func(text string) bool {
			subnet, err := netip.ParsePrefix(text)

			return err == nil && subnet.Contains(address)
		}) {
			return false
		}
	}

	return true
}

// checkExtraConfig compares the kubelet's arguments with the fields of its configuration that are called alike.
func checkExtraConfig(r *check.Report, config *check.Rendered, kubelet component) {
	for _, name := range slices.Sorted(maps.Keys(kubelet.added)) {
		field := camelCase(name)
		value, _ := kubelet.value(name)
		written, set := config.Kubelet().ExtraConfig()[field]

		if text := fmt.Sprint(written); set && isPlain(written) && text != value {
			r.Found(kubelet.at.Field(name), "keep one of the two", "--%s=%s undoes %s, which is %s", name, value,
				config.Called("machine.kubelet.extraConfig."+field), text)
		}
	}
}

// camelCase is how the field is called that does the same as an argument: maxPods of max-pods.
func camelCase(argument string) string {
	words := strings.Split(argument, "-")
	for i := 1; i < len(words); i++ {
		if words[i] != "" {
			words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
		}
	}

	return strings.Join(words, "")
}

// isPlain reports whether a value reads the same as an argument's.
func isPlain(value any) bool {
	switch value.(type) {
	case string, bool, int, int64, uint64, float64:
		return true
	default:
		return false
	}
}
