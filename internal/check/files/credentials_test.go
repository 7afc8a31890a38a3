package files_test

import (
	"context"
	"encoding/base64"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// generatedFiles are the files of a whole cluster of three control planes and a worker.
func generatedFiles(t *testing.T) files {
	t.Helper()

	folder := generated(t, 4, nil)
	made := files{}

	require.NoError(t, fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		text, err := os.ReadFile(filepath.Join(folder, path))
		made[path] = string(text)

		return err
	}))

	return made
}

// spoilt is a copy in which a pattern of a file is replaced; the pattern is there.
func (f files) spoilt(t *testing.T, name, pattern, replacement string) files {
	t.Helper()

	found := regexp.MustCompile(pattern)
	require.True(t, found.MatchString(f[name]), "%s has no %s", name, pattern)

	return maps.Clone(f).with(name, found.ReplaceAllString(f[name], replacement))
}

const (
	first  = "clusterconfig/lab-n1.yaml"
	second = "clusterconfig/lab-n2.yaml"
	worker = "clusterconfig/lab-n4.yaml"
)

// foreignSecrets are another cluster's.
func foreignSecrets(t *testing.T) *secrets.Bundle {
	t.Helper()

	bundle, err := clusterfiles.NewSecrets()
	require.NoError(t, err)

	return bundle
}

func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func TestKeysOfMachineConfigs(t *testing.T) {
	t.Parallel()

	right, other := generatedFiles(t), foreignSecrets(t)
	etcd, aggregator := other.Certs.Etcd, other.Certs.K8sAggregator

	etcdOf := func(name string) files {
		return right.spoilt(t, name, `(?s)(etcd:\n[^\n]*ca:\n\s+)crt: \S+(\n\s+)key: \S+\n`,
			"${1}crt: "+encoded(etcd.Crt)+"${2}key: "+encoded(etcd.Key)+"\n")
	}

	judge(t, diagnosis.ControlPlaneSecrets, map[string]trial{
		"etcd CA": {files: etcdOf(second), line: "ca:", cause: "cluster.etcd.ca of n2 is another one",
			severity: diagnosis.Failure},
		"aggregator CA": {files: right.spoilt(t, second, `(?s)(aggregatorCA:\n\s+)crt: \S+(\n\s+)key: \S+\n`,
			"${1}crt: "+encoded(aggregator.Crt)+"${2}key: "+encoded(aggregator.Key)+"\n"), line: "aggregatorCA:",
			cause: "cluster.aggregatorCA of n2", severity: diagnosis.Warning},
		"service account": {files: right.spoilt(t, first, `(?s)(serviceAccount:\n\s+)key: \S+\n`,
			"${1}key: "+encoded(other.Certs.K8sServiceAccount.Key)+"\n"), cause: "cluster.serviceAccount of n1"},
		"encryption": {files: right.spoilt(t, first, `secretboxEncryptionSecret: \S+`,
			"secretboxEncryptionSecret: "+other.Secrets.SecretboxEncryptionSecret), line: "secretboxEncryptionSecret: (masked)",
			cause: "cluster.secretboxEncryptionSecret of n1"},
		"one bundle": {files: right},
	})

	judge(t, diagnosis.CAKeyForeign, map[string]trial{
		"etcd": {files: right.spoilt(t, first, `(?s)(etcd:\n[^\n]*ca:\n\s+crt: \S+\n\s+key: )\S+\n`,
			"${1}"+encoded(etcd.Key)+"\n"), line: "key: (masked)", cause: "the key of cluster.etcd.ca does not belong",
			severity: diagnosis.Failure},
		"machine": {files: right.spoilt(t, second, `(?s)(machine:.*?ca:\n\s+crt: \S+\n\s+key: )\S+\n`,
			"${1}"+encoded(other.Certs.OS.Key)+"\n"), cause: "machine.ca"},
		"other kind": {files: right.spoilt(t, second, `(?s)(machine:.*?ca:\n\s+crt: \S+\n\s+key: )\S+\n`,
			"${1}"+encoded(etcd.Key)+"\n"), cause: "machine.ca"},
		"own": {files: right},
	})

	const token = "a token of 6 and 16 letters and digits"

	judge(t, diagnosis.SecretMalformed, map[string]trial{
		"bootstrap token": {files: right.spoilt(t, worker, `(?s)(cluster:.*?token: )\S+`, "${1}changeme"),
			line: "token: (masked)", cause: "cluster.token is not " + token, severity: diagnosis.Failure},
		"machine token": {files: right.spoilt(t, worker, `(?s)(machine:.*?token: )\S+`, "${1}REPLACE_ME"),
			cause: "machine.token is not " + token, severity: diagnosis.Warning},
		"encryption": {files: right.spoilt(t, first, `secretboxEncryptionSecret: \S+`,
			"secretboxEncryptionSecret: c2hvcnQ="), cause: "cluster.secretboxEncryptionSecret is not 32 bytes",
			severity: diagnosis.Failure},
		"certificate": {files: right.spoilt(t, worker, `(?s)(machine:.*?ca:\n\s+crt: )\S+`,
			"${1}"+encoded([]byte("placeholder"))), line: "crt: (masked)", cause: "machine.ca.crt is not a certificate",
			severity: diagnosis.Failure},
		"key": {files: right.spoilt(t, first, `(?s)(serviceAccount:\n\s+)key: \S+\n`,
			"${1}key: "+encoded([]byte("placeholder"))+"\n"), cause: "cluster.serviceAccount.key is not a private key"},
		"discovery": {files: right.spoilt(t, worker, `(?s)(cluster:.*?secret: )\S+`, "${1}secret"),
			cause: "cluster.secret is not 32 bytes", severity: diagnosis.Warning},
		"a reference": {files: right.spoilt(t, worker, `(?s)(cluster:.*?token: )\S+`, "${1}op://vault/item/token")},
		"right":       {files: right},
	})
}

