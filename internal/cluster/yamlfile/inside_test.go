package yamlfile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// TestPlacesInsideATextAreThoseOfTheFile: whatever style a text is written in, each of its words is found in the file.
func TestPlacesInsideATextAreThoseOfTheFile(t *testing.T) {
	t.Parallel()

	for name, file := range map[string]string{
		"literal":             "list:\n  - |-\n    machine:\n      sysctls:\n        one: two\n",
		"at the list's depth": "list:\n- |\n  machine:\n    sysctls: {one: two}\n\n# done\n",
		"indented by sign":    "list:\n  - |2-\n      machine:\n        sysctls: {one: two}\n",
		"blank lines":         "list:\n  - |\n\n    machine:\n\n      # comment\n      one: two\n  - other\n",
		"windows":             "list:\r\n  - |\r\n    machine:\r\n      one: two\r\n",
		"anchor":              "list:\n  - &a !!str |\n    machine:\n      one: two\n  - *a\n",
		"folded":              "list:\n  - >\n    machine:\n      sysctls:\n        one: two\n",
		"folded to a line":    "list:\n  - >-\n    {machine:\n    {one:\n\n    two}}\n",
		"single quotes":       "list:\n  - '{machine: {it: ''is'', one: two}}'\n",
		"double quotes":       "list:\n  - \"machine:\\n  \\u0061: \\\"b\\\"\\n  one: two\"\n",
		"quotes over lines":   "list: [\"{machine:  \n\n   {one: \\\n   two}}\"]\n",
		"plain":               "list:\n  - just one or two\n",
		"letters of more":     "\ufefflist:\n  - 'ü: {ß: ö, one: two}'\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			scalar := yamlfile.Field(yamlfile.Plain(strings.TrimPrefix(file, "\ufeff")), "list").Content[0]

			for _, word := range []string{"one", "two"} {
				line, column := placeOf(t, scalar.Value, word)
				foundLine, foundColumn := yamlfile.Inside([]byte(file), scalar, scalar.Value, line, column)
				wantLine, wantColumn := placeOf(t, strings.TrimPrefix(file, "\ufeff"), word)
				require.Equal(t, [2]int{wantLine, wantColumn}, [2]int{foundLine, foundColumn}, word)
			}
		})
	}
}

// placeOf is the line and the column of a word.
func placeOf(t *testing.T, text, word string) (line, column int) {
	t.Helper()

	before, _, found := strings.Cut(text, word)
	require.True(t, found)

	return strings.Count(before, "\n") + 1, len([]rune(before[strings.LastIndex(before, "\n")+1:])) + 1
}

// TestPlacesInsideATextWithVariables: what variables are filled with moves no place in the file.
func TestPlacesInsideATextWithVariables(t *testing.T) {
	t.Parallel()

	const file = "list:\n  - |-\n    a: {b: $NAME, c: $NAME, d: e}\n    f: g\n"

	scalar := &yaml.Node{Line: 2, Column: 5}
	filled := "a: {b: long words, c: long words, d: e}\nf: g"
	places := map[string][2]int{"b": {3, 9}, "d:": {3, 29}, "f": {4, 5}, "c:": {3, 12}}

	for word, want := range places {
		line, column := placeOf(t, filled, word)
		foundLine, foundColumn := yamlfile.Inside([]byte(file), scalar, filled, line, column)
		require.Equal(t, want, [2]int{foundLine, foundColumn}, word)
	}

	line, column := yamlfile.Inside([]byte(file), scalar, "a: b\n\nc: d\n", 1, 1)
	require.Equal(t, [2]int{2, 5}, [2]int{line, column}, "other lines")
}
