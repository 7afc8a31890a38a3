package machine

import "fmt"

// Log writes a line to the kernel log, as everything that machined says.
func (b *Boot) Log(format string, values ...any) {
	b.printLine("user: warning", "[talos] "+fmt.Sprintf(format, values...))
}

func (b *Boot) printLine(facility, text string) {
	now := b.Now()
	line := fmt.Sprintf("%s: [%s]: %s", facility, now.UTC().Format("2006-01-02T15:04:05.000000000Z"), text)

	b.KernelLog.Add(line)
	b.Node.Lab.options.Logger.Debug().Str("node", b.Node.options.Name).Msg(text)
}
