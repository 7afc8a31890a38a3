package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
)

// KubernetesUpgrade is what became of an upgrade of Kubernetes.
type KubernetesUpgrade struct {
	// From and To are its versions, as "v1.36.3".
	From, To string
	// FirstOld and Old are the components that do not run the new one after the first call, and in the end.
	FirstOld, Old []string
}

// upgradableKubernetes is for a cluster whose nodes are Ready and run one minor of Talos, which a talosctl goes with.
func upgradableKubernetes(_ *rand.Rand, plan *Plan) (string, bool) {
	return "", plan.OwnCNI && !slices.ContainsFunc(plan.Machines, func(machine Machine) bool {
		return machine.TalosVersion != plan.Machines[0].TalosVersion
	})
}

// drawReboot has a node lose its power for a moment.
func drawReboot(random *rand.Rand, plan *Plan) *Incident {
	return &Incident{Kind: "reboot", Node: plan.Machines[random.IntN(len(plan.Machines))].Name,
		Words: "loses its power for a moment", Class: poweredOff, cutsPower: true,
		At: Moment{Started, between(random, 0, 2*time.Minute)}, For: between(random, time.Second, 5*time.Second)}
}

// declareKubernetes has the files declare the next version of Kubernetes.
func (w *world) declareKubernetes(_ context.Context, care *Care) error {
	from := w.generated.Options.KubernetesVersion

	var major, minor, patch int
	if _, err := fmt.Sscanf(from, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("read the version of Kubernetes: %w", err)
	}

	to := fmt.Sprintf("%d.%d.%d", major, minor, patch+1)
	declared := func(data []byte) []byte { return bytes.ReplaceAll(data, []byte(from), []byte(to)) }

	w.generated.Talenv = declared(w.generated.Talenv)
	for i := range w.generated.Configs {
		w.generated.Configs[i].Bytes = declared(w.generated.Configs[i].Bytes)
	}

	care.Kubernetes = &KubernetesUpgrade{From: "v" + from, To: "v" + to}
	w.note(func() { w.upgrading = care.Kubernetes })

	if err := w.generated.Write(w.talosDir()); err != nil {
		return fmt.Errorf("declare another Kubernetes: %w", err)
	}

	return w.installDoubles(w.playTalosctl, "talosctl")
}

// versionless is a machine config with the former version of Kubernetes: what a node runs of it is judged by itself.
func (w *world) versionless(data []byte) []byte {
	w.mu.Lock()
	upgrade := w.upgrading
	w.mu.Unlock()

	if upgrade == nil {
		return data
	}

	return bytes.ReplaceAll(data, []byte(upgrade.To), []byte(upgrade.From))
}

// noteOld notes which components are left after the first call.
func (w *world) noteOld(care *Care) error {
	care.Kubernetes.FirstOld = w.oldComponents()
	w.note(func() { w.sound = true })

	return nil
}

// oldComponents are those that nodes are to run in another version than the new one, by their own configs, and those
// that Kubernetes shows in another one.
func (w *world) oldComponents() []string {
	var old []string

	for _, planned := range w.plan.Machines {
		if bytes.Contains(w.node(planned.Name).Config(), []byte(":"+w.upgrading.From)) {
			old = append(old, "in the config of "+planned.Name)
		}
	}

	client, err := w.kubernetes()
	if err != nil {
		return append(old, err.Error())
	}

	// Who can't be asked now was asked by the program.
	components, _ := client.Components(context.Background()) //nolint:errcheck // as above
	for _, component := range components {
		if component.Version != w.upgrading.To {
			old = append(old, fmt.Sprintf("%s of %s runs %s", component.Name, component.Node, component.Version))
		}
	}

	return old
}

// kubernetesIsUpgraded: success means that no component runs the former version.
func kubernetesIsUpgraded(c *Care) []string {
	if c.Kubernetes == nil {
		return nil
	}

	var found []string

	if c.First.Code == diagnosis.ExitOK && len(c.Kubernetes.FirstOld) > 0 {
		found = append(found, fmt.Sprintf("it was a success, and not upgraded are %v", c.Kubernetes.FirstOld))
	}

	if len(c.Kubernetes.Old) > 0 {
		found = append(found, fmt.Sprintf("in the end not upgraded are %v", c.Kubernetes.Old))
	}

	return found
}

