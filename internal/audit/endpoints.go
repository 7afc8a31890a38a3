package audit

// Checks of endpoints.
var endpointChecks = []Check{}
