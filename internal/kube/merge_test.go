package kube_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile/baddisk"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/kubernetes"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
	"github.com/talos-mage/talos-mage/internal/test/fuzztest"
)

const (
	contextName = "admin@home"
	endpoint    = "https://192.0.2.10:6443"
	day         = 24 * time.Hour
)

// elsewhere is a user's file with another cluster in it, and with things that only people and newer programs
// understand.
const elsewhere = `# clusters of the team
apiVersion: v1
kind: Config
preferences: {}
clusters:
- name: office # do not touch
  cluster:
    server: https://198.51.100.10:6443
    newer-key: kept
users:
- name: jane
  user:
    token: not-a-real-token
contexts:
- name: jane@office
  context:
    cluster: office
    user: jane
    namespace: web
current-context: jane@office
`

func TestMergeMakesANewFile(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ name, existing string }{
		{name: "no file"},
		{name: "only a comment", existing: "# to be filled\n"},
		{name: "an empty document", existing: "---\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			path := filepath.Join(t.TempDir(), "new", "folder", "kubeconfig")
			fetched := home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})

			if test.existing != "" {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(test.existing), 0o644))
			}

			result, err := kube.Merge(path, fetched, kube.MergeOptions{})
			require.NoError(t, err)
			require.True(t, result.Changed)
			require.Equal(t, contextName, result.Context)
			require.Equal(t, test.existing != "", result.Backup != "")
			require.Equal(t, string(fetched), read(t, path))
			requirePrivate(t, path)

			info, err := os.Stat(filepath.Dir(path))
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
		})
	}
}

func TestMergeAddsToAFile(t *testing.T) {
	t.Parallel()

	path := write(t, elsewhere)

	result, err := kube.Merge(path, home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}),
		kube.MergeOptions{})
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.Equal(t, "the context was added", result.Reason)

	merged := load(t, path)
	require.Equal(t, contextName, merged.CurrentContext)
	requireWorks(t, merged, contextName, endpoint)
	requireSameEntry(t, elsewhere, merged, "jane@office")

	text := read(t, path)
	require.True(t, strings.HasPrefix(text, strings.Split(elsewhere, "users:")[0]),
		"what was there must stay as it was:\n%s", text)
	require.Contains(t, text, "newer-key: kept")

	requirePrivate(t, path)
	requirePrivate(t, result.Backup)
	require.Equal(t, elsewhere, read(t, result.Backup))
	requireNoLeftovers(t, path, result.Backup)
}

func TestMergeLeavesAGoodFileAlone(t *testing.T) {
	t.Parallel()

	cluster := home(t)
	present := cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint, Lifetime: 31 * day})

	for _, test := range []struct {
		name     string
		existing string
		endpoint string
		validity time.Duration
	}{
		{name: "the same", existing: string(present)},
		{name: "another current context",
			existing: strings.Replace(string(present), "current-context: admin@home", "current-context: other", 1)},
		{name: "the server written differently", existing: string(present), endpoint: "https://192.0.2.10:6443/"},
		{name: "unusual form", existing: "# mine\n" + strings.ReplaceAll(string(present), "preferences: {}\n", "\n\n")},
		{name: "good for as long as asked", existing: string(present), validity: 30*day + 23*time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			if test.endpoint == "" {
				test.endpoint = endpoint
			}

			path := write(t, test.existing)
			before, err := os.Stat(path)
			require.NoError(t, err)

			fetched := cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: test.endpoint})

			result, err := kube.Merge(path, fetched, kube.MergeOptions{MinValidity: test.validity, Force: true})
			require.NoError(t, err)
			require.False(t, result.Changed)
			require.Empty(t, result.Backup)
			require.Equal(t, contextName, result.Context)
			require.Contains(t, result.Reason, "is good until")
			require.WithinDuration(t, time.Now().Add(31*day), result.Expires, time.Hour)

			after, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, test.existing, read(t, path))
			require.Equal(t, before.ModTime(), after.ModTime())
			require.Equal(t, before.Mode(), after.Mode())
			requireNoLeftovers(t, path)
		})
	}
}

