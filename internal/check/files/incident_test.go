package files_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/check/table"
	"github.com/talos-mage/talos-mage/internal/cluster/schematic"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// A bring-up of six virtual machines with SecureBoot failed twice, by files alone: a template wrote no file for a patch
// that was listed, and kernel arguments stood in the machine config of an image that has its own. The schematics' ids
// are those of that day.
const (
	idOfGuestAgent = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	idOfKernelLog  = "a7f294c4436e874167652f711750f9bc607c89f12f7c27f183584a25763a2bca"
	loggingPatch   = "patches/global/machine-logging.yaml"
)

// incident are the files of that cluster, set right: three control planes and three workers in a /22, the VIP, and the
// patches that were reviewed.
func incident() files {
	made := files{}

	var talconfig strings.Builder

	talconfig.WriteString("clusterName: harbour\nendpoint: https://198.18.22.100:6443\ntalosVersion: " +
		"v1.12.6\nkubernetesVersion: v1.35.0\n" +
		"clusterPodNets: [10.42.0.0/16]\nclusterSvcNets: [10.43.0.0/16]\nnodes:\n")

	for i, role := range []string{"controlplane", "controlplane", "controlplane", "worker", "worker", "worker"} {
		name, address := fmt.Sprintf("cp-%d", i+1), fmt.Sprintf("198.18.22.10%d", i+1)
		if role == "worker" {
			name, address = fmt.Sprintf("worker-%d", i-2), fmt.Sprintf("198.18.22.11%d", i-2)
		}

		fmt.Fprintf(&talconfig, "  - hostname: %s\n    ipAddress: %s\n    controlPlane: %t\n    installDisk: /dev/sda\n   "+
			" machineSpec: {secureboot: true}\n", name, address, role == "controlplane")
		made["clusterconfig/harbour-"+name+".yaml"] = incidentConfig(name, address, role)
	}

	const customization = "  schematic:\n    customization:\n      extraKernelArgs:\n        - " +
		"talos.logging.kernel=udp://127.0.0.1:6050\n" +
		"      systemExtensions:\n        officialExtensions:\n          - siderolabs/qemu-guest-agent\n"

	made["talconfig.yaml"] = talconfig.String() + "controlPlane:\n" + customization + "worker:\n" + customization +
		"patches:\n  - '@./patches/global/machine-dns.yaml'\n  - '@./patches/global/machine-kubelet.yaml'\n  - '@./" +
		loggingPatch + "'\n  - '@./patches/global/machine-network.yaml'\n"
	made["patches/global/machine-dns.yaml"] = "machine:\n  features:\n    hostDNS:\n      enabled: true\n      " +
		"forwardKubeDNSToHost: true\n      resolveMemberNames: true\n"
	made["patches/global/machine-kubelet.yaml"] = "machine:\n  kubelet:\n    extraArgs:\n      feature-gates: " +
		"ImageVolume=true\n    extraConfig:\n      serializeImagePulls: false\n    nodeIP:\n      validSubnets:\n        " +
		"- 198.18.20.0/22\n"
	made[loggingPatch] = "machine:\n  logging:\n    destinations:\n      - endpoint: udp://127.0.0.1:6051\n        " +
		"format: json_lines\n"
	made["patches/global/machine-network.yaml"] = "machine:\n  network:\n    disableSearchDomain: true\n    " +
		"nameservers:\n      - 203.0.113.53\n    interfaces:\n      - interface: lo\n        addresses:\n          - " +
		"169.254.116.108/32\n"

	return made
}

func incidentConfig(name, address, role string) string {
	vip, controlPlane := "", ""
	if role == "controlplane" {
		vip = "        vip:\n          ip: 198.18.22.100\n"
		controlPlane = "  apiServer:\n    extraArgs:\n      enable-aggregator-routing: \"true\"\n      feature-gates: " +
			"ImageVolume=true\n  proxy:\n    disabled: true\n"
	}

	return "version: v1alpha1\nmachine:\n  type: " + role + "\n" +
		"  kubelet:\n    extraArgs:\n      feature-gates: ImageVolume=true\n    nodeIP:\n      validSubnets:\n        - " +
		"198.18.20.0/22\n" +
		"  network:\n    hostname: " + name + "\n    interfaces:\n      - interface: lo\n        addresses:\n          - " +
		"169.254.116.108/32\n" +
		"      - interface: eth0\n        addresses:\n          - " + address +
		"/22\n        routes:\n          - network: 0.0.0.0/0\n            gateway: 198.18.23.254\n" + vip +
		"  install:\n    disk: /dev/sda\n    image: factory.talos.dev/installer-secureboot/" + idOfKernelLog +
		":v1.12.6\n    grubUseUKICmdline: true\n" +
		"  logging:\n    destinations:\n      - endpoint: udp://127.0.0.1:6051\n        format: json_lines\n" +
		"cluster:\n  clusterName: harbour\n  controlPlane:\n    endpoint: https://198.18.22.100:6443\n" +
		"  network:\n    cni:\n      name: none\n    podSubnets:\n      - 10.42.0.0/16\n    serviceSubnets:\n      - " +
		"10.43.0.0/16\n" + controlPlane
}

