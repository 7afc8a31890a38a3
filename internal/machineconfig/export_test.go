package machineconfig

import "strings"

// FieldsWithEffect are the fields and kinds of documents that the table of effects names.
func FieldsWithEffect() []string {
	var fields []string
	for _, row := range fieldEffects {
		fields = append(fields, strings.Fields(row.fields)...)
	}

	return fields
}