func TestMergeReadsCertificatesFromFiles(t *testing.T) {
	t.Parallel()

	cluster := home(t)
	present, err := clientcmd.Load(cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}))
	require.NoError(t, err)

	path := write(t, `apiVersion: v1
kind: Config
clusters: [{name: home, cluster: {server: "https://192.0.2.10:6443", certificate-authority: ca.crt}}]
users: [{name: admin@home, user: {client-certificate: client.crt, client-key: client.key}}]
contexts: [{name: admin@home, context: {cluster: home, user: admin@home}}]
`)

	for name, data := range map[string][]byte{
		"ca.crt":     present.Clusters["home"].CertificateAuthorityData,
		"client.crt": present.AuthInfos[contextName].ClientCertificateData,
		"client.key": present.AuthInfos[contextName].ClientKeyData,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), name), data, 0o600))
	}

	fetched := cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})

	result, err := kube.Merge(path, fetched, kube.MergeOptions{})
	require.NoError(t, err)
	require.False(t, result.Changed)

	// The files are not ours to replace: the new certificate goes into the kubeconfig, and the CA stays where it is.
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(path), "client.crt")))

	result, err = kube.Merge(path, fetched, kube.MergeOptions{})
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.Contains(t, read(t, path), "certificate-authority: ca.crt")
	require.NotContains(t, read(t, path), "client.crt")
	requireWorks(t, load(t, path), contextName, endpoint)
}

func TestMergeRenewsAClientCertificate(t *testing.T) {
	t.Parallel()

	cluster := home(t)

	for _, test := range []struct {
		name   string
		change func(*clientcmdapi.Config)
		admin  kubernetes.AdminOptions
	}{
		{name: "good for 29 days", admin: kubernetes.AdminOptions{Lifetime: 29 * day}},
		{name: "expired", admin: kubernetes.AdminOptions{Lifetime: day,
			Now: func() time.Time { return time.Now().Add(-2 * day) }}},
		{name: "of another CA", admin: kubernetes.AdminOptions{IssuingCA: newCA(t, nil)}},
		{name: "key of another", change: func(c *clientcmdapi.Config) {
			other := cluster.kubeconfig(t, kubernetes.AdminOptions{})
			loaded, err := clientcmd.Load(other)
			require.NoError(t, err)

			c.AuthInfos[contextName].ClientKeyData = loaded.AuthInfos[contextName].ClientKeyData
		}},
		{name: "a token instead", change: func(c *clientcmdapi.Config) {
			c.AuthInfos[contextName] = &clientcmdapi.AuthInfo{Token: "not-a-real-token"}
		}},
		{name: "no user", change: func(c *clientcmdapi.Config) { delete(c.AuthInfos, contextName) }},
		{name: "no cluster", change: func(c *clientcmdapi.Config) { delete(c.Clusters, "home") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			test.admin.Endpoint = endpoint
			present, err := clientcmd.Load(cluster.kubeconfig(t, test.admin))
			require.NoError(t, err)

			present.Contexts[contextName].Namespace = "mine"
			present.Contexts["by-namespace"] = &clientcmdapi.Context{Cluster: "home", AuthInfo: contextName, Namespace: "other"}

			if test.change != nil {
				test.change(present)
			}

			existing, err := clientcmd.Write(*present)
			require.NoError(t, err)

			path := write(t, string(existing))

			result, err := kube.Merge(path, cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}),
				kube.MergeOptions{})
			require.NoError(t, err)
			require.True(t, result.Changed)
			require.NotEmpty(t, result.Backup)

			merged := load(t, path)
			requireWorks(t, merged, contextName, endpoint)
			requireWorks(t, merged, "by-namespace", endpoint)
			require.Len(t, merged.Clusters, 1)
			require.Len(t, merged.AuthInfos, 1)
			require.Empty(t, merged.AuthInfos[contextName].Token)
			require.Equal(t, "other", merged.Contexts["by-namespace"].Namespace)

			if present.Clusters["home"] != nil {
				require.Equal(t, "mine", merged.Contexts[contextName].Namespace, "the namespace is the user's choice")
			}
		})
	}
}

