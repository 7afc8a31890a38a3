package emulator_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/dev/emulator/labcluster"
	"github.com/talos-mage/talos-mage/internal/test/tool"
)

// nextPatch is the release of Kubernetes after one, as in "1.36.4" after "v1.36.3".
func nextPatch(t *testing.T, version string) string {
	t.Helper()

	var major, minor, patch int

	_, err := fmt.Sscanf(version, "v%d.%d.%d", &major, &minor, &patch)
	require.NoError(t, err)

	return fmt.Sprintf("%d.%d.%d", major, minor, patch+1)
}

// runs are the components of a cluster with what they run, as in "cp1 kube-apiserver v1.36.3".
func runs(ctx context.Context, t *testing.T, api kubernetes.Interface) []string {
	t.Helper()

	pods, err := api.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{
		LabelSelector: "k8s-app in (kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy)"})
	require.NoError(t, err)

	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)

	var found []string

	for _, pod := range pods.Items {
		_, version, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
		found = append(found, pod.Spec.NodeName+" "+pod.Labels["k8s-app"]+" "+version)
	}

	for _, node := range nodes.Items {
		found = append(found, node.Name+" kubelet "+node.Status.NodeInfo.KubeletVersion)
	}

	return found
}

// kubernetesAPI is the cluster's, asked as an administrator.
func kubernetesAPI(t *testing.T, cluster *labcluster.Cluster) kubernetes.Interface {
	t.Helper()

	kubeconfig, err := secure(t, cluster.Talosconfig(), cluster.Nodes[0]).Kubeconfig(deadline(t))
	require.NoError(t, err)

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)

	return kubernetes.NewForConfigOrDie(config)
}

func TestTheRealTalosctlUpgradesKubernetes(t *testing.T) {
	t.Parallel()

	talosctl := tool.Find(t, "talosctl")

	for name, options := range map[string]labcluster.Options{
		"Talos 1.12":             {TalosVersion: talos112},
		"Talos 1.13":             {},
		"Talos 1.14, older form": {TalosVersion: talos114},
		"Talos 1.14, documents":  {TalosVersion: talos114, Contract: "v1.14"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			cluster, _ := checkedCluster(t, options)
			cluster.Lab.InstallCNI()

			for _, node := range cluster.Nodes {
				require.NoError(t, node.WaitFor(deadline(t), (*emulator.Node).Ready))
			}

			api := kubernetesAPI(t, cluster)

			before, err := api.CoreV1().Nodes().Get(deadline(t), "cp1", metav1.GetOptions{})
			require.NoError(t, err)

			version := nextPatch(t, before.Status.NodeInfo.KubeletVersion)
			upgrade := func(arguments ...string) string {
				address := cluster.Nodes[0].Address().String()
				//nolint:gosec // the program was found, and the rest is the test's
				command := exec.CommandContext(deadline(t), talosctl, append([]string{"--talosconfig", cluster.Talosconfig(),
					"-n", address, "-e", address, "upgrade-k8s", "--to", version}, arguments...)...)

				output, err := command.CombinedOutput()
				require.NoError(t, err, "%s", output)

				return string(output)
			}

			require.Contains(t, upgrade("--dry-run"), "skipped in dry-run")
			require.NotContains(t, strings.Join(runs(deadline(t), t, api), "\n"), version)

			said := upgrade()
			require.Contains(t, said, "successfully updated")

			for _, one := range runs(deadline(t), t, api) {
				require.True(t, strings.HasSuffix(one, " v"+version), one)
			}

			// What is done already is done at once.
			require.Contains(t, upgrade(), "no changes")

			info, err := api.Discovery().ServerVersion()
			require.NoError(t, err)
			require.Equal(t, "v"+version, info.GitVersion)

			node, err := api.CoreV1().Nodes().Get(deadline(t), "worker1", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, corev1.NodeReady, node.Status.Conditions[len(node.Status.Conditions)-1].Type)
		})
	}
}
