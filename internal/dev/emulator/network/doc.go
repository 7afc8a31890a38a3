// Package network connects emulated machines: cards whose ports can be refused, fall silent or freeze, and the
// addresses of a lab.
package network
