package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/dev/emulator"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
	"github.com/talos-mage/talos-mage/internal/kube"
)

// Installed is what became of a cluster's applications.
type Installed struct {
	// FirstMissing and Missing are what was not there after the first call, and in the end.
	FirstMissing, Missing []string
	// Repeated are the objects that were applied though they were there just so; Exposed those that were given to a
	// program where other users of the computer see it.
	Repeated, Exposed []string
}

// What is to be installed: a namespace for each folder, a secret, a kind of object, and a release that needs it.
var (
	appNamespaces = []string{"flux-system", "network"}
	appFiles      = map[string]string{
		"kubernetes/apps/flux-system/kustomization.yaml": "",
		"kubernetes/apps/network/kustomization.yaml":     "",
		"bootstrap/helmfile.d/00-crds.yaml":              "releases: []\n",
		"bootstrap/helmfile.d/01-apps.yaml":              "releases: []\n",
		"bootstrap/sops-age.sops.yaml":                   "data: ENC[AES256_GCM,data:x]\nsops: {mac: x}\n",
	}
)

const (
	appSecret = "AGE-SECRET-KEY-1CHAOS"
	appCRD    = "gateways.gateway.networking.k8s.io"

	decryptedSecret = "apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age}\nstringData: {age.agekey: " + appSecret +
		"}\n"
	renderedCRDs = "---\n# Source: a chart\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
		"metadata: {name: " + appCRD + "}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: left-out}\n"
)

// appStore is what Kubernetes holds of them, in the doubles, since the emulator keeps few kinds of objects. Whether it
// answers at all is for the emulator to say.
type appStore struct{ objects map[string]string }

// drawAPIAway has the Kubernetes API go away in the middle.
func drawAPIAway(random *rand.Rand, plan *Plan) *Incident {
	drawn := atOnce(random, plan, "API server away", knob{
		words: "does not start its kube-apiserver", class: apiDown,
		on:  func(f *emulator.Faults) { f.KubernetesDown = true },
		off: func(f *emulator.Faults) { f.KubernetesDown = false },
	})
	drawn.At.After = between(random, 0, 15*time.Second)

	return drawn
}

// furnish writes the files of the applications, and puts the programs on the PATH.
func (w *world) furnish(_ context.Context, care *Care) error {
	for path, content := range appFiles {
		path = filepath.Join(w.folder, filepath.FromSlash(path))
		if err := makeFolders(filepath.Dir(path)); err != nil {
			return err
		}

		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the files of applications: %w", err)
		}
	}

	care.Installed = &Installed{}
	w.apps = &appStore{objects: map[string]string{"Namespace//default": "", "Namespace//kube-system": ""}}

	return w.installDoubles(w.playApps, "kubectl", "helmfile", "helm", "sops")
}

// installDoubles puts programs on the operator's PATH.
func (w *world) installDoubles(play func(context.Context, *programCall) int, names ...string) (err error) {
	w.doubles, err = newDoubles(filepath.Join(w.operator("first").machine, "bin"), play, names...)

	return err
}

// playApps answers as kubectl, helmfile and sops do. A change that is to fail fails at that.
func (w *world) playApps(ctx context.Context, call *programCall) int {
	w.note(func() {
		if strings.Contains(strings.Join(call.arguments, " "), appSecret) {
			w.care.Installed.Exposed = append(w.care.Installed.Exposed, call.name)
		}
	})

	changes := call.name == "kubectl" && call.has("apply") || call.name == "helmfile" && call.has("sync")
	if !changes || !w.programFails() {
		return w.playProgram(ctx, call)
	}

	if w.plan.Operation.Program.Done {
		w.playProgram(ctx, call)
	}

	return call.complain("Error: something is wrong, and this program does not say what")
}

func (w *world) playProgram(ctx context.Context, call *programCall) int {
	switch {
	case call.name == "sops":
		call.say("%s", decryptedSecret)

		return 0
	case call.name == "helmfile" && call.has("template"):
		call.say("%s", renderedCRDs)

		return 0
	}

	if err := w.askKubernetes(ctx); err != nil {
		return call.complain("Unable to connect to the server: %s", kube.Explain(err))
	}

	exit := 0

	w.note(func() {
		switch {
		case call.name == "helmfile":
			exit = w.apps.sync(call)
		case call.has("namespaces"):
			w.apps.listNamespaces(call)
		default:
			exit = w.apps.take(call, &w.care.Installed.Repeated)
		}
	})

	return exit
}

