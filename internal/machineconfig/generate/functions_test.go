package generate

import (
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
)

func lookup(name string) (string, bool) {
	value, set := map[string]string{"VALUE": "set"}[name]

	return value, set
}

// What sprig's functions do is sprig's affair; internal/test/e2e/talhelper compares all of them with talhelper's.
func TestTemplatesCanCallFunctionsThatGiveTheSameEachTime(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		`env "VALUE"`:                                "set",
		`env "HOME"`:                                 "",
		`expandenv "<$VALUE ${VALUE} $HOME>"`:        "<set set >",
		`dict "b" 1 "a" 2 "c" 3 | keys | join ","`:   "a,b,c",
		`keys (dict "b" 1) (dict "a" 1) | join ","`:  "b,a",
		`values (dict "b" 1 "a" 2 "c" 3) | join ","`: "2,1,3",
		`semverCompare ">=1.12.0" "v1.13.9"`:         "true",
		`"" | default "x" | upper`:                   "X",
		`.None | empty`:                              "true",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()

			got, err := filled(text)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestTemplatesCanNotCallFunctionsThatGiveSomethingElseTheNextTime(t *testing.T) {
	t.Parallel()

	for _, name := range []string{
		"now", "date", "dateModify", "htmlDate", "ago", "toDate", "randAlphaNum", "randBytes", "randInt", "shuffle", "uuidv4",
		"bcrypt", "htpasswd",
		"encryptAES", "genPrivateKey", "genCA", "genSelfSignedCert", "genSignedCert", "getHostByName",
	} {
		_, err := filled(name)
		require.ErrorContains(t, err, `function "`+name+`" not defined`)
	}
}

// A function that panics, as some of sprig's do, is a mistake in the template.
func TestAFunctionThatFailsIsAMistakeInTheTemplate(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		`fail "because"`:          "because",
		`div 1 0`:                 "divide by zero",
		`regexFind "(" "x"`:       "missing closing",
		`semverCompare "new" "1"`: "improper constraint",
		`first "text"`:            "Cannot find first on type string",
		`index (list 1) 5`:        "out of range",
		`repeat -1 "a"`:           "negative Repeat count",
		`dig "a"`:                 "dig needs at least three arguments",
	} {
		_, err := filled(text)
		require.ErrorContains(t, err, want, text)
	}
}

// filled is what a template makes of a call.
func filled(call string) (string, error) {
	made := &templates{functions: templateFunctions(lookup), parsed: map[string]*template.Template{}}

	return made.render("{{ "+call+" }}", map[string]any{"None": []string{}})
}
