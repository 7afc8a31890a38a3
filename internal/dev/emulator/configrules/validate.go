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

// What only Talos 1.14 has against a machine config, and what only it warns of, by parts of the texts. Talos 1.13 has
// its own words for some.
var (
	laterProblems = []string{
		".cluster.serviceAccount requires the cluster endpoint",
		"etcd encryption config is required",
		"cluster name and endpoint are required",
		"cluster ID (",
		"cluster secret (",
		"KubeSpan requires cluster discovery",
		"ResolverConfig: ",
		" volumes are supported",
	}
	laterWarnings = []string{
		".machine.files is deprecated", ".machine.baseRuntimeSpecOverrides is deprecated", " cannot match any image: ",
	}
)

func withoutLaterWarnings(warnings []string) []string {
	return slices.DeleteFunc(warnings, func(warning string) bool { return hasAny(warning, laterWarnings) })
}

func hasAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// olderProblems makes of what Talos 1.14 has against a machine config what releases before it had.
func olderProblems(found error, provider talosconfig.Provider, mode validation.RuntimeMode) error {
	ofMain, ofOthers := split(found)
	isLater := func(problem error) bool { return hasAny(problem.Error(), laterProblems) }

	if main := provider.RawV1Alpha1(); main != nil && main.MachineConfig != nil {
		ofMain = olderMainProblems(ofMain, main, mode)
	}

	return join(slices.DeleteFunc(ofMain, isLater),
		append(volumeProblems(provider.Documents()), slices.DeleteFunc(ofOthers, isLater)...))
}

// olderMainProblems adds what Talos 1.14 no longer has against a main document, in its place: after what is wrong with
// the cluster, of which a missing endpoint hid all else.
func olderMainProblems(found []error, main *v1alpha1.Config, mode validation.RuntimeMode) []error {
	ofCluster := multierror.Append(nil, main.ClusterConfig.Validate(main.Machine().Type().IsControlPlane())).Errors
	count := min(len(ofCluster), len(found))
	problems, rest := slices.Clone(found[:count]), found[count:]

	if main.ClusterConfig != nil && main.ClusterConfig.Endpoint() == nil {
		problems = []error{errors.New("cluster controlplane endpoint is required")}
	}

	if mode.RequiresInstall() && main.MachineConfig.MachineInstall == nil { //nolint:staticcheck // of these releases
		problems = append(problems, fmt.Errorf("install instructions are required in %q mode", mode))
	}

	return slices.Concat(problems, kubeSpanProblems(main), rest)
}

// olderVolumes are the system volumes that releases before Talos 1.14 have settings for.
var olderVolumes = []string{
	constants.StatePartitionLabel, constants.EphemeralPartitionLabel, constants.ImageCachePartitionLabel,
}

// volumeProblems refuses settings for others.
func volumeProblems(documents []config.Document) []error {
	var problems []error

	for _, document := range documents {
		volume, ok := document.(*block.VolumeConfigV1Alpha1)
		if ok && !slices.Contains(olderVolumes, volume.MetaName) {
			problems = append(problems, fmt.Errorf("VolumeConfig/%s: only %q volumes are supported", volume.MetaName,
				olderVolumes))
		}
	}

	return problems
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
