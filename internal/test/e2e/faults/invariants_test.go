package faults_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
)

// secretsOf are the texts of a cluster's secrets: whatever holds one of them gives the cluster away.
func secretsOf(t *testing.T, cluster *labcluster.Cluster) []string {
	t.Helper()

	bundle := cluster.Generated.Options.Secrets
	keys := [][]byte{bundle.Certs.OS.Key, bundle.Certs.Etcd.Key, bundle.Certs.K8s.Key, bundle.Certs.K8sAggregator.Key,
		bundle.Certs.K8sServiceAccount.Key}

	talosconfig, err := config.Open(cluster.Talosconfig())
	require.NoError(t, err)

	client, err := base64.StdEncoding.DecodeString(talosconfig.Contexts[talosconfig.Context].Key)
	require.NoError(t, err)

	secrets := []string{bundle.Cluster.Secret, bundle.TrustdInfo.Token, bundle.Secrets.BootstrapToken,
		bundle.Secrets.SecretboxEncryptionSecret}

	for _, key := range append(keys, client) {
		secrets = append(secrets, base64.StdEncoding.EncodeToString(key), pemBody(key))
	}

	for _, secret := range secrets {
		require.Greater(t, len(secret), 10, "a secret that is not there can't be looked for")
	}

	return secrets
}

// pemBody is the first line of what a PEM block holds.
func pemBody(block []byte) string {
	for line := range strings.Lines(string(block)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			return line
		}
	}

	return ""
}

// holdsSecrets fails for a run that told any of the cluster's secrets to anybody.
func (w *world) holdsSecrets(t *testing.T, got outcome, reports string) {
	t.Helper()

	file, err := os.ReadFile(reports)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}

	for _, secret := range w.secrets {
		for _, told := range []string{got.stdout, got.stderr, got.message, string(file)} {
			require.False(t, strings.Contains(told, secret), "a secret was told") // without showing it here too
		}
	}
}

// past is what holds before a run.
type past struct {
	// members are the configured machines with etcd data, and how often each had booted; data tells of any etcd data at
	// all.
	members map[string]int
	data    bool
	// calls counts the changes of each machine.
	calls map[string]int
	// etcds is how many etcd clusters there ever were.
	etcds int
}

func (w *world) remember() past {
	before := past{members: map[string]int{}, calls: map[string]int{}, etcds: w.Lab.EtcdClusters()}

	for _, node := range w.Lab.Nodes() {
		before.calls[node.Name()] = len(node.MutatingCalls())

		if node.EtcdClusterID() == 0 {
			continue
		}

		before.data = true

		if node.Config() != nil {
			before.members[node.Name()] = node.Boots()
		}
	}

	return before
}

// since are the changes that a run made after all, machine by machine.
func (w *world) since(before past) map[string][]emulator.Call {
	made := map[string][]emulator.Call{}

	for _, node := range w.Lab.Nodes() {
		for _, call := range node.MutatingCalls()[before.calls[node.Name()]:] {
			made[node.Name()] = append(made[node.Name()], call)
		}
	}

	return made
}

// permitted are the changes that a target makes; the recipe's for those that it is made of.
var permitted = map[string][]string{
	upgradeTarget: {"Pull", "Upgrade", "Reboot"},
	"reset":       {"Reset"},

	snapshotTarget: {},
	defragTarget:   {"EtcdDefragment"},
	rotateTarget:   {},
	appsTarget:     {},

	"etcd:removeMember": {"EtcdRemoveMemberByID"},
	"etcd:recover":      {"Reset", "EtcdRecover", "Bootstrap"},
	"replaceNode":       {"EtcdRemoveMemberByID", "ApplyConfiguration"},

	upgradeK8sTarget: {"ImagePull", "ApplyConfiguration"},
}

// permittedTo are the changes that a run of a target may make.
func permittedTo(target string) []string {
	if changes, own := permitted[target]; own {
		return changes
	}

	return []string{"ApplyConfiguration", "Bootstrap"}
}

// keepsPromises checks from the machines' own records what must hold whatever goes wrong.
func (w *world) keepsPromises(t *testing.T, before past, got outcome) {
	t.Helper()

	allowed := before.etcds + w.restores
	if !before.data {
		allowed++
	}

	require.LessOrEqual(t, w.Lab.EtcdClusters(), allowed, "there must never be a second etcd\n%s", got.told())

	made := w.since(before)
	started := firstBootstrap(made)

	for name, calls := range made {
		for _, call := range calls {
			_, member := before.members[name]

			require.Contains(t, permittedTo(got.target), call.Name(), "%s: nobody asked for that", name)

			if got.target == upgradeK8sTarget {
				continue // it is what changes the configs of a cluster that is up
			}

			require.False(t, call.Name() == "ApplyConfiguration" && member, "%s has etcd and was sent a config\n%s", name,
				got.told())
			require.False(t, call.Name() == "ApplyConfiguration" && started != nil && call.Time.After(started.Time) &&
				strings.Contains(call.Roles, "os:admin"),
				"%s was reconfigured after the cluster got its etcd\n%s", name, got.told())

			if call.Name() == "ApplyConfiguration" {
				require.Contains(t, w.digestsFor(t, name), call.ConfigSHA256, "%s was sent another machine's config\n%s", name,
					got.told())
			}
		}
	}
}

// firstBootstrap is the first one that took effect; nil without any.
func firstBootstrap(made map[string][]emulator.Call) *emulator.Call {
	var first *emulator.Call

	for _, calls := range made {
		for _, call := range calls {
			if call.Name() == "Bootstrap" && call.Succeeded() && (first == nil || call.Time.Before(first.Time)) {
				first = &call
			}
		}
	}

	return first
}

// digestsFor are those of the configs that a machine may get: its file's. Machines that are not the inventory's get
// none.
func (w *world) digestsFor(t *testing.T, name string) []string {
	t.Helper()

	if slices.Contains(w.others, name) {
		return nil
	}

	data, err := w.Config(name)
	require.NoError(t, err)

	digest := sha256.Sum256(data)

	return []string{hex.EncodeToString(digest[:])}
}

// isWhole checks from the machines' own records that the cluster is what it should be.
func (w *world) isWhole(t *testing.T, got outcome) {
	t.Helper()

	clusters := map[uint64]bool{}

	for _, spec := range w.Generated.Options.Nodes {
		node := w.Node(spec.Name)
		require.True(t, node.Installed(), "%s is not installed\n%s", spec.Name, got.told())

		if spec.Role.String() == "controlplane" {
			require.True(t, node.EtcdVoter(), "%s is no member of etcd\n%s", spec.Name, got.told())

			clusters[node.EtcdClusterID()] = true
		}
	}

	require.Len(t, clusters, 1, "one etcd\n%s", got.told())
}
