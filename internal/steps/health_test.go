package steps_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/documents"
)

const healthCall = "HealthCheck"

// patientHealth is a limit that no check of a healthy cluster comes near.
const patientHealth = "HEALTH_TIMEOUT=4h"

// withFlannel gives the cluster Talos' own CNI, and a Talos release.
func withFlannel(version string) func(*labcluster.Options) {
	return func(options *labcluster.Options) {
		options.CNI, options.TalosVersion, options.Endpoint = "flannel", version, labcluster.FirstControlPlane
		options.LabOptions.Discovery = true
	}
}

// allReady waits until Kubernetes has all machines Ready.
func (l *lab) allReady(t *testing.T) {
	t.Helper()

	for _, node := range l.Nodes {
		wait(t, node, (*emulator.Node).Ready)
	}
}

// health looks at the cluster.
func (s *session) health(t *testing.T, live bool) steps.Healthiness {
	t.Helper()

	step := &steps.Health{Live: live}
	s.do(t, step)
	require.NotNil(t, step.Found, s.out)

	return *step.Found
}

// finding is what was found of a kind, of a node or of the cluster.
func finding(found steps.Healthiness, id diagnosis.ID, node string) (diagnosis.Finding, bool) {
	for _, finding := range found.Findings {
		if finding.ID == id && finding.Node == node {
			return finding, true
		}
	}

	return diagnosis.Finding{}, false
}

func TestAHealthyClusterPassesInEveryRelease(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.12.1", "v1.13.9", documents.Talos} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1, withFlannel(version))
			l.up(t)
			l.allReady(t)

			s := l.session(t, patientHealth)
			found := s.health(t, false)
			require.NoError(t, s.err, s.out)
			require.True(t, found.Healthy)
			require.Empty(t, found.Findings)
			require.Equal(t, "nothing: the cluster is healthy", found.Next)
			require.Equal(t, report.OK, s.status("health", ""))
			require.Equal(t, report.OK, s.status("health", "worker1"))
			require.Contains(t, s.out.String(), "passed")
			require.Equal(t, "cp1", found.AskedOf)
			require.Len(t, found.Checks, 16)

			for _, made := range found.Checks {
				require.True(t, made.Over(), made)
			}

			require.Contains(t, s.detail("health", "worker1"), "running, "+version)

			tables := found.Tables()
			require.Len(t, tables, 1)

			var names []string
			for _, row := range tables[0][1:] {
				names = append(names, row[0])
			}

			require.Equal(t, []string{"talosconfig, context lab", "kubeconfig, context admin@lab", "CA of Talos",
				"CA of Kubernetes", "CA of Kubernetes' aggregator", "CA of etcd", "API of cp1", "API of worker1"}, names)

			var document map[string]any

			require.NoError(t, json.Unmarshal([]byte(found.JSON()), &document))
			require.Equal(t, true, document["healthy"])
			require.Len(t, document["checks"], 16)
			require.Len(t, document["certificates"], 8)
		})
	}
}

func TestNodesThatWaitForACNIAreToldAsSuch(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.12.1", "v1.13.9"} { // the older one would wait for it
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1, withFlannel(version), func(options *labcluster.Options) { options.CNI = "none" })
			l.up(t)

			s := l.session(t, patientHealth)
			found := s.health(t, false)
			require.NoError(t, s.err, s.out)
			require.True(t, found.Healthy)

			waits, told := finding(found, diagnosis.NotReadyExpected, "")
			require.True(t, told, s.out)
			require.Equal(t, diagnosis.Warning, waits.Severity)
			require.Contains(t, waits.Cause, `no CNI is installed yet (declared is "none"), so no node is Ready`)
			require.Contains(t, found.Next, "install your CNI")
			require.Equal(t, report.Warned, s.status("health", ""))
		})
	}
}

func TestACheckThatFailsNamesNodeCheckAndNextCommand(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, withFlannel("v1.13.9"))
	l.up(t)
	l.allReady(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.EtcdUnhealthy = true })

	s := l.session(t, seconds("HEALTH_TIMEOUT", 240))
	found := s.health(t, false)
	require.Equal(t, diagnosis.ExitKubernetes, steps.CodeOf(s.err), s.out)

	failing, told := finding(found, diagnosis.HealthFails, "cp1")
	require.True(t, told, s.out)
	require.Contains(t, failing.Cause, "etcd is not healthy on every control plane, for 4m")
	require.Contains(t, failing.Cause, `(check "etcd to be healthy", made by cp1)`)
	require.Equal(t, "mage etcd:status", failing.Next)
}

