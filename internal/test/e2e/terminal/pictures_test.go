package terminal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/agekey"
	"github.com/talos-mage/talos-mage/internal/test/golden"
	"github.com/talos-mage/talos-mage/internal/test/picture"
	"github.com/talos-mage/talos-mage/internal/test/tmux"
)

// How large the terminal is that pictures are taken of.
const (
	pictureColumns = 100
	pictureLines   = 50
)

// pictured are the runs that docs/screens.md shows.
var pictured = []struct {
	name, title, command string
	// code is what the command ends with.
	code string
	// before is what has happened when the command is typed.
	before func(t *testing.T, desk *desk)
}{
	{name: "bring-up", title: "A bring-up of six nodes", command: "talos-mage talos", code: "0"},
	{
		name: "dead-node", title: "A bring-up with a worker that is switched off", command: "talos-mage talos", code: "4",
		before: func(t *testing.T, desk *desk) {
			desk.prepare(t)
			desk.Node("worker2").PowerOff()
		},
	},
	{
		name: "audit", title: "An audit that finds a mistake in the files", command: "talos-mage audit", code: "2",
		before: func(t *testing.T, desk *desk) {
			desk.prepare(t)
			edit(t, filepath.Join(desk.Dir, "talconfig.yaml"),
				desk.Node("worker3").Address().String(), desk.Node("cp3").Address().String())
		},
	},
}

// The page's pictures are what a terminal shows. How long something took is that of the run which was drawn.
func TestPicturesShowRealRuns(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join("testdata", "screens.md"))
	require.NoError(t, err)

	var shown [3][2]string

	t.Run("each", func(t *testing.T) {
		for i, run := range pictured {
			t.Run(run.name, func(t *testing.T) {
				t.Parallel()

				screen := screenOf(t, run.command, run.code, run.before)
				drawn, err := picture.OfScreen(run.title, screen, pictureColumns)
				require.NoError(t, err)
				golden.AssertAlike(t, filepath.Join(docs, "pictures", run.name+".svg"), drawn, withoutDurations)

				shown[i] = [2]string{"{{" + run.name + "}}", picture.Text(screen)}
			})
		}
	})

	if t.Failed() {
		return
	}

	text := string(page)

	for _, screen := range shown {
		if screen[0] == "" {
			t.Skip("NOT RUN: a program is missing, as told above")
		}

		text = strings.Replace(text, screen[0], screen[1], 1)
	}

	golden.AssertAlike(t, filepath.Join(docs, "screens.md"), text, withoutDurations)
}

var docs = filepath.Join("..", "..", "..", "..", "docs")

// Where the pictures say that the cluster's repository and its nodes are. In truth both are others each time.
const (
	pictureRoot  = "/home/you/cluster"
	pictureBlock = "192.0.2."
)

// timeScale is how many times faster than the wall clock nodes live.
const timeScale = 40

// screenOf types a command before a new lab's machines, and gives what the terminal shows then, with its colours.
func screenOf(t *testing.T, command, code string, before func(*testing.T, *desk)) string {
	t.Helper()

	desk := newDesk(t)
	if before != nil {
		before(t, desk)
	}

	terminal := tmux.Start(t, pictureColumns, pictureLines,
		"cd "+desk.root+"\nprintf '\\033[36m$\\033[0m \\033[1m"+command+"\\033[0m\\n'\n"+command, desk.environ...)
	terminal.Shows("end ")

	screen, ended, found := strings.Cut(terminal.Painted(), "\nend ")
	require.True(t, found, screen)
	require.Equal(t, code+"\n", ended, screen)
	require.Contains(t, screen, command, "all of it has to be on the screen")

	block := strings.TrimSuffix(desk.VIP.String(), "10")

	return strings.NewReplacer(desk.root, pictureRoot, block, pictureBlock).Replace(screen)
}

// desk is where an operator sits: a repository with a cluster's files, whose machines are in maintenance mode.
type desk struct {
	*labcluster.Cluster
	root    string
	environ []string
}

func newDesk(t *testing.T) *desk {
	t.Helper()

	key := agekey.New(t)
	root, err := os.MkdirTemp("", "cluster-") //nolint:usetesting // the path of that is longer than people's are
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })

	cluster, err := labcluster.New(filepath.Join(root, "talos"), labcluster.Options{
		Name: "home", TalosVersion: "v1.14.1", Contract: "v1.14", LabOptions: emulator.LabOptions{TimeScale: timeScale},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	for _, node := range cluster.Nodes {
		require.NoError(t, node.WaitFor(t.Context(), func(node *emulator.Node) bool { return node.Stage() == "maintenance" }))
	}

	// People have no configs yet, and encrypt their secrets.
	require.NoError(t, os.RemoveAll(cluster.ConfigDir()))
	key.WriteTo(t, root)

	for name, text := range map[string]string{
		".gitignore": "/age.key\n/kubeconfig\n/talos/clusterconfig/\n",
		".sops.yaml": "creation_rules: [{path_regex: 'talos/.*\\.sops\\.yaml$', age: " + key.Recipient + "}]\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}

	return &desk{cluster, root, append(cluster.Environ(), "ROOT_DIR="+root,
		"KUBECONFIG="+filepath.Join(root, "kubeconfig"), "TMPDIR="+t.TempDir(), "HOME="+t.TempDir(),
		"SOPS_AGE_KEY_FILE="+filepath.Join(root, "age.key"),
		"PATH="+strings.Join([]string{filepath.Dir(compiled(t)), key.Programs, os.Getenv("PATH")}, ":"))}
}

// prepare makes the secrets and the machine configs.
func (d *desk) prepare(t *testing.T) {
	t.Helper()

	preparing := exec.CommandContext(t.Context(), compiled(t), "config:secrets", "config:generate")
	preparing.Dir, preparing.Env = d.root, append(os.Environ(), d.environ...)

	output, err := preparing.CombinedOutput()
	require.NoError(t, err, string(output))
}

func edit(t *testing.T, path, before, after string) {
	t.Helper()

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), before)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), before, after)), 0o600))
}

// withoutDurations is a text or a picture without how long something took, and without what lies elsewhere for that.
func withoutDurations(text string) string {
	text = places.ReplaceAllString(text, "")
	text = paragraphs.ReplaceAllString(text, "\x00")
	text = varying.ReplaceAllString(text, "")

	// In lines again, so that a difference can be found.
	return strings.NewReplacer("\x00", "\n", "<text", "\n<text").Replace(text)
}

var (
	places     = regexp.MustCompile(` (?:x|y|textLength|width|height|viewBox)="[\d. ]+"`)
	paragraphs = regexp.MustCompile(`\n\n+`)
	varying    = regexp.MustCompile(`\d+(?:\.\ds|s|m\d+s|h\d\dm)\b|</text>\n<text>|[\s─━]+`)
)
