package gate

import (
	"context"

	"github.com/talos-mage/talos-mage/internal/base/program"
)

// RunProgram has a program of the user's change something, such as what Kubernetes holds.
func (g Gate) RunProgram(ctx context.Context, programs program.Runner, input []byte, name string,
	arguments ...string) error {
	return g.pass(func() error {
		_, err := programs.Run(ctx, input, name, arguments...)
		return err //nolint:wrapcheck // what it says is the caller's to judge
	})
}

// FollowProgram is RunProgram for a program that takes long: each line that it prints is told as it comes.
func (g Gate) FollowProgram(ctx context.Context, programs program.Runner, told func(line string), name string,
	arguments ...string) error {
	//nolint:wrapcheck // what it says is the caller's to judge
	return g.pass(func() error { return programs.Follow(ctx, told, name, arguments...) })
}
