package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
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
		text := strings.Join(of, ",")
		if k.Type == urlsKind {
			text = withoutUsers(text)
		}

		return secrettext.Shown(text)
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

// users are what stands before the last @ of one or several URLs: a password may have any character in it, and so make
// the URL none.
var users = pattern.New(`(?s)^(\s*\w+://)?.*@`)

// withoutUsers masks whoever URLs log in as, whether or not they can be read.
func withoutUsers(urls string) string {
	return users.ReplaceAllString(urls, "${1}"+secrettext.Masked+"@")
}
