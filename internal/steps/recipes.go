package steps

import "github.com/talos-mage/talos-mage/internal/cli/settings"

// Talos is the whole bring-up, in order. A step that is not essential does not end it: the nodes that failed are left
// out and named.
func Talos(settings *settings.Settings) []Step {
	parallel := settings.ApplyMode == "parallel"
	return Located( // with -discover: first of all the machines are searched for
		Secrets{},                             // only if there are none, and no node may belong to a cluster already
		Configs{},                             // files of nodes that have none
		Preflight{InRecipe: true},             // ends the recipe before anything is sent
		Apply{Parallel: parallel},             // control planes first; silent nodes at the end
		Verify{},                              // control planes are up, workers on their way
		Bootstrap{},                           // exactly once
		Kubeconfig{},                          // and the talosconfig's endpoints
		Apply{Parallel: parallel, Late: true}, // workers that could not answer before bootstrap
		VerifyWorkers{},                       // up, and registered in Kubernetes
	)(settings)
}
