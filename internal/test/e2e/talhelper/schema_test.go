package talhelper_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/talos-mage/talos-mage/internal/test/golden"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// definition is the part of JSON schema that talhelper's uses.
type definition struct {
	Ref        string                `json:"$ref"`
	Properties map[string]definition `json:"properties"`
	Items      *definition           `json:"items"`
}

// UnmarshalJSON takes `true`, which says that a value may be anything, for a definition without fields.
func (d *definition) UnmarshalJSON(text []byte) error {
	type plain definition

	if string(text) == "true" {
		return nil
	}

	if err := json.Unmarshal(text, (*plain)(d)); err != nil {
		return fmt.Errorf("read definition: %w", err)
	}

	return nil
}

// fieldsOf are the paths of a definition's fields and of all below them.
func fieldsOf(of definition, defs map[string]definition, path string) []string {
	if name, found := strings.CutPrefix(of.Ref, "#/$defs/"); found {
		return fieldsOf(defs[name], defs, path)
	}

	if of.Items != nil {
		return fieldsOf(*of.Items, defs, path)
	}

	var fields []string

	for key, property := range of.Properties {
		field := strings.TrimPrefix(path+"."+key, ".")
		fields = append(append(fields, field), fieldsOf(property, defs, field)...)
	}

	slices.Sort(fields)

	return fields
}

// touched are the paths of the fields that a talconfig has.
func touched(value any, path string, fields map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			field := strings.TrimPrefix(path+"."+key, ".")
			fields[field] = true
			touched(child, field, fields)
		}
	case []any:
		for _, child := range value {
			touched(child, path, fields)
		}
	}
}

// The fields are kept in a file, so that coverage is shown without the program too.
const fieldsFile = "testdata/fields.golden"

func TestSchemaHasTheFieldsThatTheCorpusIsMadeFor(t *testing.T) {
	t.Parallel()

	golden.Assert(t, fieldsFile, strings.Join(schemaFields(t, tool.Find(t, "talhelper")), "\n")+"\n")
}