// askKubernetes reports why the cluster's API does not answer who has the operator's kubeconfig.
func (w *world) askKubernetes(ctx context.Context) error {
	client, err := w.kubernetes()
	if err != nil {
		return err
	}

	_, err = client.Nodes(ctx)

	return err //nolint:wrapcheck // the caller explains it
}

// kubernetes is the cluster's API for who has the operator's kubeconfig.
func (w *world) kubernetes() (*kube.Client, error) {
	data, err := os.ReadFile(w.operator("first").kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}

	return kube.Open(data, kube.Options{Timeout: 2 * time.Second}) //nolint:mnd // of the wall's clock
}

// listNamespaces prints them as kubectl does with --output=name.
func (s *appStore) listNamespaces(call *programCall) {
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if name, found := strings.CutPrefix(key, "Namespace//"); found {
			call.say("namespace/%s", name)
		}
	}
}

// take compares or keeps objects. What is kept though it is there just so is told.
func (s *appStore) take(call *programCall, repeated *[]string) int {
	given, err := objectsIn(call.input, call.flag("--namespace"))
	if err != nil {
		return call.complain("error: %s", err)
	}

	for key, text := range given {
		kept, there := s.objects[key]

		if _, namespace, _ := strings.Cut(key, "/"); !strings.HasPrefix(namespace, "/") {
			namespace, _, _ = strings.Cut(namespace, "/")
			if _, made := s.objects["Namespace//"+namespace]; !made {
				return call.complain("Error from server (NotFound): namespaces %q not found", namespace)
			}
		}

		switch {
		case call.has("diff") && (!there || kept != text):
			return 1
		case call.has("apply") && there && kept == text:
			*repeated = append(*repeated, key)
		case call.has("apply"):
			s.objects[key] = text
		}
	}

	return 0
}

// objectsIn are the objects of a manifest, by kind, namespace and name.
func objectsIn(manifest, namespace string) (map[string]string, error) {
	found := map[string]string{}

	for document := range strings.SplitSeq("\n"+manifest, "\n---") {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}

		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, err //nolint:wrapcheck // it is told as it is
		}

		if object.Kind == "" {
			continue
		}

		key := object.Kind + "/" + object.Metadata.Namespace + namespace + "/" + object.Metadata.Name
		found[key] = strings.TrimSpace(document)
	}

	return found, nil
}

// sync installs the release, which needs its kind of object.
func (s *appStore) sync(call *programCall) int {
	if _, there := s.objects["CustomResourceDefinition//"+appCRD]; !there {
		return call.complain(`Error: no matches for kind "Gateway" in version "gateway.networking.k8s.io/v1"`)
	}

	s.objects["release"] = "installed"

	return 0
}

// takeStock notes what is missing after the first call.
func (w *world) takeStock(care *Care) error {
	care.Installed.FirstMissing = w.apps.missing()
	w.note(func() { w.sound = true })

	return nil
}

// missing is what is to be there and is not.
func (s *appStore) missing() []string {
	wanted := []string{"Secret/flux-system/sops-age", "CustomResourceDefinition//" + appCRD, "release"}
	for _, name := range appNamespaces {
		wanted = append(wanted, "Namespace//"+name)
	}

	return slices.DeleteFunc(wanted, func(key string) bool { _, there := s.objects[key]; return there })
}

// appsAreInstalled: success means that all is there; what is there is left alone; and no secret is shown to the
// computer's other users.
func appsAreInstalled(c *Care) []string {
	if c.Installed == nil {
		return nil
	}

	var found []string

	if c.First.Code == diagnosis.ExitOK && len(c.Installed.FirstMissing) > 0 {
		found = append(found, fmt.Sprintf("it was a success, and missing are %v", c.Installed.FirstMissing))
	}

	if len(c.Installed.Missing) > 0 {
		found = append(found, fmt.Sprintf("in the end missing are %v", c.Installed.Missing))
	}

	if len(c.Installed.Repeated) > 0 {
		found = append(found, fmt.Sprintf("what was there was applied again: %v", c.Installed.Repeated))
	}

	if len(c.Installed.Exposed) > 0 {
		found = append(found, fmt.Sprintf("a secret was among the arguments of %v", c.Installed.Exposed))
	}

	return found
}