func TestACheckIsNotWaitedForIfNobodyWantsTo(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, withFlannel("v1.13.9"))
	l.up(t)
	l.allReady(t)
	l.Node("cp1").Set(func(f *emulator.Faults) { f.EtcdUnhealthy = true })

	// A limit that no test outlasts.
	s := l.session(t, "HEALTH_TIMEOUT=10000h", "NO_WAIT=true")
	found := s.health(t, false)
	require.Equal(t, diagnosis.ExitKubernetes, steps.CodeOf(s.err), s.out)

	failing, told := finding(found, diagnosis.HealthFails, "cp1")
	require.True(t, told, s.out)
	require.Contains(t, failing.Cause, "etcd is not healthy on every control plane, which was not waited for: ")

	l.Node("cp1").Set(func(f *emulator.Faults) { f.EtcdUnhealthy = false })
	require.Eventually(t, func() bool {
		s := l.session(t, "NO_WAIT=true")
		s.health(t, false)

		return s.err == nil
	}, labcluster.Deadline, labcluster.Deadline/100)
}

func TestHealthIsToldOfThePartThatAnswers(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 2, withFlannel("v1.13.9"))
	l.up(t)
	l.allReady(t)
	l.Node("worker2").PowerOff()

	s := l.session(t, patientHealth)
	found := s.health(t, false)
	require.Equal(t, diagnosis.ExitKubernetes, steps.CodeOf(s.err), s.out)
	require.False(t, found.Healthy)

	silent, told := finding(found, diagnosis.NodeSilent, "worker2")
	require.True(t, told, s.out)
	require.Contains(t, silent.Next, "power it on")
	require.Equal(t, report.OK, s.status("health", "cp1"))
	require.Equal(t, report.OK, s.status("health", "worker1"))
	require.Equal(t, report.Failed, s.status("health", "worker2"))

	// Talos' check would wait for it; that it does not answer is known.
	failing, told := finding(found, diagnosis.HealthFails, "worker2")
	require.True(t, told, s.out)
	require.Contains(t, failing.Cause, "it waits for a node that does not answer")
}

func TestAControlPlaneThatCantCheckIsLeftForTheNext(t *testing.T) {
	t.Parallel()

	// The nodes' discovery knows none but themselves, as without a way to the service on the internet.
	l := newLab(t, 3, 0, withFlannel("v1.13.9"),
		func(options *labcluster.Options) { options.LabOptions.Discovery = false })
	l.up(t)
	l.allReady(t)
	fault(l.Node("cp1"), emulator.CallFault{Method: healthCall, Do: emulator.Cut})
	fault(l.Node("cp2"), emulator.CallFault{Method: healthCall, Do: emulator.Freeze})

	s := l.session(t, patientHealth)
	found := s.health(t, false)
	require.NoError(t, s.err, s.out)
	require.Equal(t, "cp3", found.AskedOf)
	require.Contains(t, s.out.String(), "can't check the cluster")

	fault(l.Node("cp3"), emulator.CallFault{Method: healthCall, Do: emulator.Fail, Code: codes.Unknown, Text: "no room"})

	s = l.session(t, patientHealth)
	found = s.health(t, false)
	require.Equal(t, diagnosis.ExitKubernetes, steps.CodeOf(s.err), s.out)

	unasked, told := finding(found, diagnosis.HealthUnasked, "")
	require.True(t, told, s.out)
	require.Contains(t, unasked.Cause, "cp1: ")
	require.Contains(t, unasked.Cause, "cp3: no room")
	require.Equal(t, "mage status", unasked.Next)
}

func TestAnotherImageThanDeclaredIsTold(t *testing.T) {
	t.Parallel()

	const other = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

	l := newLab(t, 1, 0, withFlannel("v1.13.9"))
	l.up(t)
	l.allReady(t)
	l.changeInstaller(t, "cp1", "factory.talos.dev/metal-installer/"+other+":v1.13.10")

	s := l.session(t, patientHealth)
	found := s.health(t, false)
	require.NoError(t, s.err, s.out)

	differs, told := finding(found, diagnosis.ImageDiffers, "cp1")
	require.True(t, told, s.out)
	require.Contains(t, differs.Cause, "it runs v1.13.9, and v1.13.10 is declared")
	require.Contains(t, differs.Cause, "and ce4c9805 is declared, with extensions that it lacks: siderolabs/")
	require.Equal(t, "mage upgradeNode cp1", differs.Next)
	require.Equal(t, report.Warned, s.status("health", "cp1"))
}

