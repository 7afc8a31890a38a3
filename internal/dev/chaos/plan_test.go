package chaos_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/chaos"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
)

// manyPlans is enough to draw everything that can be drawn.
const manyPlans = 4000

func TestASeedAloneMakesThePlan(t *testing.T) {
	t.Parallel()

	for _, seed := range chaos.Seeds(0, 100) {
		require.Equal(t, chaos.NewPlan(seed).String(), chaos.NewPlan(seed).String())
	}

	require.NotEqual(t, chaos.NewPlan(1).String(), chaos.NewPlan(2).String())
}

func TestPlansAreAsWideAsTheyAreSaidToBe(t *testing.T) {
	t.Parallel()

	seen, looks, macs := map[any]int{}, map[string]int{}, 0
	most := 0

	for _, seed := range chaos.Seeds(0, manyPlans) {
		plan := chaos.NewPlan(seed)
		controlPlanes, workers := len(plan.ControlPlanes()), len(plan.Workers())

		require.GreaterOrEqual(t, controlPlanes, 1)
		require.LessOrEqual(t, controlPlanes, 5)
		require.LessOrEqual(t, workers, 20)

		most = max(most, workers)
		seen[controlPlanes]++
		seen[plan.Endpoint]++
		seen[plan.Second]++
		seen[plan.Machines[0].TalosVersion]++

		if plan.DeclaredMACs {
			macs++
		}

		if plan.Documents {
			seen["documents"]++
		}

		seen[plan.Operation.Kind]++
		looks[plan.Operation.Look]++

		if plan.Operation.Cordoned != "" {
			seen["cordoned"]++
		}

		if incident := plan.Operation.Incident; incident != nil {
			seen[incident.Kind]++
		}

		if loss := plan.Operation.Loss; loss != nil {
			for what, is := range map[string]bool{"member of a living node": loss.Living != "", "another MAC": loss.NewMAC,
				"former machine returns": loss.Returns, "emptied": len(loss.Emptied) > 0,
				"destroyed": len(loss.Destroyed) > 0} {
				if is {
					seen[what]++
				}
			}
		}

		if plan.Leases {
			seen["leases"]++
		}

		if plan.Interrupted > 0 {
			seen["interrupted"]++
		}

		if plan.Machines[0].TalosVersion != plan.Machines[controlPlanes-1].TalosVersion {
			seen["mixed"]++
		}
	}

	require.Equal(t, 20, most)
	require.InDelta(t, 70, 100*seen[""]/manyPlans, 8, "per cent of the plans end when the cluster is up")
	require.InDelta(t, 80, 100*macs/manyPlans, 3, "per cent of the plans declare MACs")

	for _, value := range []any{
		1, 2, 3, 4, 5, chaos.VIP, chaos.Balancer, chaos.NodeAddress, chaos.NoSecond, chaos.SameMachine, chaos.Elsewhere,
		"v1.12.1", "v1.13.9", "v1.14.1", "documents", "interrupted", "mixed",
		"leases", "cordoned", "member of a living node", "another MAC", "former machine returns", "destroyed", "emptied",
		"blocking budget",
	} {
		require.NotZero(t, seen[value], "%v", value)
	}

	for _, operation := range chaos.Operations() {
		require.NotZero(t, seen[operation], "%s", operation)
	}

	for _, look := range chaos.Looks() {
		require.NotZero(t, looks[look], "%s", look)
	}
}

// What the client can't know of is nothing that it can be judged by.
func TestNoMachineForgetsTheEtcdThatItHoldsFromTheBeginning(t *testing.T) {
	t.Parallel()

	for _, seed := range chaos.Seeds(0, manyPlans) {
		former := map[string]bool{}
		incidents := chaos.NewPlan(seed).Incidents

		for _, incident := range incidents {
			former[incident.Node] = former[incident.Node] || incident.Kind == "former etcd data"
		}

		for _, incident := range incidents {
			require.False(t, incident.Kind == "forgetful" && former[incident.Node], "seed %d", seed)
		}
	}
}

// A knob of the emulator that no plan turns would be a fault that is never tried.
func TestPlansTurnEveryKnobAndMakeEveryMixUp(t *testing.T) {
	t.Parallel()

	kinds, turned := map[string]bool{}, map[string]bool{}

	for _, seed := range chaos.Seeds(0, manyPlans) {
		plan := chaos.NewPlan(seed)
		incidents := plan.Incidents

		if plan.Operation.Incident != nil {
			incidents = append(incidents, *plan.Operation.Incident)
		}

		for _, incident := range incidents {
			kinds[incident.Kind] = true

			var faults emulator.Faults

			incident.Turn(&faults)

			for field, value := range reflect.ValueOf(faults).Fields() {
				if !value.IsZero() {
					turned[field.Name] = true
				}
			}
		}
	}

	for _, kind := range chaos.Kinds() {
		require.True(t, kinds[kind], "no plan has a %q", kind)
	}

	elsewhere := map[string]string{
		"AddressAfter":    "a lease that changes depends on the lab; the mix-ups are about it",
		"Says":            "nothing goes by what a machine says of itself, but diagnose, which changes nothing",
		"Diagnostics":     "the same",
		"FailedVolumes":   "the same",
		"NameServersDown": "the same: health tells of it",
	}

	for field := range reflect.TypeFor[emulator.Faults]().Fields() {
		require.True(t, turned[field.Name] || elsewhere[field.Name] != "", "no plan turns %s", field.Name)
	}
}