func TestMergeRefusesAnotherClustersContext(t *testing.T) {
	t.Parallel()

	ours, theirs := home(t), home(t)
	fetched := ours.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})

	for _, test := range []struct {
		name     string
		existing []byte
		cause    string
	}{
		{
			name: "another CA", existing: theirs.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}),
			cause: `has a context "admin@home" of another cluster: its CA is not the one of this cluster at https://192.0.2.10:6443`,
		},
		{
			name: "another server", existing: ours.kubeconfig(t,
				kubernetes.AdminOptions{Endpoint: "https://198.51.100.10:6443"}),
			cause: `has a context "admin@home" of another cluster: its server is https://198.51.100.10:6443, this cluster's is https://192.0.2.10:6443`,
		},
		{
			name: "no CA at all", existing: []byte(`{"apiVersion": "v1", "kind": "Config",
				"clusters": [{"name": "home", "cluster": {"server": "https://192.0.2.10:6443", "insecure-skip-tls-verify": true}}],
				"users": [], "contexts": [{"name": "admin@home", "context": {"cluster": "home", "user": "nobody"}}]}`),
			cause: "its CA is not the one of this cluster",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			path := write(t, string(test.existing))

			_, err := kube.Merge(path, fetched, kube.MergeOptions{})
			requireProblem(t, err, diagnosis.KubeconfigConflict, diagnosis.ExitBadInput, test.cause)
			require.ErrorContains(t, err, "-force")
			require.Equal(t, string(test.existing), read(t, path))
			requireNoLeftovers(t, path)

			result, err := kube.Merge(path, fetched, kube.MergeOptions{Force: true})
			require.NoError(t, err)
			require.Equal(t, "the context of another cluster was replaced", result.Reason)
			require.Equal(t, string(test.existing), read(t, result.Backup))

			merged := load(t, path)
			requireWorks(t, merged, contextName, endpoint)
			require.Len(t, merged.Contexts, 1)
			require.Len(t, merged.Clusters, 1, "the old cluster's entry served nothing else")
			require.False(t, merged.Clusters["home"].InsecureSkipTLSVerify)
		})
	}
}

func TestForceReplacesOneContextAlone(t *testing.T) {
	t.Parallel()

	theirs, err := clientcmd.Load(home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: "https://198.51.100.10:6443"}))
	require.NoError(t, err)

	// Two more contexts use the old cluster, one of them with the same user.
	theirs.Contexts["theirs"] = &clientcmdapi.Context{Cluster: "home", AuthInfo: contextName}
	theirs.Contexts["viewer@home"] = &clientcmdapi.Context{Cluster: "home", AuthInfo: "viewer"}
	theirs.AuthInfos["viewer"] = &clientcmdapi.AuthInfo{Token: "not-a-real-token"}

	existing, err := clientcmd.Write(*theirs)
	require.NoError(t, err)

	path := write(t, string(existing))

	_, err = kube.Merge(path, home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}),
		kube.MergeOptions{Force: true})
	require.NoError(t, err)

	merged := load(t, path)
	requireWorks(t, merged, contextName, endpoint)
	requireSameEntry(t, string(existing), merged, "theirs")
	requireSameEntry(t, string(existing), merged, "viewer@home")
	require.Equal(t, "home-2", merged.Contexts[contextName].Cluster)
	require.Equal(t, "admin@home-2", merged.Contexts[contextName].AuthInfo)
}

