package configrules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// What only Talos 1.14 has against a machine config, and what it only warns of, by how the texts begin.
var (
	laterProblems = []string{
		"cluster controlplane endpoint is required (", // Talos 1.13 says so in fewer words
		".cluster.serviceAccount requires the cluster endpoint",
		"etcd encryption config is required",
		"cluster name and endpoint are required",
		"cluster ID (",
		"cluster secret (",
		"KubeSpan requires cluster discovery",
	}
	laterWarnings = []string{".machine.files is deprecated", ".machine.baseRuntimeSpecOverrides is deprecated"}
)

func withoutLaterWarnings(warnings []string) []string {
	return slices.DeleteFunc(warnings, isIn(laterWarnings))
}

func isIn(beginnings []string) func(string) bool {
	return func(text string) bool {
		return slices.ContainsFunc(beginnings, func(begin string) bool { return strings.HasPrefix(text, begin) })
	}
}

// olderProblems makes of what Talos 1.14 has against a machine config what releases before it had.
func olderProblems(found error, provider talosconfig.Provider, mode validation.RuntimeMode) error {
	ofMain, ofOthers := split(found)

	isLater := func(problem error) bool { return isIn(laterProblems)(problem.Error()) }
	ofMain, ofOthers = slices.DeleteFunc(ofMain, isLater), slices.DeleteFunc(ofOthers, isLater)

	return join(append(droppedProblems(provider.RawV1Alpha1(), mode), ofMain...),
		append(volumeProblems(provider.Documents()), ofOthers...))
}

// volumeProblems refuses the system volumes that Talos 1.14 made settings of.
func volumeProblems(documents []config.Document) []error {
	var problems []error

	for _, document := range documents {
		volume, ok := document.(*block.VolumeConfigV1Alpha1)
		if ok && slices.Contains(config.PromotableSystemVolumeNames, volume.MetaName) {
			known := []string{
				constants.StatePartitionLabel, constants.EphemeralPartitionLabel, constants.ImageCachePartitionLabel,
			}
			problems = append(problems, fmt.Errorf("VolumeConfig/%s: only %q volumes are supported", volume.MetaName, known))
		}
	}

	return problems
}

// droppedProblems is what Talos 1.14 no longer has against a main document.
func droppedProblems(main *v1alpha1.Config, mode validation.RuntimeMode) []error {
	if main == nil || main.MachineConfig == nil {
		return nil
	}

	var problems []error

	if cluster := main.ClusterConfig; cluster != nil && cluster.Endpoint() == nil {
		problems = append(problems, errors.New("cluster controlplane endpoint is required"))
	}

	if mode.RequiresInstall() && main.MachineConfig.MachineInstall == nil { //nolint:staticcheck // of these releases
		problems = append(problems, fmt.Errorf("install instructions are required in %q mode", mode))
	}

	return append(problems, kubeSpanProblems(main)...)
}

// kubeSpanProblems is what a main document that turns KubeSpan on lacks.
func kubeSpanProblems(main *v1alpha1.Config) []error {
	if kubeSpan := main.NetworkKubeSpanConfig(); kubeSpan == nil || !kubeSpan.Enabled() || main.ClusterConfig == nil {
		return nil
	}

	var problems []error

	for _, need := range []struct {
		missing bool
		text    string
	}{
		{!main.ClusterConfig.Discovery().Enabled(), "discovery should be enabled"},
		{main.ClusterConfig.ClusterID == "", "id should be set"},
		{main.ClusterConfig.ClusterSecret == "", "secret should be set"},
	} {
		if need.missing {
			problems = append(problems, fmt.Errorf(".cluster.%s when .machine.network.kubespan is enabled", need.text))
		}
	}

	return problems
}

// mainPrefix begins the problems of the main document.
const mainPrefix = "v1alpha1.Config: "

// split takes what a validation found apart: what it has against the main document, and all else.
func split(found error) (ofMain, ofOthers []error) {
	all, ok := errors.AsType[*multierror.Error](found)

	switch {
	case found == nil:
		return nil, nil
	case !ok:
		return nil, []error{found}
	}

	for _, problem := range all.Errors {
		inner, several := errors.AsType[*multierror.Error](problem)

		switch {
		case !strings.HasPrefix(problem.Error(), mainPrefix):
			ofOthers = append(ofOthers, problem)
		case several:
			ofMain = append(ofMain, inner.Errors...)
		default:
			ofMain = append(ofMain, errors.Unwrap(problem))
		}
	}

	return ofMain, ofOthers
}

// join puts together what split took apart.
func join(ofMain, ofOthers []error) error {
	var result *multierror.Error

	if len(ofMain) > 0 {
		result = multierror.Append(result, fmt.Errorf("%s%w", mainPrefix, multierror.Append(nil, ofMain...)))
	}

	return multierror.Append(result, ofOthers...).ErrorOrNil()
}

// addToMain adds problems of the main document to what a validation found.
func addToMain(found error, problems []error) error {
	if len(problems) == 0 {
		return found
	}

	ofMain, ofOthers := split(found)

	return join(append(ofMain, problems...), ofOthers)
}
