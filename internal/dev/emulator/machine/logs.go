package machine

import (
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	runtimeres "github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-mage/talos-mage/internal/dev/emulator/faults"
)

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

// sayWhatItIsToSay says what faults make the machine say, and shows what they have it find.
func (b *Boot) sayWhatItIsToSay() {
	var (
		said  []faults.Saying
		shown []resource.Resource
	)

	for {
		changed := b.Node.changed.Wait()
		now := b.Node.Faults()

		for _, saying := range now.Says {
			if !slices.Contains(said, saying) && b.say(saying) {
				said = append(said, saying)
			}
		}

		finds := findings(now)

		for _, former := range shown {
			if !slices.ContainsFunc(finds, func(found resource.Resource) bool {
				return found.Metadata().Type() == former.Metadata().Type() && found.Metadata().ID() == former.Metadata().ID()
			}) {
				b.Resources.remove(former)
			}
		}

		for _, found := range finds {
			b.Resources.put(found)
		}

		shown = finds

		select {
		case <-b.Context.Done():
			return
		case <-changed:
		}
	}
}

// findings are what faults have a machine find.
func findings(now faults.Faults) []resource.Resource {
	var found []resource.Resource

	for _, diagnostic := range now.Diagnostics {
		found = append(found, diagnosticOf(diagnostic))
	}

	for _, failed := range now.FailedVolumes {
		volume := block.NewVolumeStatus(block.NamespaceName, failed.ID)
		volume.TypedSpec().Phase, volume.TypedSpec().ErrorMessage = block.VolumePhaseFailed, failed.Message
		found = append(found, volume)
	}

	return found
}

func diagnosticOf(found faults.Diagnostic) *runtimeres.Diagnostic {
	diagnostic := runtimeres.NewDiagnostic(runtimeres.NamespaceName, found.ID)
	diagnostic.TypedSpec().Message, diagnostic.TypedSpec().Details = found.Message, found.Details

	return diagnostic
}

// say says a line, unless it is about a service that is not there yet.
func (b *Boot) say(saying faults.Saying) bool {
	switch {
	case saying.Service == "":
		b.printLine("kern: err", saying.Line)
	case saying.History:
		return b.Services.Remark(saying.Service, saying.Line)
	default:
		b.Services.LogOf(saying.Service).Add(saying.Line)
	}

	return true
}
