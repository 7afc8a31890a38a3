package kubernetes

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// inventoryAnnotation tells whose list of applied objects an object is on.
// Source: siderolabs/go-kubernetes, kubernetes/ssa/inventory.go at v0.2.41.
const inventoryAnnotation = "config.k8s.io/owning-inventory"

// objectKey names an object that clients write.
type objectKey struct{ groupVersion, kind, namespace, name string }

// storedObject is one as it was written, with what the API server knows of it.
type storedObject struct {
	key     objectKey
	content map[string]any // never changed, only replaced
	// revision is 0 while the object is only there for a dry run.
	revision   uint64
	generation int64
	created    time.Time
}

func keyOf(content map[string]any) objectKey {
	object := unstructured.Unstructured{Object: content}

	return objectKey{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}
}

// bootstrapObjects are the objects of a new cluster: what its first control plane applies. Since Talos 1.13 it also
// keeps a list of them.
func (c *Cluster) bootstrapObjects(manifests []Manifest, inventory bool) {
	const name = constants.KubernetesBootstrapManifestsInventoryName

	listed := map[string]any{}

	for _, manifest := range manifests {
		for _, made := range manifest.Objects {
			object := unstructured.Unstructured{Object: runtime.DeepCopyJSON(made)}
			group := object.GroupVersionKind().Group
			listed[strings.Join([]string{object.GetNamespace(), object.GetName(), group, object.GetKind()}, "_")] = ""

			if inventory {
				object.SetAnnotations(map[string]string{inventoryAnnotation: name})
			}

			c.store(object.Object, 1)
		}
	}

	if inventory {
		c.store(configMap(name, listed), 1)
	}
}

// store keeps an object's content. Needs c.mu, but in a new cluster.
func (c *Cluster) store(content map[string]any, revision uint64) {
	c.objects[keyOf(content)] = c.objects[keyOf(content)].with(content, revision, c.now())
}

// with is the object after a write.
func (o storedObject) with(content map[string]any, revision uint64, now time.Time) storedObject {
	written := storedObject{keyOf(content), content, revision, o.generation, o.created}

	if o.created.IsZero() {
		written.created = now
	}

	if !reflect.DeepEqual(unversioned(o.content), unversioned(content)) {
		written.generation++
	}

	return written
}

// unversioned is what of an object counts as its generation.
func unversioned(content map[string]any) map[string]any {
	kept := maps.Clone(content)
	delete(kept, "metadata")
	delete(kept, "status")

	return kept
}

// merged is an object after a server-side apply by its only manager: what is applied goes over what is there, and lists
// replace lists.
func merged(former, applied map[string]any) map[string]any {
	result := maps.Clone(former)
	if result == nil {
		result = map[string]any{}
	}

	for key, value := range applied {
		below, isMap := value.(map[string]any)
		formerBelow, wasMap := result[key].(map[string]any)

		if isMap && wasMap {
			result[key] = merged(formerBelow, below)
		} else {
			result[key] = value
		}
	}

	return result
}

// ofKind are the objects of a kind, in the order of their names.
func (s snapshot) ofKind(groupVersion, kind string) []storedObject {
	objects := slices.DeleteFunc(slices.Collect(maps.Values(s.objects)), func(object storedObject) bool {
		return object.key.groupVersion != groupVersion || object.key.kind != kind
	})
	slices.SortFunc(objects, func(a, b storedObject) int {
		return strings.Compare(a.key.namespace+"/"+a.key.name, b.key.namespace+"/"+b.key.name)
	})

	return objects
}

// shown is the object as clients get it, but for its status.
func (o storedObject) shown() *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.content)}
	object.SetManagedFields(nil)
	object.SetUID(stableUID(o.key.kind, o.key.name))
	object.SetGeneration(o.generation)
	object.SetCreationTimestamp(meta("", "", o.created, 0, "").CreationTimestamp)
	object.SetResourceVersion("")

	if o.revision > 0 {
		object.SetResourceVersion(strconv.FormatUint(o.revision, 10))
	}

	return object
}

// into fills an object of the kind's own type.
func (o storedObject) into(object any) {
	// What it can't hold was refused when it was written.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.shown().Object, object)
}

func (s snapshot) listConfigMaps() []item {
	var items []item

	for _, stored := range s.ofKind("v1", "ConfigMap") {
		data, _, _ := unstructured.NestedMap(stored.content, "data")
		items = append(items, item{object: stored.shown(),
			cells: []any{stored.key.name, len(data), s.age(stored.created)}})
	}

	return items
}
