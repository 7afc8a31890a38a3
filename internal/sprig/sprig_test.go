package sprig_test

import (
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/sprig"
)

func lookup(name string) (string, bool) { return "set", name == "VALUE" }

func TestFunctions(t *testing.T) {
	t.Parallel()

	expected := map[string]string{
		`title "o'neil smith-jones"`:       "O'Neil Smith-Jones",
		`untitle "Some Words"`:             "some words",
		`atoi "012"`:                       "12",
		`int "012"`:                        "10",
		`chunk 3 (list) | toJson`:          "[]",
		`rest (list) | toJson`:             "[]",
		`concat | toJson`:                  "[]",
		`snakecase "HTTPServer"`:           "http_server",
		`kebabcase "IPv4Address"`:          "i-pv4-address",
		`camelcase "http_server"`:          "HttpServer",
		`swapcase "aB"`:                    "Ab",
		`seq 1 3`:                          "1 2 3",
		`seq 3 1`:                          "3 2 1",
		`seq 0 2 5`:                        "0 2 4",
		`round 1.256 2`:                    "1.26",
		`addf 1.5 2`:                       "3.5",
		`slice (list 1 2 3) 1 2 | join ""`: "2",
		`dig "a" "b" "none" (dict "a" (dict "b" "x"))`:      "x",
		`dig "a" "c" "none" (dict "a" (dict "b" "x"))`:      "none",
		`merge (dict "a" 1) (dict "a" 2 "b" 3) | toJson`:    `{"a":1,"b":3}`,
		`mergeOverwrite (dict "a" 1) (dict "a" 2) | toJson`: `{"a":2}`,
		`pick (dict "a" 1 "b" 2) "a" | toJson`:              `{"a":1}`,
		`omit (dict "a" 1 "b" 2) "a" | mustToJson`:          `{"b":2}`,
		`pluck "a" (dict "a" 1) (dict "b" 2) | join ","`:    "1",
		`values (dict "b" 1 "a" 2) | join ","`:              "2,1",
		`regexFindAll "[0-9]" "a1b2" -1 | join ","`:         "1,2",
		`toRawJson (dict "a" "<")`:                          `{"a":"<"}`,
		`(splitn "." 2 "a.b.c")._1`:                         "b.c",
		`semverCompare ">=1.12.0" "v1.13.9"`:                "true",
		`semverCompare ">=1.12, <1.13" "1.13.9"`:            "false",
		`semverCompare "~1.13" "1.13.9"`:                    "true",
		`semverCompare "^1.2" "2.0.0"`:                      "false",
		`semverCompare "1.12.x || 1.13.x" "1.13.2"`:         "true",
		`semverCompare ">1.12" "1.12.5"`:                    "false",
		`semverCompare ">=1.12.0" "1.13.0-alpha.1"`:         "false",
		`semverCompare ">1.13.0-alpha.1" "1.13.0-alpha.10"`: "true",
		`(semver "v1.13.9").Minor`:                          "13",
		`"a-b" | upper | replace "-" "_"`:                   "A_B",
		`trimPrefix "v" "v1" | trimSuffix "1" | quote`:      `""`,
		`list 1 2 2 | uniq | join ","`:                      "1,2",
		`splitList "/" "a/b/c" | last`:                      "c",
		`(split "." "a.b")._1`:                              "b",
		`without (list "a" "b") "a" | first`:                "b",
		`"" | default "x"`:                                  "x",
		`coalesce "" 0 "y"`:                                 "y",
		`ternary "yes" "no" (hasKey (dict "a" 1) "a")`:      "yes",
		`add 1 "2" 3`:                                  "6",
		`sub 7 2 | mul 3`:                              "15",
		`div 7 2`:                                      "3",
		`mod 7 2`:                                      "1",
		`until 3 | join ""`:                            "012",
		`untilStep 6 0 -2 | join ""`:                   "642",
		`"hello world" | title`:                        "Hello World",
		`snakecase "someName here"`:                    "some_name_here",
		`regexReplaceAll "[0-9]+" "a12b" "-"`:          "a-b",
		`regexMatch "^a" "abc"`:                        "true",
		`"x" | b64enc`:                                 "eA==",
		`"eA==" | b64dec`:                              "x",
		`"abc" | trunc 2`:                              "ab",
		`"abc" | trunc -2`:                             "bc",
		`substr 1 2 "abc"`:                             "b",
		`nindent 2 "a\nb" | trim`:                      "a\n  b",
		`cat "a" nil 1`:                                "a 1",
		`dict "b" 1 "a" 2 | keys | join ","`:           "a,b",
		`get (fromJson "{\"a\": \"b\"}") "a"`:          "b",
		`toJson (list "a" 1)`:                          `["a",1]`,
		`"abc" | sha256sum | trunc 8`:                  "ba7816bf",
		`env "VALUE"`:                                  "set",
		`base "/dev/vda"`:                              "vda",
		`max 1 3 2`:                                    "3",
		`concat (list 1) (list 2) | reverse | join ""`: "21",
		`.None | empty`:                                "true",
		`.No | toString`:                               "false",
	}

	for text, want := range expected {
		t.Run(text, func(t *testing.T) {
			t.Parallel()

			parsed, err := template.New("").Funcs(sprig.Functions(lookup)).Parse("{{ " + text + " }}")
			require.NoError(t, err)

			var got strings.Builder

			require.NoError(t, parsed.Execute(&got, map[string]any{"No": false, "None": []string{}}))
			require.Equal(t, want, got.String())
		})
	}
}

func TestFunctionsThatFail(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		`fail "because"`:            "because",
		`div 1 0`:                   "division by zero",
		`b64dec "%"`:                "illegal base64",
		`regexFind "(" "x"`:         "missing closing",
		`semverCompare ">=1" "one"`: "no semantic version",
		`semverCompare "new" "1.0"`: "no condition",
		`dig "a"`:                   "dig needs",
	} {
		parsed, err := template.New("").Funcs(sprig.Functions(lookup)).Parse("{{ " + text + " }}")
		require.NoError(t, err, text)
		require.ErrorContains(t, parsed.Execute(&strings.Builder{}, nil), want, text)
	}
}

// TestFunctionsGiveTheSameEachTime: what could not is not there.
func TestFunctionsGiveTheSameEachTime(t *testing.T) {
	t.Parallel()

	functions := sprig.Functions(lookup)

	for _, name := range []string{"now", "date", "ago", "randAlphaNum", "uuidv4", "genCA", "genPrivateKey", "getHostByName", "htpasswd"} {
		require.NotContains(t, functions, name)
	}
}
