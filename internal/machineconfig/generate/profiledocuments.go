package generate

import (
	"fmt"
	"net/netip"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-mage/talos-mage/internal/cluster/profile"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// configInDocuments is a node's machine config in the form of contract 1.14 and later: what the profile says is in the
// documents that replace fields of the older form.
func configInDocuments(generated talosconfig.Provider, declared *profile.Profile, node profile.Machine,
	patches []profilePatch, bundle *secrets.Bundle) ([]byte, error) {
	for _, one := range patches {
		if err := one.replaced(generated, declared); err != nil {
			return nil, err
		}
	}

	documents := slices.DeleteFunc(generated.Documents(), func(document config.Document) bool {
		return document.Kind() == network.HostnameKind || document.Kind() == runtime.UnattendedInstallConfigKind
	})

	for _, document := range documents {
		if encrypted, ok := document.(*k8s.KubeEtcdEncryptionConfigV1Alpha1); ok {
			encrypted.Config.Object = encryption(bundle)
		}
	}

	install, err := installDocument(declared.InstallDisk, nil, declared.Installer())
	if err != nil {
		return nil, fmt.Errorf("set install disk of %s: %w", node.Name, err)
	}

	own := nodeNetwork(declared, node)
	own.leaveTo(patches)

	// A patch may select the link: what is left goes with that. And beside a document of a link Talos asks for DHCP on no
	// other, which it does beside the older form of one.
	inSection := own.device.DeviceInterface == "" || declared.DHCPElsewhere
	if inSection {
		generated.RawV1Alpha1().MachineConfig.MachineNetwork = &v1alpha1.NetworkConfig{ //nolint:staticcheck // as the patch
			NetworkInterfaces: v1alpha1.NetworkDeviceList{own.device},
		}
	}

	if documents, err = merged(documents, append(own.documents(inSection), install)); err != nil {
		return nil, fmt.Errorf("set network of %s: %w", node.Name, err)
	}

	made, err := container.New(documents...)
	if err != nil {
		return nil, fmt.Errorf("generate machine config of %s: %w", node.Name, err)
	}

	config := talosconfig.Provider(made)

	for _, one := range patches {
		if config, err = patched(config, one.loaded); err != nil {
			return nil, one.refused(node, err)
		}
	}

	return encoded(config, node)
}

// documents are the network in the documents of the newer form. The link may stand in the older one, beside them.
func (n *profileNetwork) documents(linkInSection bool) []config.Document {
	hostname := network.NewHostnameConfigV1Alpha1()
	hostname.ConfigHostname, hostname.ConfigAuto = n.hostname, new(nethelpers.AutoHostnameKindOff)

	resolver := network.NewResolverConfigV1Alpha1()
	for _, server := range n.servers {
		resolver.ResolverNameservers = append(resolver.ResolverNameservers,
			network.NameserverConfig{Address: meta.Addr{Addr: server}})
	}

	documents := []config.Document{hostname, resolver}
	if linkInSection {
		return documents
	}

	link := network.NewLinkConfigV1Alpha1(n.device.DeviceInterface)

	for _, text := range n.device.DeviceAddresses {
		link.LinkAddresses = append(link.LinkAddresses, network.AddressConfig{AddressAddress: netip.MustParsePrefix(text)})
	}

	for _, route := range n.device.DeviceRoutes { // the default one, which Talos knows by its gateway
		link.LinkRoutes = append(link.LinkRoutes,
			network.RouteConfig{RouteGateway: meta.Addr{Addr: netip.MustParseAddr(route.RouteGateway)}})
	}

	if len(link.LinkAddresses)+len(link.LinkRoutes) > 0 {
		documents = append(documents, link)
	}

	if n.device.DeviceVIPConfig != nil {
		vip := network.NewLayer2VIPConfigV1Alpha1(n.device.DeviceVIPConfig.SharedIP)
		vip.LinkName = n.device.DeviceInterface
		documents = append(documents, vip)
	}

	return documents
}

// replaced is an error about the fields of a patch that documents replaced, and which Talos takes no more beside those.
func (p profilePatch) replaced(generated talosconfig.Provider, declared *profile.Profile) error {
	mistakes := &yamlfile.Mistakes{}

	for _, field := range replacedFields(machineconfig.NewPlaces([]byte(p.text)).Roots(), kindsOf(generated.Documents())) {
		mistakes.Add(&yamlfile.Error{ID: diagnosis.FieldReplaced, Path: p.shown, Line: field.At.Line,
			Column: field.At.Column, Message: "as a patch: it " + replacedCause(field, declared.Contract),
			Next: replacedNext(field)})
	}

	return mistakes.Err()
}
