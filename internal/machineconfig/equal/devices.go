package equal

import (
	"slices"
	"strings"
)

// unifyDevices takes links that are no more than addresses, routes and a VIP for the documents that say the same.
func unifyDevices(config answers) {
	links, _ := config["NetworkCommonLinkConfigs"].([]any)
	vips, _ := config["NetworkVirtualIPConfigs"].([]any)

	dropItems(under(config, "Machine", "Network"), "Devices", func(device answers) bool {
		if !isPlain(device) {
			return false
		}

		links = append(links, answers{"Name": device["Interface"], "Addresses": addressesOf(device),
			"Routes": routesOf(device), "MTU": unlessZero(device["MTU"])})

		if vip := under(device, "VIPConfig"); vip != nil {
			vips = append(vips, answers{"Name": vip["IP"], "Link": device["Interface"], "VIP": vip["IP"]})
		}

		return true
	})

	config["NetworkCommonLinkConfigs"], config["NetworkVirtualIPConfigs"] = byName(links), byName(vips)
}

// isPlain reports whether a device has nothing but a name, addresses, routes, an MTU and a VIP.
func isPlain(device answers) bool {
	for name, said := range device {
		switch name {
		case "Interface", "Addresses", "Routes", "MTU", "VIPConfig", "DHCPOptions":
		default:
			if said != nil && said != "false" {
				return false
			}
		}
	}

	vip := under(device, "VIPConfig")

	return device["Interface"] != "" && vip["HCloud"] == nil && vip["EquinixMetal"] == nil
}

func addressesOf(device answers) any {
	var list []any

	texts, _ := device["Addresses"].([]any)
	for _, text := range texts {
		list = append(list, answers{"Address": text})
	}

	return orNothing(list)
}

func routesOf(device answers) any {
	var list []any

	eachItem(device, "Routes", func(route answers) {
		one := answers{"Gateway": unlessZero(route["Gateway"]), "Source": unlessZero(route["Source"]),
			"Metric": unlessZero(route["Metric"]), "MTU": unlessZero(route["MTU"])}

		if destination := text(route["Network"]); !slices.Contains([]string{"", "0.0.0.0/0", "::/0"}, destination) {
			one["Destination"] = destination
		}

		list = append(list, one)
	})

	return orNothing(list)
}

// unlessZero is what is said, or nothing where the section says that by a zero.
func unlessZero(said any) any {
	if said == "" || said == "0" {
		return nil
	}

	return said
}

func orNothing(list []any) any {
	if len(list) == 0 {
		return nil
	}

	return list
}

// byName sorts answers by what they are called.
func byName(list []any) any {
	list = slices.Clone(list)

	slices.SortStableFunc(list, func(a, b any) int {
		return strings.Compare(text(a.(answers)["Name"]), text(b.(answers)["Name"])) //nolint:forcetypeassert // all are
	})

	return orNothing(list)
}
