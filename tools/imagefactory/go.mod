// Compares our ids of schematics with those of the Image Factory's own package, which needs a newer machinery than the targets: a module
// of its own keeps that out of a repository that imports them.
module github.com/talos-mage/talos-mage/tools/imagefactory

go 1.26.8

require (
	github.com/siderolabs/image-factory v1.4.0
	github.com/stretchr/testify v1.12.1
	github.com/talos-mage/talos-mage v0.0.0
	go.yaml.in/yaml/v4 v4.0.0-rc.4
)

require (
	github.com/blang/semver/v4 v4.0.0 // indirect
	github.com/siderolabs/gen v0.8.7 // indirect
	github.com/siderolabs/talos/pkg/machinery v1.14.0-alpha.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace github.com/talos-mage/talos-mage => ../..
