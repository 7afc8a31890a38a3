package inventory

import (
	"cmp"
	"errors"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/release"
	"github.com/talos-mage/talos-mage/internal/cluster/talconfig"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// readContract finds the form of the machine configs of a talconfig.yaml: the one that the setting TALOS_CONTRACT
// names, or else talenv.yaml.
func (c *Cluster) readContract(setting string) {
	if c.Talconfig.Config == nil {
		return
	}

	if locked, ok := c.Talconfig.Variables.Locked(talconfig.ContractVariable); ok && setting == "" {
		c.Talconfig.RefuseLocked(talconfig.ContractVariable, locked,
			"set TALOS_CONTRACT, or have talosContract in a talenv.yaml that is not encrypted")

		return
	}

	named, source, place := setting, c.Talconfig.Source, yamlfile.PlaceOf(c.Talconfig.Root, "talosVersion")

	if declared, ok := c.Talconfig.Variables.Declared(talconfig.ContractVariable); ok && setting == "" {
		named, source, place = declared.Value.Value, declared.Source, declared.Value
	}

	var (
		unusable *release.ContractError
		err      error
	)

	c.Contract, err = release.Contract(cmp.Or(c.TalosVersion, machineconfig.DefaultTalosVersion), named)
	if errors.As(err, &unusable) { // of a talosVersion that can't be used tells whoever makes configs
		refuseContract(source, place, setting, unusable)
	}
}

// refuseContract tells why a contract can't be used, and which can. A setting has no place in a file: its mistake is
// where the release is named that it does not go with.
func refuseContract(source yamlfile.Source, place *yaml.Node, setting string, unusable *release.ContractError) {
	mistake := source.Mistake(place, diagnosis.FileValue, "%s", unusable)
	mistake.Suggestion = unusable.Nearest

	if setting != "" {
		mistake.Message, mistake.Suggestion = "TALOS_CONTRACT="+setting+": "+mistake.Message, ""
		mistake.Next = "set TALOS_CONTRACT=" + unusable.Nearest + ", or talosVersion to " + setting + " or newer"
	}

	source.Add(mistake)
}

// UnknownRelease warns of a Talos release about which this program knows too little: what is not judged, and the form
// that machine configs have all the same.
func (c *Cluster) UnknownRelease() []diagnosis.Finding {
	if c.TalosVersion == "" || release.IsTabled(c.TalosVersion) {
		return nil
	}

	cause := "talosVersion " + c.TalosVersion +
		" is not known here: whether keys, extensions and Kubernetes go with it is not judged"
	if c.Contract != nil {
		cause += ", and machine configs have the form of " + c.Contract.String()
	}

	return []diagnosis.Finding{{
		ID: diagnosis.TalosVersionUnknown, Severity: diagnosis.Warning, Cause: cause,
		Next: "use a Talos from " + release.Tabled() + ", or a program that knows it",
		At:   diagnosis.Location{Path: c.Files.Shown(c.Source)},
	}}
}
