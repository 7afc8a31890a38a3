package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/talos-mage/talos-mage/internal/base/plainfile"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Overrides maps names of flags to the values that a target was given; they go over the environment.
// An empty value takes the setting back to its default.
type Overrides map[string]string

// Load reads the settings from an environment of "NAME=value" and the overrides; an empty variable counts as not set.
// Relative paths are relative to workdir, the working directory. Of bad values it returns one *diagnosis.Problem each,
// with exit code 2: a single one as it is, several as a multierror.
func Load(environ []string, overrides Overrides, workdir string) (*Settings, error) {
	workdir, err := filepath.Abs(workdir)
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}

	values, err := merge(environ, overrides)
	if err != nil {
		return nil, err
	}

	var (
		loaded   Settings
		problems []error
	)

	if err := env.ParseWithOptions(&loaded, env.Options{Environment: values, FuncMap: parsers}); err != nil {
		problems = parseProblems(err, values, overrides)
	}

	if len(problems) == 0 {
		problems = checkValues(&loaded, values, overrides)
	}

	if len(problems) > 0 {
		return nil, diagnosis.Join(problems...)
	}

	loaded.given, loaded.chosen = overrides, map[string]bool{}
	for _, knob := range Table() {
		if values[knob.Name] != "" {
			loaded.chosen[knob.Name] = true
		}
	}

	loaded.resolvePaths(workdir)

	if err := loaded.checkInputs(workdir); err != nil {
		return nil, err
	}

	return &loaded, nil
}

// merge gives the values of our variables: the environment's, and over them the overrides.
func merge(environ []string, overrides Overrides) (map[string]string, error) {
	values := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")

		// What comes from the command line alone has a name that no variable can have in a shell.
		if strings.HasPrefix(name, "-") || strings.HasPrefix(name, "<") {
			continue
		}

		if value = strings.TrimSpace(value); value == "" {
			delete(values, name)
			continue
		}

		values[name] = value
	}

	// NO_COLOR is a convention of many programs, where the value doesn't matter (no-color.org).
	if values["NO_COLOR"] != "" {
		values["NO_COLOR"] = "true"
	}

	for flag, value := range overrides {
		knob, known := OfFlag(flag)
		if !known {
			return nil, fmt.Errorf("read flag -%s: no setting has it", flag)
		}

		if value = strings.TrimSpace(value); value == "" {
			delete(values, knob.Name)
			continue
		}

		values[knob.Name] = value
	}

	return values, nil
}

// Retired says of each variable in the environment that permitted loss once, and is not obeyed any more, what does now.
func Retired(environ []string) []string {
	var warnings []string
	for _, knob := range Table() {
		if knob.Retired != "" && slices.ContainsFunc(environ, func(variable string) bool {
			name, value, _ := strings.Cut(variable, "=")
			return name == knob.Retired && strings.TrimSpace(value) != ""
		}) {
			warnings = append(warnings, fmt.Sprintf(
				"%s is set but ignored: what permits loss is given on the command line alone, as -%s", knob.Retired, knob.Flag))
		}
	}

	return warnings
}

// parseProblems turns the errors of the environment's parser into problems that name the variable or flag.
func parseProblems(err error, values map[string]string, overrides Overrides) []error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []error{fmt.Errorf("read settings: %w", err)}
	}

	var problems []error
	for _, err := range all.Errors {
		var parse env.ParseError
		if !errors.As(err, &parse) {
			problems = append(problems, fmt.Errorf("read settings: %w", err))
			continue
		}

		field, _ := reflect.TypeFor[Settings]().FieldByName(parse.Name)
		knob := knobOf(field)
		problems = append(problems, badValue(knob, values[knob.Name], overrides, parse.Err, ""))
	}

	return problems
}

// checkValues holds each value against what its field's tags allow.
func checkValues(s *Settings, values map[string]string, overrides Overrides) []error {
	var problems []error
	for field, value := range reflect.ValueOf(s).Elem().Fields() {
		knob := knobOf(field)
		if knob.Type == "path" && secrettext.LooksLikeKeyInPath(value.String()) {
			problems = append(problems, badValue(knob, secrettext.Instead, overrides, nil, ""))
			continue
		}

		switch guess, err := knob.refuse(value); {
		case err != nil:
			problems = append(problems, badValue(knob, values[knob.Name], overrides, err, guess))
		case len(knob.words) > 0:
			value.SetString(strings.ToLower(value.String()))
		}
	}

	return append(append(problems, checkSkips(s, overrides)...), checkTokens(s)...)
}

