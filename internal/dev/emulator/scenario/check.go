package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
)

// More has no use.
const (
	mostControlPlanes = 50
	mostWorkers       = 1500
)

// check finds what no lab can play.
func (s *Scenario) check(at *places) error {
	if s.Scale <= 0 {
		at.wrong("scale", "", "has to be more than 0")
	}

	s.checkCluster(at)
	checkTiming(at, "timing", s.Timing)

	for _, name := range s.named() {
		s.checkNode(at, inside("nodes", name), name)
	}

	for i, work := range s.Workloads {
		s.checkWorkload(at, inside("workloads", strconv.Itoa(i+1)), work)
	}

	for i, held := range s.ConfigMaps {
		if errs := validation.IsDNS1123Subdomain(held.Name); len(errs) > 0 {
			at.wrong(inside(inside("configMaps", strconv.Itoa(i+1)), "name"), "",
				"%q: takes a name of small letters, digits, hyphens and dots", held.Name)
		}
	}

	for i, event := range s.Events {
		s.checkEvent(at, inside("events", strconv.Itoa(i+1)), event)
	}

	s.checkPower(at)
	s.checkHardware(at)

	return at.err()
}

func (s *Scenario) checkCluster(at *places) {
	if s.Cluster.ControlPlanes < 1 || s.Cluster.ControlPlanes > mostControlPlanes {
		at.wrong("cluster.controlPlanes", "", "has to be 1 to %d", mostControlPlanes)
	}

	if s.Cluster.Workers < 0 || s.Cluster.Workers > mostWorkers {
		at.wrong("cluster.workers", "", "has to be 0 to %d", mostWorkers)
	}

	plugins := []string{"none", "flannel", "custom"}
	if s.Cluster.CNI != "" && !slices.Contains(plugins, s.Cluster.CNI) {
		at.wrong("cluster.cni", suggest.Word(s.Cluster.CNI, plugins), "%q: takes %s", s.Cluster.CNI,
			strings.Join(plugins, ", "))
	}

	checkVersion(at, "cluster.talosVersion", s.Cluster.TalosVersion)

	var unusable *release.ContractError

	version := cmp.Or(s.Cluster.TalosVersion, emulator.DefaultTalosVersion)
	if _, err := release.Contract(version, s.Cluster.Contract); errors.As(err, &unusable) {
		at.wrong("cluster.contract", unusable.Nearest, "%s", err)
	}
}

func checkVersion(at *places, field, version string) {
	if version == "" {
		return
	}

	if err := emulator.CanPlay(version); err != nil {
		at.wrong(field, "", "%s", err)
	}
}

// exists notes a name that no node has.
func (s *Scenario) exists(at *places, field, name string) bool {
	names := s.Names()
	if slices.Contains(names, name) {
		return true
	}

	at.wrong(field, suggest.Word(name, names),
		"there is no node %q; the cluster has %d control planes, cp1 and on, and %d workers, worker1 and on",
		name, s.Cluster.ControlPlanes, s.Cluster.Workers)

	return false
}

func (s *Scenario) checkNode(at *places, field, name string) {
	if !s.exists(at, field, name) {
		return
	}

	node := s.Nodes[name]
	checkVersion(at, inside(field, "talosVersion"), node.TalosVersion)

	if node.EtcdData != emulator.NoEtcdData && isWorker(name) {
		at.wrong(inside(field, "etcdData"), "", "a worker holds no etcd data")
	}

	for i, link := range node.Links {
		if _, err := net.ParseMAC(link.MAC); err != nil {
			at.wrong(inside(field, fmt.Sprintf("links.%d.mac", i+1)), "",
				"%q: takes a hardware address, such as 52:54:00:00:00:01", link.MAC)
		}
	}

	checkTiming(at, inside(field, "timing"), node.Timing)
	checkFaults(at, inside(field, "faults"), name, node.Faults)
}

func isWorker(name string) bool { return strings.HasPrefix(name, "worker") }

// checkTiming notes times that run backwards.
func checkTiming(at *places, field string, timing emulator.Timing) {
	value := reflect.ValueOf(timing)

	for i, name := range Fields(value.Type()) {
		if value.Field(i).Int() < 0 {
			at.wrong(inside(field, name), "", "can't be less than 0")
		}
	}
}

