package steps

import "github.com/talos-mage/talos-mage/internal/cli/settings"

// Talos is the whole bring-up, in order. A step that is not essential does not end it: the nodes that failed are left
// out and named.
func Talos(settings *settings.Settings) []Step {
	return Located(BringUp(settings)...)(settings) // with -discover: first of all the machines are searched for
}

// BringUp are the steps of Talos for machines that are where the files say.
func BringUp(settings *settings.Settings) []Step {
	apply := Applied(settings)
	late := apply
	late.Late = true

	return []Step{
		Secrets{},                 // only if there are none, and no node may belong to a cluster already
		Configs{},                 // files of nodes that have none
		Preflight{InRecipe: true}, // ends the recipe before anything is sent
		apply,                     // control planes first; silent nodes at the end
		Verify{},                  // control planes are up, workers on their way
		Bootstrap{},               // exactly once
		Kubeconfig{},              // and the talosconfig's endpoints
		late,                      // workers that could not answer before bootstrap
		VerifyWorkers{},           // up, and registered in Kubernetes
	}
}

// Applied is the step in the mode that is set.
func Applied(settings *settings.Settings) Apply {
	return Apply{Parallel: settings.ApplyMode == "parallel"}
}
