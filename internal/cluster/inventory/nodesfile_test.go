package inventory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/talos-mage/talos-mage/internal/cluster/inventory"
)

func TestReadNodesFile(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		text string
		want []inventory.Machine
		err  string
	}{
		"machines": {
			text: "nodes:\n  - {name: a, address: 192.0.2.1, cpu: 4}\n  - {name: b, address: b.example.com}\n  - address: " +
				"\"2001:db8::1\"\nother: 1\n",
			want: []inventory.Machine{{Name: "a", Address: "192.0.2.1"}, {Name: "b", Address: "b.example.com"},
				{Name: "node 3", Address: "2001:db8::1"}},
		},
		"empty":      {text: "", err: "nodes.yaml: the file is empty"},
		"no list":    {text: "nodes: {a: b}\n", err: "nodes.yaml: no nodes are declared"},
		"no address": {text: "nodes:\n  - name: a\n", err: `nodes.yaml:2:5: "address" of a is needed`},
		"bad address": {text: "nodes:\n  - {name: a, address: 192.0.2.1/24}\n",
			err: `nodes.yaml:2:24: address "192.0.2.1/24" of a has a prefix length: give the address alone`},
		"address twice": {text: "nodes:\n  - {name: a, address: 192.0.2.1}\n  - {name: b, address: 192.0.2.1}\n",
			err: "nodes.yaml:3:24: address 192.0.2.1 is another node's already, in line 2"},
		"not a mapping": {text: "nodes: [a]\n", err: `nodes.yaml:1:9: "address" of node 1 is needed`},
		"not YAML at all": {text: "nodes: [\n",
			err: "nodes.yaml:2:1: is not valid YAML: while parsing a flow node begun in line 2: did not find expected node " +
				"content"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			path := filepath.Join(dir, "nodes.yaml")
			require.NoError(t, os.WriteFile(path, []byte(tt.text), 0o600))

			machines, err := inventory.ReadNodesFile(nil, path)

			if tt.err != "" {
				require.EqualError(t, err, filepath.Join(dir, tt.err))

				return
			}

			require.NoError(t, err)
			require.Equal(t, tt.want, machines)
		})
	}

	_, err := inventory.ReadNodesFile(nil, filepath.Join(t.TempDir(), "nodes.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestNodesFileNamesTheMachinesOfNodesThatNameNone(t *testing.T) {
	t.Parallel()

	const entry = "  - {hostname: %s, ipAddress: 192.0.2.%d, controlPlane: true, installDisk: /dev/sda%s}\n"

	talconfig := "clusterName: lab\nendpoint: https://192.0.2.10:6443\nnodes:\n" +
		fmt.Sprintf(entry, "cp1", 11, "") + fmt.Sprintf(entry, "cp2", 12, "") +
		fmt.Sprintf(entry, "cp3", 13, ", networkInterfaces: [{deviceSelector: {hardwareAddr: \"02:00:5e:10:00:03\"}}]")

	for name, tt := range map[string]struct {
		text string
		want [][]string
		err  string
	}{
		"in any notation": {
			text: "nodes:\n  - {name: CP1, mac_addr: 02-00-5E-10-00-0A}\n  - {address: 192.0.2.12, mac_addr: 0200.5e10.000b}\n" +
				"  - {name: cp3, mac_addr: 02005e10000c}\n  - {name: other, mac_addr: \"02:00:5e:10:00:0d\"}\n",
			want: [][]string{{"02:00:5e:10:00:0a"}, {"02:00:5e:10:00:0b"}, {"02:00:5e:10:00:03"}},
		},
		"what it is else is nobody's matter": {text: "nodes: [{name: cp1, mac_addr: \"\"}, {name: cp2}, 3]\nother: x\n",
			want: [][]string{nil, nil, {"02:00:5e:10:00:03"}}},
		"not YAML at all": {text: "nodes: [", want: [][]string{nil, nil, {"02:00:5e:10:00:03"}}},
		"no MAC": {text: "nodes:\n  - name: cp1\n    mac_addr: 02:00:5e:10:00\n",
			err: `nodes.yaml:3:15: "mac_addr": "02:00:5e:10:00" is no MAC address, as 02:00:5e:10:00:01`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			path := filepath.Join(dir, "nodes.yaml")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "talconfig.yaml"), []byte(talconfig), 0o600))
			require.NoError(t, os.WriteFile(path, []byte(tt.text), 0o600))

			cluster, err := inventory.Load(inventory.Options{TalosDir: dir, NodesFile: path})

			if tt.err != "" {
				require.EqualError(t, err, filepath.Join(dir, tt.err))

				return
			}

			require.NoError(t, err)

			for _, cluster := range []*inventory.Cluster{cluster, cluster.Renewed()} {
				var macs [][]string
				for _, node := range cluster.Nodes {
					macs = append(macs, node.MACs)
				}

				require.Equal(t, tt.want, macs)
			}
		})
	}
}
