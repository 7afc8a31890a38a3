package secrets

import (
	"bytes"

	"github.com/talos-mage/talos-mage/internal/check"

	bundles "github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// ofBundle is a check of the secrets file's content.
func ofBundle(id diagnosis.ID, needs diagnosis.Need, run func(*check.Report, *check.Input)) check.Check {
	return check.Whole(id, check.Secrets, needs, func(r *check.Report, in *check.Input) {
		if unreadBundle(in) == "" {
			run(r, in)
		}
	}).IdleIf(unreadBundle)
}

// unreadBundle says why the secrets file's content is not looked at; empty if it is.
func unreadBundle(in *check.Input) string {
	switch data := in.SecretsFile.Data; {
	case bytes.Contains(data, []byte("ENC[")):
		return "the secrets file is encrypted"
	case bytes.ContainsRune(data, '$'):
		return "the secrets file has variables"
	default:
		return ""
	}
}

// bundle is a secrets file's content.
type bundle struct {
	*bundles.Bundle
	err error
}

func readBundle(in *check.Input) bundle {
	decoded, err := secrets.DecodePlain(in.SecretsFile.Shown, in.SecretsFile.Data, in.Options.Checks.Now)

	return bundle{decoded, err}
}

// checkBundle looks for what the file lacks.
func checkBundle(r *check.Report, in *check.Input) {
	for _, mistake := range inventory.FileErrors(check.Once(in, readBundle).err) {
		// A mistake that is not about what the file holds is told where the file is used.
		next := mistake.Next
		if next == "" {
			next = "restore the secrets file from your backup"
		}

		r.Found(in.SecretsFile.Line(mistake.Line, 0).Masked(), next, "%s", mistake.Message)
	}
}

// checkBundleOfConfigs compares the file with the machine configs that trust its authority. That they trust another one
// is a check of files that belong together.
func checkBundleOfConfigs(r *check.Report, in *check.Input) {
	held := check.Once(in, readBundle)
	if held.err != nil {
		return
	}

	wanted := map[string]string{
		"machine.token": held.TrustdInfo.Token, "cluster.token": held.Secrets.BootstrapToken,
		"cluster.id": held.Cluster.ID, "cluster.secret": held.Cluster.Secret,
		"cluster.secretboxEncryptionSecret": held.Secrets.SecretboxEncryptionSecret,
		"cluster.aescbcEncryptionSecret":    held.Secrets.AESCBCEncryptionSecret,
		"cluster.serviceAccount":            string(bytes.TrimSpace(held.Certs.K8sServiceAccount.Key)),
	}

	told := map[string]bool{}

	for _, config := range in.Configs {
		if !config.Trusts(held.Certs.OS.Crt) {
			continue
		}

		for _, secret := range bundleSecrets(config) {
			if secret.value == "" || wanted[secret.path] == "" || secret.value == wanted[secret.path] || told[secret.path] {
				continue
			}

			told[secret.path] = true
			r.Config = config
			r.Found(config.At(secret.path),
				machineconfig.HowToGenerate+", before the cluster exists; afterwards restore "+in.SecretsFile.Shown,
				"%s of %s is another one than in %s", secret.path, config.Name, in.SecretsFile.Shown)
		}
	}
}

// bundleSecret is a secret of a machine config that stands in the secrets file as well.
type bundleSecret struct{ path, value string }

func bundleSecrets(c *check.Rendered) []bundleSecret {
	found := []bundleSecret{
		{"machine.token", c.MachineToken()}, {"cluster.token", c.BootstrapToken()},
		{"cluster.id", c.ClusterID()}, {"cluster.secret", c.ClusterSecret()},
	}

	for _, key := range sharedKeys {
		found = append(found, bundleSecret{key.path, key.of(c)})
	}

	return found
}