func TestMergeTakesFreeNamesWhereOursAreTaken(t *testing.T) {
	t.Parallel()

	const existing = `apiVersion: v1
kind: Config
clusters:
- {name: home, cluster: {server: "https://198.51.100.10:6443"}}
users:
- {name: admin@home, user: {token: not-a-real-token}}
contexts:
- {name: jane, context: {cluster: home, user: admin@home}}
`

	path := write(t, existing)
	cluster := home(t)

	_, err := kube.Merge(path, cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}), kube.MergeOptions{})
	require.NoError(t, err)

	merged := load(t, path)
	requireWorks(t, merged, contextName, endpoint)
	requireSameEntry(t, existing, merged, "jane")
	require.Equal(t, "home-2", merged.Contexts[contextName].Cluster)
	require.Equal(t, "admin@home-2", merged.Contexts[contextName].AuthInfo)

	// The next run finds them again.
	result, err := kube.Merge(path, cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}),
		kube.MergeOptions{})
	require.NoError(t, err)
	require.False(t, result.Changed)
}

func TestMergeRefusesABrokenFile(t *testing.T) {
	t.Parallel()

	fetched := home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})

	for _, test := range []struct{ name, existing, cause string }{
		{name: "not YAML", existing: "apiVersion: v1\nkind: Config\n\tclusters: secret-value\n",
			cause: "it is not valid YAML at line 3"},
		{name: "something else", existing: "kind: Secret\napiVersion: v1\ndata: {a: secret-value}\n",
			cause: "it is not a kubeconfig"},
		{name: "a text", existing: "secret-value\n", cause: "it is not a kubeconfig"},
		{name: "cut off", existing: elsewhere[:strings.Index(elsewhere, "-a-real-token")] + "\n- secret-value",
			cause: "it is not"},
		{name: "two documents", existing: elsewhere + "---\n" + elsewhere, cause: "it holds more than one YAML document"},
		{name: "a name twice", existing: strings.Replace(elsewhere, "users:",
			"- name: office\n  cluster: {server: https://secret-value}\nusers:", 1), cause: "it is not a kubeconfig"},
		{
			name: "entries that share YAML", cause: "share YAML anchors",
			existing: `apiVersion: v1
kind: Config
clusters:
- {name: home, cluster: &shared {server: "https://198.51.100.10:6443"}}
- {name: theirs, cluster: *shared}
contexts:
- {name: admin@home, context: {cluster: home, user: secret-value}}
- {name: theirs, context: {cluster: theirs, user: secret-value}}
`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			path := write(t, test.existing)

			_, err := kube.Merge(path, fetched, kube.MergeOptions{Force: true})
			requireProblem(t, err, diagnosis.KubeconfigBroken, diagnosis.ExitBadInput, test.cause)
			require.NotContains(t, err.Error(), "secret-value")
			require.Equal(t, test.existing, read(t, path))
			requireNoLeftovers(t, path)
		})
	}

	t.Run("a folder", func(t *testing.T) {
		t.Parallel()

		_, err := kube.Merge(t.TempDir(), fetched, kube.MergeOptions{})
		requireProblem(t, err, diagnosis.KubeconfigBroken, diagnosis.ExitBadInput, "is a directory")
	})
}

