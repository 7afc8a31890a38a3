package check

import (
	"bytes"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// secretChecks are those of keys, certificates and tokens, and of the files that hold them.
func secretChecks() []Check {
	return []Check{
		Whole(diagnosis.ControlPlaneSecrets, Secrets, diagnosis.NeedsConfig, checkSharedKeys),
		Whole(diagnosis.CAOutOfDate, Secrets, diagnosis.NeedsConfig, checkAuthorityDates),
		Whole(diagnosis.CAKeyForeign, Secrets, diagnosis.NeedsConfig, checkAuthorityKeys),
		EachConfig(diagnosis.SecretMalformed, Secrets, checkSecretForms),
		Whole(diagnosis.ClientRoleWeak, Secrets, diagnosis.NeedsTalosconfig, checkClientRole),
		Whole(diagnosis.ClientNotSigned, Secrets, diagnosis.NeedsTalosconfig, checkClientIssuer),
		Whole(diagnosis.FilesWithSecretsOpen, Secrets, diagnosis.NeedsConfig, checkModes),
		Whole(diagnosis.ClientCertificate, Secrets, diagnosis.NeedsTalconfig|diagnosis.NeedsTalosconfig, checkClientCertificate),
		ofBundle(diagnosis.SecretsFileBroken, diagnosis.NeedsSecrets, checkBundle),
		ofBundle(diagnosis.SecretsFileOther, diagnosis.NeedsSecrets|diagnosis.NeedsConfig, checkBundleOfConfigs),
		Whole(diagnosis.SecretsFileOpen, Secrets, diagnosis.NeedsSecrets, checkSecretsMode),
		Whole(diagnosis.SecretTracked, Secrets, 0, checkTracked).IdleIf(func(in *Input) string { return in.tracked().why }),
		kubeconfigCheck(),
	}
}

// checkSecretsMode looks for a plaintext secrets file that others can read.
func checkSecretsMode(r *Report, in *Input) {
	if file := in.SecretsFile; !bytes.Contains(file.Data, []byte("ENC[")) && file.Mode&0o077 != 0 {
		r.Found(file.Itself(), "sops --encrypt --in-place "+file.Shown+", or chmod 600 "+file.Shown,
			"the file is not encrypted, and its mode is %04o", file.Mode)
	}
}
