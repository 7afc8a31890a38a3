package sprig

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

func indent(spaces int, text string) string {
	pad := strings.Repeat(" ", min(max(spaces, 0), 1000))

	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

// substr is the part of a text from one byte to another; a negative start means the beginning, a negative end the end.
func substr(start, end int, text string) string {
	if end < 0 || end > len(text) {
		end = len(text)
	}

	return text[min(max(start, 0), end):end]
}

// trunc keeps so many bytes of the beginning, or of the end if the number is negative.
func trunc(count int, text string) string {
	switch {
	case count < 0 && -count < len(text):
		return text[len(text)+count:]
	case count >= 0 && count < len(text):
		return text[:count]
	default:
		return text
	}
}

// firstLetters changes the letters that begin a word; ends tells what a word begins after.
func firstLetters(text string, change func(rune) rune, ends func(rune) bool) string {
	before := ' '

	return strings.Map(func(letter rune) rune {
		begins := ends(before)
		before = letter

		if begins {
			return change(letter)
		}

		return letter
	}, text)
}

// endsWord is true of everything but letters, digits and underscores.
func endsWord(letter rune) bool {
	return letter != '_' && !unicode.IsLetter(letter) && !unicode.IsDigit(letter)
}

// words splits at spaces, dashes and underscores, and where a word of capitals or one that begins with one starts.
func words(text string) []string {
	var spaced strings.Builder

	letters := []rune(text)

	for i, letter := range letters {
		if i > 0 && unicode.IsUpper(letter) {
			before, followed := letters[i-1], i+1 < len(letters) && unicode.IsLower(letters[i+1])
			if unicode.IsLower(before) || unicode.IsDigit(before) || unicode.IsUpper(before) && followed {
				spaced.WriteRune(' ')
			}
		}

		spaced.WriteRune(letter)
	}

	return strings.FieldsFunc(spaced.String(), func(letter rune) bool { return letter == ' ' || letter == '-' || letter == '_' })
}

func splitToMap(separator, text string) map[string]string {
	return numbered(strings.Split(text, separator))
}

// numbered puts parts under _0, _1 and so on.
func numbered(parts []string) map[string]string {
	named := map[string]string{}
	for i, part := range parts {
		named["_"+strconv.Itoa(i)] = part
	}

	return named
}

func present(values []any) []any {
	return slices.DeleteFunc(slices.Clone(values), func(value any) bool { return value == nil })
}

func each(values []any, change func(string) string) string {
	var texts []string
	for _, value := range present(values) {
		texts = append(texts, change(toText(value)))
	}

	return strings.Join(texts, " ")
}

func toText(value any) string {
	if of := reflect.ValueOf(value); of.Kind() == reflect.Pointer && !of.IsNil() {
		if _, says := value.(fmt.Stringer); !says {
			value = of.Elem().Interface()
		}
	}

	if bytes, ok := value.([]byte); ok {
		return string(bytes)
	}

	return fmt.Sprint(value)
}

func toTexts(list any) []string {
	var texts []string
	for _, value := range present(toList(list)) {
		texts = append(texts, toText(value))
	}

	return texts
}

// toList is a list's items; one value alone is a list of it.
func toList(list any) []any {
	of := reflect.ValueOf(list)

	switch of.Kind() {
	case reflect.Invalid:
		return []any{}
	case reflect.Slice, reflect.Array:
		items := make([]any, of.Len())
		for i := range items {
			items[i] = of.Index(i).Interface()
		}

		return items
	default:
		return []any{list}
	}
}

func at(list any, i int) any {
	if items := toList(list); i >= 0 && i < len(items) {
		return items[i]
	}

	return nil
}

func holds(list []any, value any) bool {
	return slices.ContainsFunc(list, func(one any) bool { return reflect.DeepEqual(one, value) })
}

func keep(list any, wanted func(value any, kept []any) bool) []any {
	kept := []any{}

	for _, value := range toList(list) {
		if wanted(value, kept) {
			kept = append(kept, value)
		}
	}

	return kept
}

// isZero is true of nothing, of zero and false, and of empty texts, lists and maps; never of a struct.
func isZero(value any) bool {
	of := reflect.ValueOf(value)

	switch of.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Slice, reflect.Array, reflect.Map, reflect.String:
		return of.Len() == 0
	case reflect.Struct:
		return false
	default:
		return of.IsZero()
	}
}

