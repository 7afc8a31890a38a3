package equal

import (
	"cmp"
	"slices"
	"strings"
)

// AuthorizesAnyway reports whether an authorization-mode names no more than the API server's authorizers of all
// clusters.
func AuthorizesAnyway(mode string) bool {
	for one := range strings.SplitSeq(mode, ",") {
		if one != "Node" && one != "RBAC" {
			return false
		}
	}

	return true
}

func unifyAuthorizers(config answers) {
	server := under(config, "K8sAPIServerConfig")
	if server["InjectDefaultAuthorizers"] == "true" {
		unifyAuthorizationMode(server)

		list, _ := config["K8sAuthorizerConfigs"].([]any)

		for i, one := range []answers{{"Type": "Node", "Name": "node"}, {"Type": "RBAC", "Name": "rbac"}} {
			if !slices.ContainsFunc(list, func(item any) bool { return item.(answers)["Type"] == one["Type"] }) { //nolint:forcetypeassert // all are
				one["Webhook"] = nil
				list = slices.Insert(list, min(i, len(list)), any(one))
			}
		}

		config["K8sAuthorizerConfigs"] = list
	}

	delete(server, "InjectDefaultAuthorizers")
}

// unifyAuthorizationMode takes out a mode that is there anyway. Talos refuses authorizers beside one.
func unifyAuthorizationMode(server answers) {
	arguments := under(server, "ExtraArgs")

	mode, hasMode := single(arguments, "authorization-mode")
	if !hasMode || !AuthorizesAnyway(mode) {
		return
	}

	for name := range arguments {
		if strings.HasPrefix(name, "authorization-webhook-") {
			return
		}
	}

	dropKey(server, "ExtraArgs", "authorization-mode")
}

func unifyAuthentication(config answers) {
	server := under(config, "K8sAPIServerConfig")

	if server["UseAuthenticationConfig"] == "false" {
		enabled := "false"

		if value, isSet := single(under(server, "ExtraArgs"), "anonymous-auth"); isSet {
			enabled = value

			dropKey(server, "ExtraArgs", "anonymous-auth")
		}

		configuration := answers{"anonymous": answers{"enabled": enabled}}
		if authenticator := authenticatorOf(server); authenticator != nil {
			configuration["jwt"] = []any{authenticator}
		}

		config["K8sAuthenticationConfig"] = answers{"Configuration": configuration}
	}

	dropNothing(under(config, "K8sAuthenticationConfig", "Configuration"))
	delete(server, "UseAuthenticationConfig")
}

// DefaultClaim is that of user names.
const DefaultClaim = "sub"

// ClaimPrefix is what the API server puts before the names of a claim, "username" or "groups": by default the issuer
// before user names that are no mail addresses.
func ClaimPrefix(of, argument, claim, issuer string) string {
	switch {
	case of != "username":
		return argument
	case argument == "-":
		return ""
	case argument == "" && cmp.Or(claim, DefaultClaim) != "email":
		return issuer + "#"
	default:
		return argument
	}
}

// authenticatorOf takes the oidc- arguments out, and is what the API server makes of them; nil if there are none, or
// some that its configuration can't say.
func authenticatorOf(server answers) answers {
	said := map[string]string{}

	var required []any

	for name, value := range under(server, "ExtraArgs") {
		if name == "oidc-required-claim" {
			required, _ = value.([]any)
		} else if text, isSingle := single(under(server, "ExtraArgs"), name); isSingle && strings.HasPrefix(name, "oidc-") {
			said[name] = text
		}
	}

	issuer, client := said["oidc-issuer-url"], said["oidc-client-id"]
	if issuer == "" || client == "" || said["oidc-ca-file"] != "" || said["oidc-signing-algs"] != "" {
		return nil
	}

	mappings := answers{"username": answers{"claim": cmp.Or(said["oidc-username-claim"], DefaultClaim),
		"prefix": ClaimPrefix("username", said["oidc-username-prefix"], said["oidc-username-claim"], issuer)}}
	if claim := said["oidc-groups-claim"]; claim != "" {
		mappings["groups"] = answers{"claim": claim, "prefix": said["oidc-groups-prefix"]}
	}

	made := answers{"issuer": answers{"url": issuer, "audiences": []any{client}}, "claimMappings": mappings}

	var rules []any

	for _, one := range required {
		claim, value, _ := strings.Cut(text(one), "=")
		rules = append(rules, answers{"claim": claim, "requiredValue": value})
	}

	if rules != nil {
		made["claimValidationRules"] = rules
	}

	for name := range said {
		dropKey(server, "ExtraArgs", name)
	}

	dropKey(server, "ExtraArgs", "oidc-required-claim")

	return made
}

