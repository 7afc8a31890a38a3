//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package held

import "os"

const locks = false

// lock never gets one: whether somebody else holds the file can't be told.
func lock(*os.File, bool) bool { return false }
