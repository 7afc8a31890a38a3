package inventory

import (
	"strconv"

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
