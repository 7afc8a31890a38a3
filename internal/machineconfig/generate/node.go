package generate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// prepare tells machinery what all nodes have in common.
func (c *cluster) prepare() error {
	options := []generate.Option{
		generate.WithVersionContract(c.contract),
		generate.WithSecretsBundle(c.source.Secrets),
		generate.WithAllowSchedulingOnControlPlanes(c.config.AllowSchedulingOnMasters ||
			c.config.AllowSchedulingOnControlPlanes),
	}

	if c.config.Domain != "" {
		options = append(options, generate.WithDNSDomain(c.config.Domain))
	}

	input, err := generate.NewInput(c.config.ClusterName, c.config.Endpoint, c.kubernetesVersion, options...)
	if err != nil {
		return fmt.Errorf("prepare generation: %w", err)
	}

	input.PodNet = c.subnets(c.config.PodNets, constants.DefaultIPv4PodCIDR)
	input.ServiceNet = c.subnets(c.config.ServiceNets, constants.DefaultIPv4ServiceCIDR)
	input.AdditionalMachineCertSANs = c.config.AdditionalMachineCertSANs
	input.AdditionalSubjectAltNames = c.config.AdditionalAPIServerCertSANs
	c.input = input

	return nil
}

func (c *cluster) subnets(declared []string, fallback string) []string {
	if len(declared) == 0 {
		return []string{fallback}
	}

	return declared
}

// generate makes the machine config of an entry. What is wrong with the entry's values is added to the mistakes, and
// then there may be none.
func (e *entry) generate() ([]byte, error) {
	provider, err := e.base()
	if err != nil {
		return nil, fmt.Errorf("generate config of %s: %w", e.Hostname, err)
	}

	before := len(e.List)

	if provider == nil {
		return nil, nil
	}

	for _, round := range e.patchRounds {
		if provider = e.apply(provider, round); provider == nil {
			return nil, nil
		}
	}

	if provider = e.addManifests(provider); provider == nil || len(e.List) > before {
		return nil, nil
	}

	data, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("encode config of %s: %w", e.Hostname, err)
	}

	e.validate(data)

	return narrow(data)
}

// narrow indents a config by two spaces, as talhelper writes it: who had it generate a cluster's configs sees no other
// change than those of meaning.
func narrow(data []byte) ([]byte, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))

	var out bytes.Buffer

	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)

	for {
		var document yaml.Node

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return out.Bytes(), encoder.Close()
		}

		if err == nil {
			err = encoder.Encode(&document)
		}

		if err != nil {
			return nil, fmt.Errorf("indent config: %w", err)
		}
	}
}

// base is the config without patches; nil if there are mistakes.
func (e *entry) base() (talosconfig.Provider, error) {
	role := machine.TypeWorker
	if e.ControlPlane {
		role = machine.TypeControlPlane
	}

	provider, err := e.input.Config(role)
	if err != nil {
		return nil, err
	}

	before := len(e.List)
	raw := provider.RawV1Alpha1()

	e.setSecrets(raw)
	e.setMachine(raw.MachineConfig)
	e.setInstall(raw.MachineConfig)
	e.setTemplated(raw)
	e.setCluster(raw.ClusterConfig)

	documents := e.newDocuments(provider.Documents())
	if len(e.List) > before {
		return nil, nil
	}

	return container.New(documents...)
}

// setSecrets keeps the older key of encryption at rest, so that Kubernetes can read what was written with it.
// Source: talhelper issue 81.
func (e *entry) setSecrets(raw *v1alpha1.Config) {
	if older := e.source.Secrets.Secrets.AESCBCEncryptionSecret; older != "" && e.contract.SecretboxEncryptionSupported() {
		raw.ClusterConfig.ClusterAESCBCEncryptionSecret = older
	}
}

func (e *entry) setMachine(raw *v1alpha1.MachineConfig) {
	if len(e.settings.MachineDisks) > 0 {
		raw.MachineDisks = e.settings.MachineDisks //nolint:staticcheck // as it is declared
	}

	if len(e.settings.KernelModules) > 0 {
		raw.MachineKernel = &v1alpha1.KernelConfig{KernelModules: e.settings.KernelModules}
	}

	if e.settings.NodeTaints != nil {
		raw.MachineNodeTaints = e.settings.NodeTaints
	}

	if len(e.machineFiles) > 0 {
		raw.MachineFiles = e.machineFiles
	}

	if len(e.settings.CertSANs) > 0 {
		raw.MachineCertSANs = slices.Concat(raw.MachineCertSANs, e.settings.CertSANs)
	}

	if !e.contract.MultidocNetworkConfigSupported() {
		e.setOldNetwork(raw)
	}
}

// setOldNetwork writes machine.network, all that Talos before 1.12 understands.
//
//nolint:staticcheck // deprecated, and the only fields that these versions know
func (e *entry) setOldNetwork(raw *v1alpha1.MachineConfig) {
	settings := &v1alpha1.NetworkConfig{NameServers: e.settings.Nameservers,
		NetworkInterfaces: e.settings.NetworkInterfaces}

	if !e.IgnoreHostname {
		settings.NetworkHostname = e.Hostname
	}

	if e.settings.DisableSearchDomain {
		settings.NetworkDisableSearchDomain = new(true)
	}

	raw.MachineNetwork = settings
}