// single is the value of an argument that has one.
func single(arguments answers, name string) (value string, isSingle bool) {
	list, _ := arguments[name].([]any)
	if len(list) != 1 {
		return "", false
	}

	return text(list[0]), true
}

// ListMark is behind a key that is a list, of an argument that has its items with commas between them.
const ListMark = "[]"

// ProxySettings are the keys of kube-proxy's configuration that its arguments set.
var ProxySettings = map[string]string{
	"proxy-mode": "mode", "cluster-cidr": "clusterCIDR", "bind-address": "bindAddress",
	"bind-address-hard-fail": "bindAddressHardFail", "metrics-bind-address": "metricsBindAddress",
	"healthz-bind-address": "healthzBindAddress", "profiling": "enableProfiling",
	"show-hidden-metrics-for-version": "showHiddenMetricsForVersion", "nodeport-addresses": "nodePortAddresses" + ListMark,
	"detect-local-mode": "detectLocalMode", "pod-bridge-interface": "detectLocal.bridgeInterface",
	"pod-interface-name-prefix": "detectLocal.interfaceNamePrefix", "kube-api-qps": "clientConnection.qps",
	"kube-api-burst":               "clientConnection.burst",
	"iptables-localhost-nodeports": "iptables.localhostNodePorts", "iptables-masquerade-bit": "iptables.masqueradeBit",
	"ipvs-strict-arp": "ipvs.strictARP", "ipvs-scheduler": "ipvs.scheduler",
	"ipvs-exclude-cidrs": "ipvs.excludeCIDRs" + ListMark, "ipvs-tcp-timeout": "ipvs.tcpTimeout",
	"ipvs-tcpfin-timeout": "ipvs.tcpFinTimeout", "ipvs-udp-timeout": "ipvs.udpTimeout",
	"conntrack-max-per-core": "conntrack.maxPerCore", "conntrack-min": "conntrack.min",
	"conntrack-tcp-be-liberal":          "conntrack.tcpBeLiberal",
	"conntrack-tcp-timeout-established": "conntrack.tcpEstablishedTimeout",
	"conntrack-tcp-timeout-close-wait":  "conntrack.tcpCloseWaitTimeout",
	"conntrack-udp-timeout":             "conntrack.udpTimeout",
	"conntrack-udp-timeout-stream":      "conntrack.udpStreamTimeout",
	"config-sync-period":                "configSyncPeriod", "oom-score-adj": "oomScoreAdj",
}

// StaysProxyArgument reports whether kube-proxy takes an argument beside a configuration: those of its log go over it.
func StaysProxyArgument(name string) bool {
	return slices.Contains([]string{"v", "vmodule", "logging-format", "log-flush-frequency"}, name)
}

// unifyProxy puts the arguments of a kube-proxy without a configuration file where that file has them. What the file
// says of a mode goes over the document's own key.
func unifyProxy(config answers) {
	proxy := under(config, "K8sProxyConfig")
	if proxy == nil {
		return
	}

	if proxy["UseConfigFile"] == "false" {
		settings := answers{}

		for name := range under(proxy, "ExtraArgs") {
			key, isList := strings.CutSuffix(ProxySettings[name], ListMark)
			if value, isSingle := single(under(proxy, "ExtraArgs"), name); isSingle && key != "" {
				place(settings, key, asList(value, isList))
				dropKey(proxy, "ExtraArgs", name)
			}
		}

		if len(settings) > 0 {
			proxy["Config"] = settings
		}
	}

	if mode, ok := under(proxy, "Config")["mode"]; ok {
		proxy["Mode"] = mode
		dropKey(proxy, "Config", "mode")
	}

	delete(proxy, "UseConfigFile")
}

// asList is a value, or its items.
func asList(value string, isList bool) any {
	if !isList {
		return value
	}

	var items []any
	for item := range strings.SplitSeq(value, ",") {
		items = append(items, item)
	}

	return items
}
