package drain_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/kube/drain"
	"github.com/talos-mage/talos-mage/internal/test/fakeclock"
)

func TestADrainLeavesWhatWouldComeBack(t *testing.T) {
	t.Parallel()

	lab := newLab(t,
		kubernetes.Workload{Name: "web", Replicas: 4, EmptyDir: true},
		kubernetes.Workload{Name: "database", Kind: kubernetes.StatefulSet, Replicas: 2, Ending: 30 * time.Second},
		kubernetes.Workload{Name: "agent", Kind: kubernetes.DaemonSet},
		kubernetes.Workload{Name: "migration", Kind: kubernetes.Job, Node: "worker1"},
		kubernetes.Workload{Name: "debug", Kind: kubernetes.Bare, Node: "worker1"},
	)

	var last drain.Progress

	require.NoError(t, lab.drainer.Drain(t.Context(), "worker1", func(now drain.Progress) { last = now }))
	require.Equal(t, drain.Progress{Pods: last.Pods, Gone: last.Pods}, last)
	require.Equal(t, []string{"agent", "kube-proxy"}, lab.appsOn(t, "worker1"))
	require.Equal(t, []string{"agent", "database", "kube-proxy", "web"}, lab.appsOn(t, "worker2"))
	require.Equal(t, drain.Ours, lab.owner(t, "worker1"))

	schedulable, err := lab.drainer.Uncordon(t.Context(), "worker1")
	require.NoError(t, err)
	require.True(t, schedulable)
	require.Equal(t, drain.Nobody, lab.owner(t, "worker1"))

	// A control plane has its own components beside.
	require.NoError(t, lab.drainer.Drain(t.Context(), "cp1", func(drain.Progress) {}))
	require.Equal(t, []string{"agent", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"},
		lab.appsOn(t, "cp1"))
}

func TestAnEvictionWaitsForItsBudget(t *testing.T) {
	t.Parallel()

	// Both pods are on worker1, and one may be away: the second goes when the first one's successor is ready.
	lab := newLab(t)
	lab.cluster.Cordon("worker2", true)
	lab.cluster.Run(kubernetes.Workload{Name: "web", Replicas: 2, Budget: 1, Starting: 30 * time.Second})
	lab.cluster.Cordon("worker2", false)
	lab.clock.Advance(time.Minute)

	began := lab.clock.Now()

	var held []string

	require.NoError(t, lab.drainer.Drain(t.Context(), "worker1", func(now drain.Progress) {
		for _, pod := range now.Held {
			held = append(held, pod.String())
		}
	}))
	require.GreaterOrEqual(t, lab.clock.Now().Sub(began), 30*time.Second)
	require.Regexp(t, `^pod default/web-\w+ \(PodDisruptionBudget web needs 1 healthy pods and has 1\)$`, held[0])
}

func TestADrainThatFailsSaysWhyAndLeavesNoCordon(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name string
		work []kubernetes.Workload
		text string
		took time.Duration
		id   diagnosis.ID
	}{
		{
			name: "a budget that blocks",
			work: []kubernetes.Workload{{Name: "web", Budget: 1, Node: "worker1"}, {Name: "other", Node: "worker1"}},
			text: `^node worker1 can't be drained: it holds pod default/web-\w+ \(PodDisruptionBudget web needs 1 healthy ` +
				`pods and has 1\)$`,
			took: time.Minute, id: diagnosis.DrainBlocked,
		},
		{
			name: "two budgets for one pod, which no waiting changes",
			work: []kubernetes.Workload{
				{Name: "web", Kind: kubernetes.StatefulSet, Budget: 1, Node: "worker1"},
				{Name: "api", Kind: kubernetes.StatefulSet, App: "web", Budget: 1, Node: "worker2"},
			},
			text: `^node worker1 can't be drained: it holds pod default/web-0 \(PodDisruptionBudgets web and api cover it, ` +
				`and Kubernetes evicts no pod that more than one covers\)$`,
			id: diagnosis.DrainBlocked,
		},
		{
			name: "a pod that does not end",
			work: []kubernetes.Workload{{Name: "web", Kind: kubernetes.StatefulSet, Ending: time.Hour, Node: "worker1"}},
			text: `^node worker1 can't be drained: evicted pods did not end within 1m0s: default/web-0$`,
			took: time.Minute, id: diagnosis.DrainUnending,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			lab := newLab(t, test.work...)
			began := lab.clock.Now()

			err := lab.drainer.Drain(t.Context(), "worker1", func(drain.Progress) {})
			require.Error(t, err)
			require.Regexp(t, test.text, err.Error())
			require.Equal(t, test.id, drain.Problem(err, "mage upgrade").ID)
			require.Equal(t, drain.Nobody, lab.owner(t, "worker1"))
			require.InDelta(t, test.took, lab.clock.Now().Sub(began), float64(3*time.Second))
		})
	}
}

