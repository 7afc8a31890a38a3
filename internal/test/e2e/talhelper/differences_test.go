package talhelper_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// knownDifference is one that stays, because what is made here is right.
type knownDifference struct {
	// title says what differs, reason why ours is right; both are on the page.
	title, talhelpers, ours, reason string
	// is says whether a difference is of this kind.
	is func(example, difference) bool
}

// knownDifferences are all there are; docs/talconfig.md lists them.
var knownDifferences = []knownDifference{
	{
		title:      "`@file` in `machineFiles` and `inlineManifests`",
		talhelpers: "reads the file as YAML and writes it again, without comments",
		ours:       "keeps the text; variables are replaced in it",
		reason:     "A file is not always YAML, and the first line of a script looks like a comment.",
		is: func(_ example, d difference) bool {
			at := strings.HasPrefix(d.path, "machine.files[") && strings.HasSuffix(d.path, "].content") ||
				strings.HasPrefix(d.path, "cluster.inlineManifests[") && strings.HasSuffix(d.path, "].contents")

			return at && sameYAML(d.talhelpers, d.ours)
		},
	},
	{
		title:      "no `talosVersion`",
		talhelpers: "takes v1.13.8, the newest release when it was built",
		ours:       "takes v1.13.9, the newest release that this version knows",
		reason:     "Both are guesses. Declare the version.",
		is: func(e example, d difference) bool {
			return strings.Contains(fmt.Sprint(d.talhelpers), ":v1.13.8") && sameImage(e, d)
		},
	},
	{
		title:      "the id of a schematic with a string that YAML must quote, such as `enrollKeys: \"off\"`",
		talhelpers: "with `--offline-mode` computes the id with single quotes; without it the Image Factory computes it",
		ours:       "computes the id with double quotes",
		reason:     "So does the Image Factory (v1.4.0), and its images have that id.",
		is: func(e example, d difference) bool {
			return sameImage(e, d)
		},
	},
	{
		title:      "a link with `ignore: true`, Talos 1.12 and newer",
		talhelpers: "makes documents for it, so that Talos sets it up",
		ours:       "makes none",
		reason:     "The key says that Talos leaves the link alone. In older releases it does.",
		is: func(_ example, d difference) bool {
			return strings.Contains(d.document, "/ignored") && d.path == "" && d.ours == nil
		},
	},
	{
		title:      "a link with `dummy: true`, Talos 1.12 and newer",
		talhelpers: "makes a `LinkConfig`, for a link that does not exist",
		ours:       "makes a `DummyLinkConfig`",
		reason:     "Only this document makes the link.",
		is: func(_ example, d difference) bool {
			return d.path == "" && (d.document == "LinkConfig/"+dummy(d) && d.ours == nil ||
				d.document == "DummyLinkConfig/"+dummy(d) && d.talhelpers == nil)
		},
	},
	{
		title:      "`bridgePort`, Talos 1.12 and newer",
		talhelpers: "loses it",
		ours:       "adds the link to those of the `BridgeConfig`",
		reason:     "A bridge's document names its links; a link's document does not name its bridge.",
		is: func(e example, d difference) bool {
			return strings.HasPrefix(d.document, "BridgeConfig/") && d.path == "links" &&
				strings.Contains(e.files["talconfig.yaml"], "bridgePort:")
		},
	},
	{
		title:      "a number where a string is expected, such as the label `release: 1.10`",
		talhelpers: "reads it as a number and writes `1.1`",
		ours:       "keeps the text, `1.10`",
		reason:     "It is what the file says.",
		is: func(_ example, d difference) bool {
			theirs, number := strconv.ParseFloat(fmt.Sprint(d.talhelpers), 64)
			ours, same := strconv.ParseFloat(fmt.Sprint(d.ours), 64)

			return number == nil && same == nil && theirs == ours
		},
	},
	{
		title:      "`cidr` of a VLAN, Talos 1.12 and newer",
		talhelpers: "loses it",
		ours:       "makes it an address of the `VLANConfig`",
		reason:     "It is an older spelling of `addresses`.",
		is: func(_ example, d difference) bool {
			return strings.HasPrefix(d.document, "VLANConfig/") && d.path == "addresses" && d.talhelpers == nil
		},
	},
	{
		title:      "`vip.hcloud`, Talos 1.12 and newer",
		talhelpers: "makes a `Layer2VIPConfig` and loses the token",
		ours:       "makes an `HCloudVIPConfig`",
		reason:     "In that cloud only its API can move an address.",
		is: func(_ example, d difference) bool {
			return d.path == "" && (strings.HasPrefix(d.document, "Layer2VIPConfig/") && d.ours == nil ||
				strings.HasPrefix(d.document, "HCloudVIPConfig/") && d.talhelpers == nil)
		},
	},
	{
		title:      "`dhcpOptions.duidv6`, Talos 1.12 and newer",
		talhelpers: "loses it",
		ours:       "writes it into the `DHCPv6Config`",
		reason:     "Without it the machine has another DHCP identity and gets another address.",
		is: func(_ example, d difference) bool {
			return strings.HasPrefix(d.document, "DHCPv6Config/") && (d.path == "clientIdentifier" || d.path == "duidRaw") &&
				d.talhelpers == nil
		},
	},
}

