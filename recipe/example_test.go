package recipe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/talos-mage/talos-mage/recipe"
)

// A cluster is brought up, with a step of the program's own at the end and a look at what went well.
func Example() {
	machines := startLab()
	defer machines.Close()

	bringUp := recipe.Talos()
	bringUp.Steps = append(bringUp.Steps, recipe.Func("dns", func(_ context.Context, cluster recipe.Cluster) error {
		for _, node := range cluster.Nodes {
			fmt.Printf("%s.%s is in the DNS now\n", node.Name, cluster.Name)
		}

		return nil
	}))

	result, err := bringUp.Run(context.Background(), machines.options())
	if err != nil {
		fmt.Println(err)
	}

	for _, outcome := range result.Outcomes {
		if outcome.Step == "verifyWorkers" {
			fmt.Println(outcome.Node, "is a node of Kubernetes:", outcome.Status == recipe.StatusOK)
		}
	}

	fmt.Println("exit code", result.ExitCode)

	// Output:
	// cp1.lab is in the DNS now
	// worker1.lab is in the DNS now
	// worker1 is a node of Kubernetes: true
	// exit code 0
}

// A hook before a step can keep it from being run, and what follows it too.
func ExampleHook() {
	machines := startLab()
	defer machines.Close()

	bringUp := recipe.Talos()
	bringUp.Hooks = []recipe.Hook{
		{Step: "preflight", After: func(_ context.Context, at recipe.Point) error {
			fmt.Println(at.Step, "looked at", len(at.Outcomes), "nodes of", at.Cluster.Name)

			return nil
		}},
		{Step: "applySequential", Before: func(context.Context, recipe.Point) error {
			return errors.New("nobody changes machines on a Friday")
		}},
	}

	result, err := bringUp.Run(context.Background(), machines.options())

	fmt.Println(err)
	fmt.Println("exit code", result.ExitCode)

	// Output:
	// preflight looked at 2 nodes of lab
	// before applySequential: nobody changes machines on a Friday [TM431]. Next: do what it says, then the same run again
	// exit code 4
}

// Data is lost only where both the step and what loses its data were named.
func ExampleWipeNodes() {
	machines := startLab()
	defer machines.Close()

	options := machines.options()
	options.Nodes = []string{"worker1"}

	result, _ := recipe.WipeNodes().Run(context.Background(), options)
	fmt.Println("exit code", result.ExitCode, "and the node is in stage", machines.Node("worker1").Stage())

	options.LoseDataOf = []string{"worker1"}
	result, err := recipe.WipeNodes().Run(context.Background(), options)
	fmt.Println("exit code", result.ExitCode, err)

	// Output:
	// exit code 2 and the node is in stage maintenance
	// exit code 0 <nil>
}
