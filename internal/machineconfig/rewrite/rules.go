package rewrite

import (
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// what becomes of a field.
type what int

const (
	moves what = iota
	decides
	keeps
)

// verdict says what becomes of a field, and why or where to.
type verdict struct {
	what what
	why  string
}

func movedTo(place string) verdict { return verdict{moves, place} }
func taken(why string) verdict     { return verdict{moves, "taken out: " + why} }
func decide(why string) verdict    { return verdict{decides, why} }
func keep(why string) verdict      { return verdict{keeps, why} }

// moving is a field on its way into documents.
type moving struct {
	successor.Found

	builder *builder
	entry   entry
}

type rule func(*moving) verdict

// ruleOf is how a field is translated: by a rule of its own, or as it is under the key of its document.
func ruleOf(field successor.Field) rule {
	if special := rules[field.Path]; special != nil {
		return special
	}

	if field.Kind == "" || field.Key == "" {
		return func(m *moving) verdict { return decide(cmp.Or(m.Note, "nothing replaces it")) }
	}

	return func(m *moving) verdict { return m.as("") }
}

// as puts the value as it is under the key of its document.
func (m *moving) as(name string) verdict {
	m.document(name).keys.set(m.Key, m.fragment())

	return movedTo(m.Place())
}

func (m *moving) document(name string) *document {
	return m.builder.document(m.Kind, name, m.ControlPlane)
}

// other is a document of another kind than the table's.
func (m *moving) other(kind string) *document { return m.builder.document(kind, "", m.ControlPlane) }

// deleted is a document that takes one out.
func (m *moving) deleted(kind, name string) verdict {
	m.builder.result.documents = append(m.builder.result.documents,
		&document{kind: kind, name: name, deletes: true, controlPlane: m.ControlPlane})

	return movedTo(kind + ", taken out")
}

func (m *moving) fragment() fragment { return fragmentOf(m.builder.lines, m.entry) }

// piece is the text of one key of the value.
func (m *moving) piece(key, value *yaml.Node) fragment {
	if startsLine(strings.ReplaceAll(m.builder.lines[key.Line-1], "- ", "  "), key.Column-1) {
		return fragmentOf(m.builder.lines, entryOf(m.builder.lines, key, value))
	}

	return written(value)
}

// isTrue is of the value.
func (m *moving) isTrue() (value, isSwitch bool) { return isTrue(m.Value) }

// isTrue reports whether a value is a switch that is on; false for one that is off, and for what is none.
func isTrue(of *yaml.Node) (value, isSwitch bool) {
	switch strings.ToLower(yamltree.Text(of)) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off":
		return false, true
	default:
		return false, false
	}
}

var (
	errNoSwitch = "the value is neither true nor false"
	stays       = "Talos takes it beside the documents, and it stays as it is"
)