func TestACordonOfOthersStays(t *testing.T) {
	t.Parallel()

	lab := newLab(t)
	lab.cluster.Cordon("worker1", true)
	require.Equal(t, drain.Others, lab.owner(t, "worker1"))

	require.NoError(t, lab.drainer.Drain(t.Context(), "worker1", func(drain.Progress) {}))

	schedulable, err := lab.drainer.Uncordon(t.Context(), "worker1")
	require.NoError(t, err)
	require.False(t, schedulable)
	require.Equal(t, drain.Others, lab.owner(t, "worker1"))

	// Nor does a failure take it back, nor is Talos' own ours.
	lab.cluster.Run(kubernetes.Workload{Name: "web", Kind: kubernetes.Bare, Budget: 1, Node: "worker2"})
	lab.cluster.Drain("worker2")

	var blocked *drain.BlockedError

	require.ErrorAs(t, lab.drainer.Drain(t.Context(), "worker2", func(drain.Progress) {}), &blocked)
	require.Equal(t, []drain.HeldPod{{Namespace: "default", Name: "web",
		Budgets: []drain.Budget{{Name: "web", Healthy: 1, Needed: 1}},
		Answer:  "The disruption budget web needs 1 healthy pods and has 1 currently"}}, blocked.Pods)
	require.Equal(t, drain.Others, lab.owner(t, "worker2"))
}

func TestACordonOfAnInterruptedRunIsKnownAsOurs(t *testing.T) {
	t.Parallel()

	lab := newLab(t)
	require.NoError(t, lab.drainer.Drain(t.Context(), "worker1", func(drain.Progress) {}))

	// Another run begins where the one before it was killed.
	next := drain.Drainer{Client: lab.drainer.Client, Clock: fakeclock.New(lab.clock.Now())}
	require.NoError(t, next.Drain(t.Context(), "worker1", func(drain.Progress) {}))
	require.Equal(t, drain.Ours, lab.owner(t, "worker1"))

	// Who uncordons the node by hand, and cordons it again later, has it for himself.
	lab.cluster.Cordon("worker1", false)
	require.Equal(t, drain.Nobody, lab.owner(t, "worker1"))

	schedulable, err := next.Uncordon(t.Context(), "worker1")
	require.NoError(t, err)
	require.True(t, schedulable)

	lab.cluster.Cordon("worker1", true)
	require.Equal(t, drain.Others, lab.owner(t, "worker1"))
}

func TestAnInterruptedDrainLeavesNoCordon(t *testing.T) {
	t.Parallel()

	lab := newLab(t, kubernetes.Workload{Name: "web", Budget: 1, Node: "worker1"})

	ctx, cancel := context.WithCancel(t.Context())
	err := lab.drainer.Drain(ctx, "worker1", func(drain.Progress) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, drain.Nobody, lab.owner(t, "worker1"))
}

func TestADrainOutlivesAnAPIThatIsAwayForAMoment(t *testing.T) {
	t.Parallel()

	lab := newLab(t, kubernetes.Workload{Name: "web", Kind: kubernetes.StatefulSet, Ending: time.Minute, Node: "worker1"})
	looks := 0

	require.NoError(t, lab.drainer.Drain(t.Context(), "worker1", func(drain.Progress) {
		looks++
		lab.cluster.Available(looks < 5 || looks > 8)
	}))
	require.Greater(t, looks, 8)
}

