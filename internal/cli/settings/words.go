package settings

import "strings"

// argumentOf is what the word after a target sets; "" for a word that is no setting.
var argumentOf = map[string]string{
	"applyNode":         "<address>",
	"etcd:recover":      "<file>",
	"etcd:removeMember": "<id>",
	"explain":           "",
	"replaceNode":       "<node>",
	"upgradeNode":       "<address>",
}

// Call is a target that a command line names, with the settings that it is given.
type Call struct {
	Target string
	Given  Overrides
}

// AliasIn is what a command line of Mage's has before this target: "up:" in a magefile that imports it under the alias
// up, and usually nothing. Targets of the same name, without it, are the magefile's own.
func AliasIn(words []string, target string) string {
	alias := ""

	for _, word := range words {
		before := len(word) - len(target)

		switch {
		case before < 0 || strings.HasPrefix(word, "-") || !strings.EqualFold(word[before:], target):
		case before == 0:
			return ""
		case word[before-1] == ':':
			alias = word[:before]
		}
	}

	return alias
}

// CallsIn are the calls of these targets, imported under an alias or not, on a whole command line of Mage's, which
// itself looks at one after the other. Words that mean nothing here are somebody else's to judge.
func CallsIn(words []string, alias string, targets []string) []Call {
	var calls []Call

	for i := 0; i < len(words); i++ {
		name, ours := strings.CutPrefix(words[i], alias)
		target := sameName(name, targets)

		if !ours || target == "" {
			continue
		}

		call := Call{target, Overrides{}}

		if setting, takes := argumentOf[target]; takes && i+1 < len(words) {
			i++
			call.give(setting, words[i])
		}

		for i+1 < len(words) && strings.HasPrefix(words[i+1], "-") {
			i++
			call.giveFlag(words[i])
		}

		calls = append(calls, call)
	}

	return calls
}

// NamesNodes reports whether the call names nodes, or the cluster.
func (c Call) NamesNodes() bool {
	for _, name := range []string{"node", "<address>", "<node>", "cluster", "bootstrapNode", "assumeEmpty", "destroyed"} {
		if c.Given[name] != "" {
			return true
		}
	}

	return false
}

// give sets what is a setting.
func (c Call) give(name, value string) {
	if _, known := OfFlag(name); known {
		c.Given[name] = value
	}
}

// giveFlag reads "-name=value"; a switch needs no value.
func (c Call) giveFlag(word string) {
	typed, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if !hasValue {
		value = "true"
	}

	var flags []string
	for _, knob := range Table() {
		flags = append(flags, knob.Flag)
	}

	c.give(sameName(typed, flags), value)
}

// sameName is the one of some names that a word is, in any case; empty if it is none.
func sameName(word string, names []string) string {
	for _, name := range names {
		if strings.EqualFold(name, word) {
			return name
		}
	}

	return ""
}