func (e *entry) setInstall(raw *v1alpha1.MachineConfig) {
	install := raw.MachineInstall
	install.InstallDisk = e.InstallDisk
	install.InstallDiskSelector = e.InstallDiskSelector

	_, image, err := e.installer()
	if err != nil {
		e.value(yamlfile.PlaceOf(yamlfile.PlaceOf(e.root, "imageFactory"), "installerURLTmpl"), "%s", err)

		return
	}

	install.InstallImage = image

	// Where the kernel and its arguments are one signed file, Talos refuses arguments here; they are in the image.
	// Source: talhelper issues 1000 and 1341.
	if declared := e.settings.Schematic; declared != nil && !e.settings.MachineSpec.UseUKI &&
		!e.contract.GrubUseUKICmdlineDefault() {
		install.InstallExtraKernelArgs = slices.Clone(declared.Customization.ExtraKernelArgs) //nolint:staticcheck // what these versions know
	}
}

// setTemplated sets labels and annotations. Each template sees the config as it is without any templated value.
func (e *entry) setTemplated(raw *v1alpha1.Config) {
	settings := raw.MachineConfig

	if e.settings.NodeLabels != nil {
		settings.MachineNodeLabels = plainValues(e.settings.NodeLabels)
	}

	if e.settings.NodeAnnotations != nil {
		settings.MachineNodeAnnotations = plainValues(e.settings.NodeAnnotations)
	}

	if !anyTemplate(e.settings.NodeLabels) && !anyTemplate(e.settings.NodeAnnotations) {
		return
	}

	unchanged := raw.DeepCopy()

	e.fill(settings.MachineNodeLabels, "nodeLabels", e.settings.NodeLabels, unchanged)
	e.fill(settings.MachineNodeAnnotations, "nodeAnnotations", e.settings.NodeAnnotations, unchanged)
}

func (e *entry) fill(into map[string]string, key string, declared map[string]string, data *v1alpha1.Config) {
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !isTemplate(declared[name]) {
			continue
		}

		text, err := e.templates.render(declared[name], data)
		if err != nil {
			e.value(e.placeOf(key, name), "%q: %s", name, err)
		}

		into[name] = text
	}
}

func plainValues(declared map[string]string) map[string]string {
	plain := map[string]string{}

	for name, text := range declared {
		if !isTemplate(text) {
			plain[name] = text
		}
	}

	return plain
}

func anyTemplate(declared map[string]string) bool {
	for _, text := range declared {
		if isTemplate(text) {
			return true
		}
	}

	return false
}

func (e *entry) setCluster(raw *v1alpha1.ClusterConfig) {
	if e.config.CNI != nil {
		raw.ClusterNetwork.CNI = e.config.CNI
	}

	if len(e.manifests) > 0 {
		raw.ClusterInlineManifests = e.manifests
	}
}

// validate checks the finished config as a machine without Talos would, and that the Talos version can decode it.
func (e *entry) validate(data []byte) {
	made, err := machineconfig.FromBytes(e.file, data)
	if err == nil {
		err = e.accepted(made)
	}

	if err != nil {
		e.refused(err)

		return
	}

	// Of what is older than 1.5 nothing is known, and nothing is asked.
	if needed := made.TalosContract(); needed.Greater(e.release) && needed.Greater(talosconfig.TalosVersion1_5) {
		e.value(e.place, "the machine config of %s needs Talos %s or newer, and talosVersion is %s", e.Hostname, needed,
			e.talosVersion)
	}
}

// accepted is what Talos says against a config; nil if it takes it. A panic of a validator, which hostile patches can
// cause, is an error.
func (e *entry) accepted(config *machineconfig.Config) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("its structure is unexpected")
		}
	}()

	_, err = config.Validate(machineconfig.Mode{Metal: true, Release: e.release})

	return err
}

// newDocuments are the generated documents, and those for the entry's settings.
func (e *entry) newDocuments(generated []config.Document) []config.Document {
	// The generated hostname is one that Talos makes up.
	documents := slices.DeleteFunc(slices.Clone(generated), func(document config.Document) bool {
		return document.Kind() == network.HostnameKind
	})

	if e.contract.MultidocNetworkConfigSupported() {
		documents = append(documents, e.hostnameDocument())

		if len(e.settings.Nameservers) > 0 || e.settings.DisableSearchDomain {
			documents = append(documents, e.resolverDocument())
		}
	}

	documents = append(documents, e.firewallDocuments()...)
	documents = append(documents, e.serviceDocuments()...)
	documents = append(documents, e.volumeDocuments()...)

	if e.contract.MultidocNetworkConfigSupported() {
		documents = append(documents, e.linkDocuments()...)
	}

	return documents
}
