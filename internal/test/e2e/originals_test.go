package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// recorders are programs that write down how they were called, one line a call, and answer the least that their callers
// need.
var recorders = map[string]string{
	"sops":      `echo 'tfstate_username: operator'`,
	"talhelper": `echo "talosctl from-talhelper"`,
	"talosctl":  ``,
	"tofu":      `echo "tofu user=$TF_HTTP_USERNAME token=$TF_VAR_proxmox_api_token_id in=$PWD" >>"$RECORD"`,
	"yq": `case "$*" in
*talosImageURL*) echo factory.example.com/installer/abc ;;
*talosVersion*) echo v1.13.9 ;;
*kubernetesVersion*) echo v1.36.2 ;;
*tfstate_username*) echo operator ;;
*proxmox_api_token_id*) echo token ;;
esac`,
}

func TestTasksThatAreNotOursYetRunTheOriginalCommands(t *testing.T) {
	t.Parallel()

	task := tool.Find(t, "task")

	bin := t.TempDir()
	for name, text := range recorders {
		script(t, filepath.Join(bin, name), `echo "`+name+` $*" >>"$RECORD"`+"\n"+text+"\n")
	}

	for call, want := range map[string][]string{
		"talos:upgrade-node IP=192.0.2.11": {
			"talhelper gencommand upgrade --node 192.0.2.11 --extra-flags " +
				"--image='factory.example.com/installer/abc:v1.13.9' --timeout=10m",
			"talosctl from-talhelper",
		},
		"talos:upgrade-k8s": {
			"talhelper gencommand upgrade-k8s --extra-flags --to 'v1.36.2'",
			"talosctl from-talhelper",
		},
		"bootstrap:apps":                       {"apps"},
		"infra:init -- -upgrade":               {"tofu init -upgrade"},
		"infra:plan":                           {"tofu plan -out=tfplan"},
		"infra:apply":                          {"tofu apply tfplan"},
		"infra:apply-auto --yes":               {"tofu apply -auto-approve"},
		"infra:destroy --yes":                  {"tofu destroy"},
		"infra:output -- -json":                {"tofu output -json"},
		"infra:state-list":                     {"tofu state list"},
		"infra:force-unlock LOCK_ID=abc --yes": {"tofu force-unlock abc"},
		"infra:validate":                       {"tofu validate"},
		"infra:fmt":                            {"tofu fmt -recursive"},
		"infra:fmt-check":                      {"tofu fmt -check -recursive"},
		"infra:secrets-edit":                   {"sops {{root}}/infrastructure/secrets.sops.yaml"},
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()

			root := userRepository(t)
			for _, file := range []string{
				"age.key", ".sops.yaml", "kubeconfig", "talos/talconfig.yaml", "talos/talenv.yaml",
				"infrastructure/secrets.sops.yaml", "infrastructure/tofu/tfplan",
			} {
				write(t, filepath.Join(root, file), "")
			}

			write(t, filepath.Join(root, "scripts", "bootstrap-apps.sh"), `echo apps >>"$RECORD"`)

			record := filepath.Join(root, "record")
			got := run(t, command{
				dir:  root,
				env:  []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "RECORD=" + record},
				args: append([]string{task}, strings.Fields(call)...),
			})
			require.Equal(t, 0, got.code, got.stderr)

			calls, err := os.ReadFile(record)
			require.NoError(t, err)

			for _, line := range want {
				require.Contains(t, strings.Split(string(calls), "\n"), strings.ReplaceAll(line, "{{root}}", root))
			}

			if strings.HasPrefix(want[0], "tofu ") && !strings.Contains(call, "fmt") && !strings.Contains(call, "validate") {
				require.Contains(t, string(calls), "tofu user=operator token=token in="+root+"/infrastructure/tofu\n")
			}
		})
	}
}

func TestPreconditionsSayWhatIsMissing(t *testing.T) {
	t.Parallel()

	task := tool.Find(t, "task")

	for call, message := range map[string]string{
		"talos:upgrade-node IP=192.0.2.11": "an upgrade needs talhelper, talosctl and yq on the PATH",
		"talos:upgrade-node":               "missing required variables: IP",
		"talos:upgrade-k8s":                "an upgrade needs talhelper, talosctl and yq on the PATH",
		"bootstrap:apps":                   "there is no kubeconfig at",
		"infra:plan":                       "this task needs tofu, sops and yq on the PATH",
		"infra:apply":                      "this task needs tofu, sops and yq on the PATH",
		"infra:fmt":                        "this task needs tofu on the PATH",
		"infra:secrets-edit":               "this task needs sops on the PATH",
		"infra:force-unlock --yes":         "missing required variables: LOCK_ID",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()

			got := run(t, command{
				dir:  userRepository(t),
				env:  []string{"PATH=" + onlyBash(t)},
				args: append([]string{task}, strings.Fields(call)...),
			})
			require.NotZero(t, got.code)
			require.Contains(t, got.stderr, message)
			require.NotContains(t, got.stderr, "not found")
			require.NotContains(t, got.stderr, "no such file")
		})
	}
}

func TestWhatDestroysAsksFirst(t *testing.T) {
	t.Parallel()

	task := tool.Find(t, "task")

	bin := t.TempDir()
	for name, text := range recorders {
		script(t, filepath.Join(bin, name), `echo "`+name+` $*" >>"$RECORD"`+"\n"+text+"\n")
	}

	for _, call := range []string{"infra:destroy", "infra:apply-auto", "infra:force-unlock LOCK_ID=abc"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()

			root := userRepository(t)
			for _, file := range []string{"talos/talconfig.yaml", "infrastructure/secrets.sops.yaml",
				"infrastructure/tofu/tfplan"} {
				write(t, filepath.Join(root, file), "")
			}

			record := filepath.Join(root, "record")
			got := run(t, command{
				dir:  root,
				env:  []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "RECORD=" + record},
				args: append([]string{task}, strings.Fields(call)...),
			})
			require.NotZero(t, got.code)

			calls, _ := os.ReadFile(record)
			require.NotContains(t, string(calls), "gencommand")
			require.NotContains(t, string(calls), "tofu ")
		})
	}
}
