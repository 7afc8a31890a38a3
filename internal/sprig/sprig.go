// Package sprig has the functions that templates in a talconfig.yaml and its patches can call, as sprig v3 documents them at
// masterminds.github.io/sprig: those whose result depends on their arguments alone. That leaves out random values, the time, the network
// and the making of certificates, since the same source must give the same configs.
package sprig

import (
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

// Functions are all there are; env finds variables by lookup.
func Functions(lookup func(string) (string, bool)) template.FuncMap {
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
	"title":     func(text string) string { return firstLetters(text, unicode.ToUpper, endsWord) },
	"untitle":   func(text string) string { return firstLetters(text, unicode.ToLower, unicode.IsSpace) },
	"snakecase": func(text string) string { return strings.ToLower(strings.Join(words(text), "_")) },
	"kebabcase": func(text string) string { return strings.ToLower(strings.Join(words(text), "-")) },
	"camelcase": func(text string) string {
		var joined strings.Builder
		for _, word := range words(text) {
			joined.WriteString(firstLetters(strings.ToLower(word), unicode.ToUpper, endsWord))
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
	"atoi": func(text string) int {
		number, err := strconv.Atoi(text)
		if err != nil {
			return 0
		}

		return number
	},
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
		all := []any{}

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
	"chunk": func(size int, list any) [][]any {
		return slices.AppendSeq([][]any{}, slices.Chunk(toList(list), max(size, 1)))
	},
	"has": func(value, list any) bool { return holds(toList(list), value) },
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
