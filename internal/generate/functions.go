package generate

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // a checksum that templates ask for by name
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"
)

// functions are those of sprig v3 whose result depends on their arguments alone, which leaves out random values, the time, the network
// and the making of certificates: the same source must give the same configs. What each does is documented at masterminds.github.io/sprig.
func functions(lookup func(string) (string, bool)) template.FuncMap {
	all := template.FuncMap{
		"env": func(name string) string {
			value, _ := lookup(name)

			return value
		},
	}

	for _, group := range []template.FuncMap{textFunctions, wordFunctions, defaultFunctions, numberFunctions, listFunctions, mapFunctions, encodingFunctions, patternFunctions, versionFunctions} {
		maps.Copy(all, group)
	}

	// Where sprig has a second function that fails instead of panicking, the first does so here.
	for _, name := range sure {
		all["must"+strings.ToUpper(name[:1])+name[1:]] = all[name]
	}

	return all
}

// sure are the functions that sprig has a second time with "must" before the name.
var sure = []string{
	"append", "chunk", "compact", "deepCopy", "first", "fromJson", "has", "initial", "last", "merge", "mergeOverwrite", "prepend", "regexFind",
	"regexFindAll", "regexMatch", "regexReplaceAll", "regexReplaceAllLiteral", "regexSplit", "rest", "reverse", "slice", "toJson",
	"toPrettyJson", "toRawJson", "uniq", "without",
}

var textFunctions = template.FuncMap{
	"trim":       strings.TrimSpace,
	"trimAll":    func(cut, text string) string { return strings.Trim(text, cut) },
	"trimall":    func(cut, text string) string { return strings.Trim(text, cut) },
	"trimPrefix": func(prefix, text string) string { return strings.TrimPrefix(text, prefix) },
	"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
	"upper":      strings.ToUpper,
	"lower":      strings.ToLower,
	"contains":   func(part, text string) bool { return strings.Contains(text, part) },
	"hasPrefix":  func(prefix, text string) bool { return strings.HasPrefix(text, prefix) },
	"hasSuffix":  func(suffix, text string) bool { return strings.HasSuffix(text, suffix) },
	"replace":    func(old, replacement, text string) string { return strings.ReplaceAll(text, old, replacement) },
	"repeat":     func(count int, text string) string { return strings.Repeat(text, min(max(count, 0), 10_000)) },
	"nospace":    func(text string) string { return strings.Join(strings.Fields(text), "") },
	"indent":     indent,
	"nindent":    func(spaces int, text string) string { return "\n" + indent(spaces, text) },
	"substr":     substr,
	"trunc":      trunc,
	"cat":        func(values ...any) string { return strings.TrimSpace(fmt.Sprintln(present(values)...)) },
	"quote":      func(values ...any) string { return each(values, strconv.Quote) },
	"squote":     func(values ...any) string { return each(values, func(text string) string { return "'" + text + "'" }) },
	"toString":   toText,
	"split":      splitToMap,
	"splitn": func(separator string, count int, text string) map[string]string {
		return numbered(strings.SplitN(text, separator, count))
	},
	"abbrev": func(width int, text string) string {
		if width < 4 || len(text) <= width {
			return text
		}

		return text[:width-3] + "..."
	},
	"splitList": func(separator, text string) []string { return strings.Split(text, separator) },
	"join":      func(separator string, list any) string { return strings.Join(toTexts(list), separator) },
	"toStrings": toTexts,
	"sortAlpha": func(list any) []string { return slices.Sorted(slices.Values(toTexts(list))) },
}

// wordFunctions change the case of words.
var wordFunctions = template.FuncMap{
	"title":     func(text string) string { return firstLetters(text, unicode.ToUpper) },
	"untitle":   func(text string) string { return firstLetters(text, unicode.ToLower) },
	"snakecase": func(text string) string { return strings.ToLower(strings.Join(words(text), "_")) },
	"kebabcase": func(text string) string { return strings.ToLower(strings.Join(words(text), "-")) },
	"camelcase": func(text string) string {
		var joined strings.Builder
		for _, word := range words(text) {
			joined.WriteString(firstLetters(strings.ToLower(word), unicode.ToUpper))
		}

		return joined.String()
	},
	"swapcase": func(text string) string {
		return strings.Map(func(letter rune) rune {
			if unicode.IsUpper(letter) {
				return unicode.ToLower(letter)
			}

			return unicode.ToUpper(letter)
		}, text)
	},
	"initials": func(text string) string {
		var first strings.Builder
		for word := range strings.FieldsSeq(text) {
			first.WriteString(trunc(1, word))
		}

		return first.String()
	},
	"plural": func(one, many string, count int) string {
		if count == 1 {
			return one
		}

		return many
	},
}

