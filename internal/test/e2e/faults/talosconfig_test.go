package faults_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
)

// withExpiredClient gives the talosconfig a client certificate of the cluster that is not valid any more.
func withExpiredClient(t *testing.T, w *world) {
	t.Helper()

	bundle := *w.Generated.Options.Secrets
	bundle.Clock = secrets.NewFixedClock(time.Now().Add(-48 * time.Hour))
	w.signClient(t, &bundle, time.Hour)
}

// withAnotherClient gives the talosconfig a client certificate that the nodes don't accept; its CA stays the cluster's.
func withAnotherClient(t *testing.T, w *world) {
	t.Helper()

	bundle := *w.otherFiles(t).Generated.Options.Secrets
	w.signClient(t, &bundle, time.Hour)
}

// signClient gives the talosconfig an administrator's certificate signed with a bundle's CA.
func (w *world) signClient(t *testing.T, bundle *secrets.Bundle, lifetime time.Duration) {
	t.Helper()

	signed, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), lifetime)
	require.NoError(t, err)

	talosconfig, err := config.Open(w.Talosconfig())
	require.NoError(t, err)

	current := talosconfig.Contexts[talosconfig.Context]
	current.Crt, current.Key = base64.StdEncoding.EncodeToString(signed.Crt), base64.StdEncoding.EncodeToString(signed.Key)
	require.NoError(t, talosconfig.Save(w.Talosconfig()))
}
