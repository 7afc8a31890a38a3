// Package clusterfiles writes the files of a cluster for labs and tests: a talconfig.yaml as a person would write it,
// and what is rendered from that.
package clusterfiles

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
	"github.com/talos-mage/talos-mage/internal/machineconfig/generate"
)

const (
	// DefaultImage is the image factory's installer for the schematic without any customization.
	DefaultImage = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

	// defaultInstallDisk is the first virtio disk.
	defaultInstallDisk = "/dev/vda"
	// defaultLink is configured on a node that names neither a link nor a MAC.
	defaultLink = "eth0"
)

// Node is one machine of a cluster.
type Node struct {
	Name string
	Role machine.Type
	// Address is the static address with its prefix length; the zero value leaves the node to DHCP.
	Address netip.Prefix
	// Declared is where the inventory says that the node answers, for nodes that use DHCP. Default: Address.
	Declared string
	// MAC selects the link to configure.
	MAC string
	// Link is the link's name, when no MAC is given. Default "eth0".
	Link string
	// Gateway of the default route; none by default.
	Gateway netip.Addr
	// InstallDisk overrides the cluster's.
	InstallDisk string
}

// ControlPlane reports whether the node is one.
func (n Node) ControlPlane() bool { return n.Role == machine.TypeControlPlane }

// Options describe a cluster.
type Options struct {
	ClusterName string
	// Endpoint is the Kubernetes API's URL, as in "https://192.0.2.10:6443".
	Endpoint string
	// VIP is shared by the control planes; the zero value for none.
	VIP netip.Addr
	// CNI is "flannel" (the default), "none" or "custom".
	CNI string
	// TalosVersion that the files are for. Default machineconfig.DefaultTalosVersion.
	TalosVersion string
	// Contract is the Talos release whose form the machine configs have, as in "v1.14". Default that of TalosVersion, at
	// the most v1.13.
	Contract string
	// KubernetesVersion without "v"; default: the newest minor version that TalosVersion takes.
	KubernetesVersion string
	// Image is the installer image without its tag. Default DefaultImage.
	Image string
	// InstallDisk defaults to the first virtio disk.
	InstallDisk string
	// AutoHostnames leaves the host names to the machines.
	AutoHostnames bool
	// Secrets of the cluster; nil for those of a new one, see Secrets.
	Secrets *secrets.Bundle
	Nodes   []Node
}

// Config is the machine config of one node.
type Config struct {
	Node Node
	// FileName is as talhelper calls the file: <cluster>-<hostname>.yaml.
	FileName string
	Bytes    []byte
}

// Files are a cluster's.
type Files struct {
	// Options with all defaults filled in.
	Options Options
	Configs []Config
	// Talconfig declares the cluster; its versions are variables of Talenv.
	Talconfig, Talenv []byte
	// Talosconfig has the control planes as endpoints and all machines as nodes.
	Talosconfig []byte

	gitIgnore []byte
}

// nowhere is a folder that does not exist: what is read of it was put there in memory.
const nowhere = "only-in-memory"

// Make declares a cluster and renders what it declares, in memory.
func Make(options Options) (*Files, error) {
	options = options.withDefaults()

	if options.Secrets == nil {
		bundle, err := Secrets()
		if err != nil {
			return nil, err
		}

		options.Secrets = bundle
	}

	made := &Files{Options: options, Talenv: fmt.Appendf(nil, "TALOS_VERSION: %s\nKUBERNETES_VERSION: v%s\n",
		options.TalosVersion, options.KubernetesVersion)}

	if options.Contract != "" {
		made.Talenv = fmt.Appendf(made.Talenv, "talosContract: %s\n", options.Contract)
	}

	var text bytes.Buffer
	if err := talconfig.Execute(&text, options); err != nil {
		return nil, fmt.Errorf("write talconfig.yaml: %w", err)
	}

	made.Talconfig = text.Bytes()

	return made, made.render()
}

// render makes the machine configs and the talosconfig.
func (f *Files) render() error {
	files := reading.New("", nil)
	files.Pretend(filepath.Join(nowhere, "talconfig.yaml"), f.Talconfig)
	files.Pretend(filepath.Join(nowhere, "talenv.yaml"), f.Talenv)

	cluster, err := inventory.Load(inventory.Options{TalosDir: nowhere, Source: inventory.Talconfig, Files: files})
	if err != nil {
		return err
	}

	output, err := generate.Configs(generate.Source{Cluster: cluster, Secrets: f.Options.Secrets, Now: time.Now()})
	if err != nil {
		return err
	}

	for i, config := range output.Configs {
		f.Configs = append(f.Configs, Config{Node: f.Options.Nodes[i], FileName: config.File, Bytes: config.Bytes})
	}

	f.Talosconfig, f.gitIgnore = output.Talosconfig, output.GitIgnore

	return nil
}