// changeInstaller declares another installer image.
func (l *lab) changeInstaller(t *testing.T, name, image string) {
	t.Helper()

	text := readFile(t, l.ConfigFile(name))
	_, rest, found := strings.Cut(text, " image: factory.talos.dev/")
	if !found {
		_, rest, found = strings.Cut(text, " image: ghcr.io/siderolabs/installer")
		require.True(t, found)
		l.changeFile(t, name, " image: ghcr.io/siderolabs/installer"+strings.SplitN(rest, "\n", 2)[0], " image: "+image)

		return
	}

	l.changeFile(t, name, " image: factory.talos.dev/"+strings.SplitN(rest, "\n", 2)[0], " image: "+image)
}

// areasOf is what came of the areas, each as its status and finding.
func (l *lab) areasOf(t *testing.T) map[check.Area]string {
	t.Helper()

	found := l.session(t, asTheyAre, patientHealth).health(t, true)

	areas := map[check.Area]string{}
	for _, area := range found.Areas {
		areas[area.Area] = area.Status + ": " + area.Finding
	}

	return areas
}

// ready brings a cluster up whose machine configs were changed, and waits until its nodes are Ready.
func (l *lab) ready(t *testing.T) {
	t.Helper()

	l.untilMaintenance(t)
	s := l.session(t, asTheyAre, "MAX_PARALLEL=100%")
	s.succeeds(t, s.recipe()...)
	l.Lab.InstallCNI()
	l.allReady(t)
}

// beside puts workloads and ConfigMaps on the cluster.
func beside(workloads []kubernetes.Workload, held ...kubernetes.ConfigMap) func(*labcluster.Options) {
	return func(options *labcluster.Options) {
		options.LabOptions.Workloads, options.LabOptions.ConfigMaps = workloads, held
	}
}

func TestCiliumIsComparedWithTheMachineConfigs(t *testing.T) {
	t.Parallel()

	cilium := kubernetes.Workload{Namespace: "kube-system", Name: "cilium", Kind: kubernetes.DaemonSet}
	config := func(ipam, replacement string) kubernetes.ConfigMap {
		return kubernetes.ConfigMap{Name: "cilium-config",
			Data: map[string]string{"ipam": ipam, "kube-proxy-replacement": replacement}}
	}

	for name, test := range map[string]struct {
		held    []kubernetes.ConfigMap
		proxy   bool
		silence bool
		want    string
	}{
		"as it should be": {held: []kubernetes.ConfigMap{config("kubernetes", "true")},
			want: "Compliant: ready on 2 of 2 nodes; ipam kubernetes; kube-proxy-replacement true"},
		"kube-proxy is left": {held: []kubernetes.ConfigMap{config("kubernetes", "false")}, proxy: true,
			want: "Compliant: ready on 2 of 2 nodes; ipam kubernetes"},
		"nobody does kube-proxy's work": {held: []kubernetes.ConfigMap{config("kubernetes", "false")},
			want: `Not Compliant: kube-proxy-replacement is "false" and should be "true": the machine configs switch ` +
				"kube-proxy off"},
		"it gives addresses itself": {held: []kubernetes.ConfigMap{config("cluster-pool", "true")},
			want: `Not Compliant: ipam is "cluster-pool" and should be "kubernetes": Talos gives the nodes their pod networks`},
		"without a configuration": {want: "Not Compliant: its configuration can't be read: "},
		"an agent does not run": {held: []kubernetes.ConfigMap{config("kubernetes", "true")}, silence: true,
			want: "Not Compliant: its agent is ready on 1 of 2 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1, withFlannel("v1.13.9"), beside([]kubernetes.Workload{cilium}, test.held...),
				func(options *labcluster.Options) { options.CNI = "none" })

			if !test.proxy {
				l.changeFile(t, "cp1", "  proxy:\n", "  proxy:\n    disabled: true\n")
			}

			l.ready(t)

			if test.silence {
				l.Node("worker1").PowerOff()
			}

			require.Contains(t, l.areasOf(t)[check.CiliumArea], test.want)
		})
	}
}

