// Package equal compares what machine configs say to Talos, whatever form they are written in. Every accessor of
// machinery's config interface is asked, by reflection: none is picked by hand, and none can be forgotten.
package equal

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
)

// Difference is an accessor that two configs answer differently.
type Difference struct {
	// Accessor is the way to it, as K8sKubeletConfig.ExtraArgs.
	Accessor string
	// Before and After are what they say, in one line each; they may be secret.
	Before, After string
}

// Configs lists the accessors that two configs answer differently, but for what Equivalences declares.
func Configs(before, after config.Config) ([]Difference, error) {
	if _, err := Accessors(); err != nil {
		return nil, err
	}

	first, second := read(before), read(after)

	var found []Difference

	differences("", first, second, &found)

	return found, nil
}

// read is all that a config says, in the form that Equivalences give it.
func read(from config.Config) answers {
	said := ask(reflect.ValueOf(&from).Elem())

	for _, one := range Equivalences {
		one.unify(said)
	}

	return said
}

func differences(path string, before, after any, found *[]Difference) {
	first, isMapping := before.(answers)
	second, isToo := after.(answers)

	if isMapping && isToo {
		for _, name := range slices.Sorted(maps.Keys(maps.Collect(keysOf(first, second)))) {
			differences(strings.TrimPrefix(path+"."+name, "."), first[name], second[name], found)
		}

		return
	}

	oneList, isList := before.([]any)
	otherList, isAlso := after.([]any)

	if isList && isAlso && len(oneList) == len(otherList) {
		for i := range oneList {
			differences(path+"["+strconv.Itoa(i)+"]", oneList[i], otherList[i], found)
		}

		return
	}

	if !reflect.DeepEqual(before, after) {
		*found = append(*found, Difference{Accessor: path, Before: shown(before), After: shown(after)})
	}
}

// keysOf goes through the keys of both mappings.
func keysOf(all ...answers) func(func(string, bool) bool) {
	return func(yield func(string, bool) bool) {
		for _, one := range all {
			for key := range one {
				if !yield(key, true) {
					return
				}
			}
		}
	}
}

// shown is an answer in one line.
func shown(said any) string {
	switch said := said.(type) {
	case nil:
		return "nothing"
	case answers:
		var parts []string

		for _, name := range slices.Sorted(maps.Keys(said)) {
			if said[name] != nil {
				parts = append(parts, name+": "+shown(said[name]))
			}
		}

		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, len(said))
		for i, item := range said {
			parts[i] = shown(item)
		}

		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return cmp.Or(fmt.Sprint(said), `""`)
	}
}
