package report

import (
	"os"

	"golang.org/x/sys/windows"
)

// understandsCodes has a console of Windows obey the codes that move its cursor and colour text; those before Windows 10
// do not know them.
func understandsCodes(terminal *os.File) bool {
	var mode uint32

	console := windows.Handle(terminal.Fd())
	if err := windows.GetConsoleMode(console, &mode); err != nil {
		return false
	}

	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