// toNumber reads a number of any type or a text; 0 if it is none.
func toNumber(value any) float64 {
	of := reflect.Indirect(reflect.ValueOf(value))

	switch {
	case !of.IsValid():
		return 0
	case of.CanInt():
		return float64(of.Int())
	case of.CanUint():
		return float64(of.Uint())
	case of.CanFloat():
		return of.Float()
	case of.Kind() == reflect.Bool && of.Bool():
		return 1
	}

	text := fmt.Sprint(value)
	if whole, err := strconv.ParseInt(text, 0, 64); err == nil {
		return float64(whole)
	}

	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}

	return number
}

func fold(values []any, combine func(a, b int64) int64) int64 {
	var result int64

	for i, value := range values {
		number := int64(toNumber(value))

		if i == 0 {
			result = number
		} else {
			result = combine(result, number)
		}
	}

	return result
}

func divided(a, b any, divide func(a, b int64) int64) (int64, error) {
	if int64(toNumber(b)) == 0 {
		return 0, errors.New("division by zero")
	}

	return divide(int64(toNumber(a)), int64(toNumber(b))), nil
}

func countTo(start, end, step int) []int {
	const most = 10_000 // more is a mistake, not a list of nodes

	numbers := []int{}

	for i := start; step != 0 && len(numbers) < most && cmp.Compare(i, end)*cmp.Compare(step, 0) < 0; i += step {
		numbers = append(numbers, i)
	}

	return numbers
}

func foldFloats(values []any, combine func(a, b float64) float64) float64 {
	var result float64

	for i, value := range values {
		if i == 0 {
			result = toNumber(value)
		} else {
			result = combine(result, toNumber(value))
		}
	}

	return result
}

// sequence counts like the program seq: to an end, from a start to an end, or from a start by steps to an end; both ends are in it.
func sequence(numbers ...int) string {
	start, step := 1, 1

	var end int

	switch len(numbers) {
	case 1:
		end = numbers[0]
	case 2:
		start, end = numbers[0], numbers[1]
	case 3:
		start, step, end = numbers[0], numbers[1], numbers[2]
	default:
		return ""
	}

	if len(numbers) < 3 && end < start {
		step = -1
	}

	return strings.Trim(fmt.Sprint(countTo(start, end+cmp.Compare(step, 0), step)), "[]")
}

func filtered(of map[string]any, keys []string, wanted bool) map[string]any {
	kept := map[string]any{}

	for key, value := range of {
		if slices.Contains(keys, key) == wanted {
			kept[key] = value
		}
	}

	return kept
}

// dig follows keys through maps: the last two arguments are the fallback and the map.
func dig(path ...any) (any, error) {
	if len(path) < 3 {
		return nil, errors.New("dig needs keys, a fallback and a map")
	}

	fallback, value := path[len(path)-2], path[len(path)-1]

	for _, key := range path[:len(path)-2] {
		of, isMap := value.(map[string]any)
		if !isMap {
			return fallback, nil
		}

		inner, set := of[toText(key)]
		if !set {
			return fallback, nil
		}

		value = inner
	}

	return value, nil
}

// mergeInto fills what is empty, or everything, with the values of another map; maps in both are merged themselves.
func mergeInto(into, other map[string]any, overwrite bool) {
	for key, value := range other {
		inner, isMap := into[key].(map[string]any)
		innerOther, otherIsMap := value.(map[string]any)

		switch {
		case isMap && otherIsMap:
			mergeInto(inner, innerOther, overwrite)
		case isZero(into[key]), overwrite && !isZero(value):
			into[key] = value
		}
	}
}

// deepCopied copies maps and lists; other values can't be changed by templates.
func deepCopied(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := map[string]any{}
		for key, inner := range value {
			copied[key] = deepCopied(inner)
		}

		return copied
	case []any:
		copied := make([]any, len(value))
		for i, inner := range value {
			copied[i] = deepCopied(inner)
		}

		return copied
	default:
		return value
	}
}
