package clients_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// Kubernetes' own client takes the kubeconfig that a control plane gave, and finds the cluster behind its endpoint, the
// virtual address.
func TestKubectlAgainstTheWholeCluster(t *testing.T) {
	t.Parallel()

	program := tool.Find(t, "kubectl")
	c := sharedCluster(t)
	home, path := t.TempDir(), kubeconfig(t, c)

	kubectl := func(arguments ...string) string {
		t.Helper()

		command := exec.CommandContext(t.Context(), program, arguments...)
		command.Env = []string{"KUBECONFIG=" + path, "HOME=" + home, "PATH=" + os.Getenv("PATH")}

		output, err := command.CombinedOutput()
		require.NoError(t, err, string(output))

		return string(output)
	}

	require.Equal(t, "ok", kubectl("get", "--raw", "/readyz"))

	nodes := kubectl("get", "nodes", "-o", "wide")
	pods := kubectl("get", "pods", "-A")

	for _, node := range c.Nodes {
		require.Regexp(t, `(?m)^`+node.Name()+` +Ready .*`+node.Address().String()+` `, nodes)
	}

	for _, name := range []string{"cp1", "cp2", "cp3"} {
		for _, pod := range []string{"kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"} {
			require.Regexp(t, `kube-system +`+pod+name+` +1/1 +Running`, pods)
		}
	}

	require.Regexp(t, `kube-system +coredns-\S+ +1/1 +Running`, pods)
	require.NotContains(t, pods, "kube-apiserver-worker1")
}
