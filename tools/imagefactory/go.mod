// A program that names the Image Factory's own ids of schematics, by which ours are tested. Its id is a hash of what its YAML library writes,
// so it is built with the version that the factory has, in a module of its own.
module github.com/talos-mage/talos-mage/tools/imagefactory

go 1.26.8

require github.com/siderolabs/image-factory v1.4.0

require (
	github.com/siderolabs/gen v0.8.7 // indirect
	github.com/siderolabs/talos/pkg/machinery v1.14.0-alpha.1 // indirect
	go.yaml.in/yaml/v4 v4.0.0-rc.4 // indirect
)
