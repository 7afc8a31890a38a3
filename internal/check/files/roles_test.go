package files_test

import (
	"testing"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

func TestControlPlanesAndQuorum(t *testing.T) {
	t.Parallel()

	worker := config{role: "worker"}

	judge(t, diagnosis.SingleControlPlane, map[string]trial{
		"one of three": {files: lab(config{}, worker, worker), at: "talconfig.yaml", line: "controlPlane: true",
			cause: "one of 3 nodes is a control plane", severity: diagnosis.Warning},
		"last":       {files: lab(worker, worker, worker, config{}), at: "talconfig.yaml", cause: "one of 4 nodes"},
		"one of two": {files: lab(config{}, worker)},
		"three":      {files: lab(config{}, config{}, config{})},
	})

	judge(t, diagnosis.NoControlPlane, map[string]trial{
		"workers": {files: lab(worker, worker), at: "talconfig.yaml", line: "nodes:", cause: "all 2 nodes are workers",
			severity: diagnosis.Warning},
		"one": {files: lab(config{}, worker)},
	})

	scheduling := config{cluster: "allowSchedulingOnControlPlanes: true"}

	judge(t, diagnosis.NowhereToSchedule, map[string]trial{
		"unset": {files: lab(config{}, config{}, config{}),
			cause: "there is no worker, and none of 3 control planes takes pods", severity: diagnosis.Warning},
		"no": {files: lab(config{cluster: "allowSchedulingOnControlPlanes: false"}),
			line: "allowSchedulingOnControlPlanes: false", cause: "none of 1 control planes"},
		"yes":    {files: lab(scheduling)},
		"one":    {files: lab(config{}, scheduling)},
		"worker": {files: lab(config{}, worker)},
	})

	judge(t, diagnosis.SchedulingVaries, map[string]trial{
		"second": {files: lab(config{}, scheduling), line: "allowSchedulingOnControlPlanes: true",
			cause: "n2 takes pods, and n1 takes no pods", severity: diagnosis.Warning},
		"third": {files: lab(scheduling, scheduling, config{}), cause: "n3 takes no pods"},
		"alike": {files: lab(scheduling, scheduling, worker)},
	})

	initial := config{role: "init"}

	judge(t, diagnosis.EtcdStartsTwice, map[string]trial{
		"two": {files: lab(initial, initial), line: "type: init", cause: "n1 starts etcd by itself",
			severity: diagnosis.Failure},
		"one":     {files: lab(initial, config{}), line: "type: init", cause: "n1", severity: diagnosis.Warning},
		"nowhere": {files: lab(config{}, config{}, worker)},
	})
}

// gated is a node of a role whose kubelet and API server have these gates; an empty one is not set.
func gated(role, kubelet, written, server string) config {
	made := config{role: role}

	if kubelet+written != "" {
		made.machine = "kubelet:"
	}

	if kubelet != "" {
		made.machine += "\n\textraArgs:\n\t\tfeature-gates: " + kubelet
	}

	if written != "" {
		made.machine += "\n\textraConfig:\n\t\tfeatureGates:\n\t\t\t" + written
	}

	if server != "" {
		made.cluster = "apiServer:\n\textraArgs:\n\t\tfeature-gates: " + server
	}

	return made
}

func TestFeatureGates(t *testing.T) {
	t.Parallel()

	old := func(made files) files {
		return made.replaced("talconfig.yaml", "kubernetesVersion: v1.36.0", "kubernetesVersion: v1.34.1")
	}

	judge(t, diagnosis.FeatureGatesDisagree, map[string]trial{
		"both set": {files: lab(gated("", "A=true,ImageVolume=true", "", "ImageVolume=false")),
			line: "feature-gates: A=true,ImageVolume=true",
			cause: "ImageVolume is enabled in the kubelet of n1, and disabled in the API server of n1 " +
				"(clusterconfig/lab-n1.yaml", severity: diagnosis.Warning},
		"configuration": {files: lab(gated("", "", "Unheard: false", "Unheard=true")), line: "Unheard: false",
			cause: "Unheard is disabled in the kubelet"},
		"worker": {files: lab(gated("", "", "", "ImageVolume=true"), gated("worker", "ImageVolume=false", "", "")),
			cause: "kubelet of n2"},
		"kubelet alone": {files: old(lab(gated("", "", "ImageVolume: true", ""))), line: "ImageVolume: true",
			cause: "the API server of n1 does not set it"},
		"server alone": {files: old(lab(gated("", "", "", "ImageVolume=true"), config{role: "worker"})),
			line: "feature-gates: ImageVolume=true", cause: "the kubelets of n1, n2 do not set it"},
		"one worker lacks": {files: old(lab(gated("", "ImageVolume=true", "", "ImageVolume=true"), config{role: "worker"})),
			cause: "the kubelets of n2 do not"},
		"agree": {files: old(lab(gated("", "ImageVolume=true", "", "ImageVolume=true"),
			gated("worker", "", "ImageVolume: true", "")))},
		"on by default":  {files: lab(gated("", "", "ImageVolume: true", ""))},
		"one side's own": {files: old(lab(gated("", "NodeSwap=true", "", "AnonymousAuthConfigurableEndpoints=true")))},
		"none":           {files: lab(config{}, config{role: "worker"})},
	})

	judge(t, diagnosis.FeatureGateTwice, map[string]trial{
		"differs": {files: lab(gated("worker", "ImageVolume=false", "ImageVolume: true", "")), line: "ImageVolume: true",
			cause: "ImageVolume is enabled here, and disabled in extraArgs", severity: diagnosis.Warning},
		"of many":   {files: lab(gated("", "A=true, B=true", "B: false", "")), cause: "B is disabled here"},
		"the same":  {files: lab(gated("", "ImageVolume=true", "ImageVolume: true", ""))},
		"different": {files: lab(gated("", "A=true", "B: false", ""))},
	})

	judge(t, diagnosis.FeatureGatesVary, map[string]trial{
		"value": {files: lab(gated("", "", "", "A=true"), gated("", "", "", "A=false")), line: "feature-gates: A=false",
			cause: "A is disabled on n2, and enabled on n1", severity: diagnosis.Warning},
		"missing": {files: lab(gated("", "", "", "A=true"), config{}), cause: "A is not set on n2, and enabled on n1"},
		"more": {files: lab(config{}, gated("", "", "", "A=true")), line: "feature-gates: A=true",
			cause: "A is enabled on n2, and not set on n1"},
		"alike": {files: lab(gated("", "", "", "A=true"), gated("", "", "", "A=true"), config{role: "worker"})},
	})
}
