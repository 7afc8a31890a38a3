package migrate

import (
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/machineconfig/equal"
)

// standard is a default that Talos 1.14 brings.
type standard struct {
	// name is what people call it.
	name string
	// accessors tell that a node's configs differ in it.
	accessors []string
	// controlPlane is set for documents that workers must not have.
	controlPlane bool
	// install is set for a document about the installation, which needs each node's disk.
	install bool
	// old is the document that keeps the old behaviour, with a comment that has the line for the new one; empty if none
	// does.
	old string
	// inProfile does the same in the network of a profile; empty if no key does.
	inProfile string
	// decision is what a person has to do before it is taken, where nothing keeps the old behaviour.
	decision string
}

// standards are all of them. What they do is told in the release notes of Talos 1.14.0; of DHCP, in
// RunDefaultDHCPOperators of pkg/machinery/config/container/container.go.
var standards = []standard{
	{
		name: "workload isolation", accessors: []string{"SecurityProfileConfig"},
		old: `# Talos 1.14 isolates workloads from its own processes. The new default is: workloadIsolation: true
apiVersion: v1alpha1
kind: SecurityProfileConfig
workloadIsolation: false
`,
	},
	{
		name: "/var without programs", accessors: []string{"Volumes.ByName.EPHEMERAL.value.Mount.Secure"},
		old: `# Talos 1.14 mounts /var so that nothing runs from there (nosuid, nodev, noexec). The new default is: secure: true
apiVersion: v1alpha1
kind: VolumeConfig
name: EPHEMERAL
mount:
  secure: false
`,
	},
	{
		name: "trimmed file systems", accessors: []string{"FilesystemTrimConfig"},
		old: `# Talos 1.14 trims file systems once a week. The new default is, without the last line here: interval: 168h
apiVersion: v1alpha1
kind: FilesystemTrimConfig
$patch: delete
`,
	},
	{
		name: "probes of the API server", accessors: []string{"K8sAPIServerConfig.StartupProbesEnabled"}, controlPlane: true,
		old: `# Talos 1.14 has the kubelet probe the API server, for which /livez, /readyz and /healthz take anonymous calls (see
# KubeAuthenticationConfig). The new default is: startupProbes: true
apiVersion: v1alpha1
kind: KubeAPIServerConfig
startupProbes: false
`,
	},
	{
		name: "anonymous calls of the API server's health", accessors: []string{
			"K8sAuthenticationConfig.Configuration.anonymous"}, controlPlane: true,
		old: `# Talos 1.14 lets anybody ask for the API server's health. The new default is enabled: true, and beside it:
# conditions: [{path: /livez}, {path: /readyz}, {path: /healthz}]
apiVersion: v1alpha1
kind: KubeAuthenticationConfig
configuration:
  anonymous:
    enabled: false
`,
	},
	{
		name: "an unset wipe", accessors: []string{"Machine.Install.Zero"}, install: true,
		old: `# With this document the disk is wiped at the installation unless told otherwise. The new default is: wipe: true
apiVersion: v1alpha1
kind: UnattendedInstallConfig
provisioning:
  wipe: false
`,
	},
	{
		name: "the reboot after an installation without an image", accessors: []string{"Machine.Install.Reboot"},
		install: true,
		old: `# Without installer.image Talos 1.14 does not reboot after the installation. The new default is: reboot: false
apiVersion: v1alpha1
kind: UnattendedInstallConfig
reboot: true
`,
	},
	{
		name: "no DHCP on links that nothing configures", accessors: []string{"RunDefaultDHCPOperators"},
		inProfile: `# Beside documents of links Talos asks for DHCP on no other link. The new default is: dhcp_elsewhere: false
dhcp_elsewhere: true
`,
		decision: "name each link that is to ask for DHCP in networkInterfaces of its node (- interface: eth1, and below " +
			"that dhcp: true); then the same command with -newDefaults",
	},
	{
		name: "the command line of the image", accessors: []string{"Machine.Install.GrubUseUKICmdline"},
		decision: "put the kernel arguments that the nodes need into the schematic's customization.extraKernelArgs; then " +
			"the same command with -newDefaults",
	},
}

// redirects is the one default that no config shows: the kernel's own.
var redirects = standard{
	name: "ICMP redirects",
	old: `# Talos 1.14 sends no ICMP redirects. The new default is "0" for both
apiVersion: v1alpha1
kind: SysctlConfig
params:
` + "  " + strings.Join(equal.Redirects, `: "1"`+"\n  ") + `: "1"` + "\n",
}

// isAbout reports whether a difference is the default's.
func (s standard) isAbout(difference equal.Difference) bool {
	return slices.ContainsFunc(s.accessors, func(accessor string) bool {
		return difference.Accessor == accessor || strings.HasPrefix(difference.Accessor, accessor+".") ||
			strings.HasPrefix(accessor, difference.Accessor+".")
	})
}
