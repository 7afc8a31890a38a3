package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/talos-mage/talos-mage/internal/cluster/secrets"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// SecretsPath is the file that the cluster's secrets are read from; empty if there is none.
func (c *Cluster) SecretsPath() string {
	if found := c.secretsFound(); len(found) > 0 {
		return found[0]
	}

	return ""
}

// PassedOverSecrets are files beside SecretsPath that may hold the cluster's secrets, too, and that nothing reads.
func (c *Cluster) PassedOverSecrets() []string {
	if found := c.secretsFound(); len(found) > 1 {
		return found[1:]
	}

	return nil
}

func (c *Cluster) secretsFound() []string {
	if c.Profile == nil {
		return secrets.Find(filepath.Dir(c.Source))
	}

	if _, err := os.Stat(c.Profile.SecretsFile); err != nil {
		return nil
	}

	return []string{c.Profile.SecretsFile}
}

// SecretsPaths are all files that may hold the cluster's secrets.
func (c *Cluster) SecretsPaths() []string {
	if c.Profile != nil {
		return []string{c.Profile.SecretsFile}
	}

	var paths []string
	for _, name := range secrets.Names() {
		paths = append(paths, filepath.Join(filepath.Dir(c.Source), name))
	}

	return paths
}

// NewSecretsPath is the file that new secrets are written to.
func (c *Cluster) NewSecretsPath(encrypted bool) string {
	switch {
	case c.Profile != nil:
		return c.Profile.SecretsFile
	case encrypted:
		return filepath.Join(filepath.Dir(c.Source), secrets.EncryptedName)
	default:
		return filepath.Join(filepath.Dir(c.Source), secrets.PlainName)
	}
}

// MisnamedSecrets are files that hold the cluster's secrets by their names, but for a slip, where there is no other.
func (c *Cluster) MisnamedSecrets() []string {
	if c.SecretsPath() != "" {
		return nil
	}

	paths := c.SecretsPaths()

	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}

	return secrets.NearMisses(filepath.Dir(paths[0]), names...)
}

// ProperSecretsName is what a misnamed file should be called.
func (c *Cluster) ProperSecretsName(misnamed string) string {
	return filepath.Base(c.NewSecretsPath(strings.Contains(misnamed, ".sops")))
}

// AmbiguousSecrets warns of each file that may hold the cluster's secrets beside the one that is read.
func (c *Cluster) AmbiguousSecrets() []diagnosis.Finding {
	var findings []diagnosis.Finding

	for _, path := range c.PassedOverSecrets() {
		read, other := c.Files.Shown(c.SecretsPath()), c.Files.Shown(path)

		findings = append(findings, diagnosis.Finding{
			ID: diagnosis.SecretsAmbiguous, Severity: diagnosis.Warning, Exit: diagnosis.ExitBadInput,
			Cause: fmt.Sprintf("%s and %s are both there: %s is read, as talhelper does, and the other one is not", read, other,
				read),
			Next: "keep the one that the nodes' configs were made from, and move the other one away",
			At:   diagnosis.Location{Path: other},
		})
	}

	return findings
}
