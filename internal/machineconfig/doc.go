// Package machineconfig loads, validates, reads, compares and generates Talos machine configs.
//
// A machine config holds the cluster's root of trust. Nothing that this package returns for people to read, be it a
// diff, an error or a warning, carries a secret: what is shown goes through Mask.
package machineconfig