// all changes a text in every machine config.
func (f files) all(old, replacement string) files {
	for name := range f {
		if strings.HasPrefix(name, "clusterconfig/") {
			f.replaced(name, old, replacement)
		}
	}

	return f
}

// incidentKinds are the checks that the incident was about; secrets are not part of these files.
var incidentKinds = []check.Kind{
	check.Reading, check.Addresses, check.Endpoints, check.Networks, check.Names, check.Interfaces, check.Disks,
	check.Documents, check.Images, check.Versions, check.Roles,
}

// troubleOf are the ids of what is found about those kinds, once each, in the order of the findings.
func troubleOf(t *testing.T, made files) ([]diagnosis.ID, []diagnosis.Finding) {
	t.Helper()

	relevant := map[diagnosis.ID]bool{}
	for _, check := range table.Checks() {
		relevant[check.ID] = relevant[check.ID] || slices.Contains(incidentKinds, check.Kind)
	}

	var (
		ids      []diagnosis.ID
		findings []diagnosis.Finding
	)

	for _, finding := range table.Run(context.Background(), made.read(t)).Trouble() {
		// Without secrets Talos' own validation has something to say about every file.
		if !relevant[finding.ID] || finding.ID == diagnosis.ConfigInvalid {
			continue
		}

		findings = append(findings, finding)

		if len(ids) == 0 || ids[len(ids)-1] != finding.ID {
			ids = append(ids, finding.ID)
		}
	}

	return ids, findings
}

func TestTheIncidentsFilesSetRightAreClean(t *testing.T) {
	t.Parallel()

	ids, findings := troubleOf(t, incident())
	require.Empty(t, ids, "%v", findings)
}

// The first cause: the template's condition named a variable that nobody set, so it wrote nothing, and the list of
// patches had the file all the same.
func TestTheIncidentsPatchThatNoTemplateWrote(t *testing.T) {
	t.Parallel()

	made := incident()
	delete(made, loggingPatch)

	ids, findings := troubleOf(t, made)
	require.Equal(t, []diagnosis.ID{diagnosis.PatchMissing}, ids)
	require.Equal(t, diagnosis.Failure, findings[0].Severity)
	require.Equal(t, "talconfig.yaml", findings[0].At.Path)
	require.Contains(t, findings[0].At.Text, loggingPatch)
	require.NotEmpty(t, findings[0].Next)

	entry, _ := diagnosis.Lookup(diagnosis.PatchMissing)
	require.Contains(t, entry.Cause, "a variable that nobody defines is false")
	require.Contains(t, entry.Remedy, "the same condition")

	// A template that leaves an empty file behind is as bad.
	ids, _ = troubleOf(t, incident().with(loggingPatch, "\n# no logging\n"))
	require.Equal(t, []diagnosis.ID{diagnosis.PatchEmpty}, ids)
}

// The second cause: kernel arguments in the config of machines that start a unified kernel image.
func TestTheIncidentsKernelArguments(t *testing.T) {
	t.Parallel()

	before := func() files {
		return incident().
			all(idOfKernelLog, idOfGuestAgent).
			all("    grubUseUKICmdline: true\n",
				"    grubUseUKICmdline: true\n    extraKernelArgs:\n      - talos.logging.kernel=udp://127.0.0.1:6050\n").
			replaced("talconfig.yaml", "      extraKernelArgs:\n        - talos.logging.kernel=udp://127.0.0.1:6050\n", "")
	}

	_, findings := troubleOf(t, before())

	var found []diagnosis.Finding

	for _, finding := range findings {
		if finding.ID == diagnosis.KernelArgsRefused {
			found = append(found, finding)
		}
	}

	require.Len(t, found, 6, "on every node")
	require.Equal(t, diagnosis.Failure, found[0].Severity)
	require.Contains(t, found[0].Cause, "install.grubUseUKICmdline can't be used together")
	require.Contains(t, found[0].At.Text, "extraKernelArgs")
	require.Contains(t, found[0].Next,
		"put the arguments into the schematic's extraKernelArgs, and take them out of machine.install")
	require.Contains(t, found[0].Next, "the schematic's id is then "+idOfKernelLog, "the fix of that day, computed here")

	// The schematic was changed, and the configs are of the day before.
	ids, findings := troubleOf(t, incident().all(idOfKernelLog, idOfGuestAgent))
	require.Equal(t, []diagnosis.ID{diagnosis.SchematicDiffers}, ids)
	require.Len(t, findings, 6)
	require.Contains(t, findings[0].Cause+findings[0].Next, idOfKernelLog)
	require.Contains(t, findings[0].At.Text, idOfGuestAgent)
}

