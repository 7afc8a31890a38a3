package audit

import (
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// candidate is a place that a finding of another package may be about: it is, if the finding's cause has the text as a
// word.
type candidate struct {
	text  string
	place at
}

// pinpoint chooses among the places that a finding may be about; false if none is known.
func (in *Input) pinpoint(finding diagnosis.Finding, config *Rendered) (at, bool) {
	words := wordsOf(finding.Cause)

	for _, candidate := range in.candidates(finding.ID, config) {
		if slices.Contains(words, candidate.text) {
			return candidate.place, true
		}
	}

	return at{}, false
}

// wordsOf are the words of a cause, without what encloses them.
func wordsOf(cause string) []string {
	words := strings.FieldsFunc(cause, func(r rune) bool { return strings.ContainsRune(" \n,()\"'", r) })
	for i, word := range words {
		words[i] = strings.TrimRight(word, ":.")
	}

	return words
}

// declares reports whether a cause is about the value that a node's entry of the inventory has for a key.
func declares(node *inventory.Node, key, cause string) bool {
	switch key {
	case "ipAddress":
		return slices.Contains(wordsOf(cause), node.Address)
	case "hostname":
		return slices.Contains(wordsOf(cause), node.Hostname)
	default:
		return false
	}
}

// completePlace adds what is missing to the place of a finding that says which file it is about: the text of its line,
// and the line to a finding about a machine config that several machines share.
func (in *Input) completePlace(finding *diagnosis.Finding) {
	for _, file := range []*File{in.SecretsFile, in.TalosconfigFile} {
		if file != nil && file.Shown == finding.At.Path && finding.At.Text == "" {
			finding.At.Text = file.places.Key(finding.At.Line)
		}
	}

	if finding.ID != diagnosis.SharedConfig || finding.At.Line > 0 {
		return
	}

	if place, known := in.pinpoint(*finding, in.configAt(finding.At.Path)); known {
		finding.At = in.locate(place)
	}
}

// placeVIP adds where the VIP stands that a finding about the whole cluster names.
func (in *Input) placeVIP(finding *diagnosis.Finding) {
	words := wordsOf(finding.Cause)

	for _, config := range in.Configs {
		for _, vip := range config.vipCandidates() {
			if slices.Contains(words, "VIP") && slices.Contains(words, vip.text) {
				finding.At = in.locate(vip.place)

				return
			}
		}
	}
}

// placeInTalosconfig adds where a finding about the talosconfig stands in it.
func (in *Input) placeInTalosconfig(finding *diagnosis.Finding) {
	finding.At.Path = in.shown(in.Options.Talosconfig)
	if in.TalosconfigFile == nil {
		return
	}

	finding.At = in.locate(in.TalosconfigFile.itself())

	if place, known := in.pinpoint(*finding, nil); known {
		finding.At = in.locate(place)
	}

	if field, known := talosconfigFields[finding.ID]; known {
		finding.At = in.locate(in.ofCurrentContext(field))
		finding.At.Text = in.TalosconfigFile.places.Key(finding.At.Line) // a certificate is too long to be read
	}
}

// talosconfigFields are the fields of a context that findings are about.
var talosconfigFields = map[diagnosis.ID]string{
	diagnosis.TalosconfigForeign: "ca", diagnosis.ClientCertificate: "crt", diagnosis.TalosconfigBroken: "ca",
}

// completeColumns adds the column to places of which only the line is known: where the line's text begins.
func (in *Input) completeColumns(findings []diagnosis.Finding) {
	for i := range findings {
		at := &findings[i].At
		if at.Line == 0 || at.Column > 0 {
			continue
		}

		text := at.Text
		// the text of a patch in the talconfig begins further left than it stands
		if in.Talconfig != nil && in.Talconfig.Shown == at.Path {
			text = in.Talconfig.places.Line(at.Line)
		}

		at.Column = len(text) - len(strings.TrimLeft(text, " \t")) + 1
	}
}

// candidates are the places that findings of an id may be about, the likeliest first. config may be nil.
func (in *Input) candidates(id diagnosis.ID, config *Rendered) []candidate {
	switch {
	case id == diagnosis.TalosconfigEndpoint && in.Credentials != nil:
		var list []candidate
		for _, endpoint := range in.Credentials.Endpoints() {
			list = append(list, candidate{endpoint, in.talosconfigPlace(endpoint)})
		}

		return list
	case config == nil:
		return nil
	}

	switch id {
	case diagnosis.SharedConfig:
		return slices.Concat(config.hostnameCandidates(), config.addressCandidates())
	case diagnosis.AddressInClusterSubnet:
		return config.addressCandidates()
	case diagnosis.HostnameInvalid:
		return config.hostnameCandidates()
	case diagnosis.VIPTaken, diagnosis.VIPOutsideSubnet:
		return config.vipCandidates()
	case diagnosis.LinkDeclaredTwice:
		return config.documentCandidates()
	case diagnosis.ConfigSecrets:
		return config.fieldCandidates(machineconfig.SharedSecretFields()...)
	case diagnosis.ConfigCluster:
		return []candidate{{"endpoint", config.File.at("cluster.controlPlane.endpoint")}}
	default:
		return nil
	}
}

func (c *Rendered) hostnameCandidates() []candidate {
	var list []candidate
	for name, place := range c.hostnames() {
		list = append(list, candidate{name, place})
	}

	return list
}

// addressCandidates are the static addresses, with and without their prefix lengths.
func (c *Rendered) addressCandidates() []candidate {
	var list []candidate

	for _, link := range c.links() {
		for _, address := range link.addresses {
			list = append(list, candidate{address.text, address.at})

			if address.prefix.IsValid() {
				list = append(list, candidate{address.prefix.Addr().String(), address.at})
			}
		}
	}

	return list
}

func (c *Rendered) vipCandidates() []candidate {
	var list []candidate

	for _, link := range c.links() {
		for _, vip := range link.vips {
			list = append(list, candidate{vip.text, vip.at}, candidate{vip.addr.String(), vip.at})
		}
	}

	return list
}

// documentCandidates are the links that have documents of their own.
func (c *Rendered) documentCandidates() []candidate {
	var list []candidate

	for _, link := range c.links() {
		if link.document {
			list = append(list, candidate{link.name, link.at})
		}
	}

	return list
}

// fieldCandidates are fields of the main document that are called by their paths.
func (c *Rendered) fieldCandidates(paths ...string) []candidate {
	var list []candidate
	for _, path := range paths {
		list = append(list, candidate{path, c.File.at(path)})
	}

	return list
}

// ofCurrentContext is where a field of the talosconfig's current context stands.
func (in *Input) ofCurrentContext(field string) at {
	for _, root := range in.TalosconfigFile.places.Roots() {
		if current := machineconfig.Field(root, "context"); current != nil {
			return in.TalosconfigFile.at("contexts").field(current.Value).field(field)
		}
	}

	return in.TalosconfigFile.itself()
}

// configAt is the machine config of a path as people are shown it; nil if there is none.
func (in *Input) configAt(path string) *Rendered {
	for _, config := range in.Configs {
		if config.File.Shown == path {
			return config
		}
	}

	return nil
}
