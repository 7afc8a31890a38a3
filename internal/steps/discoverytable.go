package steps

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/talos-mage/talos-mage/internal/discover"
	"github.com/talos-mage/talos-mage/internal/report"
	"github.com/talos-mage/talos-mage/internal/talos"
)

// narrowest is the width that a table always fits in.
const narrowest = 80

// Table is the machines for people, as wide as the terminal, or as 80 columns where there is none.
func (d Discovery) Table(width int) string {
	width = max(width, narrowest)

	return report.Columns(fitted(d.rows(), width), width, nil)
}

// rows are the table's cells, header first.
func (d Discovery) rows() [][]string {
	rows := [][]string{{"ADDRESS", "NODE", "BY", "STATE", "VERSION", "HOSTNAME", "MAC", "ALSO AT", "UUID", "SERIAL",
		"BOOT", "DISKS", "FINGERPRINT", "CERTIFICATE", "WHY NO MORE"}}

	for _, machine := range d.Machines {
		pair, _ := d.pairOf(machine)
		node := ""

		if pair.Node != nil {
			node = pair.Node.Name
		}

		rows = append(rows, []string{machine.Address().String(), dash(node), dash(pair.By), stateOf(machine),
			dash(machine.Version), dash(machine.Hostname), dash(strings.Join(machine.MACs, " ")),
			dash(strings.Join(addressTexts(machine.Addresses[1:]), " ")), dash(machine.UUID), dash(machine.Serial),
			dash(bootText(machine)), dash(strings.Join(diskTexts(machine.Disks), ", ")), dash(machine.Fingerprint),
			dash(strings.Join(machine.CertificateNames, " ")), dash(talos.Explain(machine.Err))})
	}

	return rows
}

// fitted are rows without the columns that say nothing, and with cells that fit beside the first.
func fitted(rows [][]string, width int) [][]string {
	first := 0
	for _, row := range rows {
		first = max(first, utf8.RuneCountInString(row[0]))
	}

	var kept []int
	for x := range rows[0] {
		if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[x] != "-" }) {
			kept = append(kept, x)
		}
	}

	shown := make([][]string, len(rows))
	for y, row := range rows {
		for _, x := range kept {
			cell := []rune(row[x])
			if room := width - first - 2; x > 0 && len(cell) > room && room > 1 {
				cell = append(cell[:room-1], '…')
			}

			shown[y] = append(shown[y], string(cell))
		}
	}

	return shown
}

func stateOf(machine discover.Machine) string {
	if machine.State == talos.Unreachable {
		return "no handshake"
	}

	return machine.State.String()
}

func bootText(machine discover.Machine) string {
	switch {
	case machine.SecureBoot:
		return "secure boot"
	case machine.UKI:
		return "UKI"
	default:
		return ""
	}
}

// diskTexts are the disks that Talos could be installed to.
func diskTexts(disks []*block.Disk) []string {
	var texts []string
	for _, disk := range disks {
		if spec := disk.TypedSpec(); !spec.Readonly && !spec.CDROM && spec.Transport != "" {
			texts = append(texts, disk.Metadata().ID()+" "+humanize.Bytes(spec.Size))
		}
	}

	return texts
}

func addressTexts(addresses []netip.Addr) []string {
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		texts = append(texts, address.String())
	}

	return texts
}

// discoveryDocument is a Discovery in JSON. docs/discover.md names the fields.
type discoveryDocument struct {
	Networks []string          `json:"networks"`
	Asked    int               `json:"asked"`
	Answered int               `json:"answered"`
	Refused  int               `json:"refused"`
	Unasked  int               `json:"unasked"`
	Machines []machineDocument `json:"machines"`
	Matching matchDocument     `json:"matching"`
	Next     string            `json:"next"`
}

type machineDocument struct {
	Node             string         `json:"node,omitempty"`
	MatchedBy        string         `json:"matchedBy,omitempty"`
	Addresses        []string       `json:"addresses"`
	State            string         `json:"state"`
	Version          string         `json:"version,omitempty"`
	Hostname         string         `json:"hostname,omitempty"`
	MACs             []string       `json:"macs"`
	UUID             string         `json:"uuid,omitempty"`
	Serial           string         `json:"serial,omitempty"`
	SecureBoot       bool           `json:"secureBoot"`
	UKI              bool           `json:"uki"`
	Disks            []diskDocument `json:"disks"`
	Fingerprint      string         `json:"fingerprint,omitempty"`
	CertificateNames []string       `json:"certificateNames"`
	Error            string         `json:"error,omitempty"`
}

type diskDocument struct {
	Name      string `json:"name"`
	Size      uint64 `json:"size"`
	Transport string `json:"transport,omitempty"`
	Model     string `json:"model,omitempty"`
	Serial    string `json:"serial,omitempty"`
	WWID      string `json:"wwid,omitempty"`
	Readonly  bool   `json:"readonly"`
}

// stateWords are what the JSON document calls what answers.
var stateWords = map[talos.State]string{
	talos.Unreachable: "noHandshake", talos.NotTalos: "notTalos", talos.Maintenance: "maintenance", talos.Ours: "ours",
	talos.Foreign: "foreign", talos.UnknownCA: "unknownCA",
}

// JSON is the machines for programs.
func (d Discovery) JSON() string {
	document := discoveryDocument{Networks: []string{}, Asked: d.Progress.Total, Answered: d.Progress.Answers,
		Refused: d.Progress.Refused, Unasked: d.Progress.Unasked, Machines: []machineDocument{}, Matching: d.matchDocument(),
		Next: d.Next}

	for _, network := range d.Networks {
		document.Networks = append(document.Networks, network.String())
	}

	for _, machine := range d.Machines {
		shown := documentOf(machine)
		if pair, matched := d.pairOf(machine); matched {
			shown.Node, shown.MatchedBy = pair.Node.Name, pair.By
		}

		document.Machines = append(document.Machines, shown)
	}

	// Of such a document there is nothing that could go wrong.
	text, _ := json.MarshalIndent(document, "", "  ") //nolint:errchkjson // texts and numbers

	return string(text) + "\n"
}

func documentOf(machine discover.Machine) machineDocument {
	document := machineDocument{Addresses: addressTexts(machine.Addresses), State: stateWords[machine.State],
		Version: machine.Version, Hostname: machine.Hostname, MACs: orNone(machine.MACs), UUID: machine.UUID,
		Serial: machine.Serial, SecureBoot: machine.SecureBoot, UKI: machine.UKI, Disks: []diskDocument{},
		Fingerprint: machine.Fingerprint, CertificateNames: orNone(machine.CertificateNames),
		Error: talos.Explain(machine.Err)}

	for _, disk := range machine.Disks {
		spec := disk.TypedSpec()
		document.Disks = append(document.Disks, diskDocument{Name: disk.Metadata().ID(), Size: spec.Size,
			Transport: spec.Transport, Model: spec.Model, Serial: spec.Serial, WWID: spec.WWID,
			Readonly: spec.Readonly || spec.CDROM})
	}

	return document
}

// orNone is a list that JSON has as one also where it is empty.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}

	return list
}
