package generate

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/cri"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"
)

// setDocuments puts what the entry declares into the generated documents that replace fields of the older form from
// contract 1.14 on, and adds those that are missing.
func (e *entry) setDocuments(generated []config.Document) []config.Document {
	documents := slices.DeleteFunc(slices.Clone(generated), func(document config.Document) bool {
		flannel, isFlannel := document.(*k8s.KubeFlannelCNIConfigV1Alpha1)

		return isFlannel && !e.usesFlannel(flannel)
	})

	for _, document := range documents {
		switch document := document.(type) {
		case *k8s.KubeNodeConfigV1Alpha1:
			e.setNode(document)
		case *k8s.KubeEtcdEncryptionConfigV1Alpha1:
			document.Config.Object = encryption(e.source.Secrets)
		}
	}

	return slices.Concat(documents, e.installDocuments(), e.moduleDocuments(), e.fileDocuments(), e.manifestDocuments())
}

// encryption is the content of a KubeEtcdEncryptionConfig: what a node makes of the secrets where they stand in the
// older form, with the names of the keys, by which it reads the Secrets that are there. Machinery's own generator calls
// the older key one of another cipher.
func encryption(bundle *secrets.Bundle) map[string]any {
	var providers []any

	for _, key := range []struct{ cipher, name, secret string }{
		{"secretbox", "key2", bundle.Secrets.SecretboxEncryptionSecret},
		{"aescbc", "key1", bundle.Secrets.AESCBCEncryptionSecret},
	} {
		if key.secret != "" {
			providers = append(providers, map[string]any{key.cipher: map[string]any{
				"keys": []any{map[string]any{"name": key.name, "secret": key.secret}},
			}})
		}
	}

	providers = append(providers, map[string]any{"identity": map[string]any{}})

	return map[string]any{"resources": []any{map[string]any{"resources": []any{"secrets"}, "providers": providers}}}
}

// setNode declares labels, annotations and taints. A node uses them as they are, so that those of control planes stay.
func (e *entry) setNode(document *k8s.KubeNodeConfigV1Alpha1) {
	if e.settings.NodeLabels != nil {
		document.LabelsConfig = e.filled("nodeLabels", e.settings.NodeLabels, e.older)

		if e.ControlPlane {
			document.LabelsConfig[constants.LabelNodeRoleControlPlane] = ""
		}
	}

	if e.settings.NodeAnnotations != nil {
		document.AnnotationsConfig = e.filled("nodeAnnotations", e.settings.NodeAnnotations, e.older)
	}

	if e.settings.NodeTaints != nil {
		generated := document.TaintsConfig
		document.TaintsConfig = maps.Clone(e.settings.NodeTaints)
		maps.Copy(document.TaintsConfig, generated)
	}
}

// usesFlannel reports whether flannel connects the pods, and sets what is declared of it.
func (e *entry) usesFlannel(document *k8s.KubeFlannelCNIConfigV1Alpha1) bool {
	declared := e.config.CNI

	switch {
	case declared == nil:
		return true
	case declared.Name() != constants.FlannelCNI:
		return false
	case declared.CNIFlannel != nil:
		document.FlannelExtraArgs = declared.CNIFlannel.FlanneldExtraArgs
		document.FlannelKubeNetworkPoliciesEnabled = declared.CNIFlannel.FlannelKubeNetworkPoliciesEnabled
	}

	return true
}

// installDocuments say how Talos is installed.
func (e *entry) installDocuments() []config.Document {
	_, image, err := e.installer()
	if err != nil {
		e.badInstaller(err)

		return nil
	}

	document, err := installDocument(e.InstallDisk, e.InstallDiskSelector, image)
	if err != nil {
		e.value(e.placeOf("installDiskSelector"), "no disk can be selected by this: %s", oneLine(err))

		return nil
	}

	return []config.Document{document}
}

// moduleDocuments load kernel modules.
func (e *entry) moduleDocuments() []config.Document {
	var documents []config.Document

	for _, declared := range e.settings.KernelModules {
		module := runtime.NewKernelModuleConfigV1Alpha1(declared.ModuleName)
		module.ModuleParameters = declared.ModuleParameters
		documents = append(documents, module)
	}

	return documents
}

