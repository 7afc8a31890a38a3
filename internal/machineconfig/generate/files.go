package generate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-mage/talos-mage/internal/cluster/yamlfile"
	"github.com/talos-mage/talos-mage/internal/diagnosis"
)

// files are the @files that were read so far, by path; each is read once.
type files map[string]*file

// file is an @file. Its mistakes are shown at its own path.
type file struct {
	yamlfile.Source

	path string
	text string
	// unusable is set when the mistake is told already.
	unusable bool
}

// open reads the file of a reference @path, which stands at a place of the talconfig.
func (c *cluster) open(place *yaml.Node, reference string) *file {
	path := strings.TrimSpace(strings.TrimPrefix(reference, "@"))
	if path == "" {
		c.At(place, diagnosis.FileValue, "%q names no file", reference)

		return &file{unusable: true}
	}

	if !filepath.IsAbs(path) {
		path = filepath.Join(c.folder, path)
	}

	if known := c.files[path]; known != nil {
		return known
	}

	opened := &file{Source: c.Source, path: path}
	opened.Shown = yamlfile.ShownPath(c.source.Root, path)
	c.files[path] = opened

	data, err := os.ReadFile(path)
	if err != nil {
		mistake := c.Mistake(place, diagnosis.FileUnreadable, "file %s can't be read", opened.Shown)
		if os.IsNotExist(err) {
			mistake = c.Mistake(place, diagnosis.FileMissing, "file %s does not exist", opened.Shown)
		}

		mistake.Err = err
		c.Add(mistake)

		opened.unusable = true

		return opened
	}

	opened.text = c.source.decrypted(c.Source, place, opened, data)

	return opened
}

// decrypted is the text of a file that sops may have encrypted. A mistake is told of a place in the file that names it.
func (s Source) decrypted(in yamlfile.Source, place *yaml.Node, opened *file, data []byte) string {
	if !bytes.Contains(data, []byte("ENC[AES256_GCM,")) {
		return string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	}

	if s.Decrypt == nil {
		in.At(place, diagnosis.FileUnreadable, "file %s is encrypted by sops, and can't be decrypted here", opened.Shown)

		opened.unusable = true

		return ""
	}

	plain, err := s.Decrypt(opened.path, data)
	if err != nil {
		mistake := in.Mistake(place, diagnosis.FileUnreadable, "file %s can't be decrypted: %s", opened.Shown, err)
		mistake.Err = err
		in.Add(mistake)

		opened.unusable = true
	}

	return string(plain)
}

// content is a text that is given as such, or as @file. The variables in a file's text are replaced, but for lines that
// are comments.
func (c *cluster) content(place *yaml.Node, text string, asIs bool) string {
	if !strings.HasPrefix(text, "@") || strings.TrimSpace(text) == "@" {
		return text
	}

	opened := c.open(place, text)
	if asIs || !strings.Contains(opened.text, "$") {
		return opened.text
	}

	var replaced strings.Builder

	number := 0

	for line := range strings.Lines(opened.text) {
		number++

		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			scalar := &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.LiteralStyle, Value: line, Line: number, Column: 1}
			c.variables.SubstituteForeign(opened.Source, scalar)
			line = scalar.Value
		}

		replaced.WriteString(line)
	}

	return replaced.String()
}