func TestACordonThatStaysIsNamed(t *testing.T) {
	t.Parallel()

	lab := newLab(t, kubernetes.Workload{Name: "web", Budget: 1, Node: "worker1"})

	err := lab.drainer.Drain(t.Context(), "worker1", func(drain.Progress) { lab.cluster.Available(false) })

	var left *drain.CordonLeftError

	require.ErrorAs(t, err, &left)
	require.Equal(t, "worker1", left.Node)
	require.ErrorContains(t, err,
		"node worker1 stays cordoned: it answers with an error (500): etcdserver: request timed out")

	problem := drain.Problem(err, "mage upgrade")
	require.Equal(t, diagnosis.CordonLeft, problem.ID)
	require.Equal(t, "kubectl uncordon worker1", problem.Next)

	lab.cluster.Available(true)
	require.Equal(t, drain.Ours, lab.owner(t, "worker1"))

	// That of somebody else is none that has to be taken back.
	lab.cluster.Run(kubernetes.Workload{Name: "web", Kind: kubernetes.StatefulSet, Ending: time.Hour, Node: "worker2"})
	lab.cluster.Cordon("worker2", true)

	err = lab.drainer.Drain(t.Context(), "worker2", func(drain.Progress) { lab.cluster.Available(false) })
	require.NotErrorAs(t, err, &left)
	require.Equal(t, diagnosis.APINotReady, drain.Problem(err, "mage upgrade").ID)
}

// lab is a cluster of a control plane and two workers, of which worker1 is the busiest.
type lab struct {
	cluster *kubernetes.Cluster
	clock   *fakeclock.Clock
	drainer drain.Drainer
	// kubeconfig is an administrator's.
	kubeconfig []byte
}

func newLab(t *testing.T, work ...kubernetes.Workload) *lab {
	t.Helper()

	clock := fakeclock.New(time.Now())
	l := &lab{clock: clock, cluster: kubernetes.NewCluster(kubernetes.Options{Now: clock.Now, Workloads: work,
		CNI: "custom"})}

	for n, name := range []string{"cp1", "worker1", "worker2"} {
		l.cluster.Register(kubernetes.Node{Name: name, ControlPlane: n == 0,
			Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + n)})})
	}

	made, err := secrets.NewKubernetesCA(time.Now(), config.TalosVersionCurrent)
	require.NoError(t, err)

	ca := x509.NewCertificateAndKeyFromCertificateAuthority(made)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	server, err := l.cluster.Serve(listener, kubernetes.ServerOptions{IssuingCA: ca})
	require.NoError(t, err)
	t.Cleanup(server.Close)

	l.kubeconfig, err = kubernetes.AdminKubeconfig(kubernetes.AdminOptions{ClusterName: "lab", IssuingCA: ca,
		AcceptedCAs: ca.Crt, Endpoint: "https://" + listener.Addr().String()})
	require.NoError(t, err)

	client, err := kube.Open(l.kubeconfig, kube.Options{})
	require.NoError(t, err)

	l.drainer = drain.Drainer{Client: client, Clock: clock, Limit: time.Minute}

	return l
}

func (l *lab) owner(t *testing.T, node string) drain.Owner {
	t.Helper()

	owner, err := l.drainer.Cordoned(t.Context(), node)
	require.NoError(t, err)

	return owner
}

// appsOn are what runs on a node, each once.
func (l *lab) appsOn(t *testing.T, node string) []string {
	t.Helper()

	var pods corev1.PodList

	require.NoError(t, l.drainer.Client.Read(t.Context(), "/api/v1/pods", &pods, "fieldSelector", "spec.nodeName="+node))

	var apps []string
	for _, pod := range pods.Items {
		apps = append(apps, pod.Labels["k8s-app"])
	}

	slices.Sort(apps)

	return slices.Compact(apps)
}
