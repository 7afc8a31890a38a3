package diagnosis

// ExitCode is the process's exit code; scripts and CI rely on the numbers.
type ExitCode int

// Exit codes. ExitCodes holds what each means.
const (
	ExitOK         ExitCode = 0
	ExitUnexpected ExitCode = 1
	ExitBadInput   ExitCode = 2
	ExitPreflight  ExitCode = 3
	ExitApply      ExitCode = 4
	ExitVerify     ExitCode = 5
	ExitBootstrap  ExitCode = 6
	ExitKubernetes ExitCode = 7
	ExitDryRun     ExitCode = 8
	ExitInterrupt  ExitCode = 130
	ExitTerminated ExitCode = 143
)

// ExitMeaning pairs a code with its meaning; the documentation's table is made from these.
type ExitMeaning struct {
	Code    ExitCode
	Meaning string
}

// ExitCodes lists every code the program ends with, in order.
func ExitCodes() []ExitMeaning {
	return []ExitMeaning{
		{ExitOK, "done, or nothing to do"},
		{ExitUnexpected, "unexpected error"},
		{ExitBadInput, "bad input: decided by settings and files alone, whichever step finds it"},
		{ExitPreflight, "preflight found a node or a cluster that can't proceed (it needed a node's answer), or another " +
			"run holds the lock"},
		{ExitApply, "apply failed on at least one node"},
		{ExitVerify, "verify: a node is stuck, or its install failed"},
		{ExitBootstrap, "bootstrap or etcd failed, or bootstrap was refused"},
		{ExitKubernetes, "the Kubernetes API or the cluster's health did not come up"},
		{ExitDryRun, "dry run: changes would be made"},
		{ExitInterrupt, "stopped by SIGINT, after telling what was done and how to go on"},
		{ExitTerminated, "stopped by SIGTERM, after telling what was done and how to go on"},
	}
}
