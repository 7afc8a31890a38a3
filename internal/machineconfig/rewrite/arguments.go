package rewrite

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/yamltree"
	"github.com/talos-mage/talos-mage/internal/machineconfig/equal"
	"github.com/talos-mage/talos-mage/internal/machineconfig/successor"
)

// argument is one of a component, as it stands in a mapping of them.
type argument struct{ key, value *yaml.Node }

// arguments are those of a field.
type arguments []argument

func argumentsOf(mapping *yaml.Node) arguments {
	var all arguments

	for i := 0; i+1 < len(mapping.Content) && mapping.Kind == yaml.MappingNode; i += 2 {
		all = append(all, argument{mapping.Content[i], mapping.Content[i+1]})
	}

	return all
}

// named is the argument of a name; its key is nil if there is none.
func (a arguments) named(name string) argument {
	for _, one := range a {
		if one.key.Value == name {
			return one
		}
	}

	return argument{}
}

func (a argument) text() string { return yamltree.Text(a.value) }

// apiServerArguments moves the arguments: those that other documents own to these.
func apiServerArguments(m *moving) verdict {
	all := argumentsOf(m.Value)

	for _, one := range all {
		if why := undecided(one, all); why != "" {
			return decide(why)
		}
	}

	made := false

	for _, one := range all {
		switch name := one.key.Value; {
		case name == "anonymous-auth":
			m.anonymous(one)
		case name == "oidc-issuer-url":
			m.authenticator(all)
		case owner(name) != "":
			continue
		default:
			m.document("").keys.setKey(m.Key, name, m.piece(one.key, one.value))
		}

		made = true
	}

	switch {
	case made:
		return movedTo(m.Place())
	case len(all) > 0:
		return taken("Node and RBAC authorize in any case")
	default:
		return m.as("")
	}
}

// owner is the kind of the document that says what an argument of the API server said; empty if it stays one.
func owner(argument string) string {
	switch {
	case argument == "anonymous-auth", argument == "authentication-config", strings.HasPrefix(argument, "oidc-"):
		return "KubeAuthenticationConfig"
	case argument == "authorization-config", argument == "authorization-mode",
		strings.HasPrefix(argument, "authorization-webhook-"):
		return "KubeAuthorizerConfig"
	default:
		return ""
	}
}

// undecided is why a person has to move an argument; empty if it moves by itself.
func undecided(one argument, all arguments) string {
	name := one.key.Value
	byHand := "the argument " + name + " belongs to " + owner(name) + ": "
	isText := one.value.Kind == yaml.ScalarNode && !strings.Contains(one.value.Value, "\n")

	switch {
	case owner(name) == "":
		return ""
	case name == "oidc-ca-file":
		return byHand + "no file of the machine is read any more. Write the document by hand, with the PEM text of " +
			"that one as configuration.jwt[0].issuer.certificateAuthority, then take the oidc- arguments out"
	case name == "oidc-signing-algs":
		return byHand + "no key says it, and tokens may be signed by any asymmetric algorithm. Take it out if they may"
	case strings.HasPrefix(name, "oidc-") && (all.named("oidc-issuer-url").text() == "" ||
		all.named("oidc-client-id").text() == ""):
		return byHand + "write it beside oidc-issuer-url and oidc-client-id, in the same patch"
	case name == "oidc-required-claim" && len(requiredClaims(one.value)) == 0, name != "oidc-required-claim" && !isText:
		return byHand + "write it there, then take it out"
	case name == "authorization-mode" && equal.AuthorizesAnyway(one.text()), name == "anonymous-auth",
		strings.HasPrefix(name, "oidc-"):
		return ""
	case name == "authorization-mode":
		return byHand + "write a document for each authorizer that is not Node or RBAC, then take it out"
	default:
		return byHand + "no file of the machine is read any more. Write what it says there, then take it out"
	}
}

// anonymous says who may ask without a name. Where nobody may, neither may the kubelet's probes.
func (m *moving) anonymous(one argument) {
	m.other("KubeAuthenticationConfig").keys.set("configuration.anonymous.enabled", m.unquoted(one.key, one.value))

	if allowed, isSwitch := isTrue(one.value); isSwitch && !allowed && m.builder.options.NewDefaults {
		m.document("").keys.set("startupProbes", literal("false # probes are anonymous calls"))
	}
}

