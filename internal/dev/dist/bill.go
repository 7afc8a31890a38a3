package dist

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// bill is a bill of materials in CycloneDX' form: https://cyclonedx.org/docs/1.6/json/.
type bill struct {
	Format     string      `json:"bomFormat"`
	Form       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// writeBill writes what a program was made of: the modules that Go itself wrote into it, and Go.
func writeBill(path string, made build) error {
	sum, err := checksum(made.path)
	if err != nil {
		return err
	}

	whole := moduleComponent("application", made.info.Main.Path, made.info.Main.Version)
	whole.Ref += "?goarch=" + made.platform.Arch + "&goos=" + made.platform.OS
	whole.PURL = whole.Ref
	whole.Hashes = []hash{{"SHA-256", sum}}
	whole.Properties = []property{{"commit", setting(made.info, "vcs.revision")}}

	text, err := json.MarshalIndent(bill{
		Format: "CycloneDX", Form: "1.6", Version: 1,
		Metadata:   metadata{made.committed.Format(time.RFC3339), whole},
		Components: components(made.info),
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write bill of materials: %w", err)
	}

	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // for everybody
		return fmt.Errorf("write bill of materials: %w", err)
	}

	return nil
}

// components are Go's standard library and the modules, in Go's order.
func components(info *debug.BuildInfo) []component {
	found := []component{moduleComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}

	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}

		found = append(found, moduleComponent("library", module.Path, module.Version))
	}

	return found
}

// moduleComponent is a Go module, under the URL by which scanners know it.
func moduleComponent(kind, path, version string) component {
	known := "pkg:golang/" + path + "@" + url.QueryEscape(version)

	return component{Type: kind, Ref: known, Name: path, Version: version, PURL: known}
}
