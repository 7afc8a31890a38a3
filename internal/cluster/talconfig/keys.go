package talconfig

import (
	"reflect"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/machineconfig"
)

// successors are keys of older versions of talhelper, with what to write today.
var successors = map[string]string{
	"inlinePatch":   "write it as an item of patches: the same text behind `- |-`",
	"configPatches": "write it as an item of patches: values under their keys in place of a list of operations",
}

// adviseOnKeys says of unknown keys that are not misspelt what to write instead, or where they are known.
func adviseOnKeys(mistakes []*yamlfile.Error) {
	for _, mistake := range mistakes {
		if mistake.ID != diagnosis.FileKey || mistake.Suggestion != "" || mistake.Next != "" {
			continue
		}

		if successor := successors[mistake.Key]; successor != "" {
			mistake.Next = successor
		} else if places := keyPlaces(mistake.Key); len(places) > 0 {
			mistake.Next = "move it to where it is known: " + strings.Join(places, ", ")
		}
	}
}

// keyPlaces are where a talconfig.yaml has a key, or the patches in it have; none if these are too many to be advice.
func keyPlaces(key string) []string {
	const most = 3

	places := machineconfig.KeyPlaces(reflect.TypeFor[Config](), key)
	if len(places) == 0 {
		if place := machineconfig.PatchPlace(key); place != "" {
			places = []string{"a patch, as " + place}
		}
	}

	if len(places) > most {
		return nil
	}

	return places
}
