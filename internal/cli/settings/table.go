package settings

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
)

// Knob describes one setting, as the documentation's table shows it.
type Knob struct {
	// Name is the environment variable's, or the flag's with its dash where there is no variable.
	Name string
	// Flag is the flag's name without its dash; empty when no target takes one.
	Flag string
	// Arguments are what targets take instead of the flag; mostly none.
	Arguments []string
	// Retired is a variable that meant the same and is not obeyed any more.
	Retired string
	// Type is a word or two: "duration", "path", "list".
	Type string
	// Default is the value when nothing is set; empty when the setting then is empty.
	Default string
	// Doc says what it does.
	Doc string
	// Group is the heading that it stands under.
	Group string

	words   []string
	minimum string
}

// Table lists every setting in the order of the struct's fields.
func Table() []Knob {
	var knobs []Knob
	for field := range reflect.TypeFor[Settings]().Fields() {
		if field.IsExported() {
			knobs = append(knobs, knobOf(field))
		}
	}

	return knobs
}

// Without is an environment without the variables that are settings, but for those that are kept.
func Without(environ []string, kept func(name string) bool) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, known := Lookup(name)

		return known && !kept(name)
	})
}

// Lookup finds a setting by the name of its variable.
func Lookup(name string) (Knob, bool) {
	field, found := fieldOf(name)
	if !found {
		return Knob{}, false
	}

	return knobOf(field), true
}

// OfFlag finds a setting by the name of its flag, without the dash, or by its argument.
func OfFlag(name string) (Knob, bool) {
	for _, knob := range Table() {
		if name != "" && (knob.Flag == name || slices.Contains(knob.Arguments, name)) {
			return knob, true
		}
	}

	return Knob{}, false
}

// givenAs is the setting's name as the overrides have it, else its variable's.
func (k Knob) givenAs(given Overrides) string {
	if _, byFlag := given[k.Flag]; byFlag && k.Flag != "" {
		return "-" + k.Flag
	}

	for _, argument := range k.Arguments {
		if _, byArgument := given[argument]; byArgument {
			return argument
		}
	}

	return k.Name
}

// TypedAlone reports whether no variable sets it: a flag or an argument of the command line does.
func (k Knob) TypedAlone() bool { return k.Name == "-"+k.Flag || slices.Contains(k.Arguments, k.Name) }

func fieldOf(name string) (reflect.StructField, bool) {
	for field := range reflect.TypeFor[Settings]().Fields() {
		if field.Tag.Get("env") == name {
			return field, true
		}
	}

	return reflect.StructField{}, false
}

func knobOf(field reflect.StructField) Knob {
	knob := Knob{
		Name:    field.Tag.Get("env"),
		Flag:    field.Tag.Get("flag"),
		Retired: field.Tag.Get("retired"),
		Default: field.Tag.Get("envDefault"),
		Doc:     field.Tag.Get("doc"),
		Group:   field.Tag.Get("group"),
		minimum: field.Tag.Get("min"),
	}
	if flag, alone := strings.CutPrefix(knob.Name, "-"); alone {
		knob.Flag = flag
	} else if strings.HasPrefix(knob.Name, "<") {
		knob.Arguments = []string{knob.Name}
	}

	if arguments := field.Tag.Get("argument"); arguments != "" {
		knob.Arguments = strings.Split(arguments, ",")
	}

	if words := field.Tag.Get("oneof"); words != "" {
		knob.words = strings.Split(words, ",")
	}

	path, isPath := field.Tag.Lookup("path")
	switch {
	case path != "":
		knob.Default = path
	case isPath:
		knob.Default = field.Tag.Get("default")
	}

	knob.Type = cmp.Or(field.Tag.Get("kind"), typeName(field.Type, isPath, knob.words))
	return knob
}

func typeName(of reflect.Type, isPath bool, words []string) string {
	switch {
	case isPath:
		return "path"
	case len(words) > 0:
		return "word"
	case of == reflect.TypeFor[time.Duration]():
		return "duration"
	case of == reflect.TypeFor[Parallel]():
		return "number or share"
	case of == reflect.TypeFor[Addresses]():
		return "addresses"
	case of == reflect.TypeFor[[]string]():
		return "list"
	case of.Kind() == reflect.Bool:
		return "switch"
	case of.Kind() == reflect.Int:
		return "whole number"
	case of.Kind() == reflect.Float64:
		return "number"
	default:
		return "name"
	}
}

