package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	batchv1 "k8s.io/api/batch/v1"

	clustersecrets "github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/dev/clusterfiles"
	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/e2e/agekey"
	"github.com/talos-mage/talos-mage/internal/test/golden"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// played are the tests of the examples' workflows, by their files' names.
var played = map[string]func(*testing.T, *runner){
	"fleet.yaml":        playFleet,
	"pull-request.yaml": playPullRequest,
}

// pinned is an action with its exact version.
var pinned = regexp.MustCompile(`^[\w-]+/[\w/-]+@v\d+\.\d+\.\d+$`)

// workflowFiles are the examples' workflows.
func workflowFiles(t *testing.T) []string {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(repository(t), "examples", "*", ".github", "workflows", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)

	return files
}

// Every command of every workflow is run, in a job that is played from its first step to its last.
func TestTheExamplesWorkflowsRun(t *testing.T) {
	t.Parallel()

	for _, file := range workflowFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()

			play := played[filepath.Base(file)]
			require.NotNil(t, play, "no test plays %s", file)

			r := &runner{workflow: readWorkflow(t, file), artifacts: t.TempDir(), origin: t.TempDir(),
				ran: map[*workflowStep]bool{}}
			example := filepath.Dir(filepath.Dir(filepath.Dir(file)))
			require.NoError(t, os.CopyFS(r.origin, os.DirFS(example)))

			play(t, r)

			for name, job := range r.workflow.Jobs {
				for _, step := range job.Steps {
					require.Equal(t, step.Run != "", r.ran[step], "job %s: no test runs step %q", name, step.Name)
					require.True(t, step.Uses == "" || pinned.MatchString(step.Uses), "%s has no exact version", step.Uses)
				}
			}
		})
	}
}

func playPullRequest(t *testing.T, r *runner) {
	t.Helper()

	programs := t.TempDir()
	comment := filepath.Join(programs, "comment")
	script(t, filepath.Join(programs, "gh"), `echo "$@" && cp "${@: -1}" `+comment+"\n")
	r.environ = []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}

	// Nobody here has the key of the secrets.
	recipient := agekey.New(t).Recipient
	write(t, filepath.Join(r.origin, ".sops.yaml"), "creation_rules: [{age: "+recipient+"}]\n")
	encryptSecrets(t, filepath.Join(r.origin, "talos"), recipient)

	git(t, r.origin, "init", "--quiet", "--initial-branch=main")
	commitAll(t, r.origin)

	values := map[string]string{
		"github.event.pull_request.head.repo.full_name == github.repository": "true",
		"github.event.pull_request.number":                                   "7",
		"github.token":                                                       "token",
	}

	propose(t, r.origin, "installDisk: /dev/vda", "installDisk: /dev/sda")

	got := r.play(t, "talos", values)
	require.Empty(t, got.failed, got.log)
	require.Contains(t, got.log, "pr comment 7 ")
	require.Empty(t, findings(t, r.sarif))

	text, err := os.ReadFile(comment)
	require.NoError(t, err)
	require.Equal(t, string(text), got.summary)
	golden.Assert(t, filepath.Join("testdata", "pull-request.golden"), withoutTimes(string(text)))

	require.NoError(t, os.Remove(comment))
	propose(t, r.origin, "kubernetesVersion: v1.36.3", "kubernetesVersion: v1.99.0")

	got = r.play(t, "talos", values)
	require.Equal(t, "Audit the files", got.failed)
	require.Contains(t, findings(t, r.sarif), "talos/talconfig.yaml")
	require.NoFileExists(t, comment)
}

// propose puts a merge of a changed talconfig.yaml upon main, as GitHub has one of every pull request.
func propose(t *testing.T, origin, now, wanted string) {
	t.Helper()

	file := filepath.Join(origin, "talos", "talconfig.yaml")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), now)

	git(t, origin, "checkout", "--quiet", "-B", "change", "main")
	write(t, file, strings.Replace(string(text), now, wanted, 1))
	commitAll(t, origin)
	git(t, origin, "checkout", "--quiet", "-B", "pull", "main")
	git(t, origin, "merge", "--quiet", "--no-ff", "--message=merge", "change")
}

