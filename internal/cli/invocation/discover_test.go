package invocation_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// A folder without a cluster's files is enough, if networks are named.
func TestMachinesAreFoundWithoutACluster(t *testing.T) {
	t.Parallel()

	lab, err := labcluster.New(t.TempDir(), labcluster.Options{ControlPlanes: 1, Workers: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	require.Eventually(t, func() bool {
		return new(talos.Dialer).Probe(t.Context(), lab.Nodes[0].Endpoint()).State == talos.Maintenance
	}, labcluster.Deadline, time.Millisecond)

	root := t.TempDir()
	discover := func(flags settings.Overrides) (*invocation.Failure, string, string) {
		var out, errs bytes.Buffer

		failure := invocation.Invocation{Environ: []string{"ROOT_DIR=" + root}, Workdir: root, Out: &out,
			Err: &errs}.Discover(t.Context(), flags)

		return failure, out.String(), errs.String()
	}

	address := lab.Nodes[0].Address().String()

	failure, out, errs := discover(settings.Overrides{"cidr": address, "format": "json"})
	require.Nil(t, failure, errs)

	var document struct {
		Asked, Answered int
		Machines        []struct {
			Addresses, MACs    []string
			State, Fingerprint string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &document), out)
	require.Equal(t, []int{1, 1}, []int{document.Asked, document.Answered})
	require.Len(t, document.Machines, 1)

	machine := document.Machines[0]
	require.Equal(t, []string{address}, machine.Addresses)
	require.Equal(t, "maintenance", machine.State)
	require.Equal(t, []string{lab.Generated.Options.Nodes[0].MAC}, machine.MACs)

	sum, err := base64.StdEncoding.DecodeString(machine.Fingerprint)
	require.NoError(t, err, machine.Fingerprint)
	require.Len(t, sum, 32)

	failure, out, errs = discover(settings.Overrides{"cidr": address})
	require.Nil(t, failure, errs)
	require.Contains(t, out, "1 machine at 1 of 1 address in "+address)
	require.Contains(t, out, "\nnext: ")
	require.Regexp(t, `[A-Za-z0-9+/]{43}=`, out, "the fingerprint is to be compared with the screen's")

	for _, test := range []struct {
		flags settings.Overrides
		code  diagnosis.ExitCode
		want  string
	}{
		{settings.Overrides{}, diagnosis.ExitBadInput, "-cidr="},
		{settings.Overrides{"cidr": address, "format": "sarif"}, diagnosis.ExitBadInput, "-format=json"},
		{settings.Overrides{"cidr": "8.8.8.8"}, diagnosis.ExitBadInput, "-wide"},
		{settings.Overrides{"cidr": lab.Lab.Address(201).String()}, diagnosis.ExitPreflight, "none of 1 address in "},
	} {
		failure, out, _ := discover(test.flags)
		require.NotNil(t, failure)
		require.Equal(t, test.code, failure.Code, failure.Message)
		require.Contains(t, out+failure.Message, test.want)
	}
}

func TestASearchThatIsInterruptedEndsAtOnce(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	var out bytes.Buffer

	failure := invocation.Invocation{Workdir: t.TempDir(), Out: &out, Err: &out}.Discover(ctx,
		settings.Overrides{"cidr": "192.0.2.0/24"})
	require.Equal(t, diagnosis.ExitInterrupt, failure.Code)
}
