package audit

import (
	"bytes"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Checks of secrets.
var secretChecks = []Check{
	whole(diagnosis.SecretsFileOpen, Secrets, diagnosis.NeedsSecrets, checkSecretsMode),
}

// checkSecretsMode looks for a plaintext secrets file that others can read.
func checkSecretsMode(r *Report, in *Input) {
	if file := in.SecretsFile; !bytes.Contains(file.Data, []byte("ENC[")) && file.Mode&0o077 != 0 {
		r.found(file.itself(), "sops --encrypt --in-place "+file.Shown+", or chmod 600 "+file.Shown,
			"the file is not encrypted, and its mode is %04o", file.Mode)
	}
}