// mostReplicas is more than any lab has room for.
const mostReplicas = 100

func (s *Scenario) checkWorkload(at *places, field string, work kubernetes.Workload) {
	if errs := validation.IsDNS1123Label(work.Name); len(errs) > 0 {
		at.wrong(inside(field, "name"), "", "%q: takes a name of small letters, digits and hyphens", work.Name)
	}

	if work.Node != "" {
		s.exists(at, inside(field, "node"), work.Node)
	}

	for name, value := range map[string]int{"replicas": work.Replicas, "budget": work.Budget} {
		if value < 0 || value > mostReplicas {
			at.wrong(inside(field, name), "", "has to be 0 to %d", mostReplicas)
		}
	}

	if work.Starting < 0 || work.Ending < 0 {
		at.wrong(field, "", "starting and ending can't be less than 0")
	}
}

func (s *Scenario) checkEvent(at *places, field string, event Event) {
	if event.At < 0 {
		at.wrong(inside(field, "at"), "", "can't be less than 0")
	}

	if !at.given(inside(field, "node")) {
		at.wrong(field, "", "names no node")

		return
	}

	if !s.exists(at, inside(field, "node"), event.Node) {
		return
	}

	switch faults := inside(field, "faults"); {
	case event.Do == Set && !at.given(faults):
		at.wrong(field, "", "set takes faults; heal takes them all back")
	case event.Do != Set && at.given(faults):
		at.wrong(faults, "", "only set takes faults")
	}

	checkFaults(at, inside(field, "faults"), event.Node, event.Faults)
}

// checkFaults notes faults that can't be, and those that exclude each other.
func checkFaults(at *places, field, node string, faults emulator.Faults) {
	mute := faults.Refuse || faults.Silence

	for _, rule := range []struct {
		name   string
		broken bool
		reason string
	}{
		{"refuse", faults.Refuse && faults.Silence, "a port that is refused is not silent: give one of refuse and silence"},
		{"impostor", faults.Impostor != emulator.NoImpostor && mute, "nothing answers on a port that is refused or silent"},
		{"bootLoop", faults.BootLoop && faults.Forgets,
			"a machine that forgets its install never boots from its disk: give one of bootLoop and forgets"},
		{"bootLoop", faults.BootLoop && faults.Lost != emulator.NotLost,
			"a lost machine does not come as far as that: give one of bootLoop and lost"},
		{"forgets", faults.Forgets && faults.Lost != emulator.NotLost,
			"a lost machine never comes back to maintenance mode: give one of forgets and lost"},
		{"installTimes", faults.InstallTimes != 0 && faults.Install == emulator.InstallWorks,
			"no install fails without a reason: give install too"},
		{"installTimes", faults.InstallTimes < 0, "can't be less than 0"},
		{"lingers", faults.Lingers < 0, "can't be less than 0"},
		{"installStall", faults.InstallStall < 0, "can't be less than 0"},
		{"etcdJoin", faults.EtcdJoin < 0, "can't be less than 0"},
		{"stallAfter", faults.StallAfter < 0, "can't be less than 0"},
		{"trustdDown", faults.TrustdDown && isWorker(node), "a worker has no trustd"},
		{"bootstrap", faults.Bootstrap != emulator.BootstrapWorks && isWorker(node), "a worker is never bootstrapped"},
		{"etcdImage", faults.EtcdImage && isWorker(node), "a worker has no etcd"},
		{"etcdNever", faults.EtcdNever && isWorker(node), "a worker has no etcd"},
		{"etcdJoin", faults.EtcdJoin != 0 && isWorker(node), "a worker has no etcd"},
		{"etcdJoin", faults.EtcdJoin != 0 && faults.EtcdNever,
			"an etcd that never joins is not late: give one of etcdJoin and etcdNever"},
		{"etcdNever", faults.EtcdNever && faults.EtcdImage,
			"an etcd whose image is missing does not come as far as that: give one of etcdNever and etcdImage"},
		{"etcdJoin", faults.EtcdJoin != 0 && faults.EtcdImage,
			"an etcd whose image is missing does not come as far as that: give one of etcdJoin and etcdImage"},
		{"etcdUnhealthy", faults.EtcdUnhealthy && isWorker(node), "a worker has no etcd"},
		{"etcdUnhealthy", faults.EtcdUnhealthy && (faults.EtcdNever || faults.EtcdImage),
			"an etcd that never joins or never starts is not even unhealthy"},
		{"budgetBlocks", faults.BudgetBlocks && faults.Lost != emulator.NotLost,
			"a lost machine does not come as far as having pods: give one of budgetBlocks and lost"},
		{"restoreFails", faults.RestoreFails && isWorker(node), "a worker has no etcd"},
		{"snapshotEnd", faults.SnapshotEnd != 0 && isWorker(node), "a worker has no etcd"},
		{"kubernetesDown", faults.KubernetesDown && isWorker(node), "a worker has no kube-apiserver"},
	} {
		if rule.broken {
			at.wrong(inside(field, rule.name), "", "%s", rule.reason)
		}
	}

	for i, call := range faults.Calls {
		checkCall(at, inside(field, fmt.Sprintf("calls.%d", i+1)), call)
	}
}

