package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/audit"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/secrets"
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
		"placeholder": {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: changeme"), at: file, line: "bootstraptoken: (masked)", cause: "secrets.bootstraptoken", severity: diagnosis.Warning},
		"missing":     {files: right.spoilt(t, file, `(?m)^  id: \S+\n  secret: \S+\n`, "  id: example\n"), at: file, line: "id: example", cause: "cluster.secret"},
		"cut off":     {files: right.spoilt(t, file, `(?s)certs:.*`, "certs:\n  etcd: {\n"), at: file, cause: "not valid YAML"},
		"empty":       {files: right.spoilt(t, file, `(?s).*`, ""), at: file, cause: "empty"},
		"whole":       {files: right},
		"encrypted":   {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: ENC[AES256_GCM,data:x]")},
		"variables":   {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: $${TOKEN}")},
	})

	judge(t, diagnosis.SecretsFileOther, map[string]trial{
		"token":      {files: right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: abcdef.0123456789abcdef"), line: "token: (masked)", cause: "cluster.token of n1 is another one than in talsecret.yaml", severity: diagnosis.Warning},
		"one config": {files: right.spoilt(t, worker, `(?s)(machine:.*?token: )\S+`, "${1}abcdef.0123456789abcdef"), line: "token: (masked)", cause: "machine.token of n4"},
		"encryption": {files: right.spoilt(t, file, `secretboxencryptionsecret: \S+`, "secretboxencryptionsecret: "+foreignSecrets(t).Secrets.SecretboxEncryptionSecret), line: "secretboxEncryptionSecret: (masked)", cause: "cluster.secretboxEncryptionSecret of n1"},
		"the same":   {files: right},
	})

	require.NotContains(t, audit.Run(t.Context(), right.spoilt(t, file, `bootstraptoken: \S+`, "bootstraptoken: ENC[AES256_GCM,data:x]").read(t)).Passed,
		diagnosis.SecretsFileBroken, "what is encrypted is not looked at")
}