func TestLabelsThatFilesDeclareAreOnTheNodes(t *testing.T) {
	t.Parallel()

	const zone, role = "topology.kubernetes.io/zone: a", "node-role.kubernetes.io/worker: in"

	fields := func(t *testing.T, l *lab, labels string) {
		t.Helper()
		l.changeFile(t, "worker1", "machine:\n", "machine:\n  nodeLabels:\n    "+labels+"\n")
	}

	for name, test := range map[string]struct {
		version string
		declare func(t *testing.T, l *lab, labels string)
		labels  string
		want    string
	}{
		"fields of v1.13.9": {"v1.13.9", fields, zone, "Compliant: as declared; 1 of 2 nodes have a zone"},
		"documents of v1.14.1": {documents.Talos, func(t *testing.T, l *lab, labels string) {
			t.Helper()
			l.inDocuments(t, []string{"worker1"},
				documents.Edit{"kind: KubeNodeConfig\n", "kind: KubeNodeConfig\nlabels:\n    " + labels + "\n"})
		}, zone, "Compliant: as declared; 1 of 2 nodes have a zone"},
		// It costs the worker all of them.
		"one that kubelets may not set": {"v1.13.9", fields, zone + "\n    " + role,
			`Not Compliant: worker1: the label node-role.kubernetes.io/worker is "", and "in" is declared; worker1: the label ` +
				`topology.kubernetes.io/zone is "", and "a" is declared`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1, withFlannel(test.version))
			test.declare(t, l, test.labels)
			l.ready(t)
			require.Equal(t, test.want, l.areasOf(t)[check.LabelsArea])
		})
	}
}

func TestNodesThatACloudControllerManagerLooksAfter(t *testing.T) {
	t.Parallel()

	manager := kubernetes.Workload{Namespace: "kube-system", Name: "proxmox-cloud-controller-manager"}
	starting := manager
	starting.Starting = patience * scale * 1000

	for name, test := range map[string]struct {
		runs     []kubernetes.Workload
		declared []string
		want     string
	}{
		"it runs": {[]kubernetes.Workload{manager}, []string{"cp1", "worker1"},
			"Compliant: proxmox-cloud-controller-manager-"},
		"it does not": {nil, []string{"cp1", "worker1"}, "Not Compliant: no cloud controller manager of Proxmox is ready; " +
			"cp1 waits for it, and takes no pods; worker1 waits for it, and takes no pods"},
		"it is not ready": {[]kubernetes.Workload{starting}, []string{"cp1", "worker1"},
			"Not Compliant: no cloud controller manager of Proxmox is ready; cp1 waits for it"},
		"a worker's kubelet does not know of it": {[]kubernetes.Workload{manager}, []string{"cp1"},
			"Not Compliant: worker1 has no provider id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 1, 1, withFlannel("v1.13.9"), beside(test.runs))
			for _, name := range test.declared {
				l.changeFile(t, name, "cluster:\n", "cluster:\n  externalCloudProvider:\n    enabled: true\n")
			}

			l.ready(t)
			require.Contains(t, l.areasOf(t)[check.ProxmoxArea], test.want)
		})
	}
}

// Each of these is as declared in TestWhatRunsIsComparedWithTheFiles.
func TestWhatTheNodesAskIsComparedWithTheFiles(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, withFlannel("v1.13.9"))
	l.ready(t)

	l.Node("worker1").Set(func(f *emulator.Faults) { f.NameServersDown = true })
	require.Contains(t, l.areasOf(t)[check.HostDNSArea],
		"Not Compliant: worker1: 2 of 2 name servers do not answer: 1.1.1.1:53 and 8.8.8.8:53")

	const cache, forwarding = "    hostDNS:\n      enabled: true\n", "      forwardKubeDNSToHost: true\n"

	l.changeFile(t, "cp1", cache+forwarding, cache+"      forwardKubeDNSToHost: false\n")
	l.changeFile(t, "worker1", cache+forwarding, "    hostDNS:\n      enabled: false\n")
	l.changeFile(t, "cp1", "machine:\n", "machine:\n  network:\n    nameservers: [192.0.2.53]\n")
	l.Node("worker1").Set(func(f *emulator.Faults) { f.TimeUnsynced = true })

	areas := l.areasOf(t)
	require.Contains(t, areas[check.HostDNSArea], "Not Compliant: cp1: forwarding from CoreDNS is on, and off is "+
		"declared; worker1: the DNS cache is on, and off is declared")
	require.Equal(t, "Not Compliant: cp1: its name servers are 1.1.1.1 and 8.8.8.8, and declared are 192.0.2.53",
		areas[check.ResolverArea])
	require.Equal(t, "Not Compliant: worker1: its clock is not in sync", areas[check.TimeArea])
}

