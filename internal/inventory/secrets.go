package inventory

import (
	"os"
	"path/filepath"

	"github.com/talos-mage/talos-mage/internal/secrets"
)

// SecretsPath is the file that the cluster's secrets are read from; empty if there is none.
func (c *Cluster) SecretsPath() string {
	if c.Profile == nil {
		return secrets.Find(filepath.Dir(c.Source))
	}

	if _, err := os.Stat(c.Profile.SecretsFile); err != nil {
		return ""
	}

	return c.Profile.SecretsFile
}

// secretsPaths are all files that may hold the cluster's secrets.
func (c *Cluster) secretsPaths() []string {
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

// MisnamedSecrets are files that hold the cluster's secrets by their names, but for a slip, where there is no other. A profile names its file.
func (c *Cluster) MisnamedSecrets() []string {
	if c.Profile != nil {
		return nil
	}

	return secrets.NearMisses(filepath.Dir(c.Source))
}
