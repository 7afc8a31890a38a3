package api

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errAgent is the answer of an agent to what would make the machine a node.
var errAgent = status.Error(codes.Unimplemented, "API is not implemented in agent mode")

// platformMode is how a machine runs Talos, as Version tells it.
func platformMode(agent bool) string {
	if agent {
		return "metal-agent"
	}

	return "metal"
}
