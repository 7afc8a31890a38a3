package audit_test

import (
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

func TestGateways(t *testing.T) {
	t.Parallel()

	old := func(address, gateway string) files {
		return lab(config{machine: "network:\n\tinterfaces:\n\t\t- interface: eth0\n\t\t\taddresses: [" + address + "]\n\t\t\troutes:\n\t\t\t\t- network: 0.0.0.0/0\n\t\t\t\t\tgateway: " + gateway})
	}
	document := func(address, gateway string) files {
		return lab(config{documents: []string{"kind: LinkConfig\nname: eth0\naddresses:\n\t- address: " + address + "\nroutes:\n\t- gateway: " + gateway}})
	}

	judge(t, diagnosis.GatewayOutside, map[string]trial{
		"interface":         {files: old("192.0.2.11/26", "192.0.2.254"), line: "gateway: 192.0.2.254", cause: "192.0.2.254 is in no subnet of eth0 (192.0.2.0/26)"},
		"document":          {files: document("192.0.2.11/24", "198.51.100.1"), line: "- gateway: 198.51.100.1", cause: "(192.0.2.0/24)"},
		"IPv6":              {files: document("2001:db8:1::11/64", "2001:db8:2::1"), line: "- gateway: 2001:db8:2::1", cause: "2001:db8:1::/64"},
		"inside":            {files: old("192.0.2.11/24", "192.0.2.1")},
		"link-local router": {files: document("2001:db8:1::11/64", "fe80::1")},
	})
}