func (o Options) withDefaults() Options {
	o.CNI = cmp.Or(o.CNI, constants.FlannelCNI)
	o.TalosVersion = cmp.Or(o.TalosVersion, machineconfig.DefaultTalosVersion)
	o.KubernetesVersion = strings.TrimPrefix(cmp.Or(o.KubernetesVersion, newestKubernetes(o.TalosVersion)), "v")
	o.Image = cmp.Or(o.Image, DefaultImage)
	o.InstallDisk = cmp.Or(o.InstallDisk, defaultInstallDisk)
	o.Nodes = slices.Clone(o.Nodes)

	for i := range o.Nodes {
		node := &o.Nodes[i]
		node.InstallDisk = cmp.Or(node.InstallDisk, o.InstallDisk)

		if node.MAC == "" {
			node.Link = cmp.Or(node.Link, defaultLink)
		}

		if node.Declared == "" && node.Address.IsValid() {
			node.Declared = node.Address.Addr().String()
		}
	}

	return o
}

// defaultKubernetes are the defaults of the latest releases of Talos, newest first.
var defaultKubernetes = []string{constants.DefaultKubernetesVersion, "1.36.3"}

// oldDefaults is the newest minor version of Kubernetes that none of them is of.
const oldDefaults = 35

// newestKubernetes is the newest of these defaults that a Talos version takes. For older releases it is the first
// release of the newest minor version that they take.
func newestKubernetes(talosVersion string) string {
	talos, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: talosVersion})
	if err != nil {
		return constants.DefaultKubernetesVersion
	}

	candidates := slices.Clone(defaultKubernetes)
	for minor := oldDefaults; minor > 0; minor-- {
		candidates = append(candidates, fmt.Sprintf("1.%d.0", minor))
	}

	for _, candidate := range candidates {
		if version, err := compatibility.ParseKubernetesVersion(candidate); err == nil &&
			version.SupportedWith(talos) == nil {
			return candidate
		}
	}

	return constants.DefaultKubernetesVersion
}

// HasWorkers reports whether pods have another place than the control planes.
func (o Options) HasWorkers() bool {
	return slices.ContainsFunc(o.Nodes, func(node Node) bool { return !node.ControlPlane() })
}

var talconfig = template.Must(template.New("talconfig.yaml").Parse(`---
clusterName: {{ .ClusterName }}
endpoint: {{ printf "%q" .Endpoint }}
talosVersion: ${TALOS_VERSION}
kubernetesVersion: ${KUBERNETES_VERSION}
{{- if not .HasWorkers }}
allowSchedulingOnControlPlanes: true
{{- end }}
cniConfig:
  name: {{ .CNI }}
nodes:
{{- range .Nodes }}
  - hostname: {{ .Name }}
    ipAddress: {{ printf "%q" .Declared }}
    controlPlane: {{ .ControlPlane }}
    installDisk: {{ .InstallDisk }}
    talosImageURL: {{ $.Image }}
{{- if $.AutoHostnames }}
    ignoreHostname: true
{{- end }}
    networkInterfaces:
{{- if .MAC }}
      - deviceSelector:
          hardwareAddr: {{ printf "%q" .MAC }}
{{- else }}
      - interface: {{ .Link }}
{{- end }}
{{- if .Address.IsValid }}
        addresses:
          - {{ printf "%q" .Address.String }}
{{- else }}
        dhcp: true
{{- end }}
{{- if .Gateway.IsValid }}
        routes:
          - gateway: {{ printf "%q" .Gateway.String }}
{{- end }}
{{- if and .ControlPlane $.VIP.IsValid }}
        vip:
          ip: {{ printf "%q" $.VIP.String }}
{{- end }}
{{- end }}
`))

// Write puts the files where a user of talhelper has them, in dir, which becomes TALOS_DIR. What holds secrets is
// readable by its owner alone.
func (f *Files) Write(dir string) error {
	const public, private = 0o644, 0o600

	folder := filepath.Join(dir, "clusterconfig")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make config folder: %w", err)
	}

	errs := []error{
		atomicfile.WriteFile(filepath.Join(dir, "talconfig.yaml"), f.Talconfig, public),
		atomicfile.WriteFile(filepath.Join(dir, "talenv.yaml"), f.Talenv, public),
		atomicfile.WriteFile(filepath.Join(folder, "talosconfig"), f.Talosconfig, private),
		atomicfile.WriteFile(filepath.Join(folder, ".gitignore"), f.gitIgnore, public),
	}

	for _, config := range f.Configs {
		errs = append(errs, atomicfile.WriteFile(filepath.Join(folder, config.FileName), config.Bytes, private))
	}

	return errors.Join(errs...)
}
