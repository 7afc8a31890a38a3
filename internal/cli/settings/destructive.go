package settings

import (
	"strings"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// destructive are the targets that may lose data. All of them take -yes: somebody has to agree. Where it is true, the
// command line has to say which nodes the target is for as well: -node= or -cluster=.
var destructive = map[string]bool{
	"reset":        true,
	"upgrade":      true,
	"upgradeNode":  false,
	"etcd:recover": false,
}

// withArgument are those of them whose flags come after an argument.
var withArgument = map[string]bool{"upgradeNode": true, "etcd:recover": true}

// MayLoseData reports whether a target may.
func MayLoseData(target string) bool {
	_, known := destructive[target]

	return known
}

// RefuseUnasked refuses a target that may lose data, unless the command line says what it is for and somebody can agree
// to the loss: a person at a terminal, or -yes. In a dry run nothing is lost.
func (s *Settings) RefuseUnasked(target string, terminal bool) error {
	needsObject, known := destructive[target]
	nodes := s.has("node") && len(s.Node) > 0
	cluster := s.has("cluster") && s.OfCluster != ""

	switch {
	case !known:
		return nil
	case needsObject && nodes && cluster:
		return diagnosis.NewProblem(diagnosis.ObjectMissing, target+" has -node and -cluster, which is all nodes",
			"leave one of them out").In(stepName)
	case needsObject && !nodes && !cluster:
		return diagnosis.NewProblem(diagnosis.ObjectMissing, target+" has to be told which nodes it is for",
			"mage "+target+" -node=<node>, or -cluster=<its name> for all of them").In(stepName)
	case !terminal && !s.Yes && !s.DryRun:
		return diagnosis.NewProblem(diagnosis.NotAgreed,
			target+" may lose data, and nobody can be asked: there is no terminal",
			"see what would be lost with -dryRun; -yes agrees to it").In(stepName)
	default:
		return nil
	}
}

// RefuseUnaskedIn is RefuseUnasked for a whole command line of Mage's, before any of its targets runs. Words that mean
// nothing here are somebody else's to judge.
func RefuseUnaskedIn(words, environ []string, terminal bool) error {
	for i, word := range words {
		target := destructiveTarget(word)
		if target == "" {
			continue
		}

		after := words[i+1:]
		if withArgument[target] && len(after) > 0 {
			after = after[1:]
		}

		loaded, err := Load(environ, flagsAfter(after), ".")
		if err != nil {
			return err
		}

		if err := loaded.RefuseUnasked(target, terminal); err != nil {
			return err
		}
	}

	return nil
}

// has reports whether a flag was given.
func (s *Settings) has(flag string) bool {
	_, given := s.given[flag]

	return given
}

// destructiveTarget is the target that a word names, in any case, if it may lose data; empty if not.
func destructiveTarget(word string) string {
	for target := range destructive {
		if strings.EqualFold(target, word) {
			return target
		}
	}

	return ""
}

// flagsAfter are those of a target's flags that say what it may lose.
func flagsAfter(words []string) Overrides {
	given := Overrides{}
	for _, word := range words {
		if !strings.HasPrefix(word, "-") {
			break
		}

		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !hasValue {
			value = "true"
		}

		for _, flag := range []string{"node", "cluster", "yes", "dryRun"} {
			if strings.EqualFold(flag, name) {
				given[flag] = value
			}
		}
	}

	return given
}