// at reads files at a time.
func (f files) at(t *testing.T, now time.Time) check.Result {
	t.Helper()

	folder := f.write(t)

	return table.Run(context.Background(),
		check.Read(check.Options{TalosDir: folder, Root: folder, Checks: check.Settings{Now: now}}))
}

func TestDatesOfAuthorities(t *testing.T) {
	t.Parallel()

	tried.add(diagnosis.CAOutOfDate)

	right := generatedFiles(t)
	year := 365 * 24 * time.Hour

	require.Empty(t, findingsOf(right.at(t, time.Now().Add(time.Hour)), diagnosis.CAOutOfDate))

	over := findingsOf(right.at(t, time.Now().Add(11*year)), diagnosis.CAOutOfDate)
	require.Len(t, over, 4, "each authority once, however many files have it")
	require.Equal(t, diagnosis.Failure, over[0].Severity)
	require.Contains(t, over[0].Cause, "machine.ca.crt expired on ")
	require.Equal(t, first, over[0].At.Path)
	require.Equal(t, "crt: (masked)", strings.TrimSpace(over[0].At.Text))

	near := findingsOf(right.at(t, time.Now().Add(10*year-10*24*time.Hour)), diagnosis.CAOutOfDate)
	require.Len(t, near, 4)
	require.Equal(t, diagnosis.Warning, near[0].Severity)
	require.Contains(t, near[0].Cause, "expires on")

	early := findingsOf(right.at(t, time.Now().Add(-year)), diagnosis.CAOutOfDate)
	require.Len(t, early, 4)
	require.Equal(t, diagnosis.Warning, early[0].Severity)
	require.Contains(t, early[0].Cause, "this computer's clock says")
}

// clientOf is a talosconfig with a certificate of a bundle's CA and a role.
func (f files) clientOf(t *testing.T, bundle *secrets.Bundle, roles ...role.Role) files {
	t.Helper()

	client, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(roles...), time.Hour)
	require.NoError(t, err)

	const talosconfig = "clusterconfig/talosconfig"

	return f.spoilt(t, talosconfig, `(?m)^(\s+)crt: \S+\n\s+key: \S+\n`,
		"${1}crt: "+encoded(client.Crt)+"\n${1}key: "+encoded(client.Key)+"\n")
}

func TestTheTalosconfigsCertificate(t *testing.T) {
	t.Parallel()

	const talosconfig = "clusterconfig/talosconfig"

	ours, err := ourSecrets()
	require.NoError(t, err)

	right := generatedFiles(t)
	free := maps.Clone(right)

	for name := range free {
		free = free.replaced(name, "  features:\n", "  features:\n    rbac: false\n")
	}

	judge(t, diagnosis.ClientRoleWeak, map[string]trial{
		"reader": {files: right.clientOf(t, ours, role.Reader), at: talosconfig, line: "crt: (masked)",
			cause: "has the role os:reader, and not os:admin", severity: diagnosis.Failure},
		"operator":     {files: right.clientOf(t, ours, role.Operator), at: talosconfig, cause: "os:operator"},
		"without RBAC": {files: free.clientOf(t, ours, role.Operator), cause: "os:operator", severity: diagnosis.Warning},
		"admin":        {files: right.clientOf(t, ours, role.Admin)},
	})

	judge(t, diagnosis.ClientNotSigned, map[string]trial{
		"another cluster's": {files: right.clientOf(t, foreignSecrets(t), role.Admin), at: talosconfig, line: "crt: (masked)",
			cause: "signed by no certificate authority of these files", severity: diagnosis.Failure},
		"without configs": {files: files{"talconfig.yaml": right["talconfig.yaml"],
			talosconfig: right[talosconfig]}.clientOf(t, foreignSecrets(t), role.Admin), at: talosconfig, cause: "signed by no"},
		"own": {files: right.clientOf(t, ours, role.Admin)},
	})
}