var rules = map[string]rule{
	"machine.controlPlane.controllerManager.disabled": opposite,
	"machine.controlPlane.scheduler.disabled":         opposite,
	"machine.time.disabled":                           opposite,
	"cluster.proxy.disabled":                          opposite,
	"cluster.coreDNS.disabled":                        opposite,

	"machine.kubelet.disableManifestsDirectory": onlyIf(true, "the kubelet reads no directory of manifests any more: "+
		"move its pods to KubeStaticPodConfig documents, then take it out"),
	"machine.install.grubUseUKICmdline": onlyIf(true, "the command line is always that of the image now: put what it has "+
		"to hold into the schematic, then take it out"),
	"machine.install.legacyBIOSSupport":          onlyIf(false, "nothing replaces it: such machines keep the older form"),
	"machine.install.bootloader":                 drop("it never had an effect"),
	"cluster.apiServer.disablePodSecurityPolicy": drop("Kubernetes has no such policies any more"),
	"machine.kubelet.extraMounts":                unlessEmpty,
	"machine.install.extraKernelArgs":            unlessEmpty,
	"machine.install.extensions":                 unlessEmpty,
	"cluster.apiServer.extraVolumes":             unlessEmpty,
	"cluster.controllerManager.extraVolumes":     unlessEmpty,
	"cluster.scheduler.extraVolumes":             unlessEmpty,

	"machine.install.disk":         installDisk,
	"machine.install.diskSelector": installSelector,

	"machine.network.interfaces":       func(*moving) verdict { return keep(stays) },
	"machine.network.extraHostEntries": func(*moving) verdict { return keep(stays) },
	"machine.network.hostname":         hostname,
	"machine.network.nameservers":      nameservers,
	"machine.features.stableHostname":  drop("Talos makes stable names since 1.12"),
	"machine.disks":                    func(*moving) verdict { return keep(stays) },
	"machine.registries.mirrors":       func(*moving) verdict { return keep(stays) },
	"machine.registries.config.*.tls":  func(*moving) verdict { return keep(stays) },
	"machine.registries.config.*.auth": func(*moving) verdict { return keep(stays) },

	"machine.systemDiskEncryption.state":     func(m *moving) verdict { return m.as(constants.StatePartitionLabel) },
	"machine.systemDiskEncryption.ephemeral": func(m *moving) verdict { return m.as(constants.EphemeralPartitionLabel) },

	"machine.pods":           staticPods,
	"machine.files":          files,
	"machine.kernel.modules": modules,
	"machine.nodeTaints":     func(m *moving) verdict { return m.as("") },

	"machine.features.kubernetesTalosAPIAccess.enabled":                     apiAccess,
	"machine.features.kubernetesTalosAPIAccess.allowedRoles":                apiAccess,
	"machine.features.kubernetesTalosAPIAccess.allowedKubernetesNamespaces": apiAccess,
	"machine.features.kubePrism.enabled":                                    kubePrism,
	"machine.features.kubePrism.port":                                       kubePrism,

	"cluster.ca":                        inBundle,
	"cluster.acceptedCAs":               acceptedCAs,
	"cluster.aggregatorCA":              inBundle,
	"cluster.serviceAccount.key":        inBundle,
	"cluster.aescbcEncryptionSecret":    inBundle,
	"cluster.secretboxEncryptionSecret": inBundle,

	"cluster.network.cni.name": cni,
	"cluster.network.cni.urls": manifestURLs,

	"cluster.apiServer.extraArgs":           apiServerArguments,
	"cluster.apiServer.admissionControl":    admission,
	"cluster.apiServer.authorizationConfig": authorizers,
	"cluster.proxy.extraArgs":               proxyArguments,

	"cluster.discovery.enabled": discovery,
	"cluster.discovery.registries.kubernetes.disabled": onlyIf(true, "members are no longer found through "+
		"Kubernetes: take it out once they are found by the discovery service"),
	"cluster.discovery.registries.service.disabled": discovery,
	"cluster.discovery.registries.service.endpoint": func(m *moving) verdict { return m.as("default") },

	"cluster.extraManifests":                 manifestURLs,
	"cluster.extraManifestHeaders":           manifestHeaders,
	"cluster.inlineManifests":                inlineManifests,
	"cluster.allowSchedulingOnMasters":       scheduling,
	"cluster.allowSchedulingOnControlPlanes": scheduling,
}

// opposite is for a switch whose successor says the opposite.
func opposite(m *moving) verdict {
	value, isSwitch := m.isTrue()
	if !isSwitch {
		return decide(errNoSwitch)
	}

	word := "true"
	if value {
		word = "false"
	}

	moved := m.fragment()
	moved.rest = strings.Replace(moved.rest, m.Value.Value, word, 1)
	m.document("").keys.set(m.Key, moved)

	return movedTo(m.Place())
}

// onlyIf is for a switch that has one position only.
func onlyIf(position bool, why string) rule {
	return func(m *moving) verdict {
		if value, isSwitch := m.isTrue(); isSwitch && value == position {
			return taken("it is always so")
		}

		return decide(why)
	}
}

func drop(why string) rule { return func(*moving) verdict { return taken(why) } }

// unlessEmpty is for a list that nothing replaces.
func unlessEmpty(m *moving) verdict {
	if len(m.Value.Content) == 0 {
		return taken("it is empty")
	}

	return decide(cmp.Or(m.Note, "nothing replaces it"))
}

// inBundle is for secrets that belong into the cluster's bundle.
func inBundle(*moving) verdict {
	return decide("it belongs into the cluster's secrets, which every node gets its part of: take it out of the patch")
}

