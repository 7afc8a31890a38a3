package audit

// Checks of interfaces.
var interfaceChecks = []Check{}
