package clients_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/sourcegraph/conc/pool"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// onDisk is where talosctl has images pulled to by default.
func onDisk() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

// upgrade pulls the installer, runs it, drains the nodes, reboots them and takes the cordon back; older nodes are left
// to do it by themselves.
func (s *invocation) upgrade(ctx context.Context) error {
	lines, hangUp, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()

	api, nodes := lines[0].Client, lines[0].nodes

	old, err := s.anyOlder(ctx)
	if err != nil {
		return fmt.Errorf("error checking Talos version compatibility: %w", err)
	}

	if old || s.legacy {
		s.warn("New upgrade API is not available, falling back to legacy")

		return s.upgradeAsBefore(ctx)
	}

	if err := s.pull(ctx, api, nodes, s.image); err != nil {
		return fmt.Errorf("error pulling upgrade image: %w", err)
	}

	if err := s.install(ctx, api, nodes); err != nil {
		return fmt.Errorf("error during upgrade: %w", err)
	}

	names, err := s.drain(ctx, api, nodes)
	if err != nil {
		return err
	}

	return errors.Join(s.rebootAndWait(ctx), s.uncordon(ctx, api, names))
}

// anyOlder reports whether a node has no LifecycleService.
func (s *invocation) anyOlder(ctx context.Context) (older bool, err error) {
	var mu sync.Mutex

	err = s.ask(ctx, func(ctx context.Context, api *client.Client, _ string) error {
		reply, err := api.Version(ctx)

		mu.Lock()
		defer mu.Unlock()

		for _, message := range reply.GetMessages() {
			older = older || strings.HasPrefix(message.GetVersion().GetTag(), "v1.12.")
		}

		return err
	})

	return older, err
}

func (s *invocation) upgradeAsBefore(ctx context.Context) error {
	return s.track(ctx, tracked{
		act: func(ctx context.Context, api *client.Client) (string, error) {
			reply, err := api.UpgradeWithOptions(ctx, //nolint:staticcheck // what talosctl calls
				client.WithUpgradeImage(s.image), client.WithUpgradeStage(s.stage), client.WithUpgradeForce(s.force))

			return acted(reply.GetMessages(), err)
		},
		done:   machineReady,
		proven: otherBoot,
	})
}

// stream makes a call on every node, one by one, and hands on what each says.
func stream[T any](ctx context.Context, nodes []string,
	call func(ctx context.Context) (grpc.ServerStreamingClient[T], error), each func(node string, frame *T)) error {
	all := pool.New().WithErrors()

	for _, node := range nodes {
		all.Go(func() error {
			frames, err := call(client.WithNode(ctx, node))

			for err == nil {
				var frame *T

				if frame, err = frames.Recv(); err == nil {
					each(node, frame)
				}
			}

			if !errors.Is(err, io.EOF) {
				return fmt.Errorf("error from node %s: %w", node, err)
			}

			return nil
		})
	}

	return all.Wait()
}

func (s *invocation) pull(ctx context.Context, api *client.Client, nodes []string, image string) error {
	return stream(ctx, nodes,
		func(ctx context.Context) (grpc.ServerStreamingClient[machineapi.ImageServicePullResponse], error) {
			return api.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: onDisk(), ImageRef: image})
		}, func(node string, frame *machineapi.ImageServicePullResponse) {
			if name := frame.GetName(); name != "" {
				s.warn("%s: pulled image %s", node, name)
			}
		})
}

func (s *invocation) images(ctx context.Context) error {
	lines, hangUp, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()

	where := onDisk()
	if !slices.Contains(s.words, "system") {
		where.Namespace = common.ContainerdNamespace_NS_CRI
	}

	return stream(ctx, lines[0].nodes,
		func(ctx context.Context) (grpc.ServerStreamingClient[machineapi.ImageServiceListResponse], error) {
			return lines[0].ImageClient.List(ctx, &machineapi.ImageServiceListRequest{Containerd: where})
		}, func(node string, frame *machineapi.ImageServiceListResponse) {
			s.print("%s %s %s\n", node, frame.GetName(), frame.GetDigest())
		})
}