func TestTheIncidentsSchematics(t *testing.T) {
	t.Parallel()

	made := schematic.Schematic{}
	made.Customization.SystemExtensions.OfficialExtensions = []string{"siderolabs/qemu-guest-agent"}
	id, err := made.ID()
	require.NoError(t, err)
	require.Equal(t, idOfGuestAgent, id)

	made.Customization.ExtraKernelArgs = []string{"talos.logging.kernel=udp://127.0.0.1:6050"}
	id, err = made.ID()
	require.NoError(t, err)
	require.Equal(t, idOfKernelLog, id)
}

// Each row of the incident's table of networks: right it is clean, as TestTheIncidentsFilesSetRightAreClean has it, and
// wrong it is found.
func TestTheIncidentsNetworks(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		files files
		want  diagnosis.ID
		cause string
	}{
		"the nodes' network": {incident().all("198.18.20.0/22", "198.18.16.0/22"), diagnosis.NodeIPExcluded,
			"198.18.16.0/22"},
		"a prefix that is too long": {incident().all("/22\n        routes", "/24\n        routes"), diagnosis.GatewayOutside,
			"198.18.23.254 is in no subnet"},
		"gateway outside": {incident().all("gateway: 198.18.23.254", "gateway: 198.18.24.254"),
			diagnosis.GatewayOutside, "198.18.24.254"},
		"gateway is a broadcast one": {incident().all("198.18.22.101/22", "198.18.23.255/22").replaced("talconfig.yaml",
			"198.18.22.101", "198.18.23.255"), diagnosis.NetworkAddress, "198.18.23.255"},
		"VIP outside": {incident().all("ip: 198.18.22.100", "ip: 198.18.24.100"), diagnosis.VIPOutsideSubnet,
			"198.18.24.100"},
		"VIP is a node's": {incident().all("ip: 198.18.22.100", "ip: 198.18.22.111"), diagnosis.VIPTaken,
			"198.18.22.111"},
		"pods overlap the nodes": {incident().all("10.42.0.0/16", "198.18.0.0/16"), diagnosis.AddressInClusterSubnet,
			"198.18.0.0/16"},
		"services overlap the pods": {incident().all("10.43.0.0/16", "10.42.128.0/17"), diagnosis.SubnetsOverlap,
			"10.42.128.0/17"},
		"services overlap the nodes": {incident().all("10.43.0.0/16", "198.18.20.0/22"), diagnosis.AddressInClusterSubnet,
			"198.18.20.0/22"},
		"two nodes, one address": {incident().replaced("clusterconfig/harbour-cp-2.yaml", "198.18.22.102/22",
			"198.18.22.101/22"), diagnosis.AddressTwice, "198.18.22.101"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ids, findings := troubleOf(t, test.files)
			require.Contains(t, ids, test.want, "%v", findings)

			for _, finding := range findings {
				if finding.ID == test.want {
					require.Contains(t, finding.Cause, test.cause)
					require.NotEmpty(t, finding.Next)

					return
				}
			}
		})
	}
}

// The machines' settings that the incident's review ticked off are the profile's checks of VMs.
func TestTheIncidentsVirtualMachines(t *testing.T) {
	t.Parallel()

	made := incident().with("tofu/main.tf", strings.ReplaceAll(rightVM(`"cp-1"`), "virtio-scsi-pci", "virtio-scsi-single")+
		strings.ReplaceAll(rightVM(`"cp-2"`), `"q35"`, `"pc"`)+strings.ReplaceAll(rightVM(`"cp-3"`), `"ovmf"`,
		`"seabios"`)+strings.ReplaceAll(rightVM(`"worker-1"`), "floating = 0", "floating = 1024")+rightVM(`"worker-2"`))
	result := table.Run(context.Background(), made.profiled(t))

	for id, node := range map[diagnosis.ID]string{
		diagnosis.VMDiskController: "cp-1", diagnosis.VMProcessor: "cp-2", diagnosis.VMFirmware: "cp-3",
		diagnosis.VMBallooning: "worker-1",
	} {
		found := findingsOf(result, id)
		require.Len(t, found, 1, id)
		require.Equal(t, node, found[0].Node)
	}

	require.Equal(t, diagnosis.Failure, findingsOf(result, diagnosis.VMFirmware)[0].Severity,
		"UEFI is what SecureBoot needs")
}