func commitAll(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message=files")
}

// findings are the files that the results of a SARIF file are about, as code scanning looks for them.
func findings(t *testing.T, text string) []string {
	t.Helper()

	type result struct {
		Locations []struct {
			PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
		}
	}

	var log struct {
		Version string
		Runs    []struct{ Results []result }
	}

	require.NoError(t, json.Unmarshal([]byte(text), &log))
	require.Equal(t, "2.1.0", log.Version)
	require.Len(t, log.Runs, 1)

	var files []string

	for _, result := range log.Runs[0].Results {
		require.NotEmpty(t, result.Locations, "a result without a place is not shown")

		files = append(files, result.Locations[0].PhysicalLocation.ArtifactLocation.URI)
	}

	return files
}

// seconds are durations in a text that people read.
var seconds = regexp.MustCompile(`\d+(\.\d)?( ?s\b)`)

func withoutTimes(text string) string { return seconds.ReplaceAllString(text, "1$2") }

// playFleet plays a fleet of two clusters, of which one is not on.
func playFleet(t *testing.T, r *runner) {
	t.Helper()

	key, lab := agekey.New(t), newLab(t)
	east := fleetCluster(t, r.origin, "east", "192.0.2.", lab, key)
	fleetCluster(t, r.origin, "west", "198.51.100.", lab, key)
	git(t, r.origin, "init", "--quiet")
	commitAll(t, r.origin)

	made, err := labcluster.FromDirectory(east, nil, labcluster.Options{Lab: lab})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, made.Close()) })

	r.environ = []string{"PATH=" + key.Programs + ":" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), "CLOCK_SCALE=40",
		"SOPS_AGE_KEY_FILE=/nowhere"}
	given := map[string]string{"inputs.target || 'health'": "talos", "secrets.SOPS_AGE_KEY": string(key.Text)}

	prepared := r.play(t, "prepare", given)
	require.Empty(t, prepared.failed, prepared.log)
	require.JSONEq(t, `["east", "west"]`, prepared.outputs["clusters"])

	given["matrix.cluster"] = "east"
	ran := r.play(t, "cluster", given)
	require.Empty(t, ran.failed, ran.log)

	// Nobody lives by this clock: it only ends the waits sooner.
	alone := *r
	alone.environ = append(slices.Clone(r.environ), "CLOCK_SCALE=1000")
	given["matrix.cluster"] = "west"
	ran = alone.play(t, "cluster", given)
	require.Equal(t, "Run the target", ran.failed, ran.log)

	for _, node := range made.Nodes {
		require.Equal(t, "running", node.Stage())
	}

	summed := r.play(t, "summary", map[string]string{
		"needs.prepare.outputs.clusters": `["east", "west", "north"]`,
	})
	require.Empty(t, summed.failed, summed.log)
	golden.Assert(t, filepath.Join("testdata", "fleet.golden"),
		withoutTimes(strings.ReplaceAll(summed.summary, network(lab), "192.0.2.")))

	results, err := filepath.Glob(filepath.Join(r.artifacts, "junit", "*.xml"))
	require.NoError(t, err)
	require.Len(t, results, 4, "of each cluster, one of config:generate and one of the target")

	given["matrix.cluster"], given["inputs.target || 'health'"] = "east", "health"
	ran = r.play(t, "cluster", given)
	require.Empty(t, ran.failed, ran.log)

	runJob(t, r, key)
}

// newLab is a lab that machines of one's own files can be started in.
func newLab(t *testing.T) *emulator.Lab {
	t.Helper()

	lab, err := emulator.NewLab(emulator.LabOptions{TimeScale: timeScale})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })

	return lab
}

