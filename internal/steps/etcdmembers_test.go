package steps_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

const removeCall = "EtcdRemoveMemberByID"

// memberID is a machine's id in etcd, as people type it.
func memberID(node *emulator.Node) string { return fmt.Sprintf("<id>=%016x", node.EtcdMemberID()) }

// kubernetes is what the cluster's API lists of nodes.
func (l *lab) kubernetes(t *testing.T) []kube.Node {
	t.Helper()

	s := l.session(t)
	s.succeeds(t, steps.Kubeconfig{})

	kubeconfig, err := os.ReadFile(s.Settings.Kubeconfig)
	require.NoError(t, err)

	client, err := kube.Open(kubeconfig, kube.Options{})
	require.NoError(t, err)

	nodes, err := client.Nodes(t.Context())
	require.NoError(t, err)

	return nodes
}

// kubernetesNodes are the names of the nodes that Kubernetes lists.
func (l *lab) kubernetesNodes(t *testing.T) []string {
	t.Helper()

	var names []string
	for _, node := range l.kubernetes(t) {
		names = append(names, node.Name)
	}

	return names
}

// hostname is what Kubernetes calls a machine.
func (l *lab) hostname(t *testing.T, name string) string {
	t.Helper()

	for _, node := range l.kubernetes(t) {
		if slices.Contains(node.InternalIPs, l.Node(name).Address()) {
			return node.Name
		}
	}

	require.Fail(t, name+" is not registered")

	return ""
}

// members are the names of the members that etcd lists.
func (l *lab) members(t *testing.T) []string {
	t.Helper()

	rows, _, err := steps.EtcdList(t.Context(), l.session(t).Run)
	require.NoError(t, err)

	var names []string
	for _, row := range rows[1:] {
		names = append(names, row[1])
	}

	return names
}

func TestAMemberIsRemovedOnceItsNodeIsGone(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0)
	l.up(t)

	cp3 := memberID(l.Node("cp3"))

	// It is there.
	problem := l.session(t, cp3).fails(t, diagnosis.ExitBootstrap, diagnosis.MemberAnswers, steps.EtcdRemoveMember{})
	require.Equal(t, "cp3", problem.Node)

	// Nobody is called so.
	problem = l.session(t, cp3[:len(cp3)-1]+"z").fails(t, diagnosis.ExitBadInput, diagnosis.UnknownMember,
		steps.EtcdRemoveMember{})
	require.Contains(t, problem.Cause, "which is no member of etcd; its members are ")
	require.Contains(t, problem.Cause, strings.TrimPrefix(cp3, "<id>=")+" (cp3)")

	// Its API is closed for the moment, and two of three are needed.
	l.Node("cp2").PowerOff()
	l.Node("cp3").PowerOff()

	problem = l.session(t, cp3).fails(t, diagnosis.ExitBootstrap, diagnosis.RemovalHeldBack, steps.EtcdRemoveMember{})
	require.Contains(t, problem.Cause, "no member of etcd is healthy")

	l.Node("cp2").PowerOn()
	wait(t, l.Node("cp2"), (*emulator.Node).EtcdVoter)
	l.session(t).do(t, steps.Bootstrap{}) // which waits until it is healthy

	s := l.session(t, cp3, "DRY_RUN=true")
	s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, steps.EtcdRemoveMember{})
	require.Equal(t, report.Planned, s.status("etcd:removeMember", ""))

	for _, name := range []string{"cp1", "cp2"} {
		require.Zero(t, calls(l.Node(name), removeCall))
	}

	require.Contains(t, l.kubernetesNodes(t), "cp3")

	// A reply is lost, and another is a refusal that passes.
	fault(l.Node("cp1"), emulator.CallFault{Method: removeCall, Do: emulator.Fail, Code: codes.Unknown,
		Text: "failed to remove member: etcdserver: unhealthy cluster", Times: 1},
		emulator.CallFault{Method: removeCall, Do: emulator.Cut, When: emulator.AfterEffect, Times: 1})

	s = l.session(t, cp3)
	s.succeeds(t, steps.EtcdRemoveMember{})
	require.Contains(t, s.detail("etcd:removeMember", ""), "(cp3) removed, and the Kubernetes node cp3")
	require.NotContains(t, l.members(t), "cp3")
	require.NotContains(t, l.kubernetesNodes(t), "cp3")

	// Run again there is nothing to do. A slip of the fingers is none the less told.
	s = l.session(t, cp3)
	s.succeeds(t, steps.EtcdRemoveMember{})
	require.Equal(t, report.Skipped, s.status("etcd:removeMember", ""))
	require.Contains(t, s.detail("etcd:removeMember", ""), "any more; its members are ")

	cp2 := memberID(l.Node("cp2"))
	for _, slip := range []string{cp3[:len(cp3)-1], cp2[:len(cp2)-2] + "10", "<id>=0"} {
		l.session(t, slip).fails(t, diagnosis.ExitBadInput, diagnosis.UnknownMember, steps.EtcdRemoveMember{})
	}
}

