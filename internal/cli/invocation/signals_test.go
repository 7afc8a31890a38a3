//go:build unix

package invocation_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/base/syncbuffer"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/steps"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// The first Ctrl-C ends what the user's own sops is waiting for, such as a key on a hardware token.
//
//nolint:paralleltest // the signal is the whole process's
func TestTheFirstInterruptIsHeardWhileSopsDecrypts(t *testing.T) {
	for name, run := range map[string]func(invocation.Invocation) *invocation.Failure{
		"recipe": func(call invocation.Invocation) *invocation.Failure {
			return call.Execute(context.Background(), "talos", nil, steps.Talos)
		},
		"status": func(call invocation.Invocation) *invocation.Failure { return call.Status(context.Background(), nil) },
		"audit":  func(call invocation.Invocation) *invocation.Failure { return call.Audit(context.Background(), nil) },
		"images": func(call invocation.Invocation) *invocation.Failure { return call.Images(context.Background(), nil) },
		"machines": func(call invocation.Invocation) *invocation.Failure {
			return call.VerifyNodes(context.Background(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			began := filepath.Join(root, "began")

			for path, text := range map[string]string{
				"talos/talconfig.yaml": "clusterName: lab\nendpoint: ${ENDPOINT}\nnodes:\n  - {hostname: cp1, ipAddress: 192.0.2.11, " +
					"controlPlane: true, installDisk: /dev/vda}\n",
				"talos/talenv.sops.yaml": "ENDPOINT: ENC[AES256_GCM,data:x]\nsops: {age: [{recipient: age1example}]}\n",
				"bin/sops":               "#!/bin/sh\n: > " + began + "\nexec /bin/sleep 300\n",
			} {
				path = filepath.Join(root, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, tool.WriteProgram(path, []byte(text)))
			}

			var out syncbuffer.Buffer

			ended := make(chan *invocation.Failure, 1)
			go func() {
				ended <- run(invocation.Invocation{Environ: []string{"PATH=" + filepath.Join(root, "bin"), "ROOT_DIR=" + root},
					Workdir: root, Out: &out, Err: &out})
			}()

			require.Eventually(t, func() bool { return exists(began) }, time.Minute, 10*time.Millisecond, "%s", &out)
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))

			select {
			case failure := <-ended:
				require.NotNil(t, failure)
				require.Equal(t, diagnosis.ExitInterrupt, failure.Code, failure.Message)
			case <-time.After(time.Minute):
				require.FailNow(t, "it was not heard")
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// What permitted loss as a variable once is not obeyed any more, and whoever still sets it reads so.
func TestARetiredVariableIsWarnedOf(t *testing.T) {
	t.Parallel()

	made, _, errs := call(t, "FORCE=true")
	made.Execute(t.Context(), "preflight", nil, func(*settings.Settings) []steps.Step { return nil })
	require.Contains(t, errs.String(), "WARN FORCE is set but ignored: what permits loss is given on the command line "+
		"alone, as -force")

	errs.Reset()
	made.Environ = slices.DeleteFunc(made.Environ, func(pair string) bool { return pair == "FORCE=true" })
	made.Execute(t.Context(), "preflight", nil, func(*settings.Settings) []steps.Step { return nil })
	require.NotContains(t, errs.String(), "ignored")
}
