// Package roles holds the checks of roles and quorum, and of feature gates.
package roles

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.Whole(diagnosis.SingleControlPlane, check.Roles, diagnosis.NeedsTalconfig, checkSingleControlPlane),
		check.Whole(diagnosis.NowhereToSchedule, check.Roles, diagnosis.NeedsTalconfig|diagnosis.NeedsConfigs,
			checkScheduling),
		check.Whole(diagnosis.FeatureGatesDisagree, check.Roles, diagnosis.NeedsConfig, checkGatesAgree),
		check.EachConfig(diagnosis.FeatureGateTwice, check.Roles, checkGateTwice),
		check.Whole(diagnosis.FeatureGatesVary, check.Roles, diagnosis.NeedsConfig, checkGatesVary),
		check.Whole(diagnosis.EtcdStartsTwice, check.Roles, diagnosis.NeedsConfig, checkInitType),
		check.Whole(diagnosis.NoControlPlane, check.Roles, diagnosis.NeedsTalconfig, checkNoControlPlane),
		check.Whole(diagnosis.SchedulingVaries, check.Roles, diagnosis.NeedsConfig, checkSchedulingVaries),
		check.Whole(diagnosis.EvenControlPlanes, check.Roles, diagnosis.NeedsTalconfig, checkEvenControlPlanes),
	}
}

// quorum is the least number of control planes that bears the loss of one.
const quorum = 3

// checkSingleControlPlane looks for a single control plane where more could be. Fewer machines have no choice.
func checkSingleControlPlane(r *check.Report, in *check.Input) {
	if nodes := len(in.Cluster.Nodes); len(in.Cluster.ControlPlanes()) == 1 && nodes >= quorum && in.Talconfig != nil {
		r.Found(in.Node(in.Cluster.ControlPlanes()[0]).Field("controlPlane"), "make two of the workers control planes",
			"one of %d nodes is a control plane: it bears no loss", nodes)
	}
}

func checkNoControlPlane(r *check.Report, in *check.Input) {
	if len(in.Cluster.Nodes) > 0 && len(in.Cluster.ControlPlanes()) == 0 && in.Talconfig != nil {
		r.Found(in.Talconfig.At("nodes"), "set `controlPlane: true` on one node, or three", "all %d nodes are workers",
			len(in.Cluster.Nodes))
	}
}

// checkScheduling looks for clusters without a place for pods.
func checkScheduling(r *check.Report, in *check.Input) {
	takes := func(config *check.Rendered) bool {
		return check.IsWorker(config) || config.ControlPlaneTakesPods()
	}
	if slices.ContainsFunc(in.Configs, takes) {
		return
	}

	r.Config = in.Configs[0]
	r.Found(r.Config.At("cluster.allowSchedulingOnControlPlanes"), letsPods(r.Config),
		"there is no worker, and none of %d control planes takes pods", len(in.Cluster.Nodes))
}

// letsPods says how to let pods on control planes.
func letsPods(config *check.Rendered) string {
	const field = "cluster.allowSchedulingOnControlPlanes"

	if config.Called(field) != field {
		return "take " + constants.LabelNodeRoleControlPlane + " out of " + config.Called(field)
	}

	return "set `allowSchedulingOnControlPlanes: true`"
}

// checkSchedulingVaries looks for control planes that say both.
func checkSchedulingVaries(r *check.Report, in *check.Input) {
	var first *check.Rendered

	for _, config := range in.Configs {
		takes := config.ControlPlaneTakesPods()

		switch {
		case check.IsWorker(config):
		case first == nil:
			first = config
		case takes != first.ControlPlaneTakesPods():
			r.Config = config
			r.Found(config.At("cluster.allowSchedulingOnControlPlanes"), "set it for all control planes at once",
				"%s %s, and %s %s", config.Name, takesPods(takes), first.Name, takesPods(!takes))
		}
	}
}

func takesPods(takes bool) string {
	if takes {
		return "takes pods"
	}

	return "takes no pods"
}

