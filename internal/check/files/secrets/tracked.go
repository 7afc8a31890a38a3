package secrets

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
	"github.com/talos-mage/talos-mage/internal/base/program"
	"github.com/talos-mage/talos-mage/internal/base/secrettext"
	"github.com/talos-mage/talos-mage/internal/check"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// trackedFiles are the files of the cluster's folders that git tracks.
type trackedFiles struct {
	paths []string
	// why says why it is not known.
	why string
}

// untracked is why nothing is known of what git tracks.
const untracked = "there is no git, or the files are in no repository of it"

// gitPatience is how long git may take to list files.
const gitPatience = 10 * time.Second

func tracked(in *check.Input) trackedFiles { return check.Once(in, findTracked) }

// findTracked asks git, which reads its index for that and no network.
func findTracked(in *check.Input) trackedFiles {
	var tracked trackedFiles

	asked := map[string]bool{}

	for _, folder := range []string{in.Options.TalosDir, in.Options.ConfigDir, filepath.Dir(in.Options.Talosconfig)} {
		if _, err := os.Stat(folder); err != nil || asked[folder] {
			continue
		}

		asked[folder] = true

		paths, why := listTracked(in, folder)
		if why != "" {
			tracked.why = why

			continue
		}

		tracked.paths = append(tracked.paths, paths...)
	}

	slices.Sort(tracked.paths)
	tracked.paths = slices.Compact(tracked.paths)

	if len(tracked.paths) > 0 {
		tracked.why = ""
	}

	return tracked
}

func listTracked(in *check.Input, folder string) (paths []string, why string) {
	git := program.Git(in.Options.Environ, folder)

	if _, found := git.Find("git"); !found {
		return nil, untracked
	}

	ctx, cancel := context.WithTimeout(context.Background(), gitPatience)
	defer cancel()

	listed, err := git.Run(ctx, nil, "git", "-c", "core.fsmonitor=false", "ls-files", "-z")
	if err != nil {
		return nil, untracked
	}

	for name := range strings.SplitSeq(string(listed), "\x00") {
		if name != "" {
			paths = append(paths, filepath.Join(folder, filepath.FromSlash(name)))
		}
	}

	return paths, ""
}

// largestTracked is the size in bytes above which a tracked file is not looked into.
const largestTracked = 1 << 20

// checkTracked looks for secrets in the clear in tracked files: one finding a file, at its first secret.
func checkTracked(r *check.Report, in *check.Input) {
	for _, path := range tracked(in).paths {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() > largestTracked {
			continue
		}

		file := in.Open(path)
		if file == nil || bytes.IndexByte(file.Data, 0) >= 0 {
			continue
		}

		if secrets := plainSecrets(file.Data, isYAML(path)); len(secrets) > 0 {
			r.Add(diagnosis.Warning, file.Line(secrets[0].line, 0).Masked(),
				"git rm --cached "+file.Shown+", and list it in .gitignore; or encrypt it with sops",
				"git tracks %s, which holds %s in the clear%s", file.Shown, secrets[0].what, more(len(secrets)-1))
		}
	}
}

func more(count int) string {
	if count == 0 {
		return ""
	}

	return ", and more"
}

func isYAML(path string) bool {
	return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path))
}

// plainSecret is a secret in the clear.
type plainSecret struct {
	line int
	what string
}

var (
	tokenValue = pattern.New(`(?i)token"?\s*:\s*["']?` + secrettext.Token + `["']?\s*(?:#|$)`)
	bytesValue = pattern.New(`(?i)(?:secret|private_?key|preshared_?key)"?\s*:\s*["']?[A-Za-z0-9+/]{43}=`)
	// password is one in a YAML file; references, variables and placeholders are none.
	password  = pattern.New(`(?i)(?:^|[\s{,-])["']?(?:password|passphrase)["']?\s*:\s+["']?([^\s"'#}]{4,})`)
	reference = pattern.New(`^(?:\$|\{\{|<|ENC\[|op://|ref\+|null$|true$|false$|[|>&*!])`)
)

// plainSecrets are those that a text holds, by line.
func plainSecrets(data []byte, yaml bool) []plainSecret {
	var found []plainSecret

	number := 0

	for line := range strings.Lines(string(data)) {
		number++

		if strings.HasPrefix(strings.TrimSpace(line), "#") && !secrettext.HoldsAgeKey(line) {
			continue
		}

		if what := secretIn(strings.TrimRight(line, "\r\n"), yaml); what != "" {
			found = append(found, plainSecret{number, what})
		}
	}

	return found
}

// secretIn says what secret a line holds; empty for none.
func secretIn(line string, yaml bool) string {
	switch {
	case secrettext.HoldsPrivateKey(line):
		return "a private key"
	case tokenValue.MatchString(line):
		return "a token"
	case bytesValue.MatchString(line):
		return "a secret"
	case yaml:
		if match := password.FindStringSubmatch(line); match != nil && !reference.MatchString(match[1]) {
			return "a password"
		}
	}

	return ""
}
