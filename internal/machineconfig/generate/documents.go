package generate

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

func (e *entry) hostnameDocument() config.Document {
	document := network.NewHostnameConfigV1Alpha1()

	if e.IgnoreHostname {
		document.ConfigAuto = new(nethelpers.AutoHostnameKindStable)
	} else {
		document.ConfigHostname, document.ConfigAuto = e.Hostname, new(nethelpers.AutoHostnameKindOff)
	}

	return document
}

func (e *entry) resolverDocument() config.Document {
	document := network.NewResolverConfigV1Alpha1()
	document.ResolverSearchDomains.SearchDisableDefault = new(e.settings.DisableSearchDomain)

	for _, server := range e.settings.Nameservers {
		if address, err := netip.ParseAddr(server); err == nil { // else it was told
			document.ResolverNameservers = append(document.ResolverNameservers,
				network.NameserverConfig{Address: meta.Addr{Addr: address}})
		}
	}

	return document
}

func (e *entry) firewallDocuments() []config.Document {
	firewall := e.settings.IngressFirewall
	if firewall == nil {
		return nil
	}

	action := network.NewDefaultActionConfigV1Alpha1()
	action.Ingress = firewall.DefaultAction
	documents := []config.Document{action}

	for _, declared := range firewall.Rules {
		rule := network.NewRuleConfigV1Alpha1()
		rule.MetaName, rule.PortSelector, rule.Ingress = declared.Name, declared.PortSelector, declared.Ingress
		documents = append(documents, rule)
	}

	return documents
}

func (e *entry) serviceDocuments() []config.Document {
	var documents []config.Document

	for _, declared := range e.settings.ExtensionServices {
		service := extensions.NewServicesConfigV1Alpha1()
		service.ServiceName, service.ServiceConfigFiles, service.ServiceEnvironment = declared.Name, declared.ConfigFiles,
			declared.Environment
		documents = append(documents, service)
	}

	return documents
}

func (e *entry) volumeDocuments() []config.Document {
	var documents []config.Document

	for _, declared := range e.settings.Volumes {
		volume := block.NewVolumeConfigV1Alpha1()
		volume.MetaName, volume.ProvisioningSpec, volume.EncryptionSpec = declared.Name, declared.Provisioning,
			declared.Encryption
		documents = append(documents, volume)
	}

	for _, declared := range e.settings.UserVolumes {
		volume := block.NewUserVolumeConfigV1Alpha1()
		volume.MetaName, volume.VolumeType = declared.Name, declared.VolumeType
		volume.ProvisioningSpec, volume.FilesystemSpec, volume.EncryptionSpec = declared.Provisioning, declared.Filesystem,
			declared.Encryption
		documents = append(documents, volume)
	}

	return documents
}
