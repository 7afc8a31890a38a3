package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/steps/observe"
	"github.com/talos-mage/talos-mage/internal/steps/text"
	"github.com/talos-mage/talos-mage/internal/steps/workspace"
)

// Apps installs the cluster's first applications: namespaces, secrets, CRDs and releases, in this order, once the nodes
// are there. What is there already is left alone, so a run that ended early is continued by the next.
type Apps struct{}

// Name is the step's name.
func (Apps) Name() string { return "apps" }

// Exit is the code for applications that could not be installed.
func (Apps) Exit() diagnosis.ExitCode { return diagnosis.ExitKubernetes }

// Mutates marks the step as one that needs the cluster's lock.
func (Apps) Mutates() {}

// Run looks at the files and programs before anything is begun, and ends at the first phase that fails.
func (s Apps) Run(ctx context.Context, run *Run) error {
	work := begin(run, s)
	installer := &appsInstaller{work: work, apps: work.workspace.Apps(), programs: work.workspace.AppPrograms()}

	phases := []func(context.Context) error{installer.check, installer.nodes, installer.namespaces, installer.secrets,
		installer.crds, installer.releases}
	if installer.apps.Script != "" {
		phases = []func(context.Context) error{installer.runScript}
	}

	for _, phase := range phases {
		if err := phase(ctx); err != nil {
			return work.failed(ctx, err)
		}
	}

	if len(installer.planned) > 0 {
		return work.wouldChange(text.List(installer.planned)+" would be applied", "the same command without -dryRun")
	}

	return nil
}

// appsInstaller is one run of the step.
type appsInstaller struct {
	*work

	apps     workspace.Apps
	programs program.Runner
	// planned is what a dry run found to do.
	planned []string
}

const (
	kubectl  = "kubectl"
	helmfile = "helmfile"
)

// appsPrograms are what the phases call, and where each is to be had.
var appsPrograms = []struct{ name, from string }{
	{kubectl, "https://kubernetes.io/docs/tasks/tools/"},
	{helmfile, "https://github.com/helmfile/helmfile/releases"},
	{"helm", "https://helm.sh/docs/intro/install/"},
}

// check names all that is missing, before anything is begun.
func (i *appsInstaller) check(context.Context) error {
	var problems []*diagnosis.Problem

	missing := func(path, next string) {
		if isMissing(path) {
			problems = append(problems, diagnosis.NewProblem(diagnosis.AppsFilesMissing,
				"there is no "+i.workspace.Files.Shown(path), next).In(i.step.Name()))
		}
	}

	missing(i.Settings.Kubeconfig, command("kubeconfig", nil))
	missing(i.apps.Folder, "make it, with a folder for each namespace")
	missing(i.apps.CRDs, "add the helmfile of the CRDs")
	missing(i.apps.Releases, "add the helmfile of the releases")

	for _, needed := range appsPrograms {
		if _, found := i.programs.Find(needed.name); !found {
			problems = append(problems, diagnosis.NewProblem(diagnosis.AppsProgramMissing,
				needed.name+" is not on the PATH", "install it: "+needed.from).In(i.step.Name()))
		}
	}

	return joined(problems)
}

// runScript leaves it to the repository's own script, whose lines are told as they are.
func (i *appsInstaller) runScript(ctx context.Context) error {
	shown := i.workspace.Files.Shown(i.apps.Script)

	if i.Settings.DryRun {
		i.plan(shown, "would run "+shown)
		return nil
	}

	i.tell("running " + shown)

	err := i.gate.FollowProgram(ctx, i.programs, func(line string) { i.Log.Info().Msg(line) }, "bash", i.apps.Script)
	if err != nil {
		return i.programProblem(diagnosis.AppsScriptFailed, shown+" failed", err)
	}

	return i.done(report.Applied, "ran "+shown)
}

