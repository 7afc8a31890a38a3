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
