package talos

// Opened for tests: what needs another operating system or a node's texts, and no connection.
var (
	Scrub            = scrub
	Problems         = problems
	LocalNetworkHint = localNetworkHint
	UnpackKubeconfig = unpackKubeconfig
	ReadEvent        = readEvent
)
