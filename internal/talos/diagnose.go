package talos

import (
	"errors"
	"runtime"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Diagnose finds the catalogue's entry for an error of this package; false when it has none of its own.
func Diagnose(err error) (diagnosis.ID, bool) {
	if err == nil {
		return "", false
	}

	for _, known := range diagnoses {
		if errors.Is(err, known.err) {
			return known.id, true
		}
	}

	var failure *Error
	switch {
	case errors.As(err, new(*ClockError)):
		return diagnosis.NodeClock, true
	case errors.As(err, &failure) && localNetworkHint(runtime.GOOS, failure.Address, err) != "":
		return diagnosis.LocalNetworkBlocked, true
	default:
		return "", false
	}
}

var diagnoses = []struct {
	err error
	id  diagnosis.ID
}{
	{ErrNotTalos, diagnosis.NotTalos},
	{ErrForeignCA, diagnosis.ForeignNode},
	{ErrNoCredentials, diagnosis.UnknownNodeCA},
	{ErrCredentialsExpired, diagnosis.TalosconfigExpired},
	{ErrFingerprint, diagnosis.FingerprintMismatch},
	{ErrCertificateName, diagnosis.CertificateName},
	{ErrProxy, diagnosis.ProxyInTheWay},
	{ErrNotAllowed, diagnosis.CallNotAllowed},
	{errRejected, diagnosis.ClientRefused},
}
