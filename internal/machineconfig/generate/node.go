package generate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/merge"
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

	if provider == nil || e.sayReplaced() {
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

func (e *entry) role() machine.Type {
	if e.ControlPlane {
		return machine.TypeControlPlane
	}

	return machine.TypeWorker
}

// base is the config without patches; nil if there are mistakes.
func (e *entry) base() (talosconfig.Provider, error) {
	provider, err := e.input.Config(e.role())
	if err != nil {
		return nil, err
	}

	before, raw, documents := len(e.List), provider.RawV1Alpha1(), provider.Documents()

	if e.contract.MultidocKubernetesConfigSupported() {
		e.setRest(raw)
		documents = e.setDocuments(documents)
	} else {
		e.setOlder(raw)
	}

	documents, err = e.newDocuments(documents)
	if err != nil || len(e.List) > before {
		return nil, err
	}

	return container.New(documents...)
}

// setOlder puts what the entry declares into the form up to contract 1.13, which has one document for most of it.
func (e *entry) setOlder(raw *v1alpha1.Config) {
	e.setSecrets(raw)
	e.setMachine(raw.MachineConfig)
	e.setInstall(raw.MachineConfig)
	e.setTemplated(raw)
	e.setCluster(raw.ClusterConfig)
}

// setRest sets what no document replaces.
func (e *entry) setRest(raw *v1alpha1.Config) {
	raw.MachineConfig.MachineCertSANs = slices.Concat(raw.MachineConfig.MachineCertSANs, e.settings.CertSANs)
	raw.MachineConfig.MachineDisks = e.settings.MachineDisks //nolint:staticcheck // a user volume is mounted elsewhere
	raw.MachineConfig.MachineFiles = e.olderFiles()          //nolint:staticcheck // those that no document is for

	if e.ControlPlane {
		raw.ClusterConfig.ClusterInlineManifests = e.olderManifests() //nolint:staticcheck // as above
	}
}

// older is the entry's config without patches as it is up to contract 1.13: templates name its fields, and mean the
// same in either form.
func (e *entry) older() *v1alpha1.Config {
	if e.olderForm != nil {
		return e.olderForm
	}

	input := *e.input
	input.Options.VersionContract = talosconfig.TalosVersion1_13
	e.olderForm = &v1alpha1.Config{MachineConfig: &v1alpha1.MachineConfig{}, ClusterConfig: &v1alpha1.ClusterConfig{}}

	if provider, err := input.Config(e.role()); err == nil { // else it fails in the newer form, too
		e.olderForm = provider.RawV1Alpha1()
		mistakes := e.List
		e.setOlder(e.olderForm)
		e.List = mistakes // they are told in the newer form
	}

	return e.olderForm
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
		e.badInstaller(err)

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

func (e *entry) badInstaller(err error) {
	e.value(yamlfile.PlaceOf(yamlfile.PlaceOf(e.root, "imageFactory"), "installerURLTmpl"), "%s", err)
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

	unchanged := sync.OnceValue(raw.DeepCopy)

	if e.settings.NodeLabels != nil {
		settings.MachineNodeLabels = e.filled("nodeLabels", e.settings.NodeLabels, unchanged)
	}

	if e.settings.NodeAnnotations != nil {
		settings.MachineNodeAnnotations = e.filled("nodeAnnotations", e.settings.NodeAnnotations, unchanged)
	}
}

// filled are declared texts with their templates filled.
func (e *entry) filled(key string, declared map[string]string, data func() *v1alpha1.Config) map[string]string {
	filled := plainValues(declared)

	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !isTemplate(declared[name]) {
			continue
		}

		text, err := e.templates.render(declared[name], data())
		if err != nil {
			e.value(e.placeOf(key, name), "%q: %s", name, err)
		}

		filled[name] = text
	}

	return filled
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
func (e *entry) newDocuments(generated []config.Document) ([]config.Document, error) {
	// The generated hostname is one that Talos makes up.
	documents := slices.DeleteFunc(slices.Clone(generated), func(document config.Document) bool {
		return document.Kind() == network.HostnameKind
	})

	var own []config.Document

	if e.contract.MultidocNetworkConfigSupported() {
		own = append(own, e.hostnameDocument())

		if len(e.settings.Nameservers) > 0 || e.settings.DisableSearchDomain {
			own = append(own, e.resolverDocument())
		}
	}

	own = slices.Concat(own, e.firewallDocuments(), e.serviceDocuments(), e.volumeDocuments())

	if e.contract.MultidocNetworkConfigSupported() {
		own = append(own, e.linkDocuments()...)
	}

	return merged(documents, own)
}

// merged adds documents to others, as a patch does: of one kind and name there is one.
func merged(documents, own []config.Document) ([]config.Document, error) {
	for _, document := range own {
		same := slices.IndexFunc(documents, func(other config.Document) bool {
			return documentID(other) == documentID(document)
		})

		if same < 0 {
			documents = append(documents, document)
		} else if err := merge.Merge(documents[same], document); err != nil {
			return nil, fmt.Errorf("merge %s: %w", document.Kind(), err)
		}
	}

	return documents, nil
}

func documentID(document config.Document) string {
	if named, ok := document.(config.NamedDocument); ok {
		return document.Kind() + "/" + named.Name()
	}

	return document.Kind()
}
