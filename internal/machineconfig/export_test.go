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

// Mask returns the YAML documents without comments and with every secret replaced by Masked. Public certificates are
// shown as fingerprints. Of text that is not YAML nothing is shown.
func Mask(data []byte) []byte {
	masked, err := maskWith(data, func(string) string { return Masked })
	if err != nil {
		return []byte(unreadable)
	}

	return masked
}
