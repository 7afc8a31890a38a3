package recipe

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Options are what a run is told, in place of environment variables and flags. The zero value is a run for all nodes of
// the cluster whose files are in the working directory, with every setting at its default, which prints nothing.
type Options struct {
	// Dir is the folder that the run starts from: one in the repository that the cluster's files lie in. Relative paths
	// of settings are relative to it. Default: the program's working directory.
	Dir string
	// Settings are settings by their names in docs/settings.md, as in "MAX_PARALLEL": "50%". An unknown name, and a value
	// that the setting does not take, is bad input. What permits loss is no part of them.
	Settings map[string]string
	// Environ is an environment of "NAME=value" to read settings from, below Settings, and for programs that steps start,
	// such as sops. Default: the program's own, without what would be settings; os.Environ() includes those.
	Environ []string
	// Nodes are the nodes that the run is for, by name or declared address. Default, when nil: all of them. An empty list,
	// and an empty name in it, is bad input.
	Nodes []string
	// Cluster is the cluster's name, for steps that may lose data and are for all of its nodes. Default: none.
	Cluster string
	// DryRun shows what would be done. Nothing is changed but the run's record, and none of the program's code is called.
	// It ends with ExitDryRun if anything would change.
	DryRun bool
	// Update permits Apply to change nodes of a cluster that is up, one at a time; Reboot, changes that need a reboot too.
	Update, Reboot bool
	// LoseDataOf names what may lose its data for good in this run: a node, where one is wiped or upgraded, and else the
	// cluster. It is what a person would have to type. Default: nothing, and steps that may lose data are refused.
	LoseDataOf []string
	// Stdout gets what people read of a run, Stderr log lines and, on a terminal, progress. Default: nobody.
	Stdout, Stderr io.Writer
}

// invocation is a call with these options.
func (o Options) invocation() (invocation.Invocation, settings.Overrides, error) {
	if err := o.checkNodes(); err != nil {
		return invocation.Invocation{}, nil, err
	}

	made := invocation.Invocation{Environ: o.Environ, Workdir: o.Dir, Called: "talos-mage", Out: o.Stdout, Err: o.Stderr}

	if made.Environ == nil {
		made.Environ = settings.Without(os.Environ(), func(string) bool { return false })
	}

	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		if err := checkSetting(name); err != nil {
			return made, nil, err
		}

		made.Environ = append(slices.Clip(made.Environ), name+"="+o.Settings[name])
	}

	for _, writer := range []*io.Writer{&made.Out, &made.Err} {
		if *writer == nil {
			*writer = io.Discard
		}
	}

	return made, o.overrides(), nil
}

// overrides are the options as the command line's, which go over settings.
func (o Options) overrides() settings.Overrides {
	given := settings.Overrides{}

	for name, value := range map[string]string{"node": strings.Join(o.Nodes, ","), "cluster": o.Cluster} {
		if value != "" {
			given[name] = value
		}
	}

	for name, value := range map[string]bool{"dryRun": o.DryRun, "update": o.Update, "reboot": o.Reboot} {
		if value {
			given[name] = fmt.Sprint(value)
		}
	}

	return given
}

// checkNodes refuses a list of nodes that came out empty: it must not stand for all of them.
func (o Options) checkNodes() error {
	unnamed := func(name string) bool { return strings.Trim(name, ", ") == "" }

	if o.Nodes == nil || len(o.Nodes) > 0 && !slices.ContainsFunc(o.Nodes, unnamed) {
		return nil
	}

	return bad(fmt.Sprintf("Options.Nodes is %q, which names no node", o.Nodes),
		"name nodes, or leave it nil for all of them")
}

// checkSetting refuses names that no setting has, or none that a variable may set.
func checkSetting(name string) error {
	knob, known := settings.Lookup(name)
	if known && !knob.TypedAlone() {
		return nil
	}

	cause := fmt.Sprintf("Options.Settings has %q, which is no setting", name)
	if known {
		return bad(fmt.Sprintf("Options.Settings has %q, which a command line alone can give", name), "leave it out")
	}

	var names []string
	for _, knob := range settings.Table() {
		names = append(names, knob.Name)
	}

	if near := suggest.Word(name, names); near != "" {
		cause += "; did you mean " + near + "?"
	}

	return bad(cause, "take a name of docs/settings.md")
}

// agree is the program's answer to a step that asks whether what has that name may be lost.
func (r *runner) agree(name string) error {
	if slices.Contains(r.options.LoseDataOf, name) {
		return nil
	}

	return diagnosis.NewProblem(diagnosis.NotAgreed,
		fmt.Sprintf("Options.LoseDataOf names %s, and not %s, which may lose its data; nothing was changed",
			strings.Join(r.options.LoseDataOf, ", "), name),
		"see with Options.DryRun what would be lost; then name "+name+" there")
}
