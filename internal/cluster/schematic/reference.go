package schematic

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-mage/talos-mage/internal/base/pattern"
)

// Reference is an installer image's reference, taken apart. Parts that are missing are empty.
type Reference struct {
	Registry string // "factory.talos.dev"
	// Repository is the path without registry and schematic: "metal-installer-secureboot".
	Repository string
	// Schematic is the id between repository and tag.
	Schematic string
	// HasSchematic is set when the reference has the shape of an image factory's: <installer>/<schematic>, even if the id
	// itself is missing.
	HasSchematic bool
	Tag          string
	Digest       string
}

// PlainID is the schematic without any customization.
const PlainID = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// installerName is how image factories call their installers: installer, metal-installer, metal-installer-secureboot, …
var installerName = pattern.New(`^(?:([a-z0-9]+)-)?installer(-secureboot)?$`)

// ParseReference takes a reference apart without judging it.
func ParseReference(reference string) Reference {
	var parsed Reference

	rest, digest, _ := strings.Cut(reference, "@")
	parsed.Digest = digest

	if colon := strings.LastIndex(rest, ":"); colon > strings.LastIndex(rest, "/") {
		rest, parsed.Tag = rest[:colon], rest[colon+1:]
	}

	parts := strings.Split(rest, "/")

	if len(parts) > 1 && strings.ContainsAny(parts[0], ".:") {
		parsed.Registry, parts = parts[0], parts[1:]
	}

	if n := len(parts); n > 1 && installerName.MatchString(parts[n-2]) {
		parsed.HasSchematic, parsed.Schematic, parts = true, parts[n-1], parts[:n-1]
	}

	parsed.Repository = strings.Join(parts, "/")

	return parsed
}

// Official reports whether the image is the Talos project's by its name: of an image factory, or of ghcr.io/siderolabs.
// Only then does the name tell what the image is for, and the tag which version it is.
func (r Reference) Official() bool {
	return r.HasSchematic || r.Registry == DefaultRegistry || strings.HasPrefix(r.Repository, "siderolabs/")
}

// Platform is the platform that an image factory's installer is for, "metal" where its name says none; empty for other
// images.
func (r Reference) Platform() string {
	match := installerName.FindStringSubmatch(r.Repository[strings.LastIndex(r.Repository, "/")+1:])

	switch {
	case !r.HasSchematic || match == nil:
		return ""
	case match[1] == "":
		return DefaultPlatform
	default:
		return match[1]
	}
}

// PlatformIn is Platform as far as it counts for a version of Talos: before 1.10 one installer was for all of them.
func (r Reference) PlatformIn(version string) string {
	if minor, err := config.ParseContractFromVersion(version); err != nil || !minor.Greater(config.TalosVersion1_9) {
		return ""
	}

	return r.Platform()
}

// SecureBoot reports whether the image is made for SecureBoot.
func (r Reference) SecureBoot() bool { return strings.HasSuffix(r.Repository, "-secureboot") }

// Plain reports whether the image is known to hold nothing beyond Talos itself. A schematic's id does not tell what it
// holds.
func (r Reference) Plain() bool {
	return r.Schematic == PlainID || r.Repository == "siderolabs/installer"
}