// Words are all the values that the setting accepts, where they can be listed.
func (k Knob) Words() []string { return k.words }

// Takes says which values the setting accepts, to go on after "takes".
func (k Knob) Takes() string {
	if k.Name == "CERT_FINGERPRINTS" {
		return "base64 of SHA-256 sums, comma separated"
	}

	switch k.Type {
	case "word":
		last := len(k.words) - 1
		if last == 0 {
			return k.words[0]
		}

		return strings.Join(k.words[:last], ", ") + " or " + k.words[last]
	case "duration":
		if k.minimum != "" {
			return "a duration above 0: seconds (300) or with units (5m, 1h30m)"
		}

		return "a duration: seconds (300) or with units (5m, 1h30m)"
	case "number or share":
		return "a number of nodes (2) or a share of them (50%)"
	case "addresses":
		return "name=host or name=host:port, comma separated (cp1=192.0.2.73,cp2=[2001:db8::5]:50000)"
	case "switch":
		return "true or false"
	case "whole number", "number":
		if k.minimum != "" {
			return fmt.Sprintf("a %s from %s up", k.Type, k.minimum)
		}

		return "a " + k.Type
	case "networks":
		return "networks, ranges and addresses, comma separated (192.168.1.0/24,10.0.0.10-10.0.0.99)"
	case "list":
		return "a comma separated list"
	case urlsKind:
		return "the URL of a server, with https:// or http://, or several, comma separated"
	case tokenKind:
		return "user@realm!name=uuid, as Proxmox shows it when it makes the token; of several hosts, comma separated"
	default:
		return "a " + k.Type
	}
}

// refuse gives the reason why a parsed value isn't one that the setting takes, and for a word the one that was probably
// meant.
func (k Knob) refuse(value reflect.Value) (guess string, err error) {
	if len(k.words) > 0 {
		return k.refuseWord(value.String())
	}

	if k.Name == "CERT_FINGERPRINTS" {
		return "", refuseFingerprints(value)
	}

	switch k.Type {
	case urlsKind:
		return "", refuseAny(value, isURL)
	case tokenKind:
		return "", refuseAny(value, proxmoxToken.MatchString)
	}

	if k.minimum != "" && k.tooSmall(value) {
		return "", errors.New("too small")
	}

	return "", nil
}

func (k Knob) refuseWord(word string) (guess string, err error) {
	if word == "" && k.Default == "" {
		return "", nil
	}

	for _, taken := range k.words {
		if strings.EqualFold(taken, word) {
			return "", nil
		}
	}

	return suggest.Word(word, k.words), errShape
}

// refuseFingerprints takes the form that Talos prints on a machine's console.
func refuseFingerprints(list reflect.Value) error {
	for i := range list.Len() {
		fingerprint := list.Index(i).String()
		if sum, err := base64.StdEncoding.DecodeString(fingerprint); err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("%q is no fingerprint", secrettext.Shown(fingerprint))
		}
	}

	return nil
}

// refuseAny takes a list of which each is one of a kind.
func refuseAny(list reflect.Value, taken func(text string) bool) error {
	for i := range list.Len() {
		if !taken(list.Index(i).String()) {
			return errShape
		}
	}

	return nil
}

// isURL reports whether a text is the address of a server.
func isURL(text string) bool {
	parsed, err := url.Parse(text)

	return err == nil && parsed.Host != "" && (parsed.Scheme == "https" || parsed.Scheme == "http")
}

const (
	// urlsKind is the type of a setting whose values may have passwords in them.
	urlsKind = "URLs"
	// tokenKind is the type of a setting whose value nobody may see.
	tokenKind = "Proxmox tokens"
)

// proxmoxToken is what Proxmox makes: a user, its realm, the token's name and a random UUID.
var proxmoxToken = pattern.New(`(?i)^[^@!=\s]+@[^@!=\s]+![^@!=\s]+=[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// tooSmall compares a value with the minimum of its tag; a minimum that can't be read lets nothing pass, so that a test
// sees it.
func (k Knob) tooSmall(value reflect.Value) bool {
	switch of := value.Interface().(type) {
	case time.Duration:
		least, err := time.ParseDuration(k.minimum)
		return err != nil || of < least
	case int:
		least, err := strconv.Atoi(k.minimum)
		return err != nil || of < least
	case float64:
		least, err := strconv.ParseFloat(k.minimum, 64)
		return err != nil || of < least
	default:
		return true
	}
}
