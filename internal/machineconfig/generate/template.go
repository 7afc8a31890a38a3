package generate

import (
	"errors"
	"strings"
	"text/template"
)

// templates keeps parsed templates: most nodes share them.
type templates struct {
	functions template.FuncMap
	parsed    map[string]*template.Template
}

// isTemplate tells as talhelper does.
func isTemplate(text string) bool {
	return strings.Contains(text, "{{") || strings.Contains(text, "}}")
}

// render fills a template with a v1alpha1 config.
func (t *templates) render(text string, data any) (string, error) {
	if !isTemplate(text) {
		return text, nil
	}

	parsed := t.parsed[text]
	if parsed == nil {
		var err error
		if parsed, err = template.New("template").Funcs(t.functions).Parse(text); err != nil {
			return "", newTemplateError(err)
		}

		t.parsed[text] = parsed
	}

	var out strings.Builder

	if err := parsed.Execute(&out, data); err != nil {
		return "", newTemplateError(err)
	}

	return out.String(), nil
}

// templateError is what is wrong with a template, without the name that all have here.
type templateError string

func (e templateError) Error() string { return "the template can't be filled: " + string(e) }

func newTemplateError(err error) error {
	return templateError(strings.TrimSpace(strings.TrimPrefix(err.Error(), "template: template:")))
}

func isTemplateError(err error) bool {
	var of templateError

	return errors.As(err, &of)
}