func TestCertificatesThatEndAreTold(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 0, withFlannel("v1.13.9"))
	l.up(t)
	l.allReady(t)
	l.signClient(t, role.MakeSet(role.Admin), year-10*24*time.Hour, year)

	s := l.session(t, patientHealth)
	found := s.health(t, false)
	require.NoError(t, s.err, s.out)

	ends, told := finding(found, diagnosis.CertificateEnds, "")
	require.True(t, told, s.out)
	require.Contains(t, ends.Cause, "the certificate of talosconfig, context lab ends on")
	require.Contains(t, ends.Cause, "in 9 days")
	require.Equal(t, "mage config:rotate", ends.Next)

	l.signClient(t, role.MakeSet(role.Admin), 48*time.Hour, time.Hour)

	s = l.session(t, patientHealth)
	found = s.health(t, false)
	require.Equal(t, diagnosis.ExitKubernetes, steps.CodeOf(s.err), s.out)
	require.Equal(t, "mage config:rotate", found.Next)
	require.Empty(t, found.Nodes, "nobody was asked")
	require.NotEmpty(t, found.Certificates)

	// Whoever meets it elsewhere is told the same.
	problem, ok := diagnosis.AsProblem(l.session(t).do(t, steps.Verify{}).err)
	require.True(t, ok)
	require.Contains(t, problem.Next, "mage config:rotate")
}

// area is what came of one of the profile's areas.
func area(t *testing.T, found steps.Healthiness, name check.Area) check.AreaResult {
	t.Helper()

	for _, area := range found.Areas {
		if area.Area == name {
			return area
		}
	}

	require.Fail(t, "no area "+string(name))

	return check.AreaResult{}
}

func TestWhatRunsIsComparedWithTheFiles(t *testing.T) {
	t.Parallel()

	l := newLab(t, 1, 1, withFlannel("v1.13.9"))
	l.up(t)
	l.allReady(t)

	s := l.session(t, patientHealth)
	found := s.health(t, true)
	require.NoError(t, s.err, s.out)
	require.Len(t, found.Areas, len(check.Areas()))

	for name, want := range map[check.Area][2]string{
		check.HostDNSArea:  {check.Compliant, "as declared on 2 nodes, and its name servers answer"},
		check.ResolverArea: {check.Compliant, "1.1.1.1, 8.8.8.8"},
		check.CiliumArea:   {check.AreaNotRun, "there is no Cilium"},
		check.TimeArea:     {check.Compliant, "in sync with time.cloudflare.com"},
		check.MetricsArea:  {check.Enhancement, "no metrics can be read from here of cp1"},
		check.LabelsArea:   {check.Enhancement, "no node has a zone (topology.kubernetes.io/zone)"},
		check.ProxmoxArea:  {check.AreaNotRun, "the machine configs leave the nodes to no cloud controller manager"},
	} {
		require.Equal(t, check.AreaResult{Area: name, Status: want[0], Finding: want[1]}, area(t, found, name))
	}

	// The files say something else by now.
	l.changeFile(t, "cp1", "machine:\n", "machine:\n  time:\n    servers: [192.0.2.7]\n")
	l.changeFile(t, "cp1", "  nodeLabels:\n", "  nodeLabels:\n    topology.kubernetes.io/zone: a\n")
	l.changeFile(t, "cp1", "  etcd:\n", "  etcd:\n    extraArgs:\n      listen-metrics-urls: http://0.0.0.0:2381\n")

	s = l.session(t, patientHealth)
	found = s.health(t, true)
	require.NoError(t, s.err, s.out)

	for name, want := range map[check.Area]string{
		check.TimeArea:    "cp1: its time servers are time.cloudflare.com, and declared are 192.0.2.7",
		check.LabelsArea:  `cp1: the label topology.kubernetes.io/zone is "", and "a" is declared`,
		check.MetricsArea: "cp1: http://" + l.Node("cp1").Address().String() + ":2381/metrics can't be read",
	} {
		require.Equal(t, check.NotCompliant, area(t, found, name).Status, name)
		require.Contains(t, area(t, found, name).Finding, want)
	}

	differs, told := finding(found, diagnosis.LiveDiffers, "")
	require.True(t, told, s.out)
	require.Equal(t, diagnosis.Warning, differs.Severity)

	// Somebody serves etcd's metrics there.
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", l.Node("cp1").Address().String()+":2381")
	require.NoError(t, err)

	metrics := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("etcd_server_has_leader 1\n"))
		})}}
	metrics.Start()
	t.Cleanup(metrics.Close)

	found = l.session(t, patientHealth).health(t, true)
	require.Equal(t, check.Compliant, area(t, found, check.MetricsArea).Status)
}

