// Package secrets holds the checks of keys, certificates and tokens, and of the files that hold them.
package secrets

import (
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.Whole(diagnosis.ControlPlaneSecrets, check.Secrets, diagnosis.NeedsConfig, checkSharedKeys).OfSecrets(),
		check.Whole(diagnosis.CAOutOfDate, check.Secrets, diagnosis.NeedsConfig, checkAuthorityDates).OfSecrets(),
		check.Whole(diagnosis.CAKeyForeign, check.Secrets, diagnosis.NeedsConfig, checkAuthorityKeys).OfSecrets(),
		check.EachConfig(diagnosis.SecretMalformed, check.Secrets, checkSecretForms).OfSecrets(),
		check.Whole(diagnosis.ClientRoleWeak, check.Secrets, diagnosis.NeedsTalosconfig, checkClientRole).OfSecrets(),
		check.Whole(diagnosis.ClientNotSigned, check.Secrets, diagnosis.NeedsTalosconfig, checkClientIssuer).OfSecrets(),
		check.Whole(diagnosis.FilesWithSecretsOpen, check.Secrets, diagnosis.NeedsConfig, checkModes),
		check.Whole(diagnosis.ClientCertificate, check.Secrets, diagnosis.NeedsTalconfig|diagnosis.NeedsTalosconfig,
			checkClientCertificate).OfSecrets(),
		ofBundle(diagnosis.SecretsFileBroken, diagnosis.NeedsSecrets, checkBundle),
		ofBundle(diagnosis.SecretsFileOther, diagnosis.NeedsSecrets|diagnosis.NeedsConfig, checkBundleOfConfigs).OfSecrets(),
		check.Whole(diagnosis.SecretsFileOpen, check.Secrets, diagnosis.NeedsSecrets, checkSecretsMode),
		check.Whole(diagnosis.SecretTracked, check.Secrets, 0,
			checkTracked).IdleIf(func(in *check.Input) string { return tracked(in).why }),
		kubeconfigCheck(),
	}
}

// checkSecretsMode looks for a plaintext secrets file that others can read. One whose values are variables holds none.
func checkSecretsMode(r *check.Report, in *check.Input) {
	if file := in.SecretsFile; unreadBundle(in) == "" && file.Mode&0o077 != 0 {
		r.Found(file.Itself(), "sops --encrypt --in-place "+file.Shown+", or chmod 600 "+file.Shown,
			"the file is not encrypted, and its mode is %04o", file.Mode)
	}
}
