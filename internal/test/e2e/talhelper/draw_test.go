package talhelper_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	drawnSeed  = 1
	drawnCount = 200
)

// generation is a span of Talos releases that talhelper writes one kind of machine config for. A field has to be drawn
// in each of them, since each has code of its own for it.
type generation struct {
	name string
	// releases that a talconfig asks for, each with Kubernetes releases that it supports.
	releases []release
	// links says that links, addresses and hostname are documents of their own.
	links bool
	// newest says that talhelper makes its own draft of these releases' form, and there is nothing to compare.
	newest bool
}

type release struct {
	// minor is that of the Talos release; talos is what the talconfig says, where it says anything.
	minor      int
	talos      string
	kubernetes []string
}

var generations = []generation{
	{name: "one document", releases: []release{
		{8, "v1.8.4", []string{"v1.29.10", "v1.31.4"}},
		{9, "1.9.6", []string{"v1.30.8", "1.32.3"}},
		{10, "v1.10.7", []string{"v1.33.4"}},
		{11, "v1.11.5", []string{"v1.32.3", "v1.34.1"}},
	}},
	{name: "documents for links", links: true, releases: []release{
		{12, "v1.12.1", []string{"v1.34.1", "v1.35.0"}},
		{13, "v1.13.4", []string{"1.35.0", "v1.36.0"}},
		{13, "", []string{"v1.36.0"}},
	}},
	{name: "newer than talhelper", links: true, newest: true, releases: []release{
		{14, "v1.14.0", []string{"v1.36.0"}},
	}},
}

// drawn is one talconfig of the corpus that chance made, with the files that it names.
type drawn struct {
	number     int
	generation generation
	talconfig  map[string]any
	// files are by their path from the talconfig's folder; talenv.yaml is one of them.
	files map[string]string
}

func (d drawn) name() string { return fmt.Sprintf("drawn-%03d", d.number) }

// folder is what lies on the disk.
func (d drawn) folder() (map[string]string, error) {
	text, err := yaml.Marshal(d.talconfig)
	if err != nil {
		return nil, fmt.Errorf("encode talconfig: %w", err)
	}

	files := maps.Clone(d.files)
	files["talconfig.yaml"] = string(text)

	return files, nil
}

// drawTalconfigs makes the same talconfigs for the same seed. A field that may be there is, as long as no talconfig of
// the generation has had it; from then on chance decides. So all fields are touched, the early talconfigs have many at
// once, and the late ones have few.
func drawTalconfigs(seed uint64, count int) []drawn {
	chance := rand.New(rand.NewPCG(seed, 0))
	seen := map[string]map[string]int{}
	result := make([]drawn, 0, count)

	for number := range count {
		kind := generations[number%2]
		// A twentieth is enough of what only has to be refused.
		if number%20 == 19 {
			kind = generations[2]
		}

		if seen[kind.name] == nil {
			seen[kind.name] = map[string]int{}
		}

		artist := &artist{Rand: chance, seen: seen[kind.name], generation: kind, number: number, files: map[string]string{},
			talenv: map[string]string{}}
		talconfig := artist.talconfig()

		if len(artist.talenv) > 0 {
			artist.files["talenv.yaml"] = artist.talenvFile()
		}

		result = append(result, drawn{number: number, generation: kind, talconfig: talconfig, files: artist.files})
	}

	return result
}

// artist draws one talconfig.
type artist struct {
	*rand.Rand
	seen       map[string]int // how often a field was drawn in this generation, by path
	generation generation
	number     int
	release    release
	files      map[string]string
	talenv     map[string]string

	// single says that JSON patches are among the patches, which Talos applies to a config of one document alone.
	single bool
	// onlyControlPlanes says that there is no worker, so that nothing is made of what stands at `worker`.
	onlyControlPlanes bool
}

// object is a mapping that is being drawn, and its path.
type object struct {
	*artist
	path   string
	fields map[string]any
}

func (a *artist) object(path string) object {
	return object{artist: a, path: path, fields: map[string]any{}}
}

func (o object) field(key string) string {
	if o.path == "" {
		return key
	}

	return o.path + "." + key
}

// set draws a field in any case.
func (o object) set(key string, value any) {
	o.seen[o.field(key)]++
	o.fields[key] = value
}