// acceptedCAs are PEM texts now.
func acceptedCAs(m *moving) verdict {
	list := fragment{comments: m.fragment().comments}

	areCertificates := m.eachItem(func(item *yaml.Node) bool {
		certificate, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(yamltree.FieldText(item, "crt")), ""))
		if block, _ := pem.Decode(certificate); err != nil || block == nil || block.Type != "CERTIFICATE" {
			return false
		}

		list.below = append(list.below, "  - |")
		for line := range strings.Lines(strings.TrimSpace(string(certificate))) {
			list.below = append(list.below, "    "+strings.TrimSpace(line))
		}

		return true
	})

	switch {
	case !areCertificates:
		return decide("write each certificate as PEM text, without base64, under " + m.Place() + ", and take the field out")
	case len(list.below) == 0:
		return taken("it is empty")
	default:
		m.document("").keys.set(m.Key, list)

		return movedTo(m.Place())
	}
}

// installDisk writes a path as Talos' own generator does.
func installDisk(m *moving) verdict {
	m.document("").keys.set(m.Key, plain(DiskExpression(yamltree.Text(m.Value))))

	return movedTo(m.Place())
}

// DiskExpression selects a disk by its path; the links below /dev/disk are no device's own path.
func DiskExpression(device string) string {
	if strings.HasPrefix(device, "/dev/disk/") {
		return `"` + device + `" in disk.symlinks`
	}

	return `disk.dev_path == "` + device + `"`
}

func installSelector(m *moving) verdict {
	var install v1alpha1.InstallConfig
	if err := m.Value.Decode(&install.InstallDiskSelector); err != nil || holdsVariable(m.Value) {
		return decide("write what it selects as a CEL expression under " + m.Place())
	}

	expression, err := install.DiskMatchExpression()
	if err != nil || expression == nil {
		return decide("write what it selects as a CEL expression under " + m.Place())
	}

	m.document("").keys.set(m.Key, plain(expression.String()))

	return movedTo(m.Place())
}

// holdsVariable reports whether something is put into a tree before Talos sees it.
func holdsVariable(node *yaml.Node) bool {
	return strings.Contains(node.Value, "${") || strings.Contains(node.Value, "{{") ||
		slices.ContainsFunc(node.Content, holdsVariable)
}

func hostname(m *moving) verdict {
	made := m.document("")
	made.keys.set(m.Key, m.fragment())
	made.keys.set("auto", literal(`"off"`))

	return movedTo(m.Place())
}

func nameservers(m *moving) verdict {
	if m.Value.Kind != yaml.SequenceNode {
		return decide("it is no list")
	}

	list := fragment{comments: m.fragment().comments}
	for _, server := range m.Value.Content {
		list.below = append(list.below, "  - address:"+written(server).rest)
	}

	m.document("").keys.set(m.Key, list)

	return movedTo(m.Place())
}

// eachItem goes through the items of a list of mappings; false if it is none.
func (m *moving) eachItem(do func(item *yaml.Node) bool) bool {
	if m.Value.Kind != yaml.SequenceNode {
		return false
	}

	for _, item := range m.Value.Content {
		if item.Kind != yaml.MappingNode || !do(item) {
			return false
		}
	}

	return true
}

// copyKey puts a key of an item under a key of a document, as it is written.
func (m *moving) copyKey(item *yaml.Node, name string, made *document, as string) {
	for i := 0; i+1 < len(item.Content); i += 2 {
		if key, value := item.Content[i], item.Content[i+1]; key.Value == name {
			made.keys.set(as, m.piece(key, value))
		}
	}
}

// commentsOf are the comments above an item's first key, and above its dash.
func (m *moving) commentsOf(item *yaml.Node) []string {
	line := item.Line - 1
	if len(item.Content) > 0 {
		line = item.Content[0].Line - 1
	}

	first := line
	for first > 0 && isComment(m.builder.lines[first-1]) {
		first--
	}

	return dedented(m.builder.lines[first:line], len(m.builder.lines[line]))
}

func modules(m *moving) verdict {
	if !m.eachItem(func(item *yaml.Node) bool { return yamltree.FieldText(item, "name") != "" }) {
		return decide("each module needs a name")
	}

	m.eachItem(func(item *yaml.Node) bool {
		made := m.document(yamltree.FieldText(item, "name"))
		made.comments = m.commentsOf(item)
		m.copyKey(item, "parameters", made, "parameters")

		return true
	})

	return movedTo(m.Kind)
}

