package kube

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// layoutError is a file that has the right words in the wrong place. Its text holds nothing of the file's content.
type layoutError struct{ text string }

func (e *layoutError) Error() string { return e.text }

// isEmpty reports whether a file says nothing: no bytes, or only comments, or an empty document.
func isEmpty(data []byte) bool {
	var document yaml.Node

	err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&document)

	return errors.Is(err, io.EOF) || err == nil && len(document.Content) == 1 && isNull(document.Content[0])
}

// edit puts our entry into a kubeconfig's text and makes it the current context. It works on the YAML tree and not on
// the parsed config, so that comments and keys that this version of client-go does not know survive.
func edit(path string, data []byte, config *clientcmdapi.Config, ours entry) ([]byte, error) {
	document, err := parse(data)
	if err != nil {
		return nil, err
	}

	root := document.Content[0]
	clusterName := placeCluster(config, ours)
	userName := placeUser(config, ours, clusterName)

	cluster, err := namedItem(root, "clusters", clusterName, "cluster")
	if err != nil {
		return nil, err
	}

	if !isOurs(config.Clusters[clusterName], ours) {
		cluster.Content = nil
		set(cluster, "certificate-authority-data", base64.StdEncoding.EncodeToString(authorityPEM(ours.cluster)))
		set(cluster, "server", ours.cluster.Server)
	}

	user, err := namedItem(root, "users", userName, "user")
	if err != nil {
		return nil, err
	}

	// Every other way to prove who one is goes; what else is there stays.
	for _, key := range []string{"client-certificate", "client-key", "token", "tokenFile", "username", "password", "exec",
		"auth-provider"} {
		unset(user, key)
	}

	set(user, "client-certificate-data", base64.StdEncoding.EncodeToString(ours.user.ClientCertificateData))
	set(user, "client-key-data", base64.StdEncoding.EncodeToString(ours.user.ClientKeyData))

	context, err := namedItem(root, "contexts", ours.name, "context")
	if err != nil {
		return nil, err
	}

	set(context, "cluster", clusterName)

	// In the same cluster the namespace is the user's choice.
	if present := lookup(config, ours.name); !present.sameCluster(ours) || present.context.Namespace == "" {
		set(context, "namespace", ours.context.Namespace)
	}

	set(context, "user", userName)

	setDefault(root, "apiVersion", "v1")
	setDefault(root, "kind", "Config")
	set(root, "current-context", ours.name)

	merged, err := encode(document)
	if err != nil {
		return nil, err
	}

	return merged, check(path, data, merged, ours)
}

// placeCluster chooses the name of our cluster's entry: its own if that is free, already ours, or used by nobody but
// the context that is replaced.
func placeCluster(config *clientcmdapi.Config, ours entry) string {
	// The context may already refer to it by another name.
	present := presentContext(config, ours)

	return firstUsable(present.Cluster, ours.context.Cluster, func(name string) bool {
		uses := func(c *clientcmdapi.Context) bool { return c.Cluster == name }
		cluster := config.Clusters[name]

		return cluster == nil || isOurs(cluster, ours) || uses(present) && !anyOther(config, ours.name, uses)
	})
}

// placeUser chooses the name of our user's entry: one that other contexts use is taken only if all of them lead to our
// cluster, whose user it then is.
func placeUser(config *clientcmdapi.Config, ours entry, clusterName string) string {
	present := presentContext(config, ours)

	return firstUsable(present.AuthInfo, ours.context.AuthInfo, func(name string) bool {
		uses := func(c *clientcmdapi.Context) bool { return c.AuthInfo == name }
		elsewhere := func(c *clientcmdapi.Context) bool { return uses(c) && c.Cluster != clusterName }

		return config.AuthInfos[name] == nil ||
			(uses(present) || anyOther(config, ours.name, uses)) && !anyOther(config, ours.name, elsewhere)
	})
}

// presentContext is the context of our name; an empty one if there is none.
func presentContext(config *clientcmdapi.Config, ours entry) *clientcmdapi.Context {
	return cmp.Or(config.Contexts[ours.name], &clientcmdapi.Context{})
}

// anyOther reports whether something holds for a context besides the named one.
func anyOther(config *clientcmdapi.Config, name string, holds func(*clientcmdapi.Context) bool) bool {
	for other, context := range config.Contexts {
		if other != name && holds(context) {
			return true
		}
	}

	return false
}

