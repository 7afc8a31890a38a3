package layout_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	subject   = regexp.MustCompile(`(\w+) \((192\.0\.2\.\d+)\)`)
)

// The README brings up the cluster that it declares.
func TestTheReadmesPictureIsOfItsCluster(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)

	picture, err := os.ReadFile(filepath.Join(root, "docs", "pictures", "dead-node.svg"))
	require.NoError(t, err)

	var declared struct {
		ClusterName string `yaml:"clusterName"`
		Nodes       []struct {
			Hostname  string `yaml:"hostname"`
			IPAddress string `yaml:"ipAddress"`
		} `yaml:"nodes"`
	}

	block := yamlBlock.FindSubmatch(page)
	require.NotNil(t, block)
	require.NoError(t, yaml.Unmarshal(block[1], &declared))

	addresses := map[string]string{}
	for _, node := range declared.Nodes {
		addresses[node.Hostname] = node.IPAddress
	}

	require.Contains(t, string(picture), fmt.Sprintf("of %d nodes applied", len(declared.Nodes)))
	require.Contains(t, string(picture), "admin@"+declared.ClusterName)

	for _, shown := range subject.FindAllSubmatch(picture, -1) {
		require.Equal(t, addresses[string(shown[1])], string(shown[2]), "%s", shown[1])
	}
}