func TestMergeRefusesAUselessKubeconfig(t *testing.T) {
	t.Parallel()

	cluster := home(t)
	whole := string(cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}))

	for _, test := range []struct {
		name, cause string
		fetched     []byte
	}{
		{name: "empty", cause: "is not complete"},
		{name: "no YAML", fetched: []byte("\t:"), cause: "read it"},
		{name: "no server", fetched: []byte(strings.Replace(whole, "server: "+endpoint, "server: ''", 1)),
			cause: "it names no server"},
		{name: "no CA", fetched: []byte(strings.Replace(whole, "certificate-authority-data", "unknown", 1)),
			cause: "it has no CA"},
		{name: "no key", fetched: []byte(strings.Replace(whole, "client-key-data", "unknown", 1)),
			cause: "no client certificate with its key"},
		{name: "of another CA", fetched: cluster.kubeconfig(t, kubernetes.AdminOptions{IssuingCA: newCA(t, nil)}),
			cause: "its client certificate is not of its CA"},
		{
			name: "expired", cause: "its client certificate ended at",
			fetched: cluster.kubeconfig(t,
				kubernetes.AdminOptions{Now: func() time.Time { return time.Now().AddDate(-2, 0, 0) }}),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			path := write(t, elsewhere)

			_, err := kube.Merge(path, test.fetched, kube.MergeOptions{})
			requireProblem(t, err, diagnosis.KubeconfigUnusable, diagnosis.ExitKubernetes, test.cause)
			require.Equal(t, elsewhere, read(t, path))
		})
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()

	fetched := home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})
	path := write(t, elsewhere)

	result, err := kube.Merge(path, fetched, kube.MergeOptions{DryRun: true})
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.Empty(t, result.Backup)
	require.Equal(t, elsewhere, read(t, path))
	requireNoLeftovers(t, path)

	missing := filepath.Join(filepath.Dir(path), "missing", "kubeconfig")

	result, err = kube.Merge(missing, fetched, kube.MergeOptions{DryRun: true})
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.NoDirExists(t, filepath.Dir(missing))
}

func TestMergeWritesThroughASymlink(t *testing.T) {
	t.Parallel()

	target := write(t, elsewhere)
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.Symlink(target, path))

	_, err := kube.Merge(path, home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}), kube.MergeOptions{})
	require.NoError(t, err)

	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
	requireWorks(t, load(t, target), contextName, endpoint)
	requirePrivate(t, target)
}

func TestMergeOnAFullDiskKeepsTheOldFile(t *testing.T) {
	t.Parallel()

	fetched := home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})

	baddisk.Run(t, baddisk.Full, func(folder string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte(elsewhere), 0o600))
	}, func(folder string) {
		path := filepath.Join(folder, "kubeconfig")

		_, err := kube.Merge(path, fetched, kube.MergeOptions{})
		requireProblem(t, err, diagnosis.KubeconfigUnwritable, diagnosis.ExitUnexpected, "no space left on device")
		require.Equal(t, elsewhere, read(t, path))
		requireNoLeftovers(t, path, filepath.Join(folder, "filler"))
	})
}

func TestMergeInAReadOnlyFolder(t *testing.T) {
	t.Parallel()

	cluster := home(t)
	fetched := cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})

	baddisk.Run(t, baddisk.ReadOnly, func(folder string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte(elsewhere), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "good"), fetched, 0o600))
	}, func(folder string) {
		path := filepath.Join(folder, "kubeconfig")

		_, err := kube.Merge(path, fetched, kube.MergeOptions{})
		requireProblem(t, err, diagnosis.KubeconfigUnwritable, diagnosis.ExitBadInput, "read-only file system")
		require.Equal(t, elsewhere, read(t, path))

		_, err = kube.Merge(filepath.Join(folder, "new", "kubeconfig"), fetched, kube.MergeOptions{})
		requireProblem(t, err, diagnosis.KubeconfigUnwritable, diagnosis.ExitBadInput, "read-only file system")

		// A file that needs nothing needs no permission either.
		result, err := kube.Merge(filepath.Join(folder, "good"),
			cluster.kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}), kube.MergeOptions{})
		require.NoError(t, err)
		require.False(t, result.Changed)
	})
}

func TestMergeWaitsForTheLockAndGivesUp(t *testing.T) {
	t.Parallel()

	path := write(t, elsewhere)
	require.NoError(t, os.WriteFile(path+".lock", nil, 0o600))

	_, err := kube.Merge(path, home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}), kube.MergeOptions{})
	requireProblem(t, err, diagnosis.KubeconfigLocked, diagnosis.ExitPreflight, path+".lock did not go away")
	require.Equal(t, elsewhere, read(t, path))
}