func staticPods(m *moving) verdict {
	name := func(item *yaml.Node) string {
		metadata := yamltree.Field(item, "metadata")

		return cmp.Or(yamltree.FieldText(metadata, "namespace"), "default") + "-" + yamltree.FieldText(metadata, "name")
	}

	if !m.eachItem(func(item *yaml.Node) bool { return labels.ValidateDNS1123Subdomain(name(item)) == nil }) {
		return keep(stays)
	}

	m.eachItem(func(item *yaml.Node) bool {
		m.document(name(item)).keys.set("pod", written(item))

		return true
	})

	return movedTo(m.Kind)
}

func inlineManifests(m *moving) verdict {
	valid := func(item *yaml.Node) bool {
		return labels.ValidateDNS1123Subdomain(yamltree.FieldText(item, "name")) == nil && !successor.Deletes(item)
	}
	if !m.eachItem(valid) {
		return keep(stays)
	}

	m.eachItem(func(item *yaml.Node) bool {
		made := m.document(yamltree.FieldText(item, "name"))
		made.comments = m.commentsOf(item)
		m.copyKey(item, "contents", made, "manifest")

		return true
	})

	return movedTo(m.Kind)
}

// manifestURLs makes a document of each URL, named after it.
func manifestURLs(m *moving) verdict {
	if m.Value.Kind != yaml.SequenceNode {
		return keep(stays)
	}

	for _, item := range m.Value.Content {
		if manifestName(yamltree.Text(item)) == "" {
			if strings.HasPrefix(m.Path, "cluster.network") {
				return decide("write a KubeExternalManifestConfig with this URL")
			}

			return keep(stays)
		}
	}

	for _, item := range m.Value.Content {
		m.document(m.free(manifestName(yamltree.Text(item)))).keys.set("url", written(item))
	}

	return movedTo(m.Kind)
}

// free is a name that no document of the kind has yet.
func (m *moving) free(name string) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(m.builder.result.documents,
			func(one *document) bool { return one.kind == m.Kind && one.name == name })
	}

	for taken(name) {
		name += "-more"
	}

	return name
}

// manifestName is a name for what lies at a URL; empty if the text is none.
func manifestName(text string) string {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" {
		return ""
	}

	base := strings.TrimSuffix(strings.TrimSuffix(path.Base(parsed.Path), path.Ext(parsed.Path)), ".")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}

		return '-'
	}, strings.ToLower(base))

	if name = strings.Trim(name, "-"); name == "" {
		name = "manifest"
	}

	return name
}

// manifestHeaders go with each URL beside them.
func manifestHeaders(m *moving) verdict {
	documents := 0

	for _, one := range m.builder.result.documents {
		if one.kind == m.Kind {
			one.keys.set("headers", m.fragment())
			documents++
		}
	}

	if documents == 0 {
		return keep(stays)
	}

	return movedTo(m.Place())
}

func apiAccess(m *moving) verdict {
	access := siblings(m)

	if value, _ := isTrue(yamltree.Field(access, "enabled")); !value {
		return taken("the access is off")
	}

	if m.Key == "" {
		m.document("")

		return movedTo(m.Kind)
	}

	return m.as("")
}

// siblings is the mapping that a field stands in.
func siblings(m *moving) *yaml.Node {
	at := m.builder.root
	for _, key := range m.Keys[:len(m.Keys)-1] {
		at = yamltree.Field(at, key)
	}

	return at
}

func kubePrism(m *moving) verdict {
	prism := siblings(m)
	enabled := yamltree.Field(prism, "enabled")

	switch value, isSwitch := isTrue(enabled); {
	case enabled != nil && !isSwitch:
		return decide(errNoSwitch)
	case enabled != nil && !value && m.Key != "":
		return taken("KubePrism is off")
	case enabled != nil && !value:
		return m.deleted(m.Kind, "")
	case m.Key == "":
		return taken("KubePrism is on")
	default:
		return m.as("")
	}
}

// cni takes flannel out for other CNIs: without its document there is none.
func cni(m *moving) verdict {
	switch yamltree.Text(m.Value) {
	case constants.FlannelCNI:
		return taken("flannel is the default")
	case constants.NoneCNI, constants.CustomCNI:
		return m.deleted(m.Kind, "")
	default:
		return decide("no CNI of Talos has this name: flannel, none or custom")
	}
}

