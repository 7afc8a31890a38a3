package pages_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var repository = filepath.Join("..", "..", "..", "..")

var (
	// code is what a page shows as code: a line of a block, or a span.
	code = regexp.MustCompile("(?ms)^```.*?^```|^    [^\n]*|`[^`\n]+`")
	// ours is what begins with a program of this repository, or with one that it takes to get and change it. What other
	// programs understand is their own affair.
	ours = regexp.MustCompile(
		`^(?:[A-Z_]+=\S+ )*(?:(?:talos-mage|mage|task|go|git|cp|sed|source|\(cd) [^=].*|(?:scripts/\S+\.sh|\.ci/run)( .*)?)$`)
	remark = regexp.MustCompile(`\s+#.*`)
	// launched is how a target is called where the repository has a magefile that imports it.
	launched = regexp.MustCompile(`^((?:[A-Z_]+=\S+ )*)mage (\w)`)
)

// commandsOfPages are the commands that the pages name, each once, with the pages. The program has each target by
// whatever name it is called.
func commandsOfPages(t *testing.T) map[string][]string {
	t.Helper()

	found := map[string][]string{}

	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md"} {
		pages, err := filepath.Glob(filepath.Join(repository, pattern))
		require.NoError(t, err)

		for _, page := range pages {
			text, err := os.ReadFile(page)
			require.NoError(t, err)

			for _, command := range commandsIn(string(text)) {
				command = launched.ReplaceAllString(command, "${1}talos-mage ${2}")
				if !slices.Contains(found[command], page) {
					found[command] = append(found[command], page)
				}
			}
		}
	}

	require.Greater(t, len(found), 100)

	return found
}

func commandsIn(page string) []string {
	var commands []string

	for _, shown := range code.FindAllString(page, -1) {
		shown = strings.TrimPrefix(shown, "    ")

		for line := range strings.Lines(strings.Trim(shown, "`")) {
			if line = remark.ReplaceAllString(strings.TrimRight(line, "\n"), ""); ours.MatchString(line) {
				commands = append(commands, line)
			}
		}
	}

	return commands
}

// Each command of the pages is typed here, or it is said why not; and what is said here is on a page.
func TestEveryCommandOfThePagesIsTyped(t *testing.T) {
	t.Parallel()

	onPages := commandsOfPages(t)
	known := map[string]bool{getProgram: true}

	for _, chapter := range story {
		for _, line := range chapter.lines {
			known[line.typed] = true
		}
	}

	tests := testNames(t)

	for _, elsewhere := range notTyped {
		require.False(t, known[elsewhere.command], "%s is typed, and said not to be", elsewhere.command)

		known[elsewhere.command] = true

		if elsewhere.test != "" {
			require.True(t, tests[elsewhere.test], "%s: there is no %s", elsewhere.command, elsewhere.test)
		}
	}

	for command, pages := range onPages {
		if !known[command] {
			t.Errorf("%s has people type a command that no test types: %s", strings.Join(pages, ", "), command)
		}

		delete(known, command)
	}

	for command := range known {
		t.Errorf("no page has it any more: %s", command)
	}
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()

	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)

	err := filepath.WalkDir(filepath.Join(repository, "internal"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		text, err := os.ReadFile(path)
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			names[match[1]] = true
		}

		return err
	})
	require.NoError(t, err)

	return names
}

// notTyped are the commands that the story leaves out.
var notTyped = []struct {
	command, why string
	// test, if any, is the one that types it.
	test string
}{
	{"git clone https://github.com/talos-mage/talos-mage ../talos-mage", "needs the internet", ""},
	{"git clone https://github.com/talos-mage/talos-mage && cd talos-mage", "needs the internet", ""},
	{"go install github.com/talos-mage/talos-mage/cmd/talos-mage@latest", "needs the internet", ""},
	{"go get -tool github.com/magefile/mage", "needs the internet", ""},
	{"go get github.com/talos-mage/talos-mage", "needs the internet", ""},
	{"go build -ldflags='-s -w' -o /usr/local/bin/ ./cmd/talos-mage", "links anew what getProgram has made", ""},
	{"git add", "no whole command", ""},
	{"git commit -a", "git's own", ""},
	{"go run mage.go", "is advised against", ""},
	{"go build", "no whole command", ""},
	{"go install", "no whole command", ""},
	{"go run", "no whole command", ""},
	{"go tool mage", "no whole command", ""},
	{"task -x", "no whole command", ""},
	{"scripts/bootstrap-apps.sh", "is the repository's own, if it has one", ""},
	{"task talos:apply-node", "needs an address, as the page says elsewhere", "TestApplyNodeAsksForAnAddress"},
	{"task talos:upgrade-node", "needs an address, as the page says elsewhere", "TestPreconditionsSayWhatIsMissing"},

	{"go tool mage -l", "another test types it", "TestThisRepositorysTargetsReadLikeATableOfContents"},
	{"go tool mage demo", "the gate types it", ""},
	{"talos-mage demo", "another test types it", "TestTheDemosSecondHalfFitsOnAScreen"},
	{"go tool mage emulator:up", "another test starts what it starts", "TestACopyOnLoopbackIsAFullRehearsal"},
	{"go tool mage emulator:up -scenario=FILE", "another test plays one", "TestTheEventsOfAScenarioHappen"},
	{"go tool mage emulator:up -scenario=lab.yaml", "another test plays one", "TestTheEventsOfAScenarioHappen"},
	{"go tool mage emulator:up -talosDir=DIR", "another test does the same", "TestACopyOnLoopbackIsAFullRehearsal"},
	{"go tool mage emulator:up -talosDir=rehearsal", "another test does the same", "TestACopyOnLoopbackIsAFullRehearsal"},

	{"go test ./...", "is what runs this", ""},
	{"go test ./internal/check/files ./internal/diagnosis -update", "rewrites this repository", ""},
	{"go test ./internal/cli/commandline -update", "rewrites this repository", ""},
	{"go test ./internal/test/layout -run Picture -update", "rewrites this repository", ""},
	{"go test ./internal/steps -parallel 1 -run 'TestApplicationsAreInstalled|TestWhatKeeps' -record -update",
		"rewrites this repository, by programs that not everybody has", ""},
	{"go test ./internal/test/e2e/kills -kills=N -seed=S", "is how that test prints its replay", ""},
	{"go test ./cmd/talos-mage -run '^$' -bench Start", "the gate runs each benchmark", ""},
	{"go tool mage bench -nodes=6,24 -write", "takes many minutes, and rewrites a page", ""},
	{"go tool mage bench -nodes=100 -scale=1 -write", "as above", ""},
	{"go tool mage dist", "another test makes what it makes", "TestTwoFoldersMakeTheSameBytes"},
	{"talos-mage up:health", "is an importer's own name for it", "TestUnderAnAliasTargetsStandBesideOnesOfTheSameNames"},
	{"mage -h <target>", "Mage's own", ""},
	{"go tool mage -h talos", "Mage's own", ""},
	{"go tool nm -size", "Go's own", ""},
	{"go doc github.com/talos-mage/talos-mage/recipe", "Go's own", ""},
	{".ci/run", "is the gate, which runs this", ""},
	{".ci/run kills", "is the gate, which runs this", ""},
	{".ci/run lint test", "is the gate, which runs this", ""},
	{".ci/run tools", "is the gate, which runs this", ""},
	{"go tool mage chaos", "takes an hour; the gate plays less of it", ""},
	{"go tool mage fuzz", "takes minutes; the gate does less of it", ""},
}