// firstUsable is the name in use, if there is one, or else ours, with a number where that is needed.
func firstUsable(present, name string, usable func(string) bool) string {
	if present != "" && usable(present) {
		return present
	}

	candidate := name
	for n := 2; !usable(candidate); n++ {
		candidate = fmt.Sprintf("%s-%d", name, n)
	}

	return candidate
}

// isOurs reports whether a cluster's entry leads to our cluster.
func isOurs(cluster *clientcmdapi.Cluster, ours entry) bool {
	if cluster == nil {
		return false
	}

	authorities, err := parseCertificates(authorityPEM(cluster))

	return err == nil && entry{cluster: cluster, authorities: authorities}.sameCluster(ours)
}

// parse reads the file's one document, which is a mapping.
func parse(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))

	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("parse YAML: %w", err)
	}

	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, &layoutError{"it holds more than one YAML document"}
	}

	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, &layoutError{"its top level is not a mapping"}
	}

	return &document, nil
}

// encode writes the tree as kubectl does.
func encode(root *yaml.Node) ([]byte, error) {
	var text bytes.Buffer

	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()

	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}

	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}

	return text.Bytes(), nil
}

// check reads both texts: the new one must lead to our cluster, and nothing else may have changed. An edit goes wrong
// where entries share YAML nodes.
func check(path string, data, merged []byte, ours entry) error {
	before, err := load(path, data)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}

	after, err := load(path, merged)
	if err != nil {
		return fmt.Errorf("read merged kubeconfig: %w", err)
	}

	got := lookup(after, ours.name)
	if after.CurrentContext == ours.name && got.sameCluster(ours) && ours.certificate.Equal(got.certificate) &&
		sameBut(before.Contexts, after.Contexts, ours.name) &&
		sameBut(before.Clusters, after.Clusters, got.context.Cluster) &&
		sameBut(before.AuthInfos, after.AuthInfos, got.context.AuthInfo) {
		return nil
	}

	return &layoutError{"one entry can't be changed without another: they share YAML anchors or merge keys"}
}

// sameBut compares two maps of entries, all but one.
func sameBut[V any](before, after map[string]V, name string) bool {
	before, after = maps.Clone(before), maps.Clone(after)
	delete(before, name)
	delete(after, name)

	return reflect.DeepEqual(before, after)
}

// namedItem finds or makes the mapping below an item's kind in one of the kubeconfig's lists: {name: X, cluster: {…}}.
func namedItem(root *yaml.Node, list, name, kind string) (*yaml.Node, error) {
	items := get(root, list)
	if items == nil || isNull(items) {
		items = &yaml.Node{Kind: yaml.SequenceNode}
		setNode(root, list, items)
	}

	if items.Kind != yaml.SequenceNode {
		return nil, &layoutError{fmt.Sprintf("its %s are not a list", list)}
	}

	for _, item := range items.Content {
		named := get(item, "name")
		if named == nil || named.Value != name {
			continue
		}

		body := get(item, kind)
		if body == nil || body.Kind != yaml.MappingNode {
			body = &yaml.Node{Kind: yaml.MappingNode}
			setNode(item, kind, body)
		}

		return body, nil
	}

	body := &yaml.Node{Kind: yaml.MappingNode}
	item := &yaml.Node{Kind: yaml.MappingNode}
	setNode(item, kind, body)
	set(item, "name", name)
	items.Content = append(items.Content, item)
	items.Style = 0 // "clusters: []" would put everything on one line

	return body, nil
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

// position is the index of a key's value among a mapping's nodes; -1 if there is none.
func position(node *yaml.Node, key string) int {
	if node.Kind != yaml.MappingNode {
		return -1
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return i + 1
		}
	}

	return -1
}

func get(node *yaml.Node, key string) *yaml.Node {
	if i := position(node, key); i >= 0 {
		return node.Content[i]
	}

	return nil
}

func setNode(node *yaml.Node, key string, value *yaml.Node) {
	if i := position(node, key); i >= 0 {
		node.Content[i] = value

		return
	}

	node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
}

// set gives a key a text; an empty text takes it away.
func set(node *yaml.Node, key, text string) {
	if text == "" {
		unset(node, key)

		return
	}

	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if present := get(node, key); present != nil {
		value.LineComment = present.LineComment
	}

	setNode(node, key, value)
}

func setDefault(node *yaml.Node, key, text string) {
	if get(node, key) == nil {
		set(node, key, text)
	}
}

func unset(node *yaml.Node, key string) {
	if i := position(node, key); i >= 0 {
		node.Content = slices.Delete(node.Content, i-1, i+1)
	}
}
