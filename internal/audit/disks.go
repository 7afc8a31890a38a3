package audit

// Checks of disks.
var diskChecks = []Check{}
