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
	"sops": `case "$*" in
*extract*tfstate_username*) printf operator ;;
*extract*proxmox_api_token_id*) printf token ;;
*extract*) exit 1 ;;
esac`,
	"tofu": `echo "tofu user=$TF_HTTP_USERNAME token=$TF_VAR_proxmox_api_token_id in=$PWD" >>"$RECORD"`,
}

func TestTasksOfOtherProgramsRunTheOriginalCommands(t *testing.T) {
	t.Parallel()

	task := tool.Find(t, "task")

	bin := t.TempDir()
	for name, text := range recorders {
		script(t, filepath.Join(bin, name), `echo "`+name+` $*" >>"$RECORD"`+"\n"+text+"\n")
	}

	for call, want := range map[string][]string{
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
		"talos:upgrade-node IP=":   "IP is empty: task talos:upgrade-node IP=192.0.2.11",
		"talos:upgrade-node":       "missing required variables: IP",
		"bootstrap:apps":           "there is no kubeconfig at",
		"infra:plan":               "this task needs tofu and sops on the PATH",
		"infra:apply":              "this task needs tofu and sops on the PATH",
		"infra:fmt":                "this task needs tofu on the PATH",
		"infra:secrets-edit":       "this task needs sops on the PATH",
		"infra:force-unlock --yes": "missing required variables: LOCK_ID",
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
