package files_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// called is a control plane with a hostname in the old style.
func called(name string) config { return config{machine: "network:\n\thostname: '" + name + "'"} }

// calledDocument is one with a HostnameConfig document.
func calledDocument(name string) config {
	return config{documents: []string{"kind: HostnameConfig\nhostname: '" + name + "'"}}
}

func TestClusterNames(t *testing.T) {
	t.Parallel()

	named := func(name string) files {
		return lab(config{}).replaced("talconfig.yaml", "clusterName: lab", "clusterName: '"+name+"'")
	}

	judge(t, diagnosis.ClusterNameInvalid, map[string]trial{
		"a space": {files: named("Home Lab"), at: "talconfig.yaml", line: "clusterName: 'Home Lab'",
			cause: `"Home Lab" is no name`, severity: diagnosis.Warning},
		"underscore": {files: named("home_lab"), cause: "home_lab"},
		"folder":     {files: named("home/lab"), cause: "can't be part of a file's name", severity: diagnosis.Failure},
		"plain":      {files: named("home-lab.2")},
		"capitals":   {files: named("HomeLab")}, // nothing that is called after it minds
	})

	domain := func(domain string) config { return config{cluster: "network:\n\tdnsDomain: " + domain} }

	judge(t, diagnosis.DNSDomainInvalid, map[string]trial{
		"underscore": {files: lab(domain("my_cluster.local")), line: "dnsDomain: my_cluster.local", cause: "no DNS name",
			severity: diagnosis.Failure},
		"capitals": {files: lab(domain("Cluster.Local")), cause: "Cluster.Local", severity: diagnosis.Warning},
		"dot": {files: lab(domain("cluster.local.")), cause: "not as other programs write it",
			severity: diagnosis.Warning},
		"local":      {files: lab(domain("k8s.local")), cause: "multicast DNS", severity: diagnosis.Warning},
		"own domain": {files: lab(domain("k8s.example.net"), config{})},
	})
}

func TestFileNamesWhereCaseDoesNotCount(t *testing.T) {
	t.Parallel()

	judge(t, diagnosis.FileNamesCollide, map[string]trial{
		"hostnames": {files: lab(config{}, config{}).replaced("talconfig.yaml", "hostname: n2", "hostname: N1"),
			at: "talconfig.yaml", line: "- hostname: N1", cause: "lab-n1.yaml and lab-N1.yaml differ in case alone"},
		"template": {files: lab(config{}, config{}).replaced("talconfig.yaml", "hostname: n2",
			"filenameTmpl: LAB-n1.yaml\n    hostname: n2"), cause: "LAB-n1.yaml"},
		"different": {files: lab(config{}, config{})},
	})
}

func TestHostnames(t *testing.T) {
	t.Parallel()

	both := called("n1")
	both.documents = calledDocument("n1").documents

	judge(t, diagnosis.HostnameTwice, map[string]trial{
		"the same": {files: lab(both), line: "hostname: 'n1'",
			cause: "machine.network.hostname (clusterconfig/lab-n1.yaml:5:5)"},
		"automatic": {files: lab(config{machine: both.machine, documents: []string{"kind: HostnameConfig\nauto: stable"}}),
			cause: "HostnameConfig"},
		"one each": {files: lab(called("n1"), calledDocument("n2"))},
	})

	judge(t, diagnosis.HostnameMisleading, map[string]trial{
		"localhost": {files: lab(called("localhost")), line: "hostname: 'localhost'",
			cause: "every machine's name for itself", severity: diagnosis.Warning},
		"address":   {files: lab(calledDocument("192.0.2.11")), line: "hostname: '192.0.2.11'", cause: "is an address"},
		"a service": {files: lab(called("n1.cluster.local")), cause: "cluster's own DNS names"},
		"own names": {files: lab(called("n1"), calledDocument("n2.example.net"))},
	})

	long := func() files { return lab(called(strings.Repeat("a", 65))) }

	judge(t, diagnosis.HostnameTooLong, map[string]trial{
		"name of no node": {files: long().without("talconfig.yaml"), cause: "65 characters"},
		"name of a node":  {files: long()}, // TM067 tells
		"domain": {files: lab(calledDocument("n1." + strings.Repeat("abcdefghi.", 26) + "net")),
			cause: "2 of them before the domain"},
		"fits": {files: lab(called(strings.Repeat("a", 63)), calledDocument("n2.example.net"))},
	})

	endpoint := func(name string, configs ...config) files {
		return lab(configs...).replaced("talconfig.yaml", "https://192.0.2.10:6443", "https://"+name+":6443")
	}

	judge(t, diagnosis.HostnameIsEndpoint, map[string]trial{
		"full name": {files: endpoint("api.example.net", called("api.example.net"), called("n2")),
			line: "hostname: 'api.example.net'", cause: "as the endpoint api.example.net"},
		"short name": {files: endpoint("api.example.net", called("n1"), calledDocument("API")), line: "hostname: 'API'",
			cause: "the node is called API"},
		"single":  {files: endpoint("n1.example.net", called("n1"))},
		"another": {files: endpoint("api.example.net", called("n1"), called("n2"))},
	})
}

// A hostname in both styles is told of once.
func TestAHostnameInBothStylesIsOneFinding(t *testing.T) {
	t.Parallel()

	both := lab(config{machine: "network:\n\thostname: other",
		documents: []string{"kind: HostnameConfig\nhostname: third\nauto: off"}})
	result := table.Run(context.Background(), both.read(t))

	require.Len(t, findingsOf(result, diagnosis.HostnameTwice), 1)
	require.Empty(t, findingsOf(result, diagnosis.ConfigHostname))
}
