package machineconfig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-mage/talos-mage/internal/base/atomicfile"
)

// The names that talhelper gives to its files.
const (
	talconfigFile   = "talconfig.yaml"
	talenvFile      = "talenv.yaml"
	talosconfigFile = "talosconfig"
	configFolder    = "clusterconfig"
)

// layoutTalconfig declares the generated cluster the way a person would write it for talhelper.
var layoutTalconfig = template.Must(template.New(talconfigFile).Parse(`---
clusterName: {{ .Options.ClusterName }}
endpoint: {{ printf "%q" .Options.Endpoint }}
talosVersion: ${TALOS_VERSION}
kubernetesVersion: ${KUBERNETES_VERSION}
cniConfig:
  name: {{ .Options.CNI }}
nodes:
{{- range .Nodes }}
  - hostname: {{ .Name }}
    ipAddress: {{ printf "%q" .Declared }}
    controlPlane: {{ .ControlPlane }}
    installDisk: {{ .InstallDisk }}
    talosImageURL: {{ $.Options.Image }}
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
{{- if .VIP }}
        vip:
          ip: {{ printf "%q" .VIP }}
{{- end }}
{{- end }}
`))

// layoutNode is what the template needs beyond the node spec.
type layoutNode struct {
	NodeSpec
	ControlPlane bool
	VIP          string
}

type layoutFile struct {
	path string
	data []byte
	perm os.FileMode
}

// Talconfig is the talhelper inventory of the generated cluster; its versions are variables of Talenv.
func (g *Generated) Talconfig() ([]byte, error) {
	nodes := make([]layoutNode, 0, len(g.Options.Nodes))

	for _, spec := range g.Options.Nodes {
		node := layoutNode{NodeSpec: spec, ControlPlane: spec.Role == machine.TypeControlPlane}

		if node.ControlPlane && g.Options.VIP.IsValid() {
			node.VIP = g.Options.VIP.String()
		}

		nodes = append(nodes, node)
	}

	var out bytes.Buffer

	if err := layoutTalconfig.Execute(&out, map[string]any{"Options": g.Options, "Nodes": nodes}); err != nil {
		return nil, fmt.Errorf("render %s: %w", talconfigFile, err)
	}

	return out.Bytes(), nil
}

// Talenv holds the variables of Talconfig.
func (g *Generated) Talenv() []byte {
	return fmt.Appendf(nil, "TALOS_VERSION: %s\nKUBERNETES_VERSION: v%s\n", g.Options.TalosVersion,
		g.Options.KubernetesVersion)
}

// WriteLayout writes the files that a user of talhelper has, into dir, which becomes TALOS_DIR: talconfig.yaml,
// talenv.yaml and clusterconfig/ with the machine configs and the talosconfig, all secrets readable by the user alone.
func (g *Generated) WriteLayout(dir string) error {
	talconfig, err := g.Talconfig()
	if err != nil {
		return err
	}

	folder := filepath.Join(dir, configFolder)

	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make config folder: %w", err)
	}

	var ignored bytes.Buffer

	files := []layoutFile{
		{filepath.Join(dir, talconfigFile), talconfig, 0o644},
		{filepath.Join(dir, talenvFile), g.Talenv(), 0o644},
		{filepath.Join(folder, talosconfigFile), g.Talosconfig, 0o600},
	}

	for _, config := range g.Configs {
		files = append(files, layoutFile{filepath.Join(folder, config.FileName), config.Bytes, 0o600})

		fmt.Fprintln(&ignored, config.FileName)
	}

	fmt.Fprintln(&ignored, talosconfigFile)

	for _, file := range files {
		if err := atomicfile.WriteFile(file.path, file.data, file.perm); err != nil {
			return err
		}
	}

	return atomicfile.WriteFile(filepath.Join(folder, ".gitignore"), ignored.Bytes(), 0o644)
}