// fleetCluster moves an example's cluster to addresses of the lab and gives it secrets. It returns its folder.
func fleetCluster(t *testing.T, origin, name, documented string, lab *emulator.Lab, key agekey.Key) string {
	t.Helper()

	folder := filepath.Join(origin, "clusters", name)
	file := filepath.Join(folder, "talconfig.yaml")

	text, err := os.ReadFile(file)
	require.NoError(t, err)

	write(t, file, strings.ReplaceAll(string(text), documented, network(lab)))
	encryptSecrets(t, folder, key.Recipient)

	return folder
}

// network is what the addresses of a lab begin with.
func network(lab *emulator.Lab) string {
	return strings.TrimSuffix(lab.Prefix().Masked().Addr().String(), "0")
}

// encryptSecrets puts a cluster's secrets into its folder.
func encryptSecrets(t *testing.T, folder, recipient string) {
	t.Helper()

	bundle, err := clusterfiles.Secrets()
	require.NoError(t, err)

	plain, err := clustersecrets.Encode(bundle)
	require.NoError(t, err)

	encrypting := exec.CommandContext(t.Context(), tool.Find(t, "sops"), "encrypt", "--age="+recipient,
		"--input-type=yaml", "--output-type=yaml", "/dev/stdin")
	encrypting.Stdin = bytes.NewReader(plain)

	encrypted, err := encrypting.Output()
	require.NoError(t, err)
	write(t, filepath.Join(folder, "talsecret.sops.yaml"), string(encrypted))
}

// runJob runs what the Job for Kubernetes runs, on the cluster that is up by now.
func runJob(t *testing.T, r *runner, key agekey.Key) {
	t.Helper()

	job := readJob(t, filepath.Join(r.origin, "job.yaml"))
	pod := job.Spec.Template.Spec
	container := pod.Containers[0]
	require.Equal(t, job.Spec.PodFailurePolicy.Rules[0].OnExitCodes.ContainerName, &container.Name)

	// What the volume is to the Job, a folder is here.
	work := t.TempDir()
	mount := container.VolumeMounts[0].MountPath
	inWork := func(path string) string { return strings.Replace(path, mount, work, 1) }

	clone := pod.InitContainers[0].Args
	git(t, work, "clone", "--quiet", "file://"+r.origin, inWork(clone[len(clone)-1]))

	environ := append([]string{}, r.environ...)

	for _, variable := range container.Env {
		value := inWork(variable.Value)
		if variable.ValueFrom != nil {
			value = string(key.Text)
		}

		environ = append(environ, variable.Name+"="+value)
	}

	program := filepath.Join(r.artifacts, "talos-mage", "talos-mage")
	require.NoError(t, os.Chmod(program, 0o755)) //nolint:gosec // programs are for everybody

	got := run(t, command{dir: inWork(container.WorkingDir), env: environ,
		args: append([]string{program}, container.Args...)})
	require.Equal(t, 0, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, "2 of 2 nodes skipped")
}

// readJob reads a Job as an API server does, with no field that it does not know.
func readJob(t *testing.T, file string) *batchv1.Job {
	t.Helper()

	text, err := os.ReadFile(file)
	require.NoError(t, err)

	var tree any

	require.NoError(t, yaml.Unmarshal(text, &tree))

	asJSON, err := json.Marshal(tree)
	require.NoError(t, err)

	var job batchv1.Job

	strict := json.NewDecoder(bytes.NewReader(asJSON))
	strict.DisallowUnknownFields()
	require.NoError(t, strict.Decode(&job))

	return &job
}

// actionlint knows actions, and what they take, by their major versions.
func TestTheExamplesWorkflowsPassActionlint(t *testing.T) {
	t.Parallel()

	lint := tool.Find(t, "actionlint")
	exact := regexp.MustCompile(`(uses: \S+@v\d+)\.\d+\.\d+\b`)

	for _, file := range workflowFiles(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)

		copied := filepath.Join(t.TempDir(), ".github", "workflows", filepath.Base(file))
		write(t, copied, exact.ReplaceAllString(string(text), "$1"))

		got := run(t, command{dir: t.TempDir(), args: []string{lint, copied}})
		require.Equal(t, outcome{0, "", ""}, got, file)
	}
}