// nodes waits until Kubernetes knows all nodes: Ready where Talos brings the CNI, else registered, since it is the
// applications that bring one.
func (i *appsInstaller) nodes(ctx context.Context) error {
	if !i.Settings.DryRun {
		if err := i.awaitRegistered(ctx); err != nil {
			return err
		}

		return i.done(report.OK, "Kubernetes has all nodes")
	}

	access := &observe.Kubernetes{Observer: i.observer}
	if seen := access.Registered(ctx, i.Nodes()); !seen.Complete(i.Cluster.CNI) {
		i.plan("", registrationText(seen))
	}

	return nil
}

// namespaces makes those that are missing.
func (i *appsInstaller) namespaces(ctx context.Context) error {
	i.tell("making namespaces")

	wanted, err := i.apps.Namespaces()
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}

	listed, err := i.kubectl(ctx, nil, "get", "namespaces", "--output=name")
	if err != nil {
		return i.programProblem(diagnosis.AppsApplyRefused, "the namespaces were not listed", err)
	}

	missing := slices.DeleteFunc(wanted, func(name string) bool {
		return slices.Contains(strings.Fields(string(listed)), "namespace/"+name)
	})

	var manifest strings.Builder
	for _, name := range missing {
		fmt.Fprintf(&manifest, "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: %q\n", name)
	}

	if len(missing) == 0 {
		return i.done(report.Skipped, "namespaces: there already")
	}

	return i.apply(ctx, "namespaces "+text.List(missing), false, []byte(manifest.String()))
}

// fluxNamespace is where secrets belong that name no namespace.
const fluxNamespace = "flux-system"

// secrets applies what sops encrypted, from memory.
func (i *appsInstaller) secrets(ctx context.Context) error {
	for _, file := range i.apps.Secrets {
		i.tell("applying " + file.Shown)

		plain, err := file.Decrypted()
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}

		placed, unplaced := byNamespace(plain)
		for _, part := range []struct {
			manifest []byte
			flags    []string
		}{{placed, nil}, {unplaced, []string{"--namespace", fluxNamespace}}} {
			if part.manifest == nil {
				continue
			}

			same := i.sameInKubernetes(ctx, part.manifest, part.flags...)
			if err := i.apply(ctx, file.Shown, same, part.manifest, part.flags...); err != nil {
				return err
			}
		}
	}

	return nil
}

// byNamespace parts the objects that name their namespace from those that do not: kubectl refuses to place the former.
func byNamespace(manifest []byte) (placed, unplaced []byte) {
	for document := range strings.SplitSeq("\n"+string(manifest), documentEnd) {
		var object struct {
			Metadata struct {
				Namespace string `yaml:"namespace"`
			} `yaml:"metadata"`
		}

		part := &unplaced
		if err := yaml.Unmarshal([]byte(document), &object); err == nil && object.Metadata.Namespace != "" {
			part = &placed
		}

		if strings.TrimSpace(document) != "" {
			*part = append(*part, (documentEnd + "\n" + document + "\n")...)
		}
	}

	return placed, unplaced
}

// ofCRD is of a document that declares a kind of object.
var ofCRD = pattern.New(`(?m)^kind: *"?CustomResourceDefinition"?[ \t\r]*$`)

// documentEnd begins the line between two documents.
const documentEnd = "\n---"

// crds applies the kinds of objects that the releases need, and nothing else of what their helmfile renders.
func (i *appsInstaller) crds(ctx context.Context) error {
	i.tell("rendering CRDs")

	rendered, err := i.programs.Run(ctx, nil, helmfile, i.helmfileArguments(i.apps.CRDs, "template", "--quiet")...)
	if err != nil {
		return i.programProblem(diagnosis.AppsReleaseFailed, "the CRDs were not rendered", err)
	}

	var crds []string

	for document := range strings.SplitSeq("\n"+string(rendered), documentEnd) {
		if ofCRD.MatchString(document) {
			crds = append(crds, document)
		}
	}

	if len(crds) == 0 {
		return i.done(report.Skipped, i.workspace.Files.Shown(i.apps.CRDs)+" renders no CRDs")
	}

	manifest := []byte(strings.Join(crds, documentEnd+"\n"))

	return i.apply(ctx, text.Counted(len(crds), "CRD"), i.sameInKubernetes(ctx, manifest), manifest)
}

