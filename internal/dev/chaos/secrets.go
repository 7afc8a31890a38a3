package chaos

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// secretFields are the fields of machine configs, talosconfigs and kubeconfigs whose values are secret.
var secretFields = []string{
	"key", "token", "secret", "bootstraptoken", "aescbcEncryptionSecret", "secretboxEncryptionSecret", "client-key-data",
}

// secretsBelow collects the secrets of all files in a folder and of a kubeconfig, each also in the pieces that a text
// may be broken into.
func secretsBelow(folder, kubeconfig string) ([]string, error) {
	found := map[string]bool{}

	collect := func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read secrets: %w", err)
		}

		return secretsOf(data, found)
	}

	err := filepath.WalkDir(filepath.Join(folder, "clusterconfig"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") {
			return err
		}

		return collect(path)
	})
	if err == nil {
		if _, missing := os.Stat(kubeconfig); missing == nil {
			err = collect(kubeconfig)
		}
	}

	secrets := make([]string, 0, len(found))
	for secret := range found {
		secrets = append(secrets, secret)
	}

	slices.Sort(secrets)

	return secrets, err
}

func secretsOf(data []byte, found map[string]bool) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))

	for {
		var document any

		err := decoder.Decode(&document)

		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("look for secrets: %w", err)
		}

		gather(document, found)
	}
}

// gather walks a document.
func gather(value any, found map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if text, ok := inner.(string); ok && slices.Contains(secretFields, key) {
				addSecret(text, found)
			}

			gather(inner, found)
		}
	case []any:
		for _, inner := range value {
			gather(inner, found)
		}
	}
}

// addSecret adds a secret; of a key in PEM, which is in base64 once more, also the lines.
func addSecret(text string, found map[string]bool) {
	const shortest = 8

	if len(text) < shortest {
		return
	}

	found[text] = true

	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !bytes.Contains(decoded, []byte("PRIVATE KEY")) {
		return
	}

	for line := range strings.Lines(string(decoded)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			found[line] = true
		}
	}
}
