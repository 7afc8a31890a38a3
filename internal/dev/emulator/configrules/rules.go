// Package configrules loads and validates machine configs as each release of Talos does. Machinery knows the rules of
// its own release alone; what others say differently is here.
package configrules

import (
	"context"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/hashicorp/go-multierror"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

// Rules are what one line of releases makes of machine configs.
type Rules struct {
	// unknown are what later releases brought.
	unknown []later
	// emptyDocumentsFail reports whether a document without content is an error; otherwise it is skipped.
	emptyDocumentsFail bool
	// bareRefusals reports whether what is unknown is refused without naming its document.
	bareRefusals bool
	// older reports whether these are the rules before Talos 1.14, whose loader and validation machinery has no more.
	older bool
}

// The rules of the lines that can be played.
var (
	Talos112 = &Rules{unknown: []later{since113, since114}, emptyDocumentsFail: true, bareRefusals: true, older: true}
	Talos113 = &Rules{unknown: []later{since114}, older: true}
	Talos114 = &Rules{}
)

// Machine is what a machine config is for.
type Machine struct {
	// Version is the Talos version that it runs, as in "v1.13.9".
	Version string
	Mode    validation.RuntimeMode
	// Resources are what it shows of itself.
	Resources state.State
	// UKI reports whether it was booted from a unified kernel image. Machinery asks the system that it runs on.
	UKI bool
}

// Validate checks a machine config by itself.
func (r *Rules) Validate(provider talosconfig.Provider, mode validation.RuntimeMode) ([]string, error) {
	if !r.older {
		return provider.ValidateAsClient(mode)
	}

	warnings, err := provider.ValidateAsClient(mode, validation.WithLocal())

	return withoutLaterWarnings(warnings), olderProblems(err, provider, mode)
}

// RuntimeValidate checks a machine config against a machine.
func (r *Rules) RuntimeValidate(ctx context.Context, machine Machine, provider talosconfig.Provider) ([]string, error) {
	warnings, err := provider.RuntimeValidate(ctx, machine.Resources, machine.Mode) //nolint:staticcheck // Validate alone

	config := provider.RawV1Alpha1()
	if machine.UKI && config != nil && len(config.Machine().Install().ExtraKernelArgs()) > 0 {
		warnings = append([]string{"extra kernel arguments are not supported when booting using SDBoot"}, warnings...)
	}

	if r.older {
		err = addToMain(err, kubernetesProblems(config, machine.Version))
	}

	return warnings, err
}

// ValidateAtRuntime does both. Talos 1.14 tells the problems of both at once; older releases those of the second only
// if the first found none.
func (r *Rules) ValidateAtRuntime(ctx context.Context, machine Machine,
	provider talosconfig.Provider) ([]string, error) {
	warnings, err := r.Validate(provider, machine.Mode)
	if err != nil && r.older {
		return nil, err
	}

	more, runtimeErr := r.RuntimeValidate(ctx, machine, provider)

	return append(warnings, more...), multierror.Append(nil, err, runtimeErr).ErrorOrNil()
}
