// Package network is what emulated machines are connected with: network cards whose ports can be refused, fall silent or
// freeze, and the addresses of a lab.
package network
