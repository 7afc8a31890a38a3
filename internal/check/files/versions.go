package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// Checks of versions. Whether the declared versions go together, and what a node runs with what its config is made for,
// is preflight's to say.
var versionChecks = []Check{
	eachConfig(diagnosis.ConfigNewer, Versions, checkConfigNewer),
	whole(diagnosis.InstallerVersionsDiffer, Versions, diagnosis.NeedsConfig, checkInstallerVersions),
	whole(diagnosis.KubernetesSkew, Versions, diagnosis.NeedsConfig, checkSkew),
	whole(diagnosis.KubernetesNotDeclared, Versions, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig,
		checkDeclaredKubernetes),
	eachConfig(diagnosis.ConfigKubernetes, Versions, checkConfigKubernetes),
	whole(diagnosis.TalosUpgradePath, Versions, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkUpgradePath),
	whole(diagnosis.KubernetesUpgradePath, Versions, diagnosis.NeedsTalconfig|diagnosis.NeedsConfig, checkKubernetesPath),
	whole(diagnosis.TalosVersionUnknown, Versions, diagnosis.NeedsTalconfig, checkKnownTalos),
	whole(diagnosis.VersionIncomplete, Versions, diagnosis.NeedsTalconfig, milder(checkVersionForms)),
	eachConfig(diagnosis.ConfigOlder, Versions, checkConfigOlder),
}

// installerTag is the version of the config's installer, and empty if its tag is none.
func installerTag(config *machineconfig.Config) string {
	image := schematic.ParseReference(config.InstallImage())
	if !image.Official() || !release.IsWhole(image.Tag) {
		return ""
	}

	return image.Tag
}

// willRun is the Talos version that a node with this config runs once it is installed, and who says so; empty if nobody
// does.
func (in *Input) willRun(config *Rendered) (version, why string) {
	if tag := installerTag(config.Config); tag != "" {
		return tag, "its installer is " + tag
	}

	if in.Cluster != nil && in.Cluster.TalosVersion != "" {
		return in.Cluster.TalosVersion, "talosVersion is " + in.Cluster.TalosVersion
	}

	return "", ""
}