// admission makes a document of each plugin.
func admission(m *moving) verdict {
	if successor.Deletes(m.Value) {
		return m.deleted(m.Kind, "PodSecurity")
	}

	if !m.eachItem(func(item *yaml.Node) bool { return yamltree.FieldText(item, "name") != "" }) {
		return decide("each plugin needs a name")
	}

	m.eachItem(func(item *yaml.Node) bool {
		name := yamltree.FieldText(item, "name")
		if successor.Deletes(item) {
			m.deleted(m.Kind, name)

			return true
		}

		made := m.document(name)
		made.comments = m.commentsOf(item)
		m.copyKey(item, "configuration", made, "configuration")

		return true
	})

	return movedTo(m.Kind)
}

// authorizers makes a document of each; those of the types Node and RBAC are there already, under these names.
func authorizers(m *moving) verdict {
	if !m.eachItem(func(item *yaml.Node) bool {
		return yamltree.FieldText(item, "name") != "" && !successor.Deletes(item)
	}) {
		return decide("each authorizer needs a name")
	}

	m.eachItem(func(item *yaml.Node) bool {
		made := m.document(yamltree.FieldText(item, "name"))
		made.comments = m.commentsOf(item)
		m.copyKey(item, "type", made, "type")
		m.copyKey(item, "webhook", made, "webhook")

		return true
	})

	return movedTo(m.Kind)
}

func discovery(m *moving) verdict {
	value, isSwitch := m.isTrue()
	on := value == (m.Path == "cluster.discovery.enabled")

	switch {
	case !isSwitch:
		return decide(errNoSwitch)
	case !on:
		return m.deleted(m.Kind, "default")
	case m.builder.options.Discovers || m.Path != "cluster.discovery.enabled":
		return taken("the discovery service is on")
	default:
		return m.discovers()
	}
}

// discovers switches on the discovery service that no node asks yet.
func (m *moving) discovers() verdict {
	service := yamltree.Field(yamltree.Field(siblings(m), "registries"), "service")
	if value, _ := isTrue(yamltree.Field(service, "disabled")); value {
		return taken("the discovery service is off")
	}

	made := m.document("default")
	if yamltree.Field(service, "endpoint") == nil {
		made.keys.set("endpoint", plain(constants.DefaultDiscoveryServiceEndpoint))
	}

	return movedTo(m.Kind)
}

const controlPlaneTaint = constants.LabelNodeRoleControlPlane

// scheduling takes out the taint that keeps workloads away, or brings it back.
func scheduling(m *moving) verdict {
	value, isSwitch := m.isTrue()

	switch {
	case !isSwitch:
		return decide(errNoSwitch)
	case value && m.builder.options.Schedules:
		return taken("workloads run there without it")
	}

	taint := fragment{below: []string{"  $patch: delete"}}
	if !value {
		taint = literal(constants.TaintEffectNoSchedule)
	}

	m.builder.document(m.Kind, "", true).keys.setKey(m.Key, controlPlaneTaint, taint)

	return movedTo(m.Place())
}

// files makes documents of files below /etc. All of them go, or none.
func files(m *moving) verdict {
	if !m.eachItem(func(item *yaml.Node) bool { return etcName(item) != "" || isCRIPart(item) }) {
		return keep("files that are not below /etc, or that are added to one, have no document: " + stays)
	}

	m.eachItem(func(item *yaml.Node) bool {
		if isCRIPart(item) {
			made := m.builder.document("CRICustomizationConfig", criName, false)
			made.comments = m.commentsOf(item)
			m.copyKey(item, "content", made, "content")
		} else {
			made := m.builder.document("EtcFileConfig", etcName(item), false)
			made.comments = m.commentsOf(item)
			m.copyKey(item, "permissions", made, "mode")
			m.copyKey(item, "content", made, "contents")
		}

		return true
	})

	return movedTo("EtcFileConfig and CRICustomizationConfig")
}

// criName is the document's that is made of the CRI's part; "customization" is reserved.
const criName = "machine-files"

func isCRIPart(item *yaml.Node) bool {
	return yamltree.FieldText(item, "path") == "/etc/"+constants.CRICustomizationConfigPart &&
		yamltree.FieldText(item, "op") != "append"
}

// etcName is the name of the document for a file that replaces one below /etc; empty if there is none.
func etcName(item *yaml.Node) string {
	name, isBelow := strings.CutPrefix(yamltree.FieldText(item, "path"), "/etc/")
	if !isBelow || yamltree.FieldText(item, "op") != "overwrite" || path.Clean(name) != name ||
		strings.HasPrefix(name, "cri/") {
		return ""
	}

	return name
}