// checkInitType looks for nodes that bootstrap etcd themselves.
func checkInitType(r *check.Report, in *check.Input) {
	var starting []*check.Rendered

	for _, config := range in.Configs {
		if config.Role() == machine.TypeInit {
			starting = append(starting, config)
		}
	}

	for _, config := range starting {
		severity := diagnosis.Failure
		if len(starting) == 1 && len(config.Nodes) < 2 {
			severity = diagnosis.Warning
		}

		r.Config = config
		r.Add(severity, config.At("machine.type"), "write `type: controlplane`", "%s starts etcd by itself (type: init)",
			config.Name)
	}
}

// gate is a feature gate that a machine config sets.
type gate struct {
	on bool
	at check.Place
}

func (g gate) String() string {
	if g.on {
		return "enabled"
	}

	return "disabled"
}

// argumentGates reads feature gates as programs take them: A=true,B=false.
func argumentGates(values []string, place check.Place) map[string]gate {
	gates := map[string]gate{}

	for _, list := range values {
		for pair := range strings.SplitSeq(list, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if on, err := strconv.ParseBool(value); err == nil {
				gates[name] = gate{on: on, at: place}
			}
		}
	}

	return gates
}

// featureGates is the argument's name.
const featureGates = "feature-gates"

// kubeletArgumentGates are those of the kubelet's arguments.
func kubeletArgumentGates(c *check.Rendered) map[string]gate {
	return argumentGates(c.Kubelet().ExtraArgs()[featureGates],
		c.At("machine.kubelet.extraArgs").Field(featureGates))
}

// kubeletConfigGates are those of its configuration.
func kubeletConfigGates(c *check.Rendered) map[string]gate {
	gates := map[string]gate{}

	listed, _ := c.Kubelet().ExtraConfig()["featureGates"].(map[string]any)
	for name, value := range listed {
		if on, ok := value.(bool); ok {
			gates[name] = gate{on: on, at: c.At("machine.kubelet.extraConfig.featureGates").Field(name)}
		}
	}

	return gates
}

// kubeletGates are all of the kubelet's; its arguments count for more.
func kubeletGates(c *check.Rendered) map[string]gate {
	gates := kubeletConfigGates(c)
	maps.Copy(gates, kubeletArgumentGates(c))

	return gates
}

// serverGates are the API server's.
func serverGates(c *check.Rendered) map[string]gate {
	if check.IsWorker(c) {
		return nil
	}

	return argumentGates(c.APIServer().ExtraArgs()[featureGates],
		c.At("cluster.apiServer.extraArgs").Field(featureGates))
}

// sharedGates are gates of features that have a field in the API which the kubelet acts on, with the minor version of
// Kubernetes that has them on by default. Other gates are one side's own. Source: kubernetes.io, Feature Gates.
var sharedGates = map[string]int{
	"DynamicResourceAllocation": 34, "ImageVolume": 35, "InPlacePodVerticalScaling": 33, "PodLevelResources": 34,
	"PodLifecycleSleepAction": 30,
	"ProcMountType":           33, "RecursiveReadOnlyMounts": 31, "SidecarContainers": 29, "SupplementalGroupsPolicy": 33,
	"UserNamespacesSupport": 33,
}

// needsBoth reports whether a gate has to be set on both sides, since it is off by default.
func needsBoth(in *check.Input, server *check.Rendered, name string) bool {
	from, shared := sharedGates[name]
	minor, known := server.KubernetesMinor()

	if !known && in.Cluster != nil {
		minor, known = check.MinorOf(":" + in.Cluster.KubernetesVersion)
	}

	return shared && known && minor < from
}

