package invocation

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
)

// Targets are the names behind mage in the commands of hints.
var Targets = []string{"applyNode", "applyParallel", "applySequential", "apps", "audit", "bootstrap",
	"config:generate", "config:migrate", "config:rotate", "config:schema", "config:schematic", "config:secrets",
	"diagnose", "discover", "etcd:defrag", "etcd:members", "etcd:recover", "etcd:removeMember", "etcd:snapshot",
	"etcd:status", "explain", "generateConfig", "health", "kubeconfig", "preflight", "replaceNode", "report", "reset",
	"runs", "status", "talos", "upgrade", "upgradeK8s", "upgradeNode", "verify", "verifyNodes"}

// tasks are the targets that the Taskfiles have too.
var tasks = map[string]string{
	"applyParallel":   "bootstrap:apply-parallel",
	"applySequential": "bootstrap:apply-sequential",
	"apps":            "bootstrap:apps",
	"config:generate": "talos:generate-config",
	"preflight":       "bootstrap:preflight",
	"reset":           "talos:reset",
	"talos":           "bootstrap:talos",
	"upgradeK8s":      "talos:upgrade-k8s",
	"verify":          "bootstrap:verify",
}

// command is one to type: mage, a target, and perhaps flags.
var command = regexp.MustCompile(`\bmage (` + strings.Join(Targets, "|") + `)\b((?: -\w+(?:=[^\s;,)]+)?)*)`)

// foreign is a command of another program that hints name.
var foreign = regexp.MustCompile("`?" + `\b(talosctl (?:-n|config|dmesg|etcd|rotate-ca|service|upgrade|wipe)|` +
	`kubectl (?:-n|apply|config|delete|describe|get|label|taint|uncordon)|sops (?:--encrypt|decrypt|encrypt))\b`)

// hint has the commands in a text begin with what this program was called as. A target without a task is called
// without Task. A program that this computer lacks is to be installed first.
func (i Invocation) hint(text string) string {
	missing := map[string]bool{}

	text = foreign.ReplaceAllStringFunc(text, func(typed string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(typed, "`"), " ")
		if _, found := (program.Runner{Environ: i.Environ}).Find(name); found || missing[name] {
			return typed
		}

		missing[name] = true

		return "install " + name + ", then " + typed
	})

	return i.ownCommands(text)
}

func (i Invocation) ownCommands(text string) string {
	throughTask := program.Runner{Environ: i.Environ}.Variable(CalledAs) == "task"

	return command.ReplaceAllStringFunc(text, func(typed string) string {
		parts := command.FindStringSubmatch(typed)
		task, known := tasks[parts[1]]

		switch {
		case !throughTask || !known:
			return cmp.Or(i.Called, "mage") + " " + i.Alias + parts[1] + parts[2]
		case parts[2] == "":
			return "task " + task
		default:
			return "task " + task + " --" + parts[2]
		}
	})
}

// told is a text as people read it: without secrets, and with commands as they type them.
func (i Invocation) told(text string) string { return i.hint(report.Scrub(text)) }

// fail is how a call ends that did not go well.
func (i Invocation) fail(code diagnosis.ExitCode, message string) *Failure {
	return &Failure{Code: code, Message: i.told(message)}
}
