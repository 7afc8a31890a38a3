package invocation_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// repository is a folder with a cluster's files, on which targets are run.
type repository string

func newRepository(t *testing.T, files map[string]string) repository {
	t.Helper()

	root := repository(t.TempDir())
	for name, text := range files {
		root.write(t, name, text)
	}

	return root
}

func (r repository) write(t *testing.T, name, text string) {
	t.Helper()

	path := filepath.Join(string(r), "talos", name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func (r repository) call(out *bytes.Buffer, environ ...string) invocation.Invocation {
	return invocation.Invocation{Environ: append(environ, "ROOT_DIR="+string(r)), Workdir: string(r), Out: out, Err: out}
}

func (r repository) audit(environ ...string) (string, *invocation.Failure) {
	var out bytes.Buffer

	failure := r.call(&out, environ...).Audit(context.Background(), nil)

	return out.String(), failure
}

func (r repository) generate() (string, *invocation.Failure) {
	var out bytes.Buffer

	failure := r.call(&out).Execute(context.Background(), "config:generate", nil,
		func(*settings.Settings) []steps.Step {
			return []steps.Step{steps.Secrets{ByName: true}, steps.Configs{Replace: true}}
		})

	return out.String(), failure
}

const (
	soundTalconfig = "clusterName: lab\ntalosVersion: v1.13.9\nkubernetesVersion: v1.36.0\n" +
		"endpoint: https://192.0.2.11:6443\nallowSchedulingOnControlPlanes: true\nnodes:\n  - hostname: cp1\n" +
		"    ipAddress: 192.0.2.11\n    controlPlane: true\n    installDisk: /dev/vda\n"
	soundProfile = "name: lab\nnetwork: {api_endpoint: 192.0.2.11, gateway: 192.0.2.1}\n" +
		"talos:\n  version: 1.13.9\n  kubernetes_version: 1.36.3\n  factory: {schematic_id: " +
		"ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515}\n" +
		"nodes:\n  controlplane:\n    assignments:\n      - {name: cp1, ip: 192.0.2.11, interface: ens18}\n" +
		"regenerate_secrets: true\n"
)

// What generation refuses, an audit refuses with the same words, whether or not machine configs and secrets are there,
// and whoever makes the machine configs.
func TestWhatCannotBeRenderedFailsAnAudit(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		sound       map[string]string
		secrets     string
		file, spoil string
		cause       string
	}{
		"a release that is too old": {sound: map[string]string{"talconfig.yaml": soundTalconfig},
			secrets: "talsecret.yaml",
			file:    "talconfig.yaml", spoil: strings.Replace(soundTalconfig, "v1.13.9", "v1.1.0", 1),
			cause: "Talos v1.1 is older than what configs can be made for"},
		"no version of Kubernetes": {sound: map[string]string{"talconfig.yaml": soundTalconfig},
			secrets: "talsecret.yaml",
			file:    "talconfig.yaml", spoil: strings.Replace(soundTalconfig, "kubernetesVersion: v1.36.0\n", "", 1),
			cause: `"kubernetesVersion" is needed`},
		"a profile's patch that is nobody's": {sound: map[string]string{"cluster.yaml": soundProfile},
			secrets: "clusterconfig/secrets.yaml",
			file:    "clusterconfig/patches/cp9.yaml", spoil: "machine: {sysctls: {a: b}}\n",
			cause: "no node has this name, so nothing would read the patch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			refused := func(out string, failure *invocation.Failure) {
				t.Helper()
				require.NotNil(t, failure, out)
				require.Equal(t, diagnosis.ExitBadInput, failure.Code, out)
				require.Contains(t, out, test.cause)
			}

			written := newRepository(t, test.sound)
			out, failure := written.generate()
			require.Nil(t, failure, out)
			out, failure = written.audit()
			require.Nil(t, failure, out)

			written.write(t, test.file, test.spoil)
			refused(written.generate())

			fresh := newRepository(t, test.sound)
			fresh.write(t, test.file, test.spoil)
			refused(fresh.audit())

			refused(written.audit())

			if test.file == "talconfig.yaml" {
				refused(written.audit("CONFIG_GENERATOR=talhelper"))
			}

			for _, lost := range []string{test.secrets, "clusterconfig/talosconfig"} {
				require.NoError(t, os.Remove(filepath.Join(string(written), "talos", lost)))
				refused(written.audit())
			}
		})
	}
}