func TestModesOfFilesWithSecrets(t *testing.T) {
	t.Parallel()

	tried.add(diagnosis.FilesWithSecretsOpen)

	judged := func(mode os.FileMode, names ...string) []diagnosis.Finding {
		folder := generatedFiles(t).write(t)
		for _, name := range names {
			require.NoError(t, os.Chmod(filepath.Join(folder, name), mode))
		}

		return findingsOf(table.Run(context.Background(), readFolder(folder)), diagnosis.FilesWithSecretsOpen)
	}

	require.Empty(t, judged(0o600, first, "clusterconfig/talosconfig"))

	found := judged(0o644, first, second, worker, "clusterconfig/talosconfig")
	require.Len(t, found, 1)
	require.Equal(t, "other users can read clusterconfig/lab-n1.yaml (0644), clusterconfig/lab-n2.yaml (0644), "+
		"clusterconfig/lab-n4.yaml (0644) and 1 more", found[0].Cause)
	require.Equal(t, first, found[0].At.Path)

	require.Contains(t, judged(0o640, "clusterconfig/talosconfig")[0].Cause, "clusterconfig/talosconfig (0640)")
}

// tracking is a folder with the files in a git repository that tracks some of them.
func tracking(t *testing.T, made files, names ...string) check.Result {
	t.Helper()

	folder := made.write(t)
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}

	for _, arguments := range [][]string{{"init", "--quiet"}, append([]string{"add", "--force", "--"}, names...)} {
		command := exec.CommandContext(t.Context(), "git", arguments...) //nolint:gosec // made above
		command.Dir, command.Env = folder, environ
		require.NoError(t, command.Run())
	}

	return table.Run(t.Context(), check.Read(check.Options{
		TalosDir: folder, Root: folder, Environ: append(environ, "GIT_DIR=/nowhere"),
		Checks: check.Settings{Now: time.Now()},
	}))
}

func TestSecretsThatGitTracks(t *testing.T) {
	t.Parallel()

	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}

	tried.add(diagnosis.SecretTracked)

	bundle, err := ourSecrets()
	require.NoError(t, err)

	made := generatedFiles(t).
		with("talsecret.sops.yaml",
			"cluster:\n  secret: ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]\nsops:\n  age:\n    - enc: |\n        -----BEGIN "+
				"AGE ENCRYPTED FILE-----\n").
		with("patches/registry.yaml",
			"machine:\n  registries:\n    config:\n      registry.example.net:\n        auth:\n          password: geheimes\n").
		with("patches/right.yaml",
			"machine:\n  registries:\n    config:\n      registry.example.net:\n        auth:\n          password: "+
				"${REGISTRY_PASSWORD}\n  # password: an-example\n  certSANs: [password.example.net]\n").
		with("wireguard.yaml", "interface:\n  privateKey: "+bundle.Cluster.Secret+"\n").
		with("age.key", "# public key: age1x\nAGE-SECRET-KEY-1"+strings.Repeat("Q", 58)+"\n").
		with("notes.md", "the CA:\n```\n-----BEGIN CERTIFICATE-----\n```\n"+encoded(bundle.Certs.OS.Crt)+"\n")

	require.Empty(t, findingsOf(tracking(t, made, "talconfig.yaml", "talsecret.sops.yaml", "patches/right.yaml",
		"notes.md"), diagnosis.SecretTracked))

	type secret struct {
		what string
		line int
	}

	want := map[string]secret{
		"clusterconfig/lab-n4.yaml": {"a token", 6}, "clusterconfig/talosconfig": {"a private key", 15},
		"patches/registry.yaml": {"a password", 6},
		"wireguard.yaml":        {"a secret", 2}, "age.key": {"a private key", 2},
	}

	got := map[string]secret{}

	for _, found := range findingsOf(tracking(t, made, append(slices.Collect(maps.Keys(want)), "talconfig.yaml")...),
		diagnosis.SecretTracked) {
		what, _, _ := strings.Cut(strings.TrimPrefix(found.Cause, "git tracks "+found.At.Path+", which holds "),
			" in the clear")
		got[found.At.Path] = secret{what, found.At.Line}

		require.Equal(t, diagnosis.Warning, found.Severity)

		for _, value := range []string{"geheimes", "QQQ", bundle.Cluster.Secret, bundle.TrustdInfo.Token} {
			require.NotContains(t, found.At.Text+found.Cause, value)
		}
	}

	require.Equal(t, want, got)

	elsewhere := table.Run(t.Context(), check.Read(check.Options{
		TalosDir: made.write(t), Environ: []string{"PATH=" + os.Getenv("PATH")}, Checks: check.Settings{Now: time.Now()},
	}))
	require.NotContains(t, elsewhere.Passed, diagnosis.SecretTracked, "nothing is in a repository")
	require.NotContains(t, table.Run(t.Context(), made.read(t)).Passed, diagnosis.SecretTracked, "there is no git")
}
