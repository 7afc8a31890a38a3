// Package versions holds the checks of the versions of Talos and Kubernetes, as far as files tell.
package versions

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// Checks are its rows of the table.
func Checks() []check.Check {
	return []check.Check{
		check.EachConfig(diagnosis.ConfigNewer, check.Versions, checkConfigNewer),
		check.Whole(diagnosis.InstallerVersionsDiffer, check.Versions, diagnosis.NeedsConfig, checkInstallerVersions),
		check.Whole(diagnosis.KubernetesSkew, check.Versions, diagnosis.NeedsConfig, checkSkew),
		check.Whole(diagnosis.KubernetesNotDeclared, check.Versions, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkDeclaredKubernetes),
		check.EachConfig(diagnosis.ConfigKubernetes, check.Versions, checkConfigKubernetes),
		check.Whole(diagnosis.TalosUpgradePath, check.Versions, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkUpgradePath),
		check.Whole(diagnosis.KubernetesUpgradePath, check.Versions, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
			checkKubernetesPath),
		check.Whole(diagnosis.TalosVersionUnknown, check.Versions, diagnosis.NeedsTalconfig, checkKnownTalos),
		check.Whole(diagnosis.VersionIncomplete, check.Versions, diagnosis.NeedsTalconfig, check.Milder(checkVersionForms)),
		check.EachConfig(diagnosis.ConfigOlder, check.Versions, checkConfigOlder),
		check.Whole(diagnosis.KubernetesUnsupported, check.Versions, diagnosis.NeedsTalconfig, checkDeclaredPair),
	}
}

// InstallerTag is the version of the config's installer, and empty if its tag is none.
func InstallerTag(config *machineconfig.Config) string {
	image := schematic.ParseReference(config.InstallImage())
	if !image.Official() || !release.IsWhole(image.Tag) {
		return ""
	}

	return image.Tag
}

// WillRunFrom reports whether a node with this config will run a release of Talos, or a newer one.
func WillRunFrom(in *check.Input, rendered *check.Rendered, release *config.VersionContract) bool {
	version, _ := willRun(in, rendered)
	running, err := config.ParseContractFromVersion(version)

	return err == nil && !release.Greater(running)
}

// willRun is the Talos version that a node with this config runs once it is installed, and who says so; empty if nobody
// does.
func willRun(in *check.Input, config *check.Rendered) (version, why string) {
	if tag := InstallerTag(config.Config); tag != "" {
		return tag, "its installer is " + tag
	}

	if in.Cluster != nil && in.Cluster.TalosVersion != "" {
		return in.Cluster.TalosVersion, "talosVersion is " + in.Cluster.TalosVersion
	}

	return "", ""
}

// checkConfigNewer looks for what the Talos of a config's installer does not know.
func checkConfigNewer(r *check.Report, rendered *check.Rendered) {
	version, why := willRun(r.In, rendered)

	contract, err := config.ParseContractFromVersion(version)
	if err != nil {
		return
	}

	var (
		newer []machineconfig.NewerKey
		since *config.VersionContract
	)

	for _, root := range rendered.File.Places.Roots() {
		for _, key := range machineconfig.NewerKeys(root, contract) {
			newer = append(newer, key)

			if since == nil || key.Since.Greater(since) {
				since = key.Since
			}
		}
	}

	if len(newer) == 0 {
		return
	}

	more := ""
	if len(newer) > 1 {
		more = fmt.Sprintf(", and %d more", len(newer)-1)
	}

	// Without an installer of its own the node installs what it was booted from, which may be newer than what is declared.
	severity := diagnosis.Warning
	if InstallerTag(rendered.Config) != "" {
		severity = diagnosis.Failure
	}

	r.Add(severity, rendered.File.Line(newer[0].Line, newer[0].Column),
		"set talosVersion to "+since.String()+" or newer, or "+machineconfig.HowToGenerate+" for "+contract.String(),
		"the config is made for Talos %s (%s%s), and %s, which would refuse it", since, newer[0].Name, more, why)
}

// checkConfigOlder looks for configs of before 1.12 where a later version is declared.
func checkConfigOlder(r *check.Report, rendered *check.Rendered) {
	if r.In.Cluster == nil || r.In.Cluster.TalosVersion == "" {
		return
	}

	contract := r.In.Contract()

	// RBAC is what configs say up to 1.11 and not later.
	if contract == nil || !contract.MultidocNetworkConfigSupported() || rendered.RBAC() == nil ||
		rendered.HasDocument("HostnameConfig") || !rendered.HasInstall() || rendered.DecidesUKICmdline() {
		return
	}

	r.Found(rendered.At("machine.features.rbac"), machineconfig.HowToGenerate,
		"the config is made for Talos 1.11 or older, and talosVersion is %s", r.In.Cluster.TalosVersion)
}

