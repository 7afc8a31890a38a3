package release

import "github.com/siderolabs/talos/pkg/machinery/config"

// Newest is the newest Talos that this program knows.
func Newest() *config.VersionContract { return newest }