// authenticator is what the API server makes of its oidc- arguments, as its configuration has it. Talos replaces the
// whole configuration by that of a patch, so that it has to say who may ask without a name, too.
func (m *moving) authenticator(all arguments) {
	issuer, client := all.named("oidc-issuer-url"), all.named("oidc-client-id")
	item := &branch{}

	item.set("issuer.url", m.word(issuer))
	item.set("issuer.audiences", fragment{below: []string{"  -" + m.word(client).rest}})

	for _, claim := range []string{"username", "groups"} {
		if claim == "username" || all.named("oidc-groups-claim").key != nil {
			m.claim(item, all, claim)
		}
	}

	if required := all.named("oidc-required-claim"); required.key != nil {
		var rules []string

		for _, one := range requiredClaims(required.value) {
			rules = append(rules, "  - claim:"+plain(one[0]).rest, "    requiredValue:"+plain(one[1]).rest)
		}

		item.set("claimValidationRules", fragment{below: rules})
	}

	list := fragment{}

	for _, one := range item.branches {
		list.below = append(list.below, one.lines("    ")...)
	}

	list.below[0] = "  - " + strings.TrimSpace(list.below[0])

	document := m.other("KubeAuthenticationConfig")
	document.comments = append(document.comments,
		"# Tokens may be signed by any asymmetric algorithm here; oidc-signing-algs has no successor.")
	document.keys.set("configuration.jwt", list)

	if all.named("anonymous-auth").key != nil {
		return
	}

	if m.builder.options.NewDefaults {
		document.keys.set("configuration.anonymous.enabled", literal("true"))
		document.keys.set("configuration.anonymous.conditions",
			fragment{below: []string{"  - path: /livez", "  - path: /readyz", "  - path: /healthz"}})
	} else {
		document.keys.set("configuration.anonymous.enabled", literal("false"))
	}
}

// claim is the mapping of a claim to names, with their prefix. A prefix that is empty is one, too.
func (m *moving) claim(item *branch, all arguments, name string) {
	claim, prefix := all.named("oidc-"+name+"-claim"), all.named("oidc-"+name+"-prefix")
	keys := "claimMappings." + name

	if claim.key != nil {
		item.set(keys+".claim", m.word(claim))
	} else {
		item.set(keys+".claim", plain(equal.DefaultClaim))
	}

	whole := equal.ClaimPrefix(name, prefix.text(), claim.text(), all.named("oidc-issuer-url").text())
	if prefix.key != nil && whole == prefix.text() {
		item.set(keys+".prefix", m.word(prefix))
	} else {
		item.set(keys+".prefix", plain(whole))
	}
}

// requiredClaims are the claims of an argument with what they have to be; nil if it can't be read.
func requiredClaims(value *yaml.Node) [][2]string {
	nodes := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		nodes = value.Content
	}

	var claims [][2]string

	for _, node := range nodes {
		claim, required, isPair := strings.Cut(yamltree.Text(node), "=")
		if !isPair {
			return nil
		}

		claims = append(claims, [2]string{claim, required})
	}

	return claims
}

// word is an argument's value where only texts are taken.
func (m *moving) word(one argument) fragment {
	if one.value.ShortTag() != "!!str" {
		return plain(one.text())
	}

	return m.piece(one.key, one.value)
}

// unquoted is a value whose text is a switch or a number where it goes.
func (m *moving) unquoted(key, value *yaml.Node) fragment {
	moved := m.piece(key, value)
	moved.rest = strings.NewReplacer(`"`, "", `'`, "").Replace(moved.rest)

	return moved
}

// proxyArguments are keys of kube-proxy's configuration now, which the arguments have no effect beside, but for those
// of its log.
func proxyArguments(m *moving) verdict {
	if m.Value.Kind != yaml.MappingNode || successor.Deletes(m.Value) {
		return decide("write what it sets as the keys of kube-proxy's configuration, under config of " + m.Kind)
	}

	all := argumentsOf(m.Value)

	for _, one := range all {
		if name := one.key.Value; one.value.Kind != yaml.ScalarNode || equal.ProxySettings[name] == "" &&
			!equal.StaysProxyArgument(name) {
			return decide("the argument " + name + " has no effect beside a configuration: write it as a key of that, under " +
				"config of " + m.Kind)
		}
	}

	for _, one := range all {
		setting, isList := strings.CutSuffix(equal.ProxySettings[one.key.Value], equal.ListMark)

		switch keys := &m.document("").keys; {
		case setting == "":
			keys.setKey("extraArgs", one.key.Value, m.piece(one.key, one.value))
		case setting == "mode":
			keys.set("mode", m.piece(one.key, one.value))
		case isList:
			list := fragment{comments: m.piece(one.key, one.value).comments}
			for item := range strings.SplitSeq(one.text(), ",") {
				list.below = append(list.below, "  -"+plain(item).rest)
			}

			keys.set("config."+setting, list)
		default:
			keys.set("config."+setting, m.unquoted(one.key, one.value))
		}
	}

	return movedTo(m.Place())
}