// talosctl is one call of the double's upgrade-k8s. It does over the nodes' API what changes them, in the order and in
// the words of talosctl 1.14: the static pods component by component, kube-proxy, the kubelets, kube-proxy's manifest.
// It makes none of the checks before that, applies no other manifest, and gives up where the original waits for ever.
type talosctl struct {
	w             *world
	call          *programCall
	from, to      string
	dryRun        bool
	talos         *client.Client
	kubeconfig    []byte
	kubernetes    *kube.Client
	controlPlanes []kube.Node
	nodes         []kube.Node
}

// errKilled is the end of a talosctl that is killed.
var errKilled = errors.New("killed")

// killed is the exit code of what a signal killed.
const killed = 137

// playTalosctl answers as talosctl does.
func (w *world) playTalosctl(ctx context.Context, call *programCall) int {
	if call.has("version") {
		call.say("Client:\nTalos %s", w.plan.Machines[0].TalosVersion)

		return 0
	}

	t := &talosctl{w: w, call: call, from: w.upgrading.From, to: w.upgrading.To, dryRun: call.has("--dry-run")}

	switch err := t.upgrade(ctx); {
	case errors.Is(err, errKilled):
		return killed
	case err != nil:
		return call.complain("%s", err)
	default:
		return 0
	}
}

func (t *talosctl) upgrade(ctx context.Context) error {
	if err := t.discover(ctx); err != nil {
		return err
	}
	defer t.talos.Close() //nolint:errcheck // it is over

	for _, phase := range []func(context.Context) error{t.pullImages, t.upgradeStaticPods, t.upgradeProxies,
		t.upgradeKubelets, t.applyManifest} {
		if err := phase(ctx); err != nil {
			return err
		}
	}

	return nil
}

// discover connects, and finds the nodes that Kubernetes has.
func (t *talosctl) discover(ctx context.Context) error {
	file, err := clientconfig.Open(t.call.flag("--talosconfig"))
	if err != nil {
		return fmt.Errorf("error reading talosconfig: %w", err)
	}

	t.talos, err = client.New(ctx, client.WithConfig(file), client.WithEndpoints(t.call.flag("--endpoints")))
	if err != nil {
		return fmt.Errorf("error constructing client: %w", err)
	}

	limited, stop := t.w.lab.Clock().WithTimeout(ctx, longestStep)
	defer stop()

	if t.kubeconfig, err = t.talos.Kubeconfig(client.WithNode(limited, t.call.flag("--nodes"))); err == nil {
		t.kubernetes, err = kube.Open(t.kubeconfig, kube.Options{Timeout: 2 * time.Second}) //nolint:mnd // the wall's
	}

	if err == nil {
		t.nodes, err = t.kubernetes.Nodes(limited)
	}

	if err != nil {
		return fmt.Errorf("error fetching controlplane nodes: %w", err)
	}

	// Control planes come first everywhere.
	slices.SortStableFunc(t.nodes, func(a, b kube.Node) int {
		return map[bool]int{true: 0, false: 1}[a.ControlPlane] - map[bool]int{true: 0, false: 1}[b.ControlPlane]
	})

	for _, node := range t.nodes {
		if node.ControlPlane {
			t.controlPlanes = append(t.controlPlanes, node)
		}
	}

	t.call.say("automatically detected the lowest Kubernetes version %s", strings.TrimPrefix(t.from, "v"))

	return nil
}

func at(node kube.Node) string { return node.InternalIPs[0].String() }

// longestStep bounds what is done at one node, in the machines' time.
const longestStep = 5 * time.Minute