// fileDocuments write the machineFiles for which there are documents; olderFiles are the others.
func (e *entry) fileDocuments() []config.Document {
	var documents []config.Document

	for _, file := range e.machineFiles {
		if document := fileDocument(file); document != nil {
			documents = append(documents, document)
		}
	}

	return documents
}

func (e *entry) olderFiles() []*v1alpha1.MachineFile {
	return slices.DeleteFunc(slices.Clone(e.machineFiles), func(file *v1alpha1.MachineFile) bool {
		return fileDocument(file) != nil
	})
}

// manifestDocuments are what Kubernetes applies when the cluster starts: control planes have it do so.
func (e *entry) manifestDocuments() []config.Document {
	if !e.ControlPlane {
		return nil
	}

	var documents []config.Document

	for _, declared := range e.manifests {
		if !hasDocument(declared) {
			continue
		}

		manifest := k8s.NewKubeInlineManifestConfigV1Alpha1()
		manifest.MetaName, manifest.ManifestSpec = declared.InlineManifestName, declared.InlineManifestContents
		documents = append(documents, manifest)
	}

	if e.config.CNI == nil {
		return documents
	}

	for i, text := range e.config.CNI.URLs() {
		manifest := k8s.NewKubeExternalManifestConfigV1Alpha1()
		manifest.MetaName = "custom-cni"

		if i > 0 {
			manifest.MetaName = fmt.Sprintf("custom-cni-%d", i+1)
		}

		if manifest.URLSpec.URL, _ = url.Parse(text); manifest.URLSpec.URL == nil {
			continue // that was told
		}

		documents = append(documents, manifest)
	}

	return documents
}

// olderManifests are those whose names documents can't have.
func (e *entry) olderManifests() manifests {
	return slices.DeleteFunc(slices.Clone(e.manifests), hasDocument)
}

func hasDocument(manifest v1alpha1.ClusterInlineManifest) bool {
	return labels.ValidateDNS1123Subdomain(manifest.InlineManifestName) == nil
}

// criPart is the file by which the container runtime is set up.
const criPart = "/etc/" + constants.CRICustomizationConfigPart

// fileDocument is what replaces a file of the older form; nil if nothing does.
func fileDocument(file *v1alpha1.MachineFile) config.Document {
	if file.FilePath == criPart && file.FileOp != "append" {
		part := cri.NewCRICustomizationConfigV1Alpha1("machine-files")
		part.CustomizationContent = file.FileContent

		return part
	}

	name, isBelow := strings.CutPrefix(file.FilePath, "/etc/")
	if !isBelow || file.FileOp != "overwrite" {
		return nil
	}

	document := runtime.NewEtcFileConfigV1Alpha1(name)
	document.Contents, document.FileMode = file.FileContent, runtime.EtcFileMode(file.FilePermissions)

	if _, err := document.Validate(nil); err != nil {
		return nil // Talos makes the file itself
	}

	return document
}

// installDocument installs Talos to a disk, which is named or selected.
func installDocument(disk string, selector *v1alpha1.InstallDiskSelector, image string) (config.Document, error) {
	document := runtime.NewUnattendedInstallConfigV1Alpha1()
	document.Installer.Image, document.ProvisioningSpec.Wipe = image, new(false)

	match, err := diskExpression(disk, selector)
	document.ProvisioningSpec.DiskSelector.Match = match

	return document, err
}

// diskExpression picks the install disk. A disk is its device alone; other paths are links to it.
func diskExpression(disk string, selector *v1alpha1.InstallDiskSelector) (cel.Expression, error) {
	if selector != nil {
		match, err := (&v1alpha1.InstallConfig{InstallDiskSelector: selector}).DiskMatchExpression()
		if err != nil {
			return cel.Expression{}, err
		}

		return *match, nil
	}

	text := fmt.Sprintf("disk.dev_path == %q", disk)
	if path.Dir(disk) != "/dev" {
		text = fmt.Sprintf("%q in disk.symlinks", disk)
	}

	return cel.ParseBooleanExpression(text, celenv.DiskLocator())
}