// What a process of this program left when it was killed is in nobody's way; that of a living one is.
func TestMergeTakesAwayTheLockOfAKilledProcess(t *testing.T) {
	t.Parallel()

	path, folder := write(t, elsewhere), t.TempDir()
	fetched := home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})

	// Which file a process of this program locks can be seen where it has merged.
	other := write(t, elsewhere)
	require.NoError(t, os.Remove(other))
	require.NoError(t, os.Symlink(path, other))

	result, err := kube.Merge(other, fetched, kube.MergeOptions{LockFolder: folder})
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.NoError(t, os.WriteFile(path, []byte(elsewhere), 0o600))

	locks, err := filepath.Glob(filepath.Join(folder, "*.lock"))
	require.NoError(t, err)
	require.Len(t, locks, 1)

	living := flock.New(locks[0])
	require.NoError(t, living.Lock())
	require.NoError(t, os.Symlink(locks[0], path+".lock"))

	_, err = kube.Merge(path, fetched, kube.MergeOptions{LockFolder: folder})
	requireProblem(t, err, diagnosis.KubeconfigLocked, diagnosis.ExitPreflight, path+".lock did not go away")

	require.NoError(t, living.Unlock()) // as when it is killed

	result, err = kube.Merge(path, fetched, kube.MergeOptions{LockFolder: folder})
	require.NoError(t, err)
	require.True(t, result.Changed)
	require.NoFileExists(t, path+".lock")

	// Also when nothing is left to be changed: kubectl would stumble over it.
	require.NoError(t, os.Symlink(locks[0], path+".lock"))

	result, err = kube.Merge(path, fetched, kube.MergeOptions{LockFolder: folder})
	require.NoError(t, err)
	require.False(t, result.Changed)

	_, err = os.Lstat(path + ".lock")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// One of another machine's, or of a run with another folder for temporary files, may live.
func TestMergeLeavesALockThatItCannotJudge(t *testing.T) {
	t.Parallel()

	path := write(t, elsewhere)
	require.NoError(t, os.Symlink("/another/folder/talos-mage-0123456789abcdef.lock", path+".lock"))

	_, err := kube.Merge(path, home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint}),
		kube.MergeOptions{LockFolder: t.TempDir()})
	requireProblem(t, err, diagnosis.KubeconfigLocked, diagnosis.ExitPreflight, path+".lock did not go away")
}

func TestParallelMergesLoseNothing(t *testing.T) {
	t.Parallel()

	const clusters = 8

	path := write(t, elsewhere)
	cluster := home(t)
	failures := make(chan error, clusters)

	for n := range clusters {
		fetched := cluster.kubeconfig(t, kubernetes.AdminOptions{ClusterName: fmt.Sprintf("home%d", n), Endpoint: endpoint})

		go func() {
			_, err := kube.Merge(path, fetched, kube.MergeOptions{})
			failures <- err
		}()
	}

	for range clusters {
		require.NoError(t, <-failures)
	}

	require.Len(t, load(t, path).Contexts, clusters+1)
}

// FuzzMerge merges a cluster's kubeconfig into any file.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(elsewhere))
	f.Add([]byte("{}"))
	f.Add([]byte("clusters: []\ncontexts: null\nusers: [{name: admin@home}]\n"))
	f.Add([]byte("clusters: [{name: home, cluster: &a {server: b}}, {name: c, cluster: *a}]\n"))

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		f.Add(data)
	}

	var fetched []byte

	f.Fuzz(func(t *testing.T, existing []byte) {
		if fetched == nil {
			fetched = home(t).kubeconfig(t, kubernetes.AdminOptions{Endpoint: endpoint})
		}

		fuzztest.Bounded(t, func() { requireMerges(t, existing, fetched) })
	})
}

