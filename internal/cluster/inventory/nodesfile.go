package inventory

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/base/host"
	"github.com/talos-mage/talos-mage/internal/cluster/reading"
	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// Machine is one line of a nodes.yaml: a machine that may not be in a cluster yet.
type Machine struct {
	Name string
	// Address is an IP address or a DNS name, without a port.
	Address string
}

// ReadNodesFile reads the machines of a nodes.yaml, `.nodes[].name` and `.nodes[].address`, in the file's order. Other
// keys are passed over: the file belongs to whatever made the machines. Errors are those of Load.
func ReadNodesFile(files *reading.Files, path string) ([]Machine, error) {
	file := files.Open(path)
	source := yamlfile.Source{Shown: file.Shown, Mistakes: &yamlfile.Mistakes{}}

	root := source.Needed(file, "file", "", "list nodes under `nodes:`, each with `name` and `address`")
	if root == nil {
		return nil, source.Err()
	}

	machines := readMachines(source, root)

	return machines, source.Err()
}

func readMachines(s yamlfile.Source, root *yaml.Node) []Machine {
	list := yamlfile.Field(root, "nodes")

	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		if len(s.List) == 0 {
			mistake := s.Mistake(nil, diagnosis.FileNoNodes, "no nodes are declared")
			mistake.Next = "list them under `nodes:`, each with `name` and `address`"
			s.Add(mistake)
		}

		return nil
	}

	var machines []Machine

	used := map[string]*yaml.Node{}

	for i, entry := range list.Content {
		name, address := yamlfile.Field(entry, "name"), yamlfile.Field(entry, "address")
		machine := Machine{Name: "node " + strconv.Itoa(i+1)}

		if name != nil && name.Value != "" {
			machine.Name = name.Value
		}

		if address == nil || address.Kind != yaml.ScalarNode || address.Value == "" {
			s.At(yamlfile.PlaceOf(entry, "address"), diagnosis.FileValue, "\"address\" of %s is needed", machine.Name)

			continue
		}

		machine.Address = address.Value

		if problem := host.Fault(machine.Address); problem != "" {
			s.At(address, diagnosis.FileAddress, "address %q of %s %s", machine.Address, machine.Name, problem)
		} else if first := used[host.Key(machine.Address)]; first != nil {
			s.At(address, diagnosis.FileDuplicate, "address %s is another node's already, in line %d", machine.Address,
				first.Line)
		}

		used[host.Key(machine.Address)] = address
		machines = append(machines, machine)
	}

	return machines
}

// learnFromNodesFile takes hardware addresses from nodes.yaml, `.nodes[].mac_addr`, for nodes of which nothing else
// names any, by name or address. All else in that file belongs to whatever made the machines, and is passed over.
func (c *Cluster) learnFromNodesFile() error {
	if c.nodesFile == "" {
		return nil
	}

	file := c.Files.Open(c.nodesFile)
	if file.Err != nil {
		return nil //nolint:nilerr // who asks for the file itself is told
	}

	broken := yamlfile.Source{Shown: file.Shown, Mistakes: &yamlfile.Mistakes{}} // for who reads all of the file
	source := nodesSource{yamlfile.Source{Shown: file.Shown, Mistakes: &yamlfile.Mistakes{}}}

	list := yamlfile.Field(broken.Parse(file.Data), "nodes")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}

	for _, entry := range list.Content {
		mac := source.mac(entry)
		if mac == "" {
			continue
		}

		for _, node := range c.Nodes {
			if len(node.MACs) == 0 && isEntryOf(node, entry) {
				node.MACs = []string{mac}
			}
		}
	}

	return source.Err()
}

// nodesSource is a nodes.yaml whose hardware addresses are read.
type nodesSource struct{ yamlfile.Source }

// mac is an entry's hardware address; empty if it has none, or one that is none.
func (s nodesSource) mac(entry *yaml.Node) string {
	value := yamlfile.Field(entry, "mac_addr")
	if value == nil || value.Kind == yaml.ScalarNode && value.Value == "" {
		return ""
	}

	mac := host.MAC(value.Value)
	if mac == "" {
		s.At(value, diagnosis.FileValue, "\"mac_addr\": %q is no MAC address, as 02:00:5e:10:00:01", value.Value)
	}

	return mac
}

// isEntryOf reports whether an entry of nodes.yaml is about a node: it has its name or, without one, its address.
func isEntryOf(node *Node, entry *yaml.Node) bool {
	if name := yamlfile.Field(entry, "name"); name != nil && name.Value != "" {
		return strings.EqualFold(name.Value, node.Name) || strings.EqualFold(name.Value, node.Hostname)
	}

	address := yamlfile.Field(entry, "address")

	return address != nil && address.Value != "" && host.Key(address.Value) == host.Key(node.Address)
}
