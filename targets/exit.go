package targets

import (
	"context"
	"fmt"

	"github.com/magefile/mage/mg"

	"github.com/talos-mage/talos-mage/internal/cli/invocation"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
	"github.com/talos-mage/talos-mage/internal/steps"
)

// overrides are a target's flags by name; the ones that were not given are nil pointers.
type overrides map[string]any

// set leaves out the flags that were not given.
func (o overrides) set() settings.Overrides {
	given := make(settings.Overrides)
	for name, value := range o {
		switch value := value.(type) {
		case *string:
			if value != nil {
				given[name] = *value
			}
		case *bool:
			if value != nil {
				given[name] = fmt.Sprint(*value)
			}
		}
	}

	return given
}

func execute(ctx context.Context, target string, flags overrides, list func(*settings.Settings) []steps.Step) error {
	return exit(invocation.FromProcess(target).Execute(ctx, target, flags.set(), list))
}

// exit hands the code to Mage, which keeps it only for an unwrapped mg.Fatal.
func exit(failure *invocation.Failure) error {
	if failure == nil {
		return nil
	}

	return mg.Fatal(int(failure.Code), failure.Message)
}