// releases has helmfile install what is missing, and change what differs.
func (i *appsInstaller) releases(ctx context.Context) error {
	shown := "the releases of " + i.workspace.Files.Shown(i.apps.Releases)

	if i.Settings.DryRun {
		i.plan(shown, shown+" would be synced")
		return nil
	}

	i.tell("syncing " + shown)

	err := i.gate.FollowProgram(ctx, i.programs, i.tellLine, helmfile,
		i.helmfileArguments(i.apps.Releases, "sync", "--hide-notes")...)
	if err != nil {
		return i.programProblem(diagnosis.AppsReleaseFailed, shown+" were not installed", err)
	}

	return i.done(report.Applied, shown+" are installed")
}

// context is what the cluster's context is called in a kubeconfig that Talos makes. It is named in every call, so that
// nothing lands in another cluster.
func (i *appsInstaller) context() string { return "admin@" + i.Cluster.Name }

func (i *appsInstaller) helmfileArguments(file, verb string, flags ...string) []string {
	return append([]string{"--kube-context", i.context(), "--file", file, verb}, flags...)
}

// kubectl asks something of Kubernetes.
func (i *appsInstaller) kubectl(ctx context.Context, input []byte, arguments ...string) ([]byte, error) {
	//nolint:wrapcheck // what it says is the caller's to judge
	return i.programs.Run(ctx, input, kubectl, append([]string{"--context", i.context()}, arguments...)...)
}

// sameInKubernetes reports whether Kubernetes holds objects just so. Whatever else kubectl says means that they have to
// be applied.
func (i *appsInstaller) sameInKubernetes(ctx context.Context, manifest []byte, flags ...string) bool {
	_, err := i.kubectl(ctx, manifest, append(flags, "diff", "--server-side", "--filename", "-")...)

	return err == nil
}

// apply has Kubernetes take objects, unless it holds them already.
func (i *appsInstaller) apply(ctx context.Context, what string, same bool, manifest []byte, flags ...string) error {
	switch {
	case same:
		return i.done(report.Skipped, what+": there already")
	case i.Settings.DryRun:
		i.plan(what, what+" would be applied")
		return nil
	}

	arguments := append([]string{"--context", i.context()}, flags...)
	arguments = append(arguments, "apply", "--server-side", "--filename", "-")

	if err := i.gate.RunProgram(ctx, i.programs, manifest, kubectl, arguments...); err != nil {
		return i.programProblem(diagnosis.AppsApplyRefused, what+": not applied", err)
	}

	return i.done(report.Applied, what+": applied")
}

// plan takes down what a dry run found to do.
func (i *appsInstaller) plan(what, detail string) {
	if what != "" {
		i.planned = append(i.planned, what)
	}

	i.record(report.Result{Status: report.Planned, Detail: detail})
}

// programProblem is for a program that did not do what it was to do. What it says of a value may be a secret.
func (i *appsInstaller) programProblem(id diagnosis.ID, what string, err error) error {
	cause := err.Error()

	var failure *program.Failure
	if errors.As(err, &failure) {
		cause = failure.Name + " says: " + complained(failure)
	}

	entry, _ := diagnosis.Lookup(id)

	return diagnosis.NewProblem(id, what+": "+cause, whatNext(cause, entry.Remedy)).In(i.step.Name()).From(err)
}

func (i *appsInstaller) tell(doing string) {
	i.Report.Progress(i.step.Name(), report.Progress{Text: doing, Since: i.Clock.Now()})
}

// tellLine tells what a program prints, as far as it is more than an empty line.
func (i *appsInstaller) tellLine(line string) {
	if line = strings.TrimSpace(line); line != "" {
		i.tell(line)
	}
}
