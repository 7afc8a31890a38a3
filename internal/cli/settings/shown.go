package settings

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/secrettext"
)

// Value is a setting as people may see it.
type Value struct {
	Name, Value string
	// Given tells what somebody set from what is so by default.
	Given bool
}

// Shown are all settings in the order of the struct's fields, without anything secret.
func (s *Settings) Shown() []Value {
	var shown []Value

	for field, value := range reflect.ValueOf(s).Elem().Fields() {
		if !field.IsExported() {
			continue
		}

		knob := knobOf(field)
		shown = append(shown, Value{Name: knob.givenAs(s.given), Value: knob.text(value), Given: s.chosen[knob.Name]})
	}

	return shown
}

// text is a value as people would type it, or what stands for a secret.
func (k Knob) text(value reflect.Value) string {
	if k.Type == tokenKind && value.Len() > 0 {
		return secrettext.Masked
	}

	switch of := value.Interface().(type) {
	case []string:
		if k.Type == "URLs" {
			of = withoutPasswords(of)
		}

		return secrettext.Shown(strings.Join(of, ","))
	case Addresses:
		pairs := make([]string, 0, len(of))
		for name, address := range of {
			pairs = append(pairs, name+"="+address)
		}

		slices.Sort(pairs)

		return secrettext.Shown(strings.Join(pairs, ","))
	case string:
		if k.Type == "path" {
			return of
		}

		return secrettext.Shown(of)
	default:
		return fmt.Sprint(of)
	}
}

func withoutPasswords(urls []string) []string {
	shown := make([]string, 0, len(urls))
	for _, text := range urls {
		if parsed, err := url.Parse(text); err == nil {
			text = parsed.Redacted()
		}

		shown = append(shown, text)
	}

	return shown
}