var schematicID = regexp.MustCompile(`/[0-9a-f]{64}:`)

// sameImage says whether two texts with installer images in them are the same, were the Talos version ours and, if the
// schematic has quotes, whatever its id.
func sameImage(e example, d difference) bool {
	theirs, isText := d.talhelpers.(string)
	ours, both := d.ours.(string)

	if strings.Contains(e.files["talconfig.yaml"], `enrollKeys: "off"`) ||
		strings.Contains(e.files["talconfig.yaml"], `enrollKeys: 'off'`) {
		theirs, ours = schematicID.ReplaceAllString(theirs, "/id:"), schematicID.ReplaceAllString(ours, "/id:")
	}

	return isText && both && strings.ReplaceAll(theirs, ":v1.13.8", ":v1.13.9") == ours
}

// dummy is the name of a document whose link the corpus calls so because it is a dummy.
func dummy(d difference) string {
	_, name, _ := strings.Cut(d.document, "/")
	if !strings.HasPrefix(name, "dummy") {
		return "\x00"
	}

	return name
}

// sameYAML says whether two texts are the same YAML but for remarks.
func sameYAML(first, second any) bool {
	var parsed [2]bytes.Buffer

	for i, text := range []any{first, second} {
		var value any
		if yaml.Unmarshal([]byte(fmt.Sprint(text)), &value) != nil {
			return false
		}

		fmt.Fprintf(&parsed[i], "%#v", value)
	}

	return parsed[0].String() == parsed[1].String()
}

// explain is the known difference that this one is; nil if it is none.
func explain(in example, found difference) *knownDifference {
	for i, known := range knownDifferences {
		if known.is(in, found) {
			return &knownDifferences[i]
		}
	}

	return nil
}

// refusal is a talconfig that talhelper makes machine configs of, and that is a mistake here.
type refusal struct {
	// folder is the talconfig's, below testdata/refused.
	folder string
	// says is part of the message.
	says  string
	title string
	// reason is on the page.
	reason string
}

var refusals = []refusal{
	{
		folder: "unknown-key", says: "nameservers", title: "a key that the schema does not have, such as `nameserver`",
		reason: "It is misspelt or at the wrong level, so the machine would lack the setting. The message has the nearest " +
			"known key.",
	},
	{
		folder: "field-of-newer-talos", says: "v1.14", title: "`encryption.allowDiscards` for Talos 1.13 and older",
		reason: "These releases do not know the field and refuse the whole config.",
	},
	{
		folder: "volume-before-its-release", says: "v1.10",
		title:  "documents that the release does not know, such as user volumes for Talos 1.9",
		reason: "The machine refuses the whole config.",
	},
	{
		folder: "one-hostname-for-many", says: "machine of its own",
		title:  "several addresses in `ipAddress` without `ignoreHostname: true`",
		reason: "Each address is a machine. All would get the same hostname and be the same Kubernetes node.",
	},
	{
		folder: "wireguard-endpoint-name", says: "endpoint",
		title:  "a WireGuard `endpoint` that is a name, for Talos 1.12 and newer",
		reason: "The WireGuard document takes only addresses. Without one the machine waits for the peer to connect.",
	},
	{
		folder: "bond-with-primary", says: "primary", title: "`bond.primary` for Talos 1.12 and newer",
		reason: "The bond document has no such field, and without it another link may carry the traffic.",
	},
}
