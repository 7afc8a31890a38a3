package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// inBash completes a line as bash does when Tab is pressed, and prints what the words become. bash parts them at ":"
// and "=" too.
const inBash = `
source <(talos-mage completion bash)
compopt() { :; }
COMP_LINE=$1 COMP_POINT=${#1}
_talos_mage talos-mage
word=${1##* }
printf '%s\n' "${COMPREPLY[@]/#/"${word%"${word##*[:=]}"}"}"
`

// inFish is the same for fish, which has a way to ask.
const inFish = `
source (talos-mage completion fish | psub)
complete -C "$argv[1]" | string replace -r '\t.*' ''
`

// inZsh types the line and Tab into a zsh on a terminal, and prints what then stands there.
const inZsh = `
zmodload zsh/zpty
zpty typed zsh -f -i
zpty -w typed 'PS1=; unsetopt autolist; autoload -Uz compinit; compinit -u -d $PWD/compdump'
zpty -w typed 'source <(talos-mage completion zsh); print "rea""dy"'
zpty -r typed shown '*ready*'
zpty -n -w typed "$1"$'\t\x01: \x05; print -r -- "<$_>"\n'
zpty -r typed shown $'*\n<*>*'
print -r -- "${${shown##*$'\n'<}%%>*}"
zpty -d typed
`

// Node names are those of the files.
func TestShellsCompleteTargetsFlagsAndNodeNames(t *testing.T) {
	t.Parallel()

	cases := []struct{ typed, want string }{
		{"talos-mage upgradeN", "upgradeNode"},
		{"talos-mage etcd:sn", "etcd:snapshot"},
		{"talos-mage diagnose -bun", "-bundle"},
		{"talos-mage audit -form", "-format="},
		{"talos-mage audit -format=sa", "-format=sarif"},
		{"talos-mage status -node=harbour-cp1,harbour-w", "-node=harbour-cp1,harbour-worker"},
		{"talos-mage upgradeNode harbour-w", "harbour-worker"},
		{"talos-mage reset -cluster=", "-cluster=harbour"},
		{"talos-mage explain TM41", "TM41"},
	}

	for shell, text := range map[string]string{"bash": inBash, "fish": inFish, "zsh": inZsh} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()

			program, folder := tool.Find(t, shell), t.TempDir()
			write(t, filepath.Join(folder, "script"), text)
			ours := filepath.Dir(script(t, filepath.Join(folder, "bin", "talos-mage"), "TALOS_MAGE="+launcher(t)+" exec "+launcher(t)+` "$@"`))

			for _, c := range cases {
				got := run(t, command{dir: folder, args: []string{program, filepath.Join(folder, "script"), c.typed},
					env: []string{
						"PATH=" + ours + ":" + os.Getenv("PATH"), "HOME=" + folder, "TERM=xterm",
						"TALOS_DIR=" + filepath.Join(repository(t), "testdata", "clusters", "ha"),
					}})
				require.Empty(t, got.stderr, c.typed)

				words := strings.Fields(got.stdout)
				require.NotEmpty(t, words, c.typed)

				for _, word := range words {
					require.True(t, strings.HasPrefix(word, c.want), "%s: %s", c.typed, words)
				}
			}
		})
	}
}
