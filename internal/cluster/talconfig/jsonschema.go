package talconfig

import (
	"reflect"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
)

// JSONSchema describes talconfig.yaml for editors, with the keys that Config reads.
func JSONSchema() ([]byte, error) {
	return yamlfile.JSONSchema("talhelper's talconfig.yaml, as talos-mage reads it", reflect.TypeFor[Config](), talosKeys)
}