// eachNode does something at nodes, one by one.
func (t *talosctl) eachNode(ctx context.Context, nodes []kube.Node, do func(context.Context, kube.Node) error) error {
	for _, node := range nodes {
		limited, stop := t.w.lab.Clock().WithTimeout(ctx, longestStep)
		err := do(client.WithNode(limited, at(node)), node)

		stop()

		if err != nil {
			return fmt.Errorf("error updating node %q: %w", at(node), err)
		}
	}

	return nil
}

func (t *talosctl) pullImages(ctx context.Context) error {
	if t.call.has("--pre-pull-images=false") {
		return nil
	}

	pull := func(nodes []kube.Node, namespace common.ContainerdNamespace, images ...string) error {
		for _, image := range images {
			reference := image + ":" + t.to

			err := t.eachNode(ctx, nodes, func(ctx context.Context, node kube.Node) error {
				t.call.say(" > %q: pre-pulling %s", at(node), reference)

				//nolint:staticcheck,wrapcheck // what talosctl calls; it says which node it was
				return t.talos.ImagePull(ctx, namespace, reference)
			})
			if err != nil {
				return fmt.Errorf("failed pre-pulling images: %w", err)
			}
		}

		return nil
	}

	return errors.Join(
		pull(t.controlPlanes, common.ContainerdNamespace_NS_CRI, constants.KubernetesAPIServerImage,
			constants.KubernetesControllerManagerImage, constants.KubernetesSchedulerImage),
		pull(t.nodes, common.ContainerdNamespace_NS_SYSTEM, constants.KubeletImage))
}

func (t *talosctl) upgradeStaticPods(ctx context.Context) error {
	for _, service := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		t.call.say("updating %q to version %q", service, strings.TrimPrefix(t.to, "v"))

		err := t.eachNode(ctx, t.controlPlanes, func(ctx context.Context, node kube.Node) error {
			return t.upgradeComponent(ctx, node, service)
		})
		if err != nil {
			return fmt.Errorf("failed updating service %q: %w", service, err)
		}
	}

	return nil
}

// upgradeProxies changes the configs alone: the pods follow the manifest. In a dry run the configs are sent unchanged.
func (t *talosctl) upgradeProxies(ctx context.Context) error {
	t.call.say("updating kube-proxy to version %q", strings.TrimPrefix(t.to, "v"))

	err := t.eachNode(ctx, t.controlPlanes, func(ctx context.Context, node kube.Node) error {
		t.call.say(" > %q: starting update", at(node))

		data, err := t.config(ctx)
		if err != nil {
			return err
		}

		return t.send(ctx, t.patched(data, "kube-proxy"))
	})
	if err != nil {
		return fmt.Errorf("failed updating kube-proxy: %w", err)
	}

	return nil
}

func (t *talosctl) upgradeKubelets(ctx context.Context) error {
	t.call.say("updating kubelet to version %q", strings.TrimPrefix(t.to, "v"))

	err := t.eachNode(ctx, t.nodes, func(ctx context.Context, node kube.Node) error {
		return t.upgradeComponent(ctx, node, "kubelet")
	})
	if err != nil {
		return fmt.Errorf("failed upgrading kubelet: %w", err)
	}

	return nil
}

// upgradeComponent changes one image in a node's config, unless it is the new one, and waits until Kubernetes shows it.
func (t *talosctl) upgradeComponent(ctx context.Context, node kube.Node, name string) error {
	t.call.say(" > %q: starting update", at(node))

	data, err := t.config(ctx)
	if err != nil {
		return err
	}

	changed := t.patched(data, name)
	outdated := bytes.Contains(data, []byte(name+":"+t.from))

	if outdated {
		t.call.say(" > update %s: %s -> %s", name, strings.TrimPrefix(t.from, "v"), strings.TrimPrefix(t.to, "v"))
	}

	switch {
	case t.dryRun:
		return nil
	case outdated:
		if err := t.send(ctx, changed); err != nil {
			return err
		}
	}

	t.call.say(" > %q: machine configuration patched", at(node))

	if err := t.await(ctx, node, name); err != nil {
		return err
	}

	t.call.say(" < %q: successfully updated", at(node))

	return nil
}

