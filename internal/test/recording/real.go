package recording

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who the recorded programs are for the Kubernetes API.
const (
	admin = "admin"
	// Guest may do nothing.
	Guest = "guest"
	// Stranger has credentials that the API does not know.
	Stranger = "stranger"
	// Off is a Kubernetes API that does not answer.
	Off = "off"
)

// startReal starts a Kubernetes API for the time of the test.
func startReal(t testing.TB) *Real {
	t.Helper()

	_, api := startStandIn()
	t.Cleanup(api.CloseClientConnections)

	r := &Real{t: t, folder: t.TempDir(), api: api.URL}
	for _, name := range []string{admin, Guest, Stranger, Off} {
		r.writeKubeconfig(name)
	}

	r.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.folder, "TMPDIR=" + r.folder, "LC_ALL=C.UTF-8",
		"KUBECONFIG=" + r.kubeconfig(admin)}

	return r
}

// Connect makes the recorded programs somebody else for the Kubernetes API: Guest, Stranger or Off; "" is its
// administrator.
func (r *Real) Connect(as string) {
	if as == "" {
		as = admin
	}

	r.environ = append(r.environ[:len(r.environ)-1:len(r.environ)-1], "KUBECONFIG="+r.kubeconfig(as))
}

func (r *Real) kubeconfig(as string) string { return filepath.Join(r.folder, as+".kubeconfig") }

// writeKubeconfig makes one with the context that Talos gives the lab.
func (r *Real) writeKubeconfig(as string) {
	address := r.api
	if as == Off {
		address = "https://127.0.0.1:1"
	}

	r.file(as+".kubeconfig", `apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster: {server: `+address+`, insecure-skip-tls-verify: true}
users:
- name: admin@lab
  user: {token: "`+as+`"}
contexts:
- name: admin@lab
  context: {cluster: lab, user: admin@lab}
current-context: admin@lab
`)
}

func (r *Real) file(name, content string) {
	require.NoError(r.t, os.WriteFile(filepath.Join(r.folder, name), []byte(content), 0o600))
}

// versionOf is how a program says its version.
var versionOf = regexp.MustCompile(`v\d+\.\d+\.\d+[-+\w.]*`)

// versions are those of the recorded programs.
func (r *Real) versions(t testing.TB) map[string]string {
	t.Helper()

	versions := map[string]string{}

	for _, command := range []string{"kubectl version --client", "helmfile version", "helm version --short"} {
		words := strings.Fields(command)
		asked := exec.Command(lookup(r.environ, words[0]), words[1:]...)
		asked.Env = r.environ

		// helmfile says its version, and then fails to look for a newer one.
		output, _ := asked.CombinedOutput() //nolint:errcheck // as above

		versions[words[0]] = versionOf.FindString(string(output))
		require.NotEmpty(t, versions[words[0]], "%s: %s", command, output)
	}

	return versions
}