// checkInstallerVersions looks for the nodes whose installer is of another version than most others'.
func checkInstallerVersions(r *check.Report, in *check.Input) {
	holders := map[string]int{}

	for _, config := range in.Configs {
		if tag := InstallerTag(config.Config); tag != "" {
			holders[tag]++
		}
	}

	if len(holders) < 2 {
		return
	}

	// Of equally common ones the newer is meant.
	usual := slices.MaxFunc(slices.Sorted(maps.Keys(holders)), func(a, b string) int {
		return cmp.Or(cmp.Compare(holders[a], holders[b]), CompareVersions(a, b))
	})

	for _, config := range in.Configs {
		if tag := InstallerTag(config.Config); tag != "" && tag != usual {
			r.Config = config
			r.Found(config.InstallPlace("image"), machineconfig.HowToGenerate,
				"the installer of %s is %s, and that of most nodes %s", config.Name, tag, usual)
		}
	}
}

// CompareVersions orders versions by their numbers.
func CompareVersions(a, b string) int {
	some, _ := release.Numbers(a)
	other, _ := release.Numbers(b)

	return slices.Compare(some[:], other[:])
}

// Component is a part of Kubernetes in a machine config.
type Component struct {
	name, field string
	// Image is the reference.
	Image string
}

// Components are those with an image, the kubelet first.
func Components(rendered *check.Rendered) []Component {
	all := []Component{{"kubelet", "machine.kubelet.image", rendered.Kubelet().Image()}}

	if check.IsControlPlane(rendered) {
		all = append(all,
			Component{"kube-apiserver", "cluster.apiServer.image", rendered.APIServer().Image()},
			Component{"kube-controller-manager", "cluster.controllerManager.image", rendered.ControllerManager().Image()},
			Component{"kube-scheduler", "cluster.scheduler.image", rendered.Scheduler().Image()},
		)
	}

	return all
}

// declared reports whether the config itself names the image; else it is the default of this program's machinery, and
// tells nothing.
func (c Component) declared(rendered *check.Rendered) bool {
	return rendered.At(c.field).Exists()
}

// Tag is the image's version.
func (c Component) Tag() string { return machineconfig.KubernetesOf(c.Image) }

// mostBehind is how many minor versions a part may be older than the API servers.
var mostBehind = map[string]int{"kubelet": 3, "kube-controller-manager": 1, "kube-scheduler": 1}

// checkSkew compares the parts of Kubernetes with the API servers.
func checkSkew(r *check.Report, in *check.Input) {
	oldest, newest := "", ""

	for _, config := range in.Configs {
		for _, part := range Components(config) {
			if tag := part.Tag(); part.name == "kube-apiserver" && tag != "" && part.declared(config) {
				if oldest == "" || CompareVersions(tag, oldest) < 0 {
					oldest = tag
				}

				if newest == "" || CompareVersions(tag, newest) > 0 {
					newest = tag
				}
			}
		}
	}

	if oldest == "" {
		return
	}

	for _, config := range in.Configs {
		for _, part := range Components(config) {
			tag := part.Tag()
			if tag == "" || part.name == "kube-apiserver" || !part.declared(config) {
				continue
			}

			r.Config = config
			own, _ := release.Numbers(tag)
			first, _ := release.Numbers(oldest)
			last, _ := release.Numbers(newest)

			switch {
			case slices.Compare(own[:2], first[:2]) > 0:
				r.Found(config.At(part.field), "upgrade the API servers first",
					"the %s of %s is %s, and newer than an API server, which is %s", part.name, config.Name, tag, oldest)
			case own[0] == last[0] && last[1]-own[1] > mostBehind[part.name]:
				r.Found(config.At(part.field), "use the API servers' version",
					"the %s of %s is %s, and too old for API servers of %s", part.name, config.Name, tag, newest)
			}
		}
	}
}

// checkDeclaredKubernetes compares the kubelets with kubernetesVersion.
func checkDeclaredKubernetes(r *check.Report, in *check.Input) {
	eachKubelet(in, func(config *check.Rendered, kubelet Component, tag, declared string) {
		if tag != declared {
			r.Config = config
			r.Found(config.At(kubelet.field), machineconfig.HowToGenerate,
				"the kubelet of %s is %s, and kubernetesVersion is %s", config.Name, tag, declared)
		}
	})
}

// eachKubelet visits the kubelets that configs name a version of, where one is declared. A kubelet that a patch chooses
// is not one that kubernetesVersion is for.
func eachKubelet(in *check.Input, visit func(config *check.Rendered, kubelet Component, tag, declared string)) {
	declared := in.Cluster.KubernetesVersion
	if _, known := release.Numbers(declared); !known {
		return
	}

	for _, config := range in.Configs {
		if kubelet := Components(config)[0]; kubelet.Tag() != "" && kubelet.declared(config) &&
			!in.Declares(config, kubelet.Image) {
			visit(config, kubelet, kubelet.Tag(), declared)
		}
	}
}

