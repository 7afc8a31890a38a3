package e2e_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/test/e2e/program"
)

// workflow is what a runner of GitHub Actions reads of a workflow's file.
type workflow struct {
	Defaults struct {
		Run struct{ Shell string }
	}
	Jobs map[string]*workflowJob
}

type workflowJob struct {
	Env, Outputs map[string]string
	Steps        []*workflowStep
}

type workflowStep struct {
	ID, Name, If, Uses, Run string
	Env, With               map[string]string
}

func readWorkflow(t *testing.T, file string) *workflow {
	t.Helper()

	text, err := os.ReadFile(file)
	require.NoError(t, err)

	var read workflow

	require.NoError(t, yaml.Unmarshal(text, &read))

	return &read
}

// runner plays jobs as GitHub's own runners do: each run: in Bash, with what GitHub sets in the environment. Of actions
// it plays the few that the examples use.
type runner struct {
	workflow *workflow
	// origin is the repository that the jobs check out, at its branch pull if there is one.
	origin string
	// environ is the machine's environment.
	environ []string
	// artifacts are those that jobs have uploaded, a folder each.
	artifacts string
	// sarif is the last file that was uploaded to code scanning.
	sarif string
	ran   map[*workflowStep]bool
}

// playedJob is what a job left behind.
type playedJob struct {
	// failed is the step that failed first; empty if none did.
	failed string
	// log is what the commands printed, summary the page that they made.
	log, summary string
	outputs      map[string]string
}

// job is one that is being played.
type job struct {
	*runner
	t    *testing.T
	name string
	// workspace and temp are its folders, env its environment besides the machine's.
	workspace, temp string
	env             map[string]string
	// values are those of expressions, without their braces.
	values map[string]string
	played playedJob
}

// play plays a job; values are those of the expressions in it that another job, a person or GitHub gives.
func (r *runner) play(t *testing.T, name string, values map[string]string) playedJob {
	t.Helper()

	declared := r.workflow.Jobs[name]
	require.NotNil(t, declared, "there is no job %s", name)

	j := &job{runner: r, t: t, name: name, workspace: t.TempDir(), temp: t.TempDir(), values: maps.Clone(values),
		played: playedJob{outputs: map[string]string{}}}
	j.values["runner.temp"] = j.temp
	j.env = map[string]string{
		"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": j.workspace, "RUNNER_TEMP": j.temp,
	}
	maps.Copy(j.env, j.evaluated(declared.Env))

	for _, step := range declared.Steps {
		j.step(step)
	}

	for output, value := range declared.Outputs {
		j.played.outputs[output] = j.evaluate(value)
	}

	return j.played
}

func (j *job) step(step *workflowStep) {
	if !j.wanted(step.If) {
		j.values["steps."+step.ID+".outcome"] = "skipped"

		return
	}

	outcome := "success"

	switch {
	case step.Uses != "":
		j.use(step)
	case !j.shell(step):
		outcome = "failure"

		if j.played.failed == "" {
			j.played.failed = step.Name
		}
	}

	j.values["steps."+step.ID+".outcome"] = outcome
}

// wanted judges the condition of a step: the few forms that the examples have.
func (j *job) wanted(condition string) bool {
	rest, always := strings.CutPrefix(condition, "always()")
	if j.played.failed != "" && !always {
		return false
	}

	rest = strings.TrimPrefix(rest, " && ")
	if rest == "" {
		return true
	}

	if id, ok := strings.CutSuffix(rest, ".outcome != 'skipped'"); ok {
		return j.value(id+".outcome") != "skipped"
	}

	return j.value(rest) == "true"
}

// expression is one within its braces.
var expression = regexp.MustCompile(`\$\{\{\s*(.+?)\s*\}\}`)

func (j *job) evaluate(text string) string {
	return expression.ReplaceAllStringFunc(text, func(found string) string {
		return j.value(expression.FindStringSubmatch(found)[1])
	})
}

func (j *job) evaluated(texts map[string]string) map[string]string {
	values := map[string]string{}
	for name, text := range texts {
		values[name] = j.evaluate(text)
	}

	return values
}

func (j *job) value(expression string) string {
	value, known := j.values[expression]
	require.True(j.t, known, "job %s: the test gives no value for ${{ %s }}", j.name, expression)

	return value
}

