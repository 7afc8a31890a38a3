//go:build !windows

package report

import "os"

// understandsCodes reports whether a terminal obeys the codes that move its cursor and colour text.
func understandsCodes(*os.File) bool { return true }
