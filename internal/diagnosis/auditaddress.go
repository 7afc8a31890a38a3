package diagnosis

// What the audit finds about addresses: TM200 to TM214.
const (
	GatewayOutside ID = "TM200"
)

var addressEntries = []Entry{
	{
		ID: GatewayOutside, Title: "A gateway is in no subnet of its link", Severity: Failure, Exit: ExitBadInput,
		Cause:  "The kernel refuses a route through a next hop that the link does not reach: the node has no way out of its network.",
		Remedy: "Correct the gateway or the prefix length of the link's address.",
		Source: "siderolabs/talos internal/app/machined/pkg/controllers/network/route_spec.go; Linux ip-route(8)",
	},
}