// shell runs the commands of a step, and reports whether they ended well. Values get into them by the environment
// alone: as part of the text, what somebody else has typed would be run.
func (j *job) shell(step *workflowStep) bool {
	require.NotContains(j.t, step.Run, "${{", "%s: pass the value in env:", step.Name)
	require.Equal(j.t, "bash", j.workflow.Defaults.Run.Shell, "without it, a failure within a pipe goes unnoticed")

	j.ran[step] = true
	script := filepath.Join(j.t.TempDir(), "step.sh")
	write(j.t, script, step.Run)

	files := map[string]string{}
	for _, name := range []string{"GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"} {
		files[name] = filepath.Join(j.t.TempDir(), name)
		write(j.t, files[name], "")
	}

	environ := slices.Clone(j.environ)
	for _, set := range []map[string]string{j.env, j.evaluated(step.Env), files} {
		for name, value := range set {
			environ = append(environ, name+"="+value)
		}
	}

	got := run(j.t, command{dir: j.workspace, env: environ,
		args: []string{"bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script}})
	j.played.log += got.stdout + got.stderr
	j.keep(step, files)

	return got.code == 0
}

// keep takes over what a step told the runner through its files.
func (j *job) keep(step *workflowStep, files map[string]string) {
	read := func(name string) string {
		text, err := os.ReadFile(files[name])
		require.NoError(j.t, err)

		return string(text)
	}

	j.played.summary += read("GITHUB_STEP_SUMMARY")

	for line := range strings.Lines(read("GITHUB_OUTPUT")) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		require.True(j.t, ok, line)

		j.values["steps."+step.ID+".outputs."+name] = value
	}

	for folder := range strings.Lines(read("GITHUB_PATH")) {
		j.env["PATH"] = strings.TrimSuffix(folder, "\n") + ":" + j.path()
	}
}

// path is the PATH of the next step.
func (j *job) path() string {
	if set := j.env["PATH"]; set != "" {
		return set
	}

	for _, entry := range slices.Backward(program.Environment(j.environ...)) {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			return value
		}
	}

	return ""
}

// use plays an action.
func (j *job) use(step *workflowStep) {
	action, _, _ := strings.Cut(step.Uses, "@")
	with := j.evaluated(step.With)

	switch action {
	case "actions/checkout":
		j.checkout(with)
	case "actions/setup-go":
		require.FileExists(j.t, filepath.Join(j.workspace, with["go-version-file"]))
		require.FileExists(j.t, filepath.Join(j.workspace, with["cache-dependency-path"]))
	case "actions/upload-artifact":
		j.upload(with)
	case "actions/download-artifact":
		j.download(with)
	case "github/codeql-action/upload-sarif":
		text, err := os.ReadFile(with["sarif_file"])
		require.NoError(j.t, err)

		j.sarif = string(text)
	default:
		require.Fail(j.t, "the test plays no "+action)
	}
}

// checkout gives a job the repository, with as much of its history as it asks for; ours is where it is.
func (j *job) checkout(with map[string]string) {
	if with["repository"] == "talos-mage/talos-mage" {
		require.NoError(j.t, os.Symlink(repository(j.t), filepath.Join(j.workspace, with["path"])))

		return
	}

	depth := with["fetch-depth"]
	if depth == "" {
		depth = "1"
	}

	git(j.t, j.workspace, "clone", "--quiet", "--depth="+depth, "file://"+j.origin, ".")
}

// upload keeps an artifact. Hidden files are left out unless asked for, and how a file may be used is lost.
func (j *job) upload(with map[string]string) {
	source := with["path"]
	if !filepath.IsAbs(source) {
		source = filepath.Join(j.workspace, source)
	}

	info, err := os.Stat(source)
	if os.IsNotExist(err) {
		require.Equal(j.t, "ignore", with["if-no-files-found"], "there is no %s", source)

		return
	}

	require.NoError(j.t, err)

	if strings.Contains(with["path"], "/.") {
		require.Equal(j.t, "true", with["include-hidden-files"], "%s is hidden", with["path"])
	}

	if !info.IsDir() {
		copyPlain(j.t, os.DirFS(filepath.Dir(source)), info.Name(), filepath.Join(j.artifacts, with["name"]))

		return
	}

	copyPlain(j.t, os.DirFS(source), ".", filepath.Join(j.artifacts, with["name"]))
}

// download gives an artifact to a job; those of a pattern, each in a folder of its own.
func (j *job) download(with map[string]string) {
	target := with["path"]
	if !filepath.IsAbs(target) {
		target = filepath.Join(j.workspace, target)
	}

	if name := with["name"]; name != "" {
		copyPlain(j.t, os.DirFS(filepath.Join(j.artifacts, name)), ".", target)

		return
	}

	found, err := filepath.Glob(filepath.Join(j.artifacts, with["pattern"]))
	require.NoError(j.t, err)

	for _, artifact := range found {
		copyPlain(j.t, os.DirFS(artifact), ".", filepath.Join(target, filepath.Base(artifact)))
	}
}

// copyPlain copies a file, or all files below a folder, as ones that can't be run.
func copyPlain(t *testing.T, from fs.FS, name, to string) {
	t.Helper()

	require.NoError(t, fs.WalkDir(from, name, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		text, err := fs.ReadFile(from, name)
		write(t, filepath.Join(to, filepath.FromSlash(path.Clean(name))), string(text))

		return err
	}))
}

// git runs git without a person's own settings.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()

	words := append([]string{"git", "-c", "user.name=T", "-c", "user.email=t@example.org"}, args...)
	got := run(t, command{dir: dir, env: []string{"GIT_CONFIG_GLOBAL=" + os.DevNull}, args: words})
	require.Equal(t, 0, got.code, "git %s: %s", strings.Join(args, " "), got.stderr)
}
