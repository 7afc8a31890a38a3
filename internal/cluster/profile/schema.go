package profile

import (
	"reflect"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// JSONSchema describes cluster.yaml for editors.
func JSONSchema() ([]byte, error) {
	return yamlfile.JSONSchema("Cluster profile of talos-mage (cluster.yaml)", reflect.TypeFor[keys](), nil)
}
