package yamlfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Descriptions say what the keys of structs mean whose fields have no doc tags, since they are others'.
type Descriptions map[reflect.Type]map[string]string

// JSONSchema describes the files that Check accepts for a type, for the completion of editors (JSON Schema, draft 7).
// Tags of the type's fields say more: doc, required ("true"), enum (words with commas), pattern, minimum and maximum.
func JSONSchema(title string, in reflect.Type, others Descriptions) ([]byte, error) {
	schema := &schemaWriter{definitions: map[string]any{}, names: map[reflect.Type]string{}, others: others}
	root := schema.structure(in)
	root["$schema"], root["title"] = "http://json-schema.org/draft-07/schema#", title

	if len(schema.definitions) > 0 {
		root["definitions"] = schema.definitions
	}

	var text bytes.Buffer

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	if err := encoder.Encode(root); err != nil {
		return nil, err
	}

	return text.Bytes(), nil
}

// schemaWriter describes each named struct once.
type schemaWriter struct {
	definitions map[string]any
	names       map[reflect.Type]string
	others      Descriptions
}

func (w *schemaWriter) of(in reflect.Type) map[string]any {
	for in.Kind() == reflect.Pointer {
		in = in.Elem()
	}

	switch {
	case in == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": []string{"string", "integer"}}
	case in.Kind() == reflect.Interface:
		return map[string]any{}
	case decodesItself(in):
		if words := choices(in); len(words) > 0 {
			return map[string]any{"enum": words}
		}

		return map[string]any{}
	}

	switch in.Kind() {
	case reflect.Struct:
		return w.reference(in)
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": w.of(in.Elem())}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": w.of(in.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}
	default:
		return map[string]any{"type": "string"}
	}
}

// reference names a struct's definition, which is written when it is first needed; structs without a name stand where
// they are.
func (w *schemaWriter) reference(in reflect.Type) map[string]any {
	if in.Name() == "" {
		return w.structure(in)
	}

	name, known := w.names[in]
	if !known {
		name = w.freeName(in)
		w.names[in] = name
		w.definitions[name] = nil // taken, should the struct contain itself
		w.definitions[name] = w.structure(in)
	}

	return map[string]any{"$ref": "#/definitions/" + name}
}

// freeName is the type's, with its package's before it if another type has that already.
func (w *schemaWriter) freeName(in reflect.Type) string {
	name := in.Name()
	if _, taken := w.definitions[name]; taken {
		name = in.PkgPath()[strings.LastIndex(in.PkgPath(), "/")+1:] + "." + name
	}

	return name
}

func (w *schemaWriter) structure(in reflect.Type) map[string]any {
	properties := map[string]any{}
	required := []string{}

	for key, field := range yamlFields(in) {
		property := w.of(field.Type)

		if doc := cmp.Or(field.Tag.Get("doc"), w.others[in][key]); doc != "" {
			if _, isReference := property["$ref"]; isReference {
				property = map[string]any{"allOf": []any{property}} // draft 7 reads nothing beside a reference
			}

			property["description"] = doc
		}

		addLimits(property, field.Tag)
		properties[key] = property

		if field.Tag.Get("required") == "true" {
			required = append(required, key)
		}
	}

	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}

	if _, ok := reflect.Zero(in).Interface().(ForeignKeys); ok {
		schema["additionalProperties"] = true
	}

	if len(required) > 0 {
		slices.Sort(required)
		schema["required"] = required
	}

	return schema
}

func addLimits(property map[string]any, tag reflect.StructTag) {
	if words := tag.Get("enum"); words != "" {
		property["enum"] = strings.Split(words, ",")
	}

	if pattern := tag.Get("pattern"); pattern != "" {
		property["pattern"] = pattern
	}

	for _, limit := range []string{"minimum", "maximum"} {
		if number, err := strconv.Atoi(tag.Get(limit)); err == nil {
			property[limit] = number
		}
	}
}