var defaultFunctions = template.FuncMap{
	"empty": isZero,
	"default": func(fallback any, given ...any) any {
		if len(given) == 0 || isZero(given[0]) {
			return fallback
		}

		return given[0]
	},
	"coalesce": func(values ...any) any {
		for _, value := range values {
			if !isZero(value) {
				return value
			}
		}

		return nil
	},
	"all": func(values ...any) bool { return !slices.ContainsFunc(values, isZero) },
	"any": func(values ...any) bool {
		return slices.ContainsFunc(values, func(value any) bool { return !isZero(value) })
	},
	"ternary": func(yes, no any, condition bool) any {
		if condition {
			return yes
		}

		return no
	},
	"fail":      func(text string) (string, error) { return "", errors.New(text) },
	"kindOf":    func(value any) string { return reflect.ValueOf(value).Kind().String() },
	"kindIs":    func(kind string, value any) bool { return reflect.ValueOf(value).Kind().String() == kind },
	"typeOf":    func(value any) string { return fmt.Sprintf("%T", value) },
	"typeIs":    func(name string, value any) bool { return fmt.Sprintf("%T", value) == name },
	"deepEqual": reflect.DeepEqual,
}

var numberFunctions = template.FuncMap{
	"atoi":    func(text string) int { return int(toNumber(text)) },
	"int":     func(value any) int { return int(toNumber(value)) },
	"int64":   func(value any) int64 { return int64(toNumber(value)) },
	"float64": toNumber,
	"add":     func(values ...any) int64 { return fold(values, func(a, b int64) int64 { return a + b }) },
	"add1":    func(value any) int64 { return int64(toNumber(value)) + 1 },
	"sub":     func(a, b any) int64 { return int64(toNumber(a)) - int64(toNumber(b)) },
	"mul":     func(values ...any) int64 { return fold(values, func(a, b int64) int64 { return a * b }) },
	"div":     func(a, b any) (int64, error) { return divided(a, b, func(a, b int64) int64 { return a / b }) },
	"mod":     func(a, b any) (int64, error) { return divided(a, b, func(a, b int64) int64 { return a % b }) },
	"max":     func(values ...any) int64 { return fold(values, func(a, b int64) int64 { return max(a, b) }) },
	"min":     func(values ...any) int64 { return fold(values, func(a, b int64) int64 { return min(a, b) }) },
	"ceil":    func(value any) float64 { return math.Ceil(toNumber(value)) },
	"floor":   func(value any) float64 { return math.Floor(toNumber(value)) },
	"biggest": func(values ...any) int64 { return fold(values, func(a, b int64) int64 { return max(a, b) }) },
	"round": func(value any, digits int) float64 {
		scale := math.Pow10(digits)

		return math.Round(toNumber(value)*scale) / scale
	},
	"addf":      func(values ...any) float64 { return foldFloats(values, func(a, b float64) float64 { return a + b }) },
	"subf":      func(values ...any) float64 { return foldFloats(values, func(a, b float64) float64 { return a - b }) },
	"mulf":      func(values ...any) float64 { return foldFloats(values, func(a, b float64) float64 { return a * b }) },
	"divf":      func(values ...any) float64 { return foldFloats(values, func(a, b float64) float64 { return a / b }) },
	"maxf":      func(values ...any) float64 { return foldFloats(values, math.Max) },
	"minf":      func(values ...any) float64 { return foldFloats(values, math.Min) },
	"seq":       sequence,
	"until":     func(end int) []int { return countTo(0, end, 1) },
	"untilStep": countTo,
}

var listFunctions = template.FuncMap{
	"list":    func(values ...any) []any { return values },
	"tuple":   func(values ...any) []any { return values },
	"first":   func(list any) any { return at(list, 0) },
	"last":    func(list any) any { return at(list, len(toList(list))-1) },
	"rest":    func(list any) []any { return toList(list)[min(1, len(toList(list))):] },
	"initial": func(list any) []any { return toList(list)[:max(len(toList(list))-1, 0)] },
	"append":  func(list, value any) []any { return append(slices.Clone(toList(list)), value) },
	"prepend": func(list, value any) []any { return append([]any{value}, toList(list)...) },
	"concat": func(lists ...any) []any {
		var all []any
		for _, list := range lists {
			all = append(all, toList(list)...)
		}

		return all
	},
	"reverse": func(list any) []any {
		reversed := slices.Clone(toList(list))
		slices.Reverse(reversed)

		return reversed
	},
	"slice": func(list any, bounds ...int) []any {
		items := toList(list)
		start, end := 0, len(items)

		if len(bounds) > 0 {
			start = min(max(bounds[0], 0), len(items))
		}

		if len(bounds) > 1 {
			end = min(max(bounds[1], start), len(items))
		}

		return items[start:end]
	},
	"chunk": func(size int, list any) [][]any { return slices.Collect(slices.Chunk(toList(list), max(size, 1))) },
	"has":   func(value, list any) bool { return holds(toList(list), value) },
	"without": func(list any, values ...any) []any {
		return keep(list, func(value any, _ []any) bool { return !holds(values, value) })
	},
	"uniq": func(list any) []any {
		return keep(list, func(value any, kept []any) bool { return !holds(kept, value) })
	},
	"compact": func(list any) []any { return keep(list, func(value any, _ []any) bool { return !isZero(value) }) },
}

