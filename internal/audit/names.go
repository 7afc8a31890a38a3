package audit

// Checks of names.
var nameChecks = []Check{}