func (s *invocation) install(ctx context.Context, api *client.Client, nodes []string) error {
	var (
		mu     sync.Mutex
		failed error
	)

	err := stream(ctx, nodes,
		func(ctx context.Context) (grpc.ServerStreamingClient[machineapi.LifecycleServiceUpgradeResponse], error) {
			return api.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
				Containerd: onDisk(), Source: &machineapi.InstallArtifactsSource{ImageName: s.image},
			})
		}, func(node string, frame *machineapi.LifecycleServiceUpgradeResponse) {
			exit, ended := frame.GetProgress().GetResponse().(*machineapi.LifecycleServiceInstallProgress_ExitCode)

			switch {
			case !ended:
			case exit.ExitCode != 0:
				mu.Lock()
				defer mu.Unlock()

				failed = fmt.Errorf("node %s: upgrade failed with exit code %d", node, exit.ExitCode)
			default:
				s.warn("%s: upgrade completed", node)
			}
		})

	return errors.Join(err, failed)
}

// kubernetes connects with the kubeconfig that the endpoint gives.
func (s *invocation) kubernetes(ctx context.Context, api *client.Client) (kubernetes.Interface, error) {
	kubeconfig, err := api.Kubeconfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("error fetching kubeconfig from Talos API: %w", err)
	}

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}

	return kubernetes.NewForConfig(config)
}

// drain cordons nodes and moves their pods away, as kubectl does. It returns the nodes' names in Kubernetes.
func (s *invocation) drain(ctx context.Context, api *client.Client, nodes []string) ([]string, error) {
	kube, err := s.kubernetes(ctx, api)
	if err != nil {
		return nil, err
	}

	var names []string

	for _, node := range nodes {
		name, err := safe.StateGetByID[*k8s.Nodename](client.WithNode(ctx, node), api.COSI, k8s.NodenameID)
		if err != nil {
			return nil, fmt.Errorf("error getting Kubernetes node name from Talos API: %w", err)
		}

		names = append(names, name.TypedSpec().Nodename)
	}

	for _, name := range names {
		if err := cordon(ctx, kube, name, "true"); err != nil {
			return nil, err
		}

		if err := evictAll(ctx, kube, name); err != nil {
			return nil, fmt.Errorf("error draining node %q: %w", name, err)
		}

		s.warn("%s: node drained", name)
	}

	return names, nil
}

func cordon(ctx context.Context, kube kubernetes.Interface, name, wanted string) error {
	_, err := kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":`+wanted+`}}`), metav1.PatchOptions{})

	return err
}

func evictAll(ctx context.Context, kube kubernetes.Interface, node string) error {
	pods, err := kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, Limit: 500})
	if err != nil {
		return err
	}

	for _, pod := range pods.Items {
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			continue
		}

		if owner := metav1.GetControllerOf(&pod); owner != nil && owner.Kind == "DaemonSet" {
			if _, err := kube.AppsV1().DaemonSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{}); err != nil {
				return err
			}

			continue
		}

		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
		if err := kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction); err != nil {
			return err
		}

		if err := again(ctx, func() (bool, error) {
			found, err := kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || (err == nil && found.UID != pod.UID) {
				return false, nil
			}

			return err == nil, errors.Join(err, errors.New("the pod is still there"))
		}); err != nil {
			return err
		}
	}

	return nil
}

// uncordon waits until nodes are Ready and takes their cordon back.
func (s *invocation) uncordon(ctx context.Context, api *client.Client, names []string) error {
	kube, err := s.kubernetes(ctx, api)
	if err != nil {
		return err
	}

	for _, name := range names {
		for {
			node, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err == nil && nodeReady(node) {
				break
			}

			select {
			case <-ctx.Done():
				return fmt.Errorf("error waiting for node %q to become Ready: %w", name, ctx.Err())
			case <-time.After(10 * time.Millisecond):
			}
		}

		if err := cordon(ctx, kube, name, "null"); err != nil {
			return err
		}

		s.warn("%s: node uncordoned", name)
	}

	return nil
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}

	return false
}

// etcdSnapshot writes a snapshot to a file, once it is whole: with its hash, whose length the size tells.
func (s *invocation) etcdSnapshot(ctx context.Context) error {
	return s.askOne(ctx, func(ctx context.Context, api *client.Client) error {
		path := s.words[2]
		defer os.Remove(path + ".part")

		file, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()

		snapshot, err := api.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
		if err != nil {
			return fmt.Errorf("error reading file: %w", err)
		}
		defer snapshot.Close()

		size, err := io.Copy(file, snapshot)
		if err != nil {
			return fmt.Errorf("error reading: %w", err)
		}

		const block = 512

		if size%block != sha256.Size {
			return fmt.Errorf("sha256 checksum not found (size %d)", size)
		}

		s.print("etcd snapshot saved to %q (%d bytes)\n", path, size)

		return os.Rename(path+".part", path)
	})
}