// FuzzFetchedKubeconfig merges anything that a node may call its kubeconfig into a file.
func FuzzFetchedKubeconfig(f *testing.F) {
	f.Add([]byte(elsewhere))

	for _, data := range fuzztest.Seeds(f, ".yaml", ".yml") {
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, fetched []byte) {
		fuzztest.Bounded(t, func() { requireMerges(t, []byte(elsewhere), fetched) })
	})
}

// requireMerges holds for all files: they are merged, or one of them is refused and nothing changes.
func requireMerges(t *testing.T, existing, fetched []byte) {
	t.Helper()

	path := write(t, string(existing))

	result, err := kube.Merge(path, fetched, kube.MergeOptions{Force: true})
	if err != nil {
		_, isProblem := diagnosis.AsProblem(err)
		require.True(t, isProblem, "%v", err)
		require.True(t, bytes.Equal(existing, []byte(read(t, path))), "a refused file must stay as it was")

		return
	}

	merged := load(t, path)
	requireWorks(t, merged, result.Context, endpoint)

	before, err := clientcmd.Load(existing)
	require.NoError(t, err)

	for name := range before.Contexts {
		if name != contextName {
			require.Contains(t, merged.Contexts, name)
		}
	}
}

// home is a cluster of that name that need not run: its kubeconfig is all that counts.
func home(t *testing.T) *api {
	t.Helper()

	return &api{ca: newCA(t, nil)}
}

func write(t *testing.T, content string) (path string) {
	t.Helper()

	path = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))

	return path
}

func read(t *testing.T, path string) string {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	return string(data)
}

func load(t *testing.T, path string) *clientcmdapi.Config {
	t.Helper()

	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	require.NoError(t, clientcmd.ResolveLocalPaths(config))

	return config
}

// requireWorks asks for a context that a client could connect with.
func requireWorks(t *testing.T, config *clientcmdapi.Config, name, server string) {
	t.Helper()

	rest, err := clientcmd.NewNonInteractiveClientConfig(*config, name, nil, nil).ClientConfig()
	require.NoError(t, err)
	require.Equal(t, server, rest.Host)
	require.NotEmpty(t, string(rest.CAData)+rest.CAFile)
	require.NotEmpty(t, rest.CertData)
	require.NotEmpty(t, rest.KeyData)

	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	require.Contains(t, string(text), base64.StdEncoding.EncodeToString(rest.CertData))
}

// requireSameEntry asks that a context means what it meant in the old text.
func requireSameEntry(t *testing.T, before string, after *clientcmdapi.Config, name string) {
	t.Helper()

	old, err := clientcmd.Load([]byte(before))
	require.NoError(t, err)

	want, err := clientcmd.NewNonInteractiveClientConfig(*old, name, nil, nil).ClientConfig()
	require.NoError(t, err)

	got, err := clientcmd.NewNonInteractiveClientConfig(*after, name, nil, nil).ClientConfig()
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, old.Contexts[name].Namespace, after.Contexts[name].Namespace)
}

func requireProblem(t *testing.T, err error, id diagnosis.ID, exit diagnosis.ExitCode, cause string) {
	t.Helper()

	problem, ok := diagnosis.AsProblem(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, id, problem.ID)
	require.Equal(t, exit, problem.ExitCode())
	require.Contains(t, problem.Cause, cause)
	require.NotEmpty(t, problem.Next)
}

func requirePrivate(t *testing.T, path string) {
	t.Helper()

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
}

// requireNoLeftovers asks that a folder holds these files and nothing else.
func requireNoLeftovers(t *testing.T, paths ...string) {
	t.Helper()

	entries, err := os.ReadDir(filepath.Dir(paths[0]))
	require.NoError(t, err)

	var found []string
	for _, entry := range entries {
		found = append(found, filepath.Join(filepath.Dir(paths[0]), entry.Name()))
	}

	require.ElementsMatch(t, paths, found)
}
