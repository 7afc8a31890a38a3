package machineconfig

import (
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
)

// KeyPlaces are the paths at which a type has a YAML key, in alphabetical order; "[]" stands for any item of a list.
// Types that contain themselves are looked into once.
func KeyPlaces(in reflect.Type, key string) []string {
	var places []string

	collectPlaces(in, key, nil, nil, &places)
	slices.Sort(places)

	return slices.Compact(places)
}

func collectPlaces(in reflect.Type, key string, path []string, above []reflect.Type, places *[]string) {
	for in.Kind() == reflect.Pointer {
		in = in.Elem()
	}

	if slices.Contains(above, in) {
		return
	}

	above = append(slices.Clone(above), in)

	switch in.Kind() {
	case reflect.Slice, reflect.Array:
		collectPlaces(in.Elem(), key, append(slices.Clone(path), "[]"), above, places)
	case reflect.Struct:
		for field := range in.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")

			switch {
			case strings.Contains(options, "inline"):
				collectPlaces(field.Type, key, path, above, places)
			case name == "" || name == "-":
			case name == key:
				*places = append(*places, joinKeys(append(slices.Clone(path), name)))
			default:
				collectPlaces(field.Type, key, append(slices.Clone(path), name), above, places)
			}
		}
	default:
		// What else there is has no keys of its own.
	}
}

// joinKeys is the path of keys, without one that somebody pasted a secret as: between dots nothing would tell that.
func joinKeys(keys []string) string {
	shown := make([]string, 0, len(keys))
	for _, key := range keys {
		shown = append(shown, secrettext.Shown(key))
	}

	return strings.ReplaceAll(strings.Join(shown, "."), ".[]", "[]")
}

// PatchPlace is where a key of the document without a kind belongs that stands elsewhere; empty if that is nowhere, or
// may be in several places.
func PatchPlace(key string) string {
	if places := KeyPlaces(reflect.TypeFor[v1alpha1.Config](), key); len(places) == 1 {
		return places[0]
	}

	return ""
}
