// Package emulator is a Talos node that runs in this process: the real API types, TLS and resource state on a loopback
// address, with none of the machine below. docs/node-behaviour.md lists what it promises to do like a node, claim by
// claim.
//
// A [Lab] holds the machines of a test or a rehearsal. Each [Node] in it goes through boots like a machine does: it
// starts in maintenance mode, takes a machine config, installs, reboots, and runs; its disk outlives its boots and its
// faults are knobs.
package emulator