func TestTheLastOfTwoMembersStays(t *testing.T) {
	t.Parallel()

	l := newLab(t, 2, 0)
	l.up(t)
	l.Node("cp2").PowerOff()

	problem := l.session(t, memberID(l.Node("cp2"))).fails(t, diagnosis.ExitBootstrap, diagnosis.RemovalHeldBack,
		steps.EtcdRemoveMember{})
	require.Contains(t, problem.Cause, "no member of etcd is healthy")
	require.Zero(t, calls(l.Node("cp1"), removeCall))
}

func TestAMachineIsReplaced(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 1)
	l.up(t)

	clusters := l.Lab.EtcdClusters()
	former := l.Node("cp3").EtcdMemberID()

	l.Node("cp3").PowerOff()

	s := l.session(t, "NODE=cp3", seconds("NODE_WAIT", 5))
	silent := s.fails(t, diagnosis.ExitBootstrap, diagnosis.NodeSilent, s.replacing()...)
	require.Contains(t, silent.Next, "mage replaceNode cp3 -discover")
	require.Contains(t, l.members(t), "cp3", "the new machine is not there yet")

	l.Node("cp3").Wipe()
	l.Node("cp3").PowerOn()
	wait(t, l.Node("cp3"), inStage("maintenance"))

	// The former machine had another address.
	l.nameInTalosconfig(t, []string{l.addressOf("cp1"), l.Lab.Address(99).String()})

	s = l.session(t, "NODE=cp3", "DRY_RUN=true")
	planned := s.fails(t, diagnosis.ExitDryRun, diagnosis.WouldChange, s.replacing()...)
	require.Equal(t, "mage replaceNode cp3", planned.Next)
	require.Contains(t, s.detail("replaceNode", "cp3"), "and the Kubernetes node cp3 of the former machine")
	require.Contains(t, l.members(t), "cp3")

	// Whoever is out of reach for a moment has not answered for its disk yet.
	fault(l.Node("cp3"), emulator.CallFault{Method: "List", Resource: "DiscoveredVolumes.block.talos.dev",
		Do: emulator.Cut, Times: 1})

	s = l.session(t, "NODE=cp3")
	s.succeeds(t, s.replacing()...)

	endpoints, _ := l.namedInTalosconfig(t)
	require.Equal(t, []string{l.addressOf("cp1"), l.addressOf("cp2"), l.addressOf("cp3")}, endpoints)
	require.NotEqual(t, former, l.Node("cp3").EtcdMemberID())
	require.True(t, l.Node("cp3").EtcdVoter())
	require.Len(t, l.members(t), 3)
	require.Contains(t, l.kubernetesNodes(t), "cp3")
	require.Equal(t, clusters, l.Lab.EtcdClusters())

	// Again: it is in.
	l.nameInTalosconfig(t, []string{l.addressOf("cp1"), l.Lab.Address(99).String()})

	s = l.session(t, "NODE=cp3")
	s.succeeds(t, s.replacing()...)
	require.Equal(t, report.Skipped, s.status("replaceNode", "cp3"))

	endpoints, _ = l.namedInTalosconfig(t)
	require.NotContains(t, endpoints, l.Lab.Address(99).String())

	// Another machine is declared, and the former one answers.
	l.declareMachine(t, "cp3", "02:00:00:00:00:99")

	s = l.session(t, "NODE=cp3")
	problem := s.fails(t, diagnosis.ExitBootstrap, diagnosis.FormerMachineAnswers, s.replacing()...)
	require.Equal(t, "cp3", problem.Node)
	require.Contains(t, problem.Cause, "the machine that cp3 is to replace answers at")
	require.Contains(t, problem.Next, "power that machine off for good, then mage replaceNode cp3")

	// A search finds it, and says what to do with it whatever the files declare.
	s = l.session(t, "NODE=cp3", "DISCOVER=1", "NO_WAIT=1")
	problem = s.fails(t, diagnosis.ExitPreflight, diagnosis.MachineAmbiguous, s.replacing()...)
	require.Contains(t, problem.Next, "switch the machine at "+l.addressOf("cp3")+" off for good, or wipe it")

	// No other step takes it for the declared one either.
	l.session(t, "NODE=cp3").fails(t, diagnosis.ExitVerify, diagnosis.WrongMachine, steps.Verify{})

	// A worker has no part in etcd.
	l.Node("worker1").PowerOff()
	l.Node("worker1").Wipe()
	l.Node("worker1").PowerOn()
	wait(t, l.Node("worker1"), inStage("maintenance"))

	s = l.session(t, "NODE=worker1")
	s.succeeds(t, s.replacing()...)
	require.Equal(t, report.Applied, s.status("replaceNode", "worker1"))
	require.Contains(t, l.kubernetesNodes(t), "worker1")
}