// checkKubernetesPath looks for upgrades of Kubernetes that skip minor versions, or go back.
func checkKubernetesPath(r *check.Report, in *check.Input) {
	told := map[string]bool{}

	eachKubelet(in, func(config *check.Rendered, kubelet Component, tag, declared string) {
		from, _ := release.Numbers(tag)
		to, _ := release.Numbers(declared)
		steps := to[1] - from[1]

		if from[0] != to[0] || steps >= 0 && steps <= 1 || told[tag] {
			return
		}

		told[tag], r.Config = true, config

		if steps < 0 {
			r.Found(config.At(kubelet.field), "declare "+tag+" or newer",
				"kubernetesVersion %s is older than the %s of %s: Kubernetes does not go back", declared, tag, config.Name)
		} else {
			r.Found(config.At(kubelet.field), fmt.Sprintf("upgrade to v%d.%d first", from[0], from[1]+1),
				"from the %s of %s to kubernetesVersion %s it is %d minor versions, and Kubernetes goes one at a time", tag,
				config.Name, declared, steps)
		}
	})
}

// contradicts reports whether a reason is that versions don't go together, and not that one is unknown.
func contradicts(err error) bool {
	return err != nil && !errors.Is(err, release.ErrNotTabled) && !errors.Is(err, release.ErrNoVersion)
}

// checkDeclaredPair finds a pair of declared versions that no machine could run.
func checkDeclaredPair(r *check.Report, in *check.Input) {
	talos, kubernetes := in.Cluster.TalosVersion, in.Cluster.KubernetesVersion
	if talos == "" || kubernetes == "" {
		return
	}

	if err := release.Fit(kubernetes, talos); contradicts(err) {
		r.Fail(in.Declared("kubernetesVersion"), in.Regenerate("change kubernetesVersion or talosVersion"),
			"talosVersion %s and kubernetesVersion %s don't go together: %s", talos, kubernetes, err)
		r.Last().Exit = diagnosis.ExitBadInput // no node's answer was needed
	}
}

// checkConfigKubernetes asks whether the Talos of a config's installer runs its Kubernetes. The declared pair is judged
// by itself.
func checkConfigKubernetes(r *check.Report, rendered *check.Rendered) {
	talos, why := willRun(r.In, rendered)
	if talos == "" {
		return
	}

	for _, part := range Components(rendered) {
		tag := part.Tag()
		if tag == "" || !part.declared(rendered) || r.In.Cluster != nil && talos == r.In.Cluster.TalosVersion &&
			tag == r.In.Cluster.KubernetesVersion {
			continue
		}

		if err := release.Fit(tag, talos); contradicts(err) {
			r.Found(rendered.At(part.field), "change kubernetesVersion, or the installer", "the %s is %s, and %s: %s",
				part.name, tag, why, err)

			return
		}
	}
}

// Upgrade says what is wrong with going from one Talos version to another; empty if nothing is, or it is not known.
func Upgrade(from, to string) string {
	first, known := release.Numbers(from)
	last, alsoKnown := release.Numbers(to)

	switch err := release.Upgrade(from, to); {
	case !known || !alsoKnown, errors.Is(err, release.ErrNotTabled):
		return ""
	case err != nil:
		return "the installer refuses that: " + err.Error()
	case first[0] == last[0] && last[1]-first[1] > 1:
		return fmt.Sprintf("it is %d minor versions, and upgrades are tested from one to the next alone", last[1]-first[1])
	default:
		return ""
	}
}

// checkUpgradePath looks at the way from the installers in the machine configs to the declared version.
func checkUpgradePath(r *check.Report, in *check.Input) {
	told := map[string]bool{}

	for _, config := range in.Configs {
		tag := InstallerTag(config.Config)
		if tag == "" || told[tag] || in.Cluster.TalosVersion == "" {
			continue
		}

		if why := Upgrade(tag, in.Cluster.TalosVersion); why != "" {
			told[tag], r.Config = true, config
			r.Found(config.InstallPlace("image"), "upgrade by the latest patch of every minor version in between",
				"from the installer %s of %s to talosVersion %s: %s",
				tag, config.Name, in.Cluster.TalosVersion, why)
		}
	}
}

// checkKnownTalos looks for versions that the tables here say nothing about.
func checkKnownTalos(r *check.Report, in *check.Input) {
	for _, finding := range in.Cluster.UnknownRelease() {
		r.Found(in.Declared("talosVersion"), finding.Next, "%s", finding.Cause)
	}
}

// checkVersionForms looks for versions that are no tag of an image.
func checkVersionForms(r *check.Report, in *check.Input) {
	for _, declared := range []struct{ key, version, example string }{
		{"talosVersion", in.Cluster.TalosVersion, machineconfig.DefaultTalosVersion},
		{"kubernetesVersion", in.Cluster.KubernetesVersion, "v1.36.3"},
	} {
		if declared.version != "" && !release.IsWhole(declared.version) && !strings.Contains(declared.version, "$") {
			r.Found(in.Declared(declared.key), "write the whole version, as "+declared.example,
				"%s is %s, and no image has such a tag", declared.key, declared.version)
		}
	}
}
