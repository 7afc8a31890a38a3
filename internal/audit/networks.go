package audit

// Checks of networks.
var networkChecks = []Check{}