// checkTokens refuses numbers of hosts and tokens that leave open which is whose.
func checkTokens(s *Settings) []error {
	hosts, tokens := len(s.ProxmoxEndpoints), len(s.ProxmoxTokens)
	if hosts == 0 || tokens < 2 || tokens == hosts {
		return nil
	}

	return []error{diagnosis.NewProblem(diagnosis.BadSetting,
		fmt.Sprintf("PROXMOX_VE_ENDPOINT names %d hosts, PROXMOX_VE_API_TOKEN has %d tokens", hosts, tokens),
		"give one token for all hosts, or one for each, in their order").In(stepName)}
}

// checkSkips refuses ids that the catalogue doesn't have and those that nobody may skip. It leaves the ids in the
// catalogue's spelling.
func checkSkips(s *Settings, overrides Overrides) []error {
	var (
		problems []error
		known    []string
	)

	for _, entry := range diagnosis.Catalogue() {
		known = append(known, string(entry.ID))
	}

	knob, _ := Lookup("SKIP_CHECKS")
	name := knob.givenAs(overrides)

	for i, id := range s.SkipChecks {
		s.SkipChecks[i] = strings.ToUpper(id)

		entry, found := diagnosis.Lookup(diagnosis.ID(s.SkipChecks[i]))
		switch {
		case !found:
			problems = append(problems,
				badValue(knob, id, overrides, errors.New("there is no check of this id"), suggest.Word(id, known)))
		case entry.Unskippable:
			problems = append(problems, diagnosis.NewProblem(diagnosis.UnskippableCheck,
				fmt.Sprintf("%s names %s (%s), which protects the cluster's secrets and can't be skipped",
					name, entry.ID, entry.Title),
				"take "+string(entry.ID)+" out of "+name).In(stepName))
		}
	}

	return problems
}

// stepName is where a problem with a setting is found.
const stepName = "settings"

// badValue says which variable, or flag, has a value that it doesn't take, and what it takes.
func badValue(knob Knob, value string, overrides Overrides, reason error, guess string) *diagnosis.Problem {
	name := knob.givenAs(overrides)
	switch {
	case knob.Type == tokenKind:
		value = secrettext.Masked
	case knob.Type == urlsKind:
		value = secrettext.Shown(withoutUsers(value))
	case knob.Type != "path" || secrettext.LooksLikeKeyInPath(value):
		value = secrettext.Shown(value)
	}

	cause := fmt.Sprintf("%s=%q: ", name, value)

	if reason != nil && !errors.Is(reason, errShape) {
		cause += reason.Error() + "; "
	}

	cause += name + " takes " + knob.Takes()
	next := "correct " + name + " (docs/settings.md lists all settings)"

	if guess != "" {
		cause += fmt.Sprintf("; did you mean %q?", guess)
		next = name + "=" + guess
	}

	return diagnosis.NewProblem(diagnosis.BadSetting, cause, next).In(stepName).From(reason)
}

// resolvePaths fills in the paths that were not given and makes all of them absolute. A default builds on paths of
// fields above it.
func (s *Settings) resolvePaths(workdir string) {
	resolved := map[string]string{}
	for field, value := range reflect.ValueOf(s).Elem().Fields() {
		byDefault, isPath := field.Tag.Lookup("path")
		if !isPath {
			continue
		}

		path := value.String()

		if field.Tag.Get("pathlist") == "first" {
			path = first(filepath.SplitList(path))
		}

		switch {
		case path == "" && byDefault == "":
			path = topLevel(workdir)
		case path == "":
			path = os.Expand(filepath.FromSlash(byDefault), func(name string) string { return resolved[name] })
		case !filepath.IsAbs(path):
			path = filepath.Join(workdir, path)
		}

		path = filepath.Clean(path)
		resolved[field.Tag.Get("env")] = path
		value.SetString(path)
	}
}

// checkInputs refuses files that reading would never come to the end of, so that nobody who reads them has to. Whether
// they are there is for those to say.
func (s *Settings) checkInputs(workdir string) error {
	var problems []error
	for field, value := range reflect.ValueOf(s).Elem().Fields() {
		path := value.String()
		if field.Tag.Get("input") != "file" || path == "" {
			continue
		}

		if !filepath.IsAbs(path) {
			path = filepath.Join(workdir, path)
		}

		if err := plainfile.Refuse(path); err != nil {
			problems = append(problems, badValue(knobOf(field), path, s.given, err, ""))
		}
	}

	return diagnosis.Join(problems...)
}

// first is the first path that isn't empty.
func first(paths []string) string {
	if i := slices.IndexFunc(paths, func(path string) bool { return path != "" }); i >= 0 {
		return paths[i]
	}

	return ""
}

// topLevel is the nearest folder at or above dir that git knows as a work tree: one with a .git folder, or file
// (worktrees, submodules). It is dir when there is none.
func topLevel(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at
		}

		if at == filepath.Dir(at) {
			return dir
		}
	}
}