// Where the files leave the names to the machines, the new one has another than the former.
func TestTheNodeOfAMachineThatNamedItselfGoesWithIt(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 1, func(options *labcluster.Options) { options.AutoHostnames = true })
	l.up(t)
	require.Len(t, l.kubernetesNodes(t), 4)

	for _, name := range []string{"cp3", "worker1"} {
		node := l.Node(name)
		former := l.hostname(t, name)

		node.PowerOff()
		node.Wipe()
		node.PowerOn()
		wait(t, node, inStage("maintenance"))

		s := l.session(t, "NODE="+name)
		s.succeeds(t, s.replacing()...)
		require.Contains(t, s.detail("replaceNode", name), "the Kubernetes node "+former+" of the former machine")
		require.NotEqual(t, former, l.hostname(t, name))
		require.NotContains(t, l.kubernetesNodes(t), former)
		require.Len(t, l.kubernetesNodes(t), 4)
	}

	// Nothing tells whose node it was, once another address is declared.
	former := l.hostname(t, "worker1")
	l.move(t, "worker1", l.Lab.Address(99))

	s := l.session(t, "NODE=worker1")
	s.succeeds(t, s.replacing()...)
	require.Contains(t, s.detail("replaceNode", "worker1"), "removed nothing of the former machine")
	require.Contains(t, s.out.String(), "Kubernetes lists "+former+", not Ready and at no declared node's address")
	require.Contains(t, s.out.String(), "kubectl delete node "+former+", if it is the former machine's")
	require.Len(t, l.kubernetesNodes(t), 5)
}

// move puts a new machine at another address, which the files declare for it.
func (l *lab) move(t *testing.T, name string, address netip.Addr) {
	t.Helper()

	former := l.Node(name)
	options := former.Options()

	for _, path := range []string{filepath.Join(l.Dir, "talconfig.yaml"), l.ConfigFile(name)} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, regexp.MustCompile(regexp.QuoteMeta(options.Address.String())+`\b`).
			ReplaceAll(data, []byte(address.String())), 0o600))
	}

	l.Lab.Remove(former)

	options.Address = address
	_, err := l.Lab.Start(options)
	require.NoError(t, err)
	wait(t, l.Node(name), inStage("maintenance"))
}

func TestAMachineThatNoFileNamesReplacesNone(t *testing.T) {
	t.Parallel()

	l := newLab(t, 3, 0, func(options *labcluster.Options) { options.NoMACs = true })
	s := l.session(t, "NODE=cp3")
	s.fails(t, diagnosis.ExitBadInput, diagnosis.ReplacementUnnamed, s.replacing()...)
	require.Zero(t, len(l.Node("cp1").Calls()))
}

// replacing are the steps of a replacement.
func (s *session) replacing() []steps.Step { return steps.ReplaceNode(s.Settings) }

// declareMachine has the files declare another machine for a node.
func (l *lab) declareMachine(t *testing.T, name, mac string) {
	t.Helper()

	for _, spec := range l.Generated.Options.Nodes {
		if spec.Name != name {
			continue
		}

		for _, path := range []string{filepath.Join(l.Dir, "talconfig.yaml"), l.ConfigFile(name)} {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(data), spec.MAC, mac)), 0o600))
		}
	}
}