// secretsOf is a new cluster's bundle, whose authorities were made so long ago: they are good for ten years.
func secretsOf(t *testing.T, ago time.Duration) *secrets.Bundle {
	t.Helper()

	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now().Add(-ago)), nil)
	require.NoError(t, err)

	return bundle
}

// dated takes the days out of a text.
func dated(text string) string {
	return regexp.MustCompile(`\d{4}-\d\d-\d\d`).ReplaceAllString(text, "<day>")
}

func TestTheEndsOfAuthoritiesAndKubeconfigAreTold(t *testing.T) {
	t.Parallel()

	const nobody = "nobody: talosctl rotate-ca leaves it as it is"

	renewedBy := map[string]string{"CA of Talos": "talosctl rotate-ca", "CA of Kubernetes": "talosctl rotate-ca",
		"CA of Kubernetes' aggregator": nobody, "CA of etcd": nobody, "kubeconfig, context admin@lab": "mage kubeconfig"}

	for name, test := range map[string]struct {
		left     time.Duration
		severity diagnosis.Severity
		says     string
		shown    string
	}{
		"ends in eleven days": {11 * 24 * time.Hour, diagnosis.Warning, "ends on <day>, in 10 days", "10 days"},
		"ends tomorrow":       {25*time.Hour + time.Minute, diagnosis.Warning, "ends on <day>, in 25 hours", "25 hours"},
		"expired":             {-2 * 24 * time.Hour, diagnosis.Failure, "expired on <day>", "0 days"},
		"good for a year":     {year, 0, "", "364 days"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const tenYears = 87600 * time.Hour

			// That of the kubeconfig is left a minute less than the day, as those of the authorities by now.
			left := test.left - 10*time.Second

			l := newLab(t, 1, 0, filesOnly,
				func(options *labcluster.Options) { options.Secrets = secretsOf(t, tenYears-left) })

			kubeconfig, err := kubernetes.AdminKubeconfig(kubernetes.AdminOptions{ClusterName: "lab",
				Endpoint: "https://192.0.2.10:6443", IssuingCA: l.Generated.Options.Secrets.Certs.K8s, Lifetime: left})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(l.folder, "kubeconfig"), kubeconfig, 0o600))

			found := l.session(t, "NO_WAIT=true").health(t, false)

			shown := map[string]string{}
			for _, row := range found.Tables()[0][1:] {
				shown[row[0]] = row[2]

				if by, known := renewedBy[row[0]]; known {
					require.Equal(t, by, row[3])
				}
			}

			said := map[string]diagnosis.Finding{}
			for _, finding := range found.Findings {
				if finding.ID == diagnosis.CertificateEnds {
					said[dated(finding.Cause)] = finding
				}
			}

			for certificate, by := range renewedBy {
				require.Equal(t, test.shown, shown[certificate], certificate)

				if test.says == "" {
					continue
				}

				cause := "the certificate of " + certificate + " " + test.says
				if test.severity == diagnosis.Failure && strings.HasPrefix(certificate, "CA") {
					cause += ": nothing that it signed is trusted any more"
				}

				require.Contains(t, said, cause)
				require.Equal(t, test.severity, said[cause].Severity)
				require.Equal(t, by, said[cause].Next)
			}

			require.Len(t, said, map[bool]int{true: len(renewedBy)}[test.says != ""])
		})
	}
}

// A node whose clock stands still, or that reaches no control plane, goes on with the certificate that it has.
func TestACertificateThatTalosHasNotRenewedIsTold(t *testing.T) {
	t.Parallel()

	const behind = 20 * time.Hour

	l := newLab(t, 1, 0, withFlannel("v1.13.9"),
		func(options *labcluster.Options) { options.Secrets = secretsOf(t, 2*behind) },
		edit("cp1", func(node *emulator.NodeOptions) { node.Faults.ClockOffset = -behind }))
	l.signClient(t, role.MakeSet(role.Admin), 2*behind, year)
	l.up(t)

	s := l.session(t, patientHealth)
	found := s.health(t, false)

	kept, told := finding(found, diagnosis.CertificateNotRenewed, "cp1")
	require.True(t, told, s.out)
	require.Equal(t, diagnosis.Warning, kept.Severity)
	require.Equal(t, "the certificate of its API ends on <day>, in 3 hours, and Talos has not renewed it",
		dated(kept.Cause))
	require.Contains(t, kept.Next, "compare the clocks")
}