var mapFunctions = template.FuncMap{
	"dict": func(pairs ...any) map[string]any {
		made := map[string]any{}

		for i := 0; i < len(pairs); i += 2 {
			made[toText(pairs[i])] = ""
			if i+1 < len(pairs) {
				made[toText(pairs[i])] = pairs[i+1]
			}
		}

		return made
	},
	"get": func(of map[string]any, key string) any {
		if value, set := of[key]; set {
			return value
		}

		return ""
	},
	"set": func(of map[string]any, key string, value any) map[string]any {
		of[key] = value

		return of
	},
	"hasKey": func(of map[string]any, key string) bool {
		_, set := of[key]

		return set
	},
	"unset": func(of map[string]any, key string) map[string]any {
		delete(of, key)

		return of
	},
	// The order of keys and values is the alphabet's here, so that it is always the same.
	"keys": func(all ...map[string]any) []string {
		var keys []string
		for _, of := range all {
			keys = append(keys, slices.Sorted(maps.Keys(of))...)
		}

		return keys
	},
	"values": func(of map[string]any) []any {
		var values []any
		for _, key := range slices.Sorted(maps.Keys(of)) {
			values = append(values, of[key])
		}

		return values
	},
	"pluck": func(key string, all ...map[string]any) []any {
		var values []any

		for _, of := range all {
			if value, set := of[key]; set {
				values = append(values, value)
			}
		}

		return values
	},
	"pick": func(of map[string]any, keys ...string) map[string]any { return filtered(of, keys, true) },
	"omit": func(of map[string]any, keys ...string) map[string]any { return filtered(of, keys, false) },
	"dig":  dig,
	"merge": func(into map[string]any, others ...map[string]any) map[string]any {
		for _, other := range others {
			mergeInto(into, other, false)
		}

		return into
	},
	"mergeOverwrite": func(into map[string]any, others ...map[string]any) map[string]any {
		for _, other := range others {
			mergeInto(into, other, true)
		}

		return into
	},
	"deepCopy": deepCopied,
}

var encodingFunctions = template.FuncMap{
	"b64enc": func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
	"b64dec": func(text string) (string, error) {
		plain, err := base64.StdEncoding.DecodeString(text)

		return string(plain), err
	},
	"sha256sum": func(text string) string {
		sum := sha256.Sum256([]byte(text))

		return hex.EncodeToString(sum[:])
	},
	"sha1sum": func(text string) string {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // a checksum that templates ask for by name

		return hex.EncodeToString(sum[:])
	},
	"sha512sum": func(text string) string {
		sum := sha512.Sum512([]byte(text))

		return hex.EncodeToString(sum[:])
	},
	"b32enc": func(text string) string { return base32.StdEncoding.EncodeToString([]byte(text)) },
	"b32dec": func(text string) (string, error) {
		plain, err := base32.StdEncoding.DecodeString(text)

		return string(plain), err
	},
	"toPrettyJson": func(value any) (string, error) {
		text, err := json.MarshalIndent(value, "", "  ")

		return string(text), err
	},
	"toRawJson": func(value any) (string, error) {
		var text strings.Builder

		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(value)

		return strings.TrimSuffix(text.String(), "\n"), err
	},
	"osBase":  path.Base,
	"osDir":   path.Dir,
	"osExt":   path.Ext,
	"osClean": path.Clean,
	"osIsAbs": path.IsAbs,
	"toJson": func(value any) (string, error) {
		text, err := json.Marshal(value)

		return string(text), err
	},
	"fromJson": func(text string) (any, error) {
		var value any
		err := json.Unmarshal([]byte(text), &value)

		return value, err
	},
	"base":  path.Base,
	"dir":   path.Dir,
	"ext":   path.Ext,
	"clean": path.Clean,
	"isAbs": path.IsAbs,
}

var patternFunctions = template.FuncMap{
	"regexMatch": func(pattern, text string) (bool, error) { return regexp.MatchString(pattern, text) },
	"regexFind": func(pattern, text string) (string, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return "", err
		}

		return compiled.FindString(text), nil
	},
	"regexFindAll": func(pattern, text string, count int) ([]string, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}

		return compiled.FindAllString(text, count), nil
	},
	"regexReplaceAllLiteral": func(pattern, text, replacement string) (string, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return "", err
		}

		return compiled.ReplaceAllLiteralString(text, replacement), nil
	},
	"regexReplaceAll": func(pattern, text, replacement string) (string, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return "", err
		}

		return compiled.ReplaceAllString(text, replacement), nil
	},
	"regexSplit": func(pattern, text string, count int) ([]string, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}

		return compiled.Split(text, count), nil
	},
	"regexQuoteMeta": regexp.QuoteMeta,
}

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

func firstLetters(text string, change func(rune) rune) string {
	before := ' '

	return strings.Map(func(letter rune) rune {
		if unicode.IsSpace(before) {
			before = letter

			return change(letter)
		}

		before = letter

		return letter
	}, text)
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
		return nil
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
	start, step, end := 1, 1, 0

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