// config is what the node of the context runs.
func (t *talosctl) config(ctx context.Context) ([]byte, error) {
	active, err := safe.StateGetByID[*config.MachineConfig](ctx, t.talos.COSI, config.ActiveID)
	if err != nil {
		return nil, fmt.Errorf("error fetching config resource: %w", err)
	}

	data, err := active.Container().Bytes()
	if err != nil {
		return nil, fmt.Errorf("error encoding config: %w", err)
	}

	return data, nil
}

// patched is a config with the new version of a component; in a dry run as it is.
func (t *talosctl) patched(data []byte, name string) []byte {
	if t.dryRun {
		return data
	}

	return bytes.ReplaceAll(data, []byte(name+":"+t.from), []byte(name+":"+t.to))
}

// send has the node of the context take a config, unless it is here that the program is killed.
func (t *talosctl) send(ctx context.Context, data []byte) error {
	fails := !t.dryRun && t.w.programFails()
	if fails && !t.w.plan.Operation.Program.Done {
		return errKilled
	}

	_, err := t.talos.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data,
		Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT})

	switch {
	case fails:
		return errKilled
	case err != nil:
		return fmt.Errorf("error patching node config: error applying config: %w", err)
	default:
		return nil
	}
}

// await waits until Kubernetes shows a component of a node in the new version, and ready.
func (t *talosctl) await(ctx context.Context, node kube.Node, name string) error {
	const often = 5 * time.Second // in the machines' time

	for {
		components, _ := t.kubernetes.Components(ctx) //nolint:errcheck // who does not answer may do so later
		if slices.Contains(components, kube.Component{Name: name, Node: node.Name, Version: t.to, Ready: true}) {
			return nil
		}

		if err := t.w.lab.Clock().Sleep(ctx, often); err != nil {
			return err //nolint:wrapcheck // the caller says where
		}
	}
}

// applyManifest applies kube-proxy's manifest as the first control plane has it, if it is another one.
func (t *talosctl) applyManifest(ctx context.Context) error {
	const path = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"

	t.call.say("updating manifests")

	limited, stop := t.w.lab.Clock().WithTimeout(ctx, longestStep)
	defer stop()

	manifest, err := safe.StateGet[*k8s.Manifest](client.WithNode(limited, at(t.controlPlanes[0])), t.talos.COSI,
		resource.NewMetadata(k8s.ControlPlaneNamespaceName, k8s.ManifestType, "10-kube-proxy", resource.VersionUndefined))
	if err != nil {
		return fmt.Errorf("error fetching manifests: %w", err)
	}

	wanted, err := json.Marshal(manifest.TypedSpec().Items[0].Object)
	if err != nil {
		return fmt.Errorf("error reading manifests: %w", err)
	}

	var applied json.RawMessage
	if err := t.kubernetes.Read(limited, path, &applied); err != nil {
		return fmt.Errorf("error diffing manifests: %w", err)
	}

	if !bytes.Contains(wanted, []byte(t.to)) || bytes.Contains(applied, []byte("kube-proxy:"+t.to)) {
		return nil
	}

	if !t.dryRun {
		if err := t.apply(limited, path, wanted); err != nil {
			return fmt.Errorf("error applying manifests: %w", err)
		}
	}

	t.call.say(" < configured DaemonSet/kube-system/kube-proxy")

	return nil
}

// apply sends an object to the Kubernetes API, which merges it.
func (t *talosctl) apply(ctx context.Context, path string, object []byte) error {
	settings, err := clientcmd.RESTConfigFromKubeConfig(t.kubeconfig)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what for
	}

	sender, err := rest.HTTPClientFor(settings)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	defer sender.CloseIdleConnections()

	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, settings.Host+path+"?fieldManager=talos&force=true",
		bytes.NewReader(object))
	if err != nil {
		return err //nolint:wrapcheck // as above
	}

	request.Header.Set("Content-Type", string(types.ApplyPatchType))

	answer, err := sender.Do(request)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read

	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(answer.Body) //nolint:errcheck // the status says it too

		return fmt.Errorf("%s: %s", answer.Status, said) //nolint:err113 // as the API says it
	}

	return nil
}