// checkGatesAgree compares kubelets with the API server of the first control plane that can be read.
func checkGatesAgree(r *check.Report, in *check.Input) {
	index := slices.IndexFunc(in.Configs, check.IsControlPlane)
	if index < 0 {
		return
	}

	server := in.Configs[index]
	gates := serverGates(server)
	told := map[string]bool{}

	for _, config := range in.Configs {
		own := kubeletGates(config)

		for _, name := range slices.Sorted(maps.Keys(own)) {
			other, set := gates[name]

			switch {
			case told[name]:
			case set && other.on != own[name].on:
				told[name] = true
				r.Config = config
				r.Found(own[name].at, "set "+name+" to the same value on both sides",
					"%s is %s in the kubelet of %s, and %s in the API server of %s (%s)",
					name, own[name], config.Name, other, server.Name, r.In.Locate(other.at))
			case !set && own[name].on && needsBoth(in, server, name):
				told[name] = true
				r.Config = config
				r.Found(own[name].at, "add "+name+"=true to "+server.Called("cluster.apiServer.extraArgs."+featureGates),
					"%s is enabled in the kubelet of %s, and the API server of %s does not set it", name, config.Name, server.Name)
			}
		}
	}

	checkGatesOfServer(r, in, server, gates)
}

// checkGatesOfServer looks for gates of the API server that kubelets do not have.
func checkGatesOfServer(r *check.Report, in *check.Input, server *check.Rendered, gates map[string]gate) {
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if !gates[name].on || !needsBoth(in, server, name) {
			continue
		}

		var without []string

		for _, config := range in.Configs {
			if _, set := kubeletGates(config)[name]; !set {
				without = append(without, config.Name)
			}
		}

		if len(without) > 0 {
			r.Config = server
			r.Found(gates[name].at,
				"set "+server.Called("machine.kubelet.extraConfig.featureGates."+name)+" to true on all nodes",
				"%s is enabled in the API server of %s, and the kubelets of %s do not set it", name, server.Name,
				check.Some(without))
		}
	}
}

// checkGateTwice compares a kubelet's arguments with its configuration.
func checkGateTwice(r *check.Report, config *check.Rendered) {
	arguments := kubeletArgumentGates(config)
	written := kubeletConfigGates(config)

	for _, name := range slices.Sorted(maps.Keys(written)) {
		if argument, set := arguments[name]; set && argument.on != written[name].on {
			r.Found(written[name].at, "keep one of the two", "%s is %s here, and %s in extraArgs (%s)", name, written[name],
				argument, r.In.Locate(argument.at))
		}
	}
}

// checkGatesVary compares the API servers with the first.
func checkGatesVary(r *check.Report, in *check.Input) {
	var first *check.Rendered

	for _, config := range in.Configs {
		if check.IsWorker(config) {
			continue
		}

		if first == nil {
			first = config

			continue
		}

		mine, common := serverGates(config), serverGates(first)

		for _, name := range slices.Sorted(maps.Keys(mine)) {
			if other, set := common[name]; !set || other.on != mine[name].on {
				r.Config = config
				r.Found(mine[name].at, "set "+featureGates+" in a patch of all control planes", "%s is %s on %s, and %s on %s",
					name, mine[name], config.Name, orUnset(other, set), first.Name)
			}
		}

		for _, name := range slices.Sorted(maps.Keys(common)) {
			if _, set := mine[name]; !set {
				r.Config = config
				r.Found(config.At("cluster.apiServer"), "set "+featureGates+" in a patch of all control planes",
					"%s is not set on %s, and %s on %s",
					name, config.Name, common[name], first.Name)
			}
		}
	}
}

func orUnset(gate gate, set bool) string {
	if !set {
		return "not set"
	}

	return gate.String()
}

// checkEvenControlPlanes warns about numbers of control planes that bear no more losses than one fewer would.
func checkEvenControlPlanes(r *check.Report, in *check.Input) {
	count := len(in.Cluster.ControlPlanes())

	switch {
	case count == 0:
	case count%2 == 1:
		r.Seen("%d control planes bear the loss of %d", count, (count-1)/2)
	default:
		r.Found(in.Declared("nodes"), fmt.Sprintf("use %d or %d control planes", count-1, count+1),
			"%d control planes bear the loss of %d, no more than %d do", count, (count-1)/2, count-1)
	}
}