// may draws a field if none of the generation has had it, else in one of five talconfigs.
func (o object) may(key string, value any) {
	if o.seen[o.field(key)] == 0 || o.IntN(5) == 0 {
		o.set(key, value)
	}
}

// mayBe draws a mapping like may; but more often: it has fields of its own.
func (o object) mayBe(key string, draw func(object)) {
	if o.seen[o.field(key)] > 1 && o.IntN(5) > 1 {
		return
	}

	o.be(key, draw)
}

func (o object) be(key string, draw func(object)) {
	child := o.artist.object(o.field(key))
	draw(child)

	if len(child.fields) > 0 {
		o.set(key, child.fields)
	}
}

// mayList draws a list of one to most mappings.
func (o object) mayList(key string, most int, draw func(index int, item object)) {
	if o.seen[o.field(key)] > 1 && o.IntN(5) > 1 {
		return
	}

	o.list(key, 1+o.IntN(most), draw)
}

func (o object) list(key string, length int, draw func(index int, item object)) {
	items := make([]any, length)

	for i := range items {
		item := o.artist.object(o.field(key))
		draw(i, item)
		items[i] = item.fields
	}

	o.set(key, items)
}

// one is one of the values.
func one[T any](a *artist, values ...T) T { return values[a.IntN(len(values))] }

// some is at least one of the values, in their order.
func some[T any](a *artist, values ...T) []any {
	var result []any

	for i, value := range values {
		if a.IntN(2) == 0 || (len(result) == 0 && i == len(values)-1) {
			result = append(result, value)
		}
	}

	return result
}

// rarest is the value whose key was drawn least often, so that each gets its turn.
func (a *artist) rarest(kind string, values ...string) string {
	count := func(value string) int { return a.seen[kind+"="+value] }
	rarest := slices.MinFunc(values, func(x, y string) int { return count(x) - count(y) })
	a.seen[kind+"="+rarest]++

	return rarest
}

// variable puts the value into talenv.yaml now and then, and then is the variable.
func (a *artist) variable(name, value string) string {
	switch a.IntN(6) {
	case 0:
		a.talenv[name] = value

		return "${" + name + "}"
	case 1:
		return "${" + name + "_UNSET:-" + value + "}"
	default:
		return value
	}
}

func (a *artist) talenvFile() string {
	var text strings.Builder

	text.WriteString("---\n# Values of the variables in talconfig.yaml.\n")

	for _, name := range slices.Sorted(maps.Keys(a.talenv)) {
		fmt.Fprintf(&text, "%s: %q\n", name, a.talenv[name])
	}

	return text.String()
}

// file adds a file and is the reference to it.
func (a *artist) file(name, text string) string {
	a.files[name] = text

	return one(a, "@./", "@") + name
}

func (a *artist) talconfig() map[string]any {
	config := a.object("")
	a.release = one(a, a.generation.releases...)
	a.single = !a.generation.links && a.IntN(5) == 0
	a.onlyControlPlanes = a.IntN(4) == 0

	config.set("clusterName", fmt.Sprintf("%s-%03d", one(a, "harbour", "orchard", "quarry"), a.number))
	config.set("kubernetesVersion", one(a, a.release.kubernetes...))
	config.set("endpoint", one(a, "https://192.0.2.10:6443", "https://[2001:db8::10]:6443",
		"https://kube.example.org:6443", "https://198.51.100.10"))

	if a.release.talos != "" {
		config.set("talosVersion", a.release.talos)
	}

	config.may("domain", a.variable("DOMAIN", "cluster.example.org"))
	config.may("allowSchedulingOnMasters", a.IntN(2) == 0)
	config.may("allowSchedulingOnControlPlanes", a.IntN(2) == 0)
	config.may("additionalMachineCertSans", some(a, "192.0.2.10", "2001:db8::10", "machines.example.org"))
	config.may("additionalApiServerCertSans",
		some(a, "192.0.2.10", "api.example.org", a.variable("API_NAME", "kube.example.net")))
	config.may("clusterPodNets", []any{a.variable("POD_NET", "10.32.0.0/16"), "fd00:10:244::/56"})

	if config.fields["clusterPodNets"] != nil {
		config.set("clusterSvcNets", []any{"10.112.0.0/12", "fd00:10:96::/112"})
	}

	config.mayList("inlineManifests", 2, a.inlineManifest)
	config.mayBe("cniConfig", a.cni)
	config.mayBe("imageFactory", a.imageFactory)

	if a.IntN(2) == 0 {
		config.be("controlPlane", func(group object) { a.nodeConfigs(group, "control-planes", true) })
	}

	if a.onlyControlPlanes || a.IntN(2) == 0 {
		config.be("worker", func(group object) { a.nodeConfigs(group, "workers", a.onlyControlPlanes) })
	}

	config.list("nodes", 1+a.IntN(3), func(index int, node object) {
		a.node(index, node, index == 0 || a.onlyControlPlanes || a.IntN(2) == 0)
	})
	config.may("patches", a.patches("all"))

	return config.fields
}

