package generate

import (
	"maps"
	"os"
	"slices"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// changing are functions of sprig whose results differ from call to call or from machine to machine, besides those that
// sprig leaves out itself: they ask the clock, the machine's time zone, or chance.
var changing = []string{
	"ago", "toDate", "mustToDate", "mustDateModify", "must_date_modify",
	"randInt", "shuffle", "bcrypt", "htpasswd", "encryptAES",
	"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert",
	"genSignedCertWithKey",
}

// templateFunctions are what templates can call: sprig's functions, as with talhelper, but for those that would give
// other machine configs the next time. Variables are found by lookup.
func templateFunctions(lookup func(string) (string, bool)) template.FuncMap {
	functions := sprig.HermeticTxtFuncMap()
	maps.DeleteFunc(functions, func(name string, _ any) bool { return slices.Contains(changing, name) })

	value := func(name string) string {
		value, _ := lookup(name)

		return value
	}

	functions["env"] = value
	functions["expandenv"] = func(text string) string { return os.Expand(text, value) }

	// Sprig gives these in another order each time.
	functions["keys"] = func(all ...map[string]any) []string {
		var keys []string
		for _, of := range all {
			keys = append(keys, slices.Sorted(maps.Keys(of))...)
		}

		return keys
	}
	functions["values"] = func(of map[string]any) []any {
		var values []any
		for _, key := range slices.Sorted(maps.Keys(of)) {
			values = append(values, of[key])
		}

		return values
	}

	return functions
}
