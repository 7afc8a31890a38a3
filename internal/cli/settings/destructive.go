package settings

import (
	"fmt"

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
		return diagnosis.NewProblem(diagnosis.ObjectMissing, fmt.Sprintf("%s has %s and %s, which is all nodes", target,
			s.NameOf("NODE"), s.NameOf("-cluster")),
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

// has reports whether a flag was given.
func (s *Settings) has(flag string) bool {
	_, given := s.given[flag]

	return given
}
