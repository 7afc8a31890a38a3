package commandline

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/talos-mage/talos-mage/internal/base/suggest"
	"github.com/talos-mage/talos-mage/internal/cli/settings"
)

// request is what a command line asks for.
type request struct {
	help, list, version, verbose bool
	calls                        []call
}

// call is a target with what it is given.
type call struct {
	target Target
	given  Values
}

// read understands all words, or says what is wrong with the first that it does not.
func (p Program) read(words []string) (request, error) {
	var asked request
	for _, word := range words {
		if err := p.take(&asked, word); err != nil {
			return request{}, err
		}
	}

	if asked.tells() {
		return asked, nil
	}

	for _, call := range asked.calls {
		if err := p.judge(call); err != nil {
			return request{}, err
		}
	}

	return asked, nil
}

// tells reports whether something is to be told only, and nothing run.
func (r *request) tells() bool { return r.help || r.version || r.list }

// foresee judges each call by what there is, before any is made.
func (p Program) foresee(ctx context.Context, calls []call) error {
	if p.Foresee == nil {
		return nil
	}

	for _, call := range calls {
		if err := p.Foresee(ctx, settings.Call{Target: call.target.Name, Given: call.settings()}); err != nil {
			return err
		}
	}

	return nil
}

// take reads one word: a flag belongs to the target before it, and so does a word that this still needs.
func (p Program) take(asked *request, word string) error {
	if strings.HasPrefix(word, "-") {
		return p.takeFlag(asked, word)
	}

	if len(asked.calls) > 0 {
		last := asked.calls[len(asked.calls)-1]
		if missing := last.missing(); missing != "" {
			last.given.arguments[missing] = word
			return nil
		}
	}

	if option := asked.named(word); option != nil && len(asked.calls) == 0 {
		*option = true
		return nil
	}

	target, err := p.target(word)
	if err != nil {
		return err
	}

	asked.calls = append(asked.calls, call{target, Values{map[string]string{}, map[string]string{}}})

	return nil
}

// target finds a target by its name, in any case.
func (p Program) target(word string) (Target, error) {
	for _, target := range p.Targets {
		if strings.EqualFold(target.Name, word) {
			return target, nil
		}
	}

	switch near := p.near(word); len(near) {
	case 0:
		return Target{}, fmt.Errorf("there is no target %q. Next: %s -l lists them", word, p.Name)
	case 1:
		return Target{}, fmt.Errorf("there is no target %q; did you mean %s? Next: %s %s", word, near[0], p.Name, near[0])
	default:
		last := len(near) - 1
		return Target{}, fmt.Errorf("there is no target %q; did you mean %s or %s? Next: %s -l lists them", word,
			strings.Join(near[:last], ", "), near[last], p.Name)
	}
}

// near are the targets that a word may stand for: the one it is a slip of, by itself or as the name of a task; else
// those with the word in their name.
func (p Program) near(word string) []string {
	var names, with []string
	for _, target := range p.Targets {
		names = append(names, target.Name)

		if len(word) > 1 && strings.Contains(strings.ToLower(target.Name), strings.ToLower(word)) {
			with = append(with, target.Name)
		}
	}

	_, task, _ := strings.Cut(word, ":")
	if near := cmp.Or(suggest.Word(word, names), suggest.Word(task, names)); near != "" {
		return []string{near}
	}

	return with
}

// takeFlag reads a flag, with one dash or two. Help can be asked for anywhere.
func (p Program) takeFlag(asked *request, word string) error {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")

	if option := asked.option(name); option != nil && !hasValue {
		*option = true
		return nil
	}

	if len(asked.calls) == 0 {
		return fmt.Errorf("%s stands before every target. Next: put it behind the target that it is for", word)
	}

	last := asked.calls[len(asked.calls)-1]

	flag, err := p.flag(last.target, name)
	if err != nil {
		return err
	}

	switch {
	case flag.Kind == Switch && !hasValue:
		value = "true"
	case !hasValue:
		return fmt.Errorf("-%s lacks its value. Next: -%s=VALUE", flag.Name, flag.Name)
	}

	last.given.flags[flag.Name] = value

	return nil
}

// option is what a flag of the program itself sets; nil if it is none.
func (r *request) option(name string) *bool {
	switch strings.ToLower(name) {
	case "h":
		return &r.help
	case "v", "verbose":
		return &r.verbose
	case "l":
		name = "list"
	}

	if named := r.named(name); named == &r.help || len(r.calls) == 0 {
		return named
	}

	return nil
}

// named is what the name of an option sets, which is understood without a dash too where no target has it.
func (r *request) named(name string) *bool {
	switch strings.ToLower(name) {
	case "help":
		return &r.help
	case "list":
		return &r.list
	case "version":
		return &r.version
	default:
		return nil
	}
}

// flag finds one of a target's flags, in any case.
func (p Program) flag(t Target, name string) (Flag, error) {
	var names []string
	for _, flag := range t.Flags {
		if strings.EqualFold(flag.Name, name) {
			return flag, nil
		}

		names = append(names, flag.Name)
	}

	if near := suggest.Word(name, names); near != "" {
		return Flag{}, fmt.Errorf("%s takes no flag -%s; did you mean -%s? Next: correct it", t.Name, name, near)
	}

	return Flag{}, fmt.Errorf("%s takes no flag -%s. Next: %s %s -h lists its flags", t.Name, name, p.Name, t.Name)
}

// missing is the first argument that was not given; empty if all were.
func (c call) missing() string {
	for _, name := range c.target.Arguments {
		if _, given := c.given.arguments[name]; !given {
			return name
		}
	}

	return ""
}

// judge refuses a call that lacks something, and values that can't be read. Settings know best what theirs may be.
func (p Program) judge(c call) error {
	if missing := c.missing(); missing != "" {
		return fmt.Errorf("%s lacks its <%s>. Next: %s %s", c.target.Name, missing, p.Name, c.target.usage())
	}

	for _, flag := range c.target.Flags {
		value, given := c.given.flags[flag.Name]
		if !given {
			continue
		}

		_, err := strconv.ParseBool(value)
		if flag.Kind == Switch && err != nil {
			return fmt.Errorf("-%s=%q: -%s takes true or false. Next: correct it", flag.Name, value, flag.Name)
		}
	}

	// The only variable that permits more than the flags do.
	loaded, err := settings.Load([]string{"DRY_RUN=" + os.Getenv("DRY_RUN")}, c.settings(), ".")
	if err != nil {
		return err
	}

	return loaded.RefuseUnasked(c.target.Name, p.Terminal)
}

// settings are those of a call's flags and arguments that are settings.
func (c call) settings() settings.Overrides {
	given := settings.Overrides{}
	for flag, value := range c.given.flags {
		if _, known := settings.OfFlag(flag); known {
			given[flag] = value
		}
	}

	for argument, value := range c.given.arguments {
		if _, known := settings.OfFlag("<" + argument + ">"); known {
			given["<"+argument+">"] = value
		}
	}

	return given
}

// usage is how the target is typed.
func (t Target) usage() string {
	words := []string{t.Name}
	for _, argument := range t.Arguments {
		words = append(words, "<"+argument+">")
	}

	if len(t.Flags) > 0 {
		words = append(words, "[-flag=value]...")
	}

	return strings.Join(words, " ")
}
