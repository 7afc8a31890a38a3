package files_test

import (
	"bytes"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/output"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

func TestSecretsFiles(t *testing.T) {
	t.Parallel()

	const file = "talsecret.yaml"

	ours, err := ourSecrets()
	require.NoError(t, err)

	text, err := secrets.Encode(ours)
	require.NoError(t, err)

	right := generatedFiles(t).with(file, string(text))

	judge(t, diagnosis.SecretsFileBroken, map[string]trial{
		"placeholder": {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: changeme"), at: file,
			line: "bootstraptoken: (masked)", cause: "secrets.bootstraptoken", severity: diagnosis.Warning},
		"missing": {files: right.spoilt(t, file, `(?m)^  id: \S+\n  secret: \S+\n`, "  id: example\n"), at: file,
			line: "id: (masked)", cause: "cluster.secret"},
		"cut off": {files: right.spoilt(t, file, `(?s)certs:.*`, "certs:\n  etcd: {\n"), at: file,
			cause: "not valid YAML"},
		"empty":     {files: right.spoilt(t, file, `(?s).*`, ""), at: file, cause: "empty"},
		"whole":     {files: right},
		"encrypted": {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: ENC[AES256_GCM,data:x]")},
		"variables": {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: $${TOKEN}")},
	})

	judge(t, diagnosis.SecretsFileOther, map[string]trial{
		"token": {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: abcdef.0123456789abcdef"),
			line: "token: (masked)", cause: "cluster.token of n1 is another one than in talsecret.yaml",
			severity: diagnosis.Warning},
		"one config": {files: right.spoilt(t, worker, `(?s)(machine:.*?token: )\S+`, "${1}abcdef.0123456789abcdef"),
			line: "token: (masked)", cause: "machine.token of n4"},
		"encryption": {files: right.spoilt(t, file, `secretboxencryptionsecret: \S+`,
			"secretboxencryptionsecret: "+foreignSecrets(t).Secrets.SecretboxEncryptionSecret),
			line: "secretboxEncryptionSecret: (masked)", cause: "cluster.secretboxEncryptionSecret of n1"},
		"the same": {files: right},
	})

	require.NotContains(t, table.Run(t.Context(),
		right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: ENC[AES256_GCM,data:x]").read(t)).Passed,
		diagnosis.SecretsFileBroken, "what is encrypted is not looked at")
}

func TestDatesOfTheKubeconfig(t *testing.T) {
	t.Parallel()

	tried.add(diagnosis.KubeconfigOutOfDate)

	ours, err := ourSecrets()
	require.NoError(t, err)

	client, err := ours.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), 60*24*time.Hour)
	require.NoError(t, err)

	of := func(ca []byte) string {
		return "clusters:\n- name: lab\n  cluster:\n    certificate-authority-data: " + encoded(ca) +
			"\ncontexts:\n- name: admin@lab\n  context:\n    cluster: lab\n" +
			"    user: admin@lab\nusers:\n- name: other\n  user:\n    token: x\n- name: admin@lab\n  user:\n    " +
			"client-certificate-data: " + encoded(client.Crt) + "\n"
	}

	judged := func(kubeconfig string, later time.Duration) []diagnosis.Finding {
		folder := generatedFiles(t).with("kubeconfig", kubeconfig).write(t)

		return findingsOf(table.Run(t.Context(), check.Read(check.Options{
			TalosDir: folder, Root: folder, Kubeconfig: filepath.Join(folder, "kubeconfig"),
			Checks: check.Settings{Now: time.Now().Add(later)},
		})), diagnosis.KubeconfigOutOfDate)
	}

	const day = 24 * time.Hour

	right := of(ours.Certs.K8s.Crt)
	require.Empty(t, judged(right, time.Hour))

	over := judged(right, 61*day)
	require.Len(t, over, 1)
	require.Contains(t, over[0].Cause, "the certificate of admin@lab expired on ")
	require.Equal(t, "kubeconfig:16", over[0].At.Path+":"+strconv.Itoa(over[0].At.Line))
	require.NotContains(t, over[0].At.Text, encoded(client.Crt))

	require.Contains(t, judged(right, 40*day)[0].Cause, "expires on")
	require.Contains(t, judged(right, -day)[0].Cause, "is valid from")
	require.Empty(t, judged(of(foreignSecrets(t).Certs.Etcd.Crt), 61*day), "it is another cluster's")
	require.Empty(t, judged("", 61*day))
	require.NotContains(t, table.Run(t.Context(), generatedFiles(t).read(t)).Passed, diagnosis.KubeconfigOutOfDate,
		"there is none")
}

func TestTheSecretsFileOfAProfile(t *testing.T) {
	t.Parallel()

	made := declaredProfile("1.13.9", nil).with("configs/secrets.yaml", "cluster: {}\n").with("clusterconfig/secrets.yaml",
		"cluster: {}\n")

	require.NotEmpty(t, findingsOf(table.Run(t.Context(), made.read(t)), diagnosis.SecretsFileBroken), "it is found")

	broken := made.replaced("cluster.yaml", "name: demo", "nam: demo")
	result := table.Run(t.Context(), broken.read(t))
	require.NotEmpty(t, findingsOf(result, diagnosis.FileKey))
	require.Empty(t, findingsOf(result, diagnosis.ConfigUnreadable), "the secrets file is no machine config")

	elsewhere := declaredProfile("1.13.9", nil).replaced("cluster.yaml", "config_dir: configs",
		"secrets_file: bundle.yaml").with("clusterconfig/bundle.yaml", "cluster: {}\n")
	require.NotEmpty(t, findingsOf(table.Run(t.Context(), elsewhere.read(t)), diagnosis.SecretsFileBroken), "it is found")

	broken = elsewhere.replaced("cluster.yaml", "version: 1.13.9", "version: newest")
	result = table.Run(t.Context(), broken.read(t))
	require.NotEmpty(t, findingsOf(result, diagnosis.FileValue))
	require.Empty(t, findingsOf(result, diagnosis.ConfigUnreadable), "whatever it is called")

	for _, check := range result.NotRun {
		if check.ID == diagnosis.SecretsFileOpen {
			require.Equal(t, "the inventory can't be read", check.Why, "it says where the secrets are")
		}
	}
}

// Whatever a key of the secrets file is called by mistake, its value is a secret.
func TestNoValueOfTheSecretsFileIsShown(t *testing.T) {
	t.Parallel()

	const file, planted = "talsecret.yaml", "abcdef.planted0planted0"

	ours, err := ourSecrets()
	require.NoError(t, err)

	text, err := secrets.Encode(ours)
	require.NoError(t, err)

	right := generatedFiles(t).with(file, string(text))

	for name, made := range map[string]files{
		"a misspelt key":  right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptokn: "+planted),
		"a broken line":   right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: ["+planted),
		"a wrong form":    right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: x"+planted),
		"a secret's list": right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: ["+planted+"]"),
	} {
		result := table.Run(t.Context(), made.read(t))
		require.NotEmpty(t, result.Trouble(), name)

		for _, format := range []string{"table", "json", "sarif"} {
			var shown bytes.Buffer

			require.NoError(t, output.Write(result, &shown, format, true))
			require.NotContains(t, shown.String(), "planted", "%s as %s", name, format)
		}
	}
}