// checkConfigNewer looks for what the Talos of a config's installer does not know.
func checkConfigNewer(r *Report, rendered *Rendered) {
	version, why := r.in.willRun(rendered)

	contract, err := config.ParseContractFromVersion(version)
	if err != nil {
		return
	}

	var (
		newer []machineconfig.NewerKey
		since *config.VersionContract
	)

	for _, root := range rendered.File.places.Roots() {
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
	if installerTag(rendered.Config) != "" {
		severity = diagnosis.Failure
	}

	finding := diagnosis.Finding{
		ID: r.id, Severity: severity, Node: rendered.Name, At: rendered.File.location(newer[0].Line, newer[0].Column),
		Cause: fmt.Sprintf("the config is made for Talos %s (%s%s), and %s, which would refuse it", since, newer[0].Name,
			more, why),
		Next: "set talosVersion to " + since.String() + " or newer, or " + machineconfig.HowToGenerate + " for " +
			contract.String(),
	}
	finding.At.From = r.in.originOf(rendered, newer[0].Line, newer[0].Column)
	r.findings = append(r.findings, finding)
}

// checkConfigOlder looks for configs of before 1.12 where a later version is declared.
func checkConfigOlder(r *Report, rendered *Rendered) {
	if r.in.Cluster == nil {
		return
	}

	declared, err := config.ParseContractFromVersion(r.in.Cluster.TalosVersion)
	raw := rendered.Provider.RawV1Alpha1().MachineConfig

	// RBAC is what configs say up to 1.11 and not later.
	if err != nil || !declared.MultidocNetworkConfigSupported() || raw.MachineFeatures == nil ||
		raw.MachineFeatures.RBAC == nil ||
		rendered.hasDocument("HostnameConfig") || raw.MachineInstall == nil ||
		raw.MachineInstall.InstallGrubUseUKICmdline != nil {
		return
	}

	r.found(rendered.File.at("machine.features.rbac"), machineconfig.HowToGenerate,
		"the config is made for Talos 1.11 or older, and talosVersion is %s", r.in.Cluster.TalosVersion)
}

// checkInstallerVersions looks for the nodes whose installer is of another version than most others'.
func checkInstallerVersions(r *Report, in *Input) {
	holders := map[string]int{}

	for _, config := range in.Configs {
		if tag := installerTag(config.Config); tag != "" {
			holders[tag]++
		}
	}

	if len(holders) < 2 {
		return
	}

	// Of equally common ones the newer is meant.
	usual := slices.MaxFunc(slices.Sorted(maps.Keys(holders)), func(a, b string) int {
		return cmp.Or(cmp.Compare(holders[a], holders[b]), compareVersions(a, b))
	})

	for _, config := range in.Configs {
		if tag := installerTag(config.Config); tag != "" && tag != usual {
			r.config = config
			r.found(config.installPlace("image"), machineconfig.HowToGenerate,
				"the installer of %s is %s, and that of most nodes %s", config.Name, tag, usual)
		}
	}
}

func compareVersions(a, b string) int {
	some, _ := release.Numbers(a)
	other, _ := release.Numbers(b)

	return slices.Compare(some[:], other[:])
}

// component is a part of Kubernetes in a machine config.
type component struct {
	name, field, image string
}

// components are those with an image, the kubelet first.
func components(rendered *Rendered) []component {
	all := []component{{"kubelet", "machine.kubelet.image", rendered.Provider.Machine().Kubelet().Image()}}

	if isControlPlane(rendered) {
		cluster := rendered.Provider.Cluster()
		all = append(all,
			component{"kube-apiserver", "cluster.apiServer.image", cluster.APIServer().Image()},
			component{"kube-controller-manager", "cluster.controllerManager.image", cluster.ControllerManager().Image()},
			component{"kube-scheduler", "cluster.scheduler.image", cluster.Scheduler().Image()},
		)
	}

	return all
}

// declared reports whether the config itself names the image; else it is the default of this program's machinery, and
// tells nothing.
func (c component) declared(rendered *Rendered) bool {
	return rendered.File.places.Has("", c.field)
}

// tag is the image's version.
func (c component) tag() string {
	kubernetes, err := v1alpha1.KubernetesVersionFromImageRef(c.image)
	if err != nil {
		return ""
	}

	return "v" + kubernetes.String()
}

// mostBehind is how many minor versions a part may be older than the API servers.
var mostBehind = map[string]int{"kubelet": 3, "kube-controller-manager": 1, "kube-scheduler": 1}

// checkSkew compares the parts of Kubernetes with the API servers.
func checkSkew(r *Report, in *Input) {
	oldest, newest := "", ""

	for _, config := range in.Configs {
		for _, part := range components(config) {
			if tag := part.tag(); part.name == "kube-apiserver" && tag != "" && part.declared(config) {
				if oldest == "" || compareVersions(tag, oldest) < 0 {
					oldest = tag
				}

				if newest == "" || compareVersions(tag, newest) > 0 {
					newest = tag
				}
			}
		}
	}

	if oldest == "" {
		return
	}

	for _, config := range in.Configs {
		for _, part := range components(config) {
			tag := part.tag()
			if tag == "" || part.name == "kube-apiserver" || !part.declared(config) {
				continue
			}

			r.config = config
			own, _ := release.Numbers(tag)
			first, _ := release.Numbers(oldest)
			last, _ := release.Numbers(newest)

			switch {
			case slices.Compare(own[:2], first[:2]) > 0:
				r.found(config.File.at(part.field), "upgrade the API servers first",
					"the %s of %s is %s, and newer than an API server, which is %s", part.name, config.Name, tag, oldest)
			case own[0] == last[0] && last[1]-own[1] > mostBehind[part.name]:
				r.found(config.File.at(part.field), "use the API servers' version",
					"the %s of %s is %s, and too old for API servers of %s", part.name, config.Name, tag, newest)
			}
		}
	}
}

// checkDeclaredKubernetes compares the kubelets with kubernetesVersion.
func checkDeclaredKubernetes(r *Report, in *Input) {
	in.eachKubelet(func(config *Rendered, kubelet component, tag, declared string) {
		if tag != declared {
			r.config = config
			r.found(config.File.at(kubelet.field), machineconfig.HowToGenerate,
				"the kubelet of %s is %s, and kubernetesVersion is %s", config.Name, tag, declared)
		}
	})
}

// eachKubelet visits the kubelets that configs name a version of, where one is declared.
func (in *Input) eachKubelet(visit func(config *Rendered, kubelet component, tag, declared string)) {
	declared := in.Cluster.KubernetesVersion
	if _, known := release.Numbers(declared); !known {
		return
	}

	for _, config := range in.Configs {
		if kubelet := components(config)[0]; kubelet.tag() != "" && kubelet.declared(config) {
			visit(config, kubelet, kubelet.tag(), declared)
		}
	}
}

// checkKubernetesPath looks for upgrades of Kubernetes that skip minor versions, or go back.
func checkKubernetesPath(r *Report, in *Input) {
	told := map[string]bool{}

	in.eachKubelet(func(config *Rendered, kubelet component, tag, declared string) {
		from, _ := release.Numbers(tag)
		to, _ := release.Numbers(declared)
		steps := to[1] - from[1]

		if from[0] != to[0] || steps >= 0 && steps <= 1 || told[tag] {
			return
		}

		told[tag], r.config = true, config

		if steps < 0 {
			r.found(config.File.at(kubelet.field), "declare "+tag+" or newer",
				"kubernetesVersion %s is older than the %s of %s: Kubernetes does not go back", declared, tag, config.Name)
		} else {
			r.found(config.File.at(kubelet.field), fmt.Sprintf("upgrade to v%d.%d first", from[0], from[1]+1),
				"from the %s of %s to kubernetesVersion %s it is %d minor versions, and Kubernetes goes one at a time", tag,
				config.Name, declared, steps)
		}
	})
}

// checkConfigKubernetes asks machinery whether the Talos of a config's installer runs its Kubernetes. The declared pair
// is judged elsewhere.
func checkConfigKubernetes(r *Report, rendered *Rendered) {
	talos, why := r.in.willRun(rendered)
	if talos == "" {
		return
	}

	for _, part := range components(rendered) {
		tag := part.tag()
		if tag == "" || !part.declared(rendered) || r.in.Cluster != nil && talos == r.in.Cluster.TalosVersion &&
			tag == r.in.Cluster.KubernetesVersion {
			continue
		}

		target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
		if err != nil {
			return
		}

		kubernetes, err := compatibility.ParseKubernetesVersion(tag)
		if err != nil {
			continue
		}

		if err := kubernetes.SupportedWith(target); err != nil &&
			!strings.HasPrefix(err.Error(), "compatibility with version") {
			r.found(rendered.File.at(part.field), "change kubernetesVersion, or the installer", "the %s is %s, and %s: %s",
				part.name, tag, why, err)

			return
		}
	}
}

// upgrade says what is wrong with going from one Talos version to another; empty if nothing is, or it is not known.
func upgrade(from, to string) string {
	host, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: from})
	if err != nil {
		return ""
	}

	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: to})
	if err != nil {
		return ""
	}

	first, known := release.Numbers(from)
	last, alsoKnown := release.Numbers(to)

	switch err := target.UpgradeableFrom(host); {
	case !known || !alsoKnown, err != nil && strings.HasPrefix(err.Error(), "upgrades to version"):
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
func checkUpgradePath(r *Report, in *Input) {
	told := map[string]bool{}

	for _, config := range in.Configs {
		tag := installerTag(config.Config)
		if tag == "" || told[tag] || in.Cluster.TalosVersion == "" {
			continue
		}

		if why := upgrade(tag, in.Cluster.TalosVersion); why != "" {
			told[tag], r.config = true, config
			r.found(config.installPlace("image"), "upgrade by the latest patch of every minor version in between",
				"from the installer %s of %s to talosVersion %s: %s",
				tag, config.Name, in.Cluster.TalosVersion, why)
		}
	}
}

// checkLiveUpgrade looks at the way from what a node runs to its installer.
func checkLiveUpgrade(_ context.Context, l *live) []diagnosis.Finding {
	tag, running := installerTag(l.config), l.facts.Version
	if _, known := release.Numbers(running); tag == "" || !known {
		return nil
	}

	installed := l.facts.Installed || l.facts.State == talos.Ours
	why := upgrade(running, tag)

	switch {
	case installed && why != "":
		return []diagnosis.Finding{l.finding(diagnosis.NodeUpgradePath,
			"upgrade by the latest patch of every minor version in between",
			fmt.Sprintf("the node runs Talos %s, and its installer is %s: %s", running, tag, why))}
	case installed && compareVersions(tag, running) < 0:
		return []diagnosis.Finding{l.finding(diagnosis.NodeUpgradePath, "use an installer of "+running+" or newer",
			fmt.Sprintf("the node runs Talos %s, and its installer is %s: an upgrade with it goes back", running, tag))}
	case !installed && compareVersions(tag, running) < 0:
		return []diagnosis.Finding{l.finding(diagnosis.NodeUpgradePath,
			"use an installer of "+running+", or boot the machine from "+tag,
			fmt.Sprintf("the machine was booted from Talos %s, and its older installer %s judges the config anew after the "+
				"install", running, tag))}
	default:
		return nil
	}
}

// KnownTalos names the Talos releases that the tables here know.
func KnownTalos() string { return config.TalosVersion1_5.String() + " to " + newestContract.String() }

// checkKnownTalos looks for versions that the tables here say nothing about.
func checkKnownTalos(r *Report, in *Input) {
	declared, err := config.ParseContractFromVersion(in.Cluster.TalosVersion)
	if err == nil && (declared.Greater(newestContract) || config.TalosVersion1_5.Greater(declared)) {
		r.found(in.clusterPlace("talosVersion"),
			"use a Talos from "+KnownTalos()+", or a program that knows it",
			"talosVersion %s is not known here: whether keys, extensions and Kubernetes go with it is not judged",
			in.Cluster.TalosVersion)
	}
}

// clusterPlace is where the inventory declares something for the whole cluster; of a profile the file alone is known.
func (in *Input) clusterPlace(key string) at {
	if in.Talconfig != nil && in.Cluster.Profile == nil {
		return in.Talconfig.at(key)
	}

	if file := in.open(in.Cluster.Source); file != nil {
		return file.itself()
	}

	return at{}
}

// checkVersionForms looks for versions that are no tag of an image.
func checkVersionForms(r *Report, in *Input) {
	for _, declared := range []struct{ key, version, example string }{
		{"talosVersion", in.Cluster.TalosVersion, machineconfig.DefaultTalosVersion},
		{"kubernetesVersion", in.Cluster.KubernetesVersion, "v1.36.3"},
	} {
		if declared.version != "" && !release.IsWhole(declared.version) && !strings.Contains(declared.version, "$") {
			r.found(in.clusterPlace(declared.key), "write the whole version, as "+declared.example,
				"%s is %s, and no image has such a tag", declared.key, declared.version)
		}
	}
}