func checkCall(at *places, field string, call emulator.CallFault) {
	status := call.Code != codes.OK || call.Text != ""
	methods := methods()

	switch {
	case call.Method != "" && call.Method != "*" && !slices.Contains(methods, call.Method):
		at.wrong(inside(field, "method"), suggest.Word(call.Method, methods), "%q: the API has no such call", call.Method)
	case call.Method == "":
		at.wrong(field, "", `names no method; "*" is every call`)
	case call.Do == emulator.Fail && call.Code == codes.OK:
		at.wrong(field, "", "a call that fails needs a code")
	case call.Do != emulator.Fail && status:
		at.wrong(field, "", "only a call that fails has a code and a text")
	case call.After < 0 || call.Times < 0:
		at.wrong(field, "", "after and times can't be less than 0")
	}
}

// checkPower notes power that is cut or given twice in a row.
func (s *Scenario) checkPower(at *places) {
	off := map[string]bool{}

	order := make([]int, len(s.Events))
	for i := range order {
		order[i] = i
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Events[a].At, s.Events[b].At) })

	for _, i := range order {
		event := s.Events[i]
		do := inside("events", strconv.Itoa(i+1)) + ".do"

		switch {
		case event.Do == PowerOff && off[event.Node]:
			at.wrong(do, "", "%s is off already at %s", event.Node, event.At)
		case event.Do == PowerOn && !off[event.Node]:
			at.wrong(do, "", "%s is on already at %s", event.Node, event.At)
		}

		off[event.Node] = event.Do == PowerOff || off[event.Node] && event.Do != PowerOn
	}
}

func lastPart(address netip.Addr) string { return strconv.Itoa(int(address.As4()[3])) }

// checkHardware notes what two machines can't share.
func (s *Scenario) checkHardware(at *places) {
	owner := map[string]string{}

	for _, name := range s.named() {
		node, field := s.Nodes[name], inside("nodes", name)

		own := func(field, value string) {
			if other, taken := owner[value]; taken && value != "" {
				at.wrong(field, "", "%q is also that of %s", value, other)
			}

			owner[value] = name
		}

		if node.Address.IsValid() {
			own(inside(field, "address"), lastPart(node.Address))
		}

		if after := node.Faults.AddressAfter; after.IsValid() && after != node.Address {
			own(inside(field, "faults.addressAfter"), lastPart(after))
		}

		own(inside(field, "uuid"), node.UUID)

		disks := map[string]bool{}

		for i, disk := range node.Disks {
			if place := inside(field, fmt.Sprintf("disks.%d", i+1)); disk.Name == "" || disk.Size == 0 {
				at.wrong(place, "", "a disk needs a name and a size")
			} else if disks[disk.Name] {
				at.wrong(inside(place, "name"), "", "%s has two disks of this name", name)
			}

			disks[disk.Name] = true
		}

		if node.Disks != nil && len(node.Disks) == 0 && (node.Installed || node.EtcdData != emulator.NoEtcdData) {
			at.wrong(inside(field, "disks"), "", "Talos is on a disk of this node, so it has one")
		}

		for i, link := range node.Links {
			own(inside(field, fmt.Sprintf("links.%d.mac", i+1)), strings.ToLower(link.MAC))
		}
	}
}
