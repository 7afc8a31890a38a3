package talconfig

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"text/template"
	"text/template/parse"
)

// filenameData is what filenameTmpl can use.
type filenameData struct{ ClusterName, Hostname, IPAddress, Role string }

var errFilename = errors.New("is no template that knows only .ClusterName, .Hostname, .IPAddress and .Role")

// FileName is the name of the machine config of an entry, <cluster>-<hostname>.yaml or what filenameTmpl makes.
func (c *Config) FileName(node Node) (string, error) {
	data := filenameData{ClusterName: c.ClusterName, Hostname: node.Hostname, IPAddress: node.IPAddress, Role: "worker"}
	if node.ControlPlane {
		data.Role = "controlplane"
	}

	pattern := cmp.Or(node.FilenameTmpl, c.Group(node).FilenameTmpl)
	if pattern == "" {
		return data.ClusterName + "-" + data.Hostname + ".yaml", nil
	}

	filled, err := fillFilename(pattern, data)
	if err != nil {
		return "", errFilename
	}

	return filled, nil
}

// longestTemplate is that of a file's name, in bytes; a longer one makes no name that any system takes.
const longestTemplate = 256

// fillFilename executes a template that ends soon: without loops, and without templates in it, which could contain each
// other.
func fillFilename(pattern string, data filenameData) (string, error) {
	parsed, err := template.New("filenameTmpl").Parse(pattern)

	switch {
	case err != nil:
		return "", err
	case len(pattern) > longestTemplate, len(parsed.Templates()) > 1, loops(parsed.Tree.Root):
		return "", errors.New("too much for the name of a file")
	}

	var out bytes.Buffer

	if err := parsed.Execute(&out, data); err != nil {
		return "", err
	}

	return out.String(), nil
}

// loops reports whether a part of a template repeats something.
func loops(part parse.Node) bool {
	switch part := part.(type) {
	case *parse.ListNode:
		return part != nil && slices.ContainsFunc(part.Nodes, loops)
	case *parse.IfNode:
		return loops(part.List) || loops(part.ElseList)
	case *parse.WithNode:
		return loops(part.List) || loops(part.ElseList)
	case *parse.RangeNode, *parse.TemplateNode:
		return true
	default:
		return false
	}
}
