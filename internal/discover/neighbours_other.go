//go:build !linux

package discover

import (
	"errors"
	"net/netip"
)

// neighbours can't be listed: each system keeps them in another way.
func neighbours() ([]netip.Addr, error) {
	return nil, errors.New("only Linux is asked for it: name the addresses, or ranges of them, with -cidr")
}
