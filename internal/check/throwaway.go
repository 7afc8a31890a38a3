package check

import (
	"slices"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// aboutSecrets are the checks whose subject are the cluster's keys, tokens and certificates.
var aboutSecrets = []diagnosis.ID{
	diagnosis.ConfigCA, diagnosis.ConfigSecrets, diagnosis.TalosconfigForeign,
	diagnosis.ControlPlaneSecrets, diagnosis.CAOutOfDate, diagnosis.CAKeyForeign, diagnosis.SecretMalformed,
	diagnosis.ClientCertificate, diagnosis.ClientRoleWeak, diagnosis.ClientNotSigned,
	diagnosis.SecretsFileOther, diagnosis.KubeconfigOutOfDate, diagnosis.VIPForeign,
}

// ofThrowaway says why a check is not run over files that were made with throwaway secrets; empty if it can be.
func (in *Input) ofThrowaway(id diagnosis.ID) string {
	if in.Options.Made.StandIn == "" || !slices.Contains(aboutSecrets, id) {
		return ""
	}

	return "needs the cluster's own secrets; throwaway ones were made up to judge the rest: " + in.Options.Made.StandIn
}

// judgeable leaves out what a function that several checks share says for those that are not run.
func (in *Input) judgeable(findings []diagnosis.Finding) []diagnosis.Finding {
	return slices.DeleteFunc(slices.Clone(findings),
		func(finding diagnosis.Finding) bool { return in.ofThrowaway(finding.ID) != "" })
}
