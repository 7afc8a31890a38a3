package steps_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// secretKeys name the fields of machine configs and talosconfigs that hold secrets.
var secretKeys = map[string]bool{"key": true, "token": true, "secret": true, "secretboxEncryptionSecret": true}

// secretsIn are all secrets of the lab's files; of those that are encoded also what they encode.
func (l *lab) secretsIn(t *testing.T, paths ...string) []string {
	t.Helper()

	var found []string

	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)

		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var tree any

			require.NoError(t, yaml.Unmarshal([]byte(document), &tree))
			found = collectSecrets(tree, found)
		}
	}

	for _, secret := range found {
		if decoded, err := base64.StdEncoding.DecodeString(secret); err == nil &&
			strings.HasPrefix(string(decoded), "-----BEGIN") {
			found = append(found, strings.Split(string(decoded), "\n")[1])
		}
	}

	require.Greater(t, len(found), 10)

	return found
}

func collectSecrets(tree any, found []string) []string {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			if text, isText := value.(string); isText && text != "" && secretKeys[key] {
				found = append(found, text)
			} else {
				found = collectSecrets(value, found)
			}
		}
	case []any:
		for _, value := range tree {
			found = collectSecrets(value, found)
		}
	}

	return found
}

func TestNoOutputHoldsASecret(t *testing.T) {
	t.Parallel()

	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()

			l := newLab(t, 3, 2, edit("worker2", func(node *emulator.NodeOptions) { node.Disks = []emulator.Disk{} }))
			secrets := l.secretsIn(t, l.ConfigFile("cp1"), l.ConfigFile("worker1"), l.Talosconfig())

			// A config that the node complains about in its own words, and a machine that it does not fit.
			l.changeFile(t, "worker1", "machine:\n",
				"machine:\n  install:\n    diskSelector:\n      model: NOPE*\n    extraKernelArgs: [a=b]\n  "+
					"previousInstall:\n")
			l.untilMaintenance(t)

			first := l.session(t, "LOG_FORMAT="+format)
			first.do(t, first.recipe()...)

			second := l.session(t, "LOG_FORMAT="+format, "NODE=cp1,cp2,cp3")
			second.succeeds(t, second.recipe()...)

			// Drift in secrets themselves, shown, rehearsed by the node and applied.
			l.changeFile(t, "cp2", "certSANs: []", "certSANs: [192.0.2.77]")
			l.changeFile(t, "cp2", "secretboxEncryptionSecret: ",
				"secretboxEncryptionSecret: QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=\n    previous: ")
			third := l.session(t, "LOG_FORMAT="+format, "NODE=cp2")
			third.do(t, steps.Preflight{}, steps.Apply{})

			l.changeFile(t, "cp3", "certSANs: []", "certSANs: [192.0.2.78]")
			l.needsReboot(t, "cp3")
			fourth := l.session(t, "LOG_FORMAT="+format, "NODE=cp3", "-update=true", "MODE=no-reboot")
			fourth.do(t, steps.Preflight{}, steps.Apply{})
			require.Error(t, fourth.err, "the node can't take that without a reboot, and says so with both configs in full")

			secrets = append(secrets, "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=")

			for i, s := range []*session{first, second, third, fourth} {
				shown := s.out.String() + fmt.Sprint(s.err) + allResults(s.Recorder)
				require.NotEmpty(t, shown)

				for _, secret := range secrets {
					at := strings.Index(shown, secret)
					require.Negative(t, at, "run %d shows a secret: …%s…", i+1, around(shown, at))
				}
			}
		})
	}
}

// around is the text around a position.
func around(text string, at int) string {
	const width = 120

	return text[max(0, at-width):min(len(text), max(0, at)+width)]
}

// allResults is everything that sinks get.
func allResults(recorder *report.Recorder) string {
	var text strings.Builder

	for _, result := range recorder.Results() {
		fmt.Fprintf(&text, "%+v %v\n", result, result.Err)
	}

	for _, finding := range recorder.Findings() {
		fmt.Fprintf(&text, "%+v\n", finding)
	}

	return text.String()
}