func (a *artist) inlineManifest(index int, manifest object) {
	name := fmt.Sprintf("namespace-%d", index)
	text := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: namespace-%d\n  # a remark\n", index)

	manifest.set("name", name)
	manifest.set("contents", text)

	if a.IntN(2) == 0 {
		manifest.set("contents", a.file("manifests/"+name+".yaml", text))
		manifest.may("skipEnvsubst", a.IntN(2) == 0)
	} else {
		manifest.may("skipEnvsubst", true)
	}
}

func (a *artist) cni(cni object) {
	kind := a.rarest("cni", "flannel", "custom", "none")
	cni.set("name", kind)

	switch kind {
	case "custom":
		cni.set("urls", some(a, "https://example.org/cni/first.yaml", "https://example.org/cni/second.yaml"))
	case "flannel":
		cni.be("flannel", func(flannel object) {
			flannel.may("extraArgs", some(a, "--iface-can-reach=192.0.2.1", "--ip-masq=false"))

			if a.release.minor >= 13 {
				flannel.may("kubeNetworkPoliciesEnabled", a.IntN(2) == 0)
			}
		})
	}
}

func (a *artist) imageFactory(factory object) {
	factory.may("registryURL", "factory.example.org")
	factory.may("schematicEndpoint", "/schematics")
	factory.may("protocol", one(a, "http", "https"))
	factory.may("installerURLTmpl", one(a, "{{.RegistryURL}}/installer/{{.ID}}:{{.Version}}",
		"{{.RegistryURL}}/{{.Mode}}-installer{{if .Secureboot}}-secureboot{{end}}/{{.ID}}:{{.Version}}"))
	factory.may("ISOURLTmpl", "{{.Protocol}}://{{.RegistryURL}}/image/{{.ID}}/{{.Version}}/{{.Mode}}-{{.Arch}}.iso")
}

func (a *artist) node(index int, node object, controlPlane bool) {
	name := fmt.Sprintf("%s%d", map[bool]string{true: "cp", false: "worker"}[controlPlane], index)
	address := fmt.Sprintf("192.0.2.%d", 11+10*index)

	node.set("hostname", name)
	node.set("controlPlane", controlPlane)
	node.set("ipAddress", one(a, address, address, address, fmt.Sprintf("2001:db8::%d", index+1), name+".example.org"))

	if node.seen[node.field("installDiskSelector.busPath")] == 0 || a.IntN(3) == 0 {
		node.be("installDiskSelector", a.diskSelector)
	} else {
		node.set("installDisk", a.variable("INSTALL_DISK", "/dev/sda"))
	}

	node.may("ignoreHostname", a.IntN(2) == 0)

	if node.fields["ignoreHostname"] == true {
		node.set("ipAddress", fmt.Sprintf("%s, 198.51.100.%d", address, 11+index))
	}

	node.may("overridePatches", a.IntN(2) == 0)
	node.may("overrideExtraManifests", a.IntN(2) == 0)
	node.may("overrideMachineCertSANs", a.IntN(2) == 0)
	a.nodeConfigs(node, name, controlPlane)
}

func (a *artist) diskSelector(selector object) {
	selector.set("size", one(a, "128GB", "<= 1TB", ">= 4GB"))
	selector.may("model", "QEMU*")
	selector.may("serial", "SN-0001")
	selector.may("modalias", "scsi:t-0x00")
	selector.may("uuid", "00000000-0000-4000-8000-000000000001")
	selector.may("wwid", "naa.0000000000000001")
	selector.may("type", one(a, "ssd", "hdd", "nvme", "sd"))
	selector.may("busPath", "/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0")
}
